"""The line graph of the complete graph on N atoms: which pairs touch which atoms.

Every unordered pair of atoms is one node, stored once in row-major order of the strict upper
triangle. Because each pair has two atoms and each atom N - 1 pairs, the incidence matrix of the
paper is an index, never an (N, M) mask: gathering costs O(N^2).

Letters: B graphs, N atoms, M = N(N-1)/2 pairs, C channels.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LineGraph:
    """Index tensors for one number of atoms, on one device.

    Attributes:
        n_atoms: N.
        first: Lower atom of each pair, int64 (M,).
        second: Higher atom of each pair, int64 (M,).
        both: Lower and higher atom of each pair in turn, int64 (2 M,).
        square: Pair of two atoms, M on the diagonal, int64 (N * N,).
        incident: Pairs at each atom, ordered by the other atom, int64 (N * (N - 1),).
        at_first: Index into `incident` of each pair at its lower atom, int64 (M,).
        at_second: Index into `incident` of each pair at its higher atom, int64 (M,).
        endpoint: Index of each `incident` entry in a list of 2 M endpoints, int64 (N, N - 1).
    """

    n_atoms: int
    first: Tensor
    second: Tensor
    both: Tensor
    square: Tensor
    incident: Tensor
    at_first: Tensor
    at_second: Tensor
    endpoint: Tensor

    @property
    def n_pairs(self) -> int:
        """M."""
        return self.first.numel()


@cache  # never dropped: captured CUDA graphs know these tensors by their address alone
@torch.inference_mode(False)  # kept for training too, whichever asks first
def line_graph(n_atoms: int, device: torch.device) -> LineGraph:
    """Build the index tensors for N atoms (N >= 2); cached, as every batch of that size uses them.

    Args:
        n_atoms: N.
        device: Where the tensors shall lie.
    """
    first, second = torch.triu_indices(n_atoms, n_atoms, offset=1)
    n_pairs = first.numel()
    number = torch.arange(n_pairs)
    square = torch.full((n_atoms, n_atoms), n_pairs)
    square[first, second] = number
    square[second, first] = number
    # Row i of `incident` skips atom i itself, so the column of atom j is j - 1 where j > i.
    incident = square.gather(1, _others(n_atoms, square.device)).flatten()
    at_first = first * (n_atoms - 1) + second - 1
    at_second = second * (n_atoms - 1) + first
    endpoint = incident * 2
    endpoint[at_second] += 1
    both = torch.stack([first, second], 1).flatten()
    endpoint = endpoint.unflatten(0, (n_atoms, n_atoms - 1))
    parts = (first, second, both, square.flatten(), incident, at_first, at_second, endpoint)
    return LineGraph(n_atoms, *(part.to(device) for part in parts))


class _Incident(torch.autograd.Function):
    """Gather whose backward is a gather too: each pair appears at exactly two atoms."""

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, incident: Tensor, low: Tensor, high: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(low, high)
        return pairs.index_select(1, incident)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        low, high = ctx.saved_tensors
        return grad.index_select(1, low) + grad.index_select(1, high), None, None, None


class _Endpoints(torch.autograd.Function):
    """Gather of both atoms of each pair; the backward sums over each atom's N - 1 pairs."""

    @staticmethod
    def forward(ctx: Any, atoms: Tensor, both: Tensor, endpoint: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(endpoint)
        return atoms.index_select(1, both)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (endpoint,) = ctx.saved_tensors
        return (
            grad.index_select(1, endpoint.flatten()).unflatten(1, endpoint.shape).sum(2),
            None,
            None,
        )


def incident_pairs(pairs: Tensor, graph: LineGraph) -> Tensor:
    """States of the pairs at every atom.

    Args:
        pairs: (B, M, C).
        graph: Line graph of N atoms.

    Returns:
        (B, N, N - 1, C); entry k of atom i belongs to its k-th other atom in ascending order.
    """
    n = graph.n_atoms
    if torch.is_grad_enabled():
        flat: Tensor = _Incident.apply(  # type: ignore[no-untyped-call]
            pairs, graph.incident, graph.at_first, graph.at_second
        )
    else:
        flat = pairs.index_select(1, graph.incident)
    return torch.unflatten(flat, 1, (n, n - 1))


def endpoint_atoms(atoms: Tensor, graph: LineGraph) -> Tensor:
    """States of the two atoms of every pair, (B, N, C) to (B, M, 2, C)."""
    if torch.is_grad_enabled():
        flat: Tensor = _Endpoints.apply(  # type: ignore[no-untyped-call]
            atoms, graph.both, graph.endpoint
        )
    else:
        flat = atoms.index_select(1, graph.both)
    return torch.unflatten(flat, 1, (-1, 2))


def to_square(pairs: Tensor, graph: LineGraph) -> Tensor:
    """Symmetric matrix with a zero diagonal, (B, M, C) to (B, N, N, C)."""
    padded = torch.nn.functional.pad(pairs, (0, 0, 0, 1))
    n = graph.n_atoms
    return torch.unflatten(padded.index_select(1, graph.square), 1, (n, n))


def incident_mask(atom_mask: Tensor, graph: LineGraph) -> Tensor:
    """Which incident pairs have a real other atom, bool (B, N) to (B, N, N - 1)."""
    return atom_mask[:, _others(graph.n_atoms, atom_mask.device)]


def _others(n_atoms: int, device: torch.device) -> Tensor:
    """For each atom all others in ascending order, int64 (N, N - 1)."""
    atom = torch.arange(n_atoms, device=device)
    return atom[:-1] + (atom[:-1] >= atom[:, None]).long()


def pair_mask(atom_mask: Tensor, graph: LineGraph) -> Tensor:
    """Which pairs have two real atoms, bool (B, N) to (B, M)."""
    return atom_mask[:, graph.first] & atom_mask[:, graph.second]
