"""Extra features that the reference computes from a noisy graph at every step.

Laplacian eigenvectors of disconnected graphs are LAPACK's choice, so the four atom features that
rest on them are not the same on every machine. Letters: B graphs, N atoms, M pairs.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from duallgd_authors_network.core import (
    UnsupportedElementError,
    line_graph,
    pair_mask,
)
from duallgd_authors_network.denoiser import NoisyGraphs, square_of
from duallgd_authors_network.settings import ReferenceSettings

N_EIGENVALUES: Final = 5
N_EIGENVECTORS: Final = 2
# Features of an atom besides its element: 3 cycles, 1 component, eigenvectors, charge, valency.
N_ATOM_FEATURES: Final = 6 + N_EIGENVECTORS
# Size, 4 cycles, components, eigenvalues, weight, time.
N_GRAPH_FEATURES: Final = 8 + N_EIGENVALUES
# What an eigenvalue that a small graph does not have counts as.
_MISSING_EIGENVALUE: Final = 2.0
_ZERO: Final = 1e-5
_CYCLE_SCALE: Final = 10.0
# Integer masses by element; the largest in the authors' vocabulary divides a graph's sum.
_MASSES_DA: Final = {"C": 12, "O": 16, "P": 31, "N": 14, "S": 32, "Cl": 35, "F": 19, "H": 1}


def atoms_of(
    symbols: Sequence[str], settings: ReferenceSettings, device: torch.device | None = None
) -> Tensor:
    """One graph's atoms in the network's vocabulary, int64 (1, N).

    The network sees their order. In the order of the true molecule's canonical SMILES, as the
    authors test, it reads part of the answer; in any order that a formula determines, it does not.

    Raises:
        UnsupportedElementError: Elements that the network was not trained on.
    """
    known = {symbol: index for index, symbol in enumerate(settings.atom_symbols)}
    foreign = sorted(set(symbols) - known.keys())
    if foreign:
        raise UnsupportedElementError(
            f"these weights do not know {', '.join(foreign)}; they know "
            f"{' '.join(settings.atom_symbols)}"
        )
    return torch.tensor([[known[symbol] for symbol in symbols]], device=device)


def with_features(
    settings: ReferenceSettings,
    atom_class: Tensor,
    atom_mask: Tensor,
    bond_class: Tensor,
    time: Tensor,
    condition: Tensor,
    diagonal: int = 0,
) -> NoisyGraphs:
    """The denoiser's input for noisy graphs; see `NoisyGraphs`.

    Atoms are indices into the settings' `atom_symbols`, int64 (B, N), time is t / T, (B,).
    """
    mask, symbols = atom_mask, settings.atom_symbols
    line = line_graph(mask.shape[1], bond_class.device)
    bond_class = bond_class.masked_fill(~pair_mask(mask, line), 0)
    square = square_of(bond_class, 0, line)
    adjacency = (square > 0).float()
    of_atoms, of_graph = cycles(adjacency)
    components, eigenvalues, outside, eigenvectors = laplacian(adjacency, mask)
    valency = square.sum(2, keepdim=True).float()
    # Reference: a class's index stands for its valence, for bonds and for atoms alike.
    charge = atom_class.unsqueeze(2) - valency
    types = one_hot(atom_class, len(symbols)).float()
    atoms = [types, of_atoms, outside, eigenvectors, charge, valency]
    n = mask.sum(1, keepdim=True).float()
    whole = [n / settings.max_atoms, of_graph, components, eigenvalues]
    # Sum of integer masses over the largest mass of the vocabulary.
    masses = torch.tensor([_MASSES_DA[symbol] for symbol in symbols], device=mask.device)
    weight = (masses / masses.max())[atom_class] * mask
    whole += [weight.sum(1, keepdim=True), time.unsqueeze(1)]
    features = torch.cat(atoms, 2) * mask.unsqueeze(2)
    return NoisyGraphs(features, bond_class, condition, torch.cat(whole, 1), mask, diagonal)


def cycles(adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of cycles, divided by ten and at most one, from adjacency without diagonal (B, N, N).

    Closed walks of a length, less those that are no cycle (formulas of Harary and Manvel).

    Returns:
        Cycles of 3, 4 and 5 atoms through each atom, (B, N, 3), and of 3 to 6 in each graph (B, 4).
    """
    a1 = adjacency
    a2 = a1 @ a1
    a3, a4 = a2 @ a1, a2 @ a2
    a5 = a4 @ a1
    degree = a1.sum(2)
    at3, at4, at5 = (_diagonal(power) for power in (a3, a4, a5))
    three = at3 / 2
    four = (at4 - degree * (degree - 1) - _neighbours(a1, degree)) / 2
    triangles = a1 * a2  # those that each bond is part of
    spurs = 2 * (at3 * degree + _neighbours(triangles, degree)) + _neighbours(a1, at3)
    five = (at5 - spurs + 5 * at3) / 2
    of_atoms = torch.stack([three, four, five], 2)
    totals = [three.sum(1) / 3, four.sum(1) / 4, five.sum(1) / 5, _six(a1, a2, a3, a4)]
    of_graph = torch.stack(totals, 1)
    return (of_atoms / _CYCLE_SCALE).clamp(max=1), (of_graph / _CYCLE_SCALE).clamp(max=1)


