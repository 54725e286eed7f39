"""The reference denoiser as the sampler sees it: one ion's atoms and condition bound to it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from duallgd_cli.chem.elements import BOND_NONE
from duallgd_cli.errors import UnsupportedElementError
from duallgd_cli.reference.denoiser import ReferenceDenoiser
from duallgd_cli.reference.features import AtomsOfGraphs, with_features
from duallgd_cli.reference.settings import ReferenceSettings
from duallgd_cli.reference.structure import NO_CLASS


def atoms_of(symbols: Sequence[str], settings: ReferenceSettings) -> AtomsOfGraphs:
    """One graph's atoms in the network's vocabulary.

    The network sees their order. In the order of the true molecule's canonical SMILES, as the
    authors test, it reads part of the answer; in any order that a formula determines, it does not.

    Args:
        symbols: Element of each heavy atom, in the order to be used.
        settings: Of the network.

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
    atom_class = torch.tensor([[known[symbol] for symbol in symbols]])
    mask = torch.ones_like(atom_class, dtype=torch.bool)
    return AtomsOfGraphs(atom_class, mask, settings.atom_symbols, settings.max_atoms)


def bound(
    denoiser: ReferenceDenoiser,
    known: AtomsOfGraphs,
    condition: Tensor,
    n_steps: int,
    precision: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Callable[[Tensor, int], Tensor]:
    """The denoiser of one ion: noisy classes (S, M) and a step t to logits (S, M, classes).

    Args:
        denoiser: On the device of the condition.
        known: Atoms of one graph.
        condition: Its projected fingerprint, (1, condition_width).
        n_steps: T.
        precision: Context of the network's own products; the features, which are counts and
            eigenvectors, stay in float32.
    """
    device = condition.device
    atom_class, atom_mask = known.atom_class.to(device), known.atom_mask.to(device)

    def denoise(bond_class: Tensor, t: int) -> Tensor:
        samples = len(bond_class)
        atoms = AtomsOfGraphs(
            atom_class.expand(samples, -1),
            atom_mask.expand(samples, -1),
            known.symbols,
            known.max_atoms,
        )
        time = torch.full((samples,), t / n_steps, device=device)
        # Reference: before the first draw the diagonal is empty, afterwards it says "none".
        diagonal = NO_CLASS if t == n_steps else BOND_NONE
        graphs = with_features(atoms, bond_class, time, condition, diagonal)
        with precision():
            logits: Tensor = denoiser(graphs)
        return logits

    return denoise
