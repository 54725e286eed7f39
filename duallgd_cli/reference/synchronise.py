"""Cross-attention between the streams, and the paper's ablations of it, as replaceable parts.

Letters: B graphs, N atoms, M pairs, H heads, D channels of a head, C channels of an atom, E of a
pair.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from duallgd_cli.model.incidence import AtomsFromPairs, PairsFromAtoms, attend_all
from duallgd_cli.model.line_graph import LineGraph, incident_pairs
from duallgd_cli.reference.rows import RealRows
from duallgd_cli.reference.settings import ReferenceDenoiserSettings


class WideAtomsFromPairs(AtomsFromPairs):
    """Each atom attends to its pairs, where the heads together are wider than a pair.

    The same function of the same parameters: the key and value projections move from the pairs to
    the queries and to the attended sums, of which there are (N - 1) / 2 times fewer. The key's bias
    adds the same to every score of a query, which a softmax does not see.
    """

    def __init__(self, atom_width: int, pair_width: int, heads: int) -> None:
        super().__init__(atom_width, pair_width, atom_width, heads)
        self.heads = heads

    def forward(self, atoms: Tensor, pairs: Tensor, mask: Tensor, graph: LineGraph) -> Tensor:
        """Change of the atom states, as in `AtomsFromPairs`."""
        query = self.query(atoms).unflatten(-1, (self.heads, -1))  # (B, N, H, D)
        key_weight = self.key.weight.unflatten(0, (self.heads, -1))  # (H, D, E)
        value_weight = self.value.weight.unflatten(0, (self.heads, -1))
        query = torch.einsum("bnhd,hde->bnhe", query * query.shape[-1] ** -0.5, key_weight)
        near = incident_pairs(pairs, graph)  # (B, N, N-1, E)
        score = query @ near.transpose(2, 3)  # (B, N, H, N-1)
        score = score.to(torch.promote_types(score.dtype, torch.float32))
        keep = mask.unsqueeze(2)
        weight = torch.softmax(score.masked_fill(~keep, torch.finfo(score.dtype).min), 3) * keep
        seen = weight.to(near.dtype) @ near  # (B, N, H, E)
        mixed = torch.einsum("bnhe,hde->bnhd", seen, value_weight)
        share = weight.sum(3, keepdim=True).to(mixed.dtype)  # zero for an atom without pairs
        mixed = mixed + share * self.value.bias.unflatten(0, (self.heads, -1))
        return self.out(mixed.flatten(2))


class Synchronisation(nn.Module):
    """Both directions in turn: atoms from pairs, then pairs from the new atoms."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        atom, pair, heads = settings.atom_width, settings.edge_width, settings.heads
        self.atoms = WideAtomsFromPairs(atom, pair, heads)
        self.pairs = PairsFromAtoms(atom, pair, pair, heads)

    def forward(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, C) and pairs (B, M, E)."""
        atoms = atoms + self.atoms(atoms, pairs, real.incident, real.graph)
        return atoms, pairs + self.pairs(pairs, atoms, real.graph)


class AtomsAlone(nn.Module):
    """Atoms from pairs, and nothing back (the paper's B->A)."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.atoms = WideAtomsFromPairs(settings.atom_width, settings.edge_width, settings.heads)

    def forward(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, C) and the same pairs."""
        return atoms + self.atoms(atoms, pairs, real.incident, real.graph), pairs


class PairsAlone(nn.Module):
    """Pairs from atoms, and nothing back (the paper's A->B)."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        atom, pair = settings.atom_width, settings.edge_width
        self.pairs = PairsFromAtoms(atom, pair, pair, settings.heads)

    def forward(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """The same atoms and new pairs (B, M, E)."""
        return atoms, pairs + self.pairs(pairs, atoms, real.graph)


class NoSynchronisation(nn.Module):
    """The streams meet in the global state alone."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        del settings

    def forward(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """Both as they are."""
        del real
        return atoms, pairs


class UnmaskedSynchronisation(Synchronisation):
    """Both directions without the incidence mask: every atom attends to every pair and back.

    Reference: this ablation also differs in the rest. Both inputs are normalised, both directions
    read the states from before, and each change is scaled by the root of how much wider it looks.
    """

    def forward(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, C) and pairs (B, M, E)."""
        n_atoms = real.atoms.sum(1).clamp_min(1).view(-1, 1, 1)
        n_pairs = real.pairs.sum(1).clamp_min(1).view(-1, 1, 1)
        normed_atoms = layer_norm(atoms, atoms.shape[-1:])
        normed_pairs = layer_norm(pairs, pairs.shape[-1:])
        to_atoms = attend_all(self.atoms, normed_atoms, normed_pairs, real.pairs)
        to_pairs = attend_all(self.pairs, normed_pairs, normed_atoms, real.atoms)
        atoms = atoms + to_atoms * ((n_atoms - 1) / n_pairs).clamp(max=1).sqrt()
        return atoms, pairs + to_pairs * (2 / n_atoms).clamp(max=1).sqrt()