def laplacian(adjacency: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the Laplacians of graphs say, from adjacency (B, N, N) and real atoms (B, N).

    Returns:
        Number of connected components, (B, 1); the lowest eigenvalues above zero, divided by the
        number of atoms, (B, N_EIGENVALUES); whether an atom lies outside the largest component,
        (B, N, 1); the lowest eigenvectors above zero, (B, N, N_EIGENVECTORS).
    """
    n = adjacency.shape[1]
    matrix = torch.diag_embed(adjacency.sum(2)) - adjacency
    # Padded atoms sort behind all others.
    matrix = matrix + torch.diag_embed((~mask).float() * 2 * n)
    value, vector = torch.linalg.eigh(matrix)
    real = mask.sum(1, keepdim=True)
    value, vector = value / real, vector * mask.unsqueeze(2)
    components = (value < _ZERO).sum(1, keepdim=True).clamp_min(1)
    later = components + torch.arange(N_EIGENVALUES, device=value.device)
    lowest = torch.where(later < real, value.gather(1, later.clamp_max(n - 1)), _MISSING_EIGENVALUE)
    which = later[:, :N_EIGENVECTORS]
    columns = vector.gather(2, which.clamp_max(n - 1).unsqueeze(1).expand(-1, n, -1))
    columns = columns * (which < real).unsqueeze(1)
    return components.float(), lowest, _outside(vector[:, :, 0], mask), columns


def _outside(first: Tensor, mask: Tensor) -> Tensor:
    """Atoms whose entry of the first eigenvector is not the most frequent one, (B, N, 1)."""
    rounded = torch.round(first, decimals=3)
    same = (rounded.unsqueeze(2) == rounded.unsqueeze(1)) & mask.unsqueeze(1)
    # The smallest of the most frequent values, as a statistical mode is defined.
    count = same.sum(2) * mask
    frequent = (count == count.amax(1, keepdim=True)) & mask
    mode = rounded.masked_fill(~frequent, torch.inf).amin(1, keepdim=True)
    return ((rounded != mode) & mask).float().unsqueeze(2)


def _six(a1: Tensor, a2: Tensor, a3: Tensor, a4: Tensor) -> Tensor:
    """Cycles of six atoms in each graph, (B,)."""
    at2, at3, at4 = (_diagonal(power) for power in (a2, a3, a4))
    terms = [
        (a3 * a3).sum((1, 2)),
        -3 * at3.square().sum(1),
        9 * (a1 * a2.square()).sum((1, 2)),
        -6 * (at2 * at4).sum(1),
        6 * at4.sum(1),
        -4 * at3.sum(1),
        4 * at2.pow(3).sum(1),
        3 * a3.sum((1, 2)),
        -12 * at2.square().sum(1),
        4 * at2.sum(1),
    ]
    return torch.stack(terms).sum(0) / 12


def _neighbours(adjacency: Tensor, of_atom: Tensor) -> Tensor:
    """Weighted sum over the neighbours of each atom, (B, N)."""
    return (adjacency @ of_atom.unsqueeze(2)).squeeze(2)


def _diagonal(square: Tensor) -> Tensor:
    return square.diagonal(dim1=1, dim2=2)
