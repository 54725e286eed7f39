"""Gathers of the line graph against explicit incidence matrices, and their gradients."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.model.layers import (
    endpoint_atoms,
    incident_mask,
    incident_pairs,
    line_graph,
    pair_mask,
    to_square,
)
from tests.made_graphs import incidence


def made(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@given(st.lists(st.booleans(), min_size=2, max_size=9))
def test_pairs_stand_in_row_major_order_and_each_gather_is_its_incidence(real):
    n, mask = len(real), torch.tensor([real])
    graph = line_graph(n, torch.device("cpu"))
    pairs, atoms = made(2, n * (n - 1) // 2, 3), made(2, n, 3)
    written_out = [(i, j) for i in range(n) for j in range(i + 1, n)]

    square, near, ends = (
        to_square(pairs, graph),
        incident_pairs(pairs, graph),
        endpoint_atoms(atoms, graph),
    )

    assert graph.n_pairs == len(written_out)
    assert list(zip(graph.first.tolist(), graph.second.tolist(), strict=True)) == written_out
    assert torch.equal(square, square.transpose(1, 2))
    assert not square.diagonal(dim1=1, dim2=2).any()
    assert torch.equal(square[:, graph.first, graph.second], pairs)
    torch.testing.assert_close(ends.sum(2), incidence(n).double().T @ atoms)
    assert torch.equal(ends, torch.stack([atoms[:, graph.first], atoms[:, graph.second]], 2))
    both, incident = pair_mask(mask, graph), incident_mask(mask, graph)
    assert both[0].tolist() == [real[i] and real[j] for i, j in written_out]
    for i in range(n):
        others = [j for j in range(n) if j != i]
        assert torch.equal(near[:, i], square[:, i, others])
        assert incident[0, i].tolist() == [real[j] for j in others]


@given(st.integers(2, 5))
def test_gradients_of_all_gathers_are_right(n):
    graph = line_graph(n, torch.device("cpu"))
    pairs = made(2, n * (n - 1) // 2, 2).requires_grad_()
    atoms = made(2, n, 2).requires_grad_()

    assert torch.autograd.gradcheck(lambda x: incident_pairs(x, graph), pairs)
    assert torch.autograd.gradcheck(lambda x: endpoint_atoms(x, graph), atoms)
    assert torch.autograd.gradcheck(lambda x: to_square(x, graph), pairs)
