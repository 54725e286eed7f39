"""Which rows are real, and statistics over them.

Letters: B graphs, N atoms, M pairs, L rows, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from duallgd_cli.model.line_graph import LineGraph, incident_mask, pair_mask


@dataclass(frozen=True, eq=False)
class RealRows:
    """Masks of one batch; True = keep. None of them changes within a forward pass.

    Attributes:
        graph: Of N atoms.
        atoms: bool (B, N).
        edges: Ordered pairs of real atoms, an atom with itself included, bool (B, N, N).
        pairs: bool (B, M).
        incident: Pairs at each atom that have a real other atom, bool (B, N, N - 1).
        padded: Whether any atom of the batch is padding.
    """

    graph: LineGraph
    atoms: Tensor
    edges: Tensor
    pairs: Tensor
    incident: Tensor
    padded: bool

    @classmethod
    def of(cls, atom_mask: Tensor, graph: LineGraph) -> "RealRows":
        """All masks from that of the atoms, bool (B, N)."""
        edges = atom_mask[:, :, None] & atom_mask[:, None, :]
        pairs, incident = pair_mask(atom_mask, graph), incident_mask(atom_mask, graph)
        return cls(graph, atom_mask, edges, pairs, incident, not bool(atom_mask.all()))


def masked_mean(rows: Tensor, mask: Tensor) -> Tensor:
    """Mean over real rows, (B, L, C) and (B, L) to (B, C); zero where there is none."""
    weight = mask.to(rows.dtype).unsqueeze(-1)
    return (rows * weight).sum(1) / weight.sum(1).clamp_min(1)


def pooled(rows: Tensor, mask: Tensor) -> Tensor:
    """Mean, minimum, maximum and biased variance over real rows.

    Args:
        rows: (B, L, C).
        mask: Real rows, bool (B, L); at least one of each graph.

    Returns:
        (B, 4 C). Reference: its "standard deviation" is the variance.
    """
    keep = mask.unsqueeze(-1)
    mean = masked_mean(rows, mask)
    least = rows.masked_fill(~keep, torch.inf).amin(1)
    most = rows.masked_fill(~keep, -torch.inf).amax(1)
    variance = masked_mean((rows - mean.unsqueeze(1)).square(), mask)
    return torch.cat([mean, least, most, variance], -1)


def pooled_whole(rows: Tensor) -> Tensor:
    """What `pooled` gives where all rows are real, at a fifth of the cost."""
    mean = rows.mean(1)
    variance = (rows - mean.unsqueeze(1)).square().mean(1)
    return torch.cat([mean, rows.amin(1), rows.amax(1), variance], -1)
