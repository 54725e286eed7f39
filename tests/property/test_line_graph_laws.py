"""Gathers of the line graph against explicit incidence matrices, and their gradients."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.model.line_graph import (
    endpoint_atoms,
    incident_mask,
    incident_pairs,
    line_graph,
    pair_mask,
    to_square,
)
from tests.made_graphs import incidence

CPU = torch.device("cpu")
SIZES = st.integers(2, 9)


def made(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@given(SIZES)
def test_pairs_stand_in_row_major_order_and_the_square_is_symmetric_with_an_empty_diagonal(n):
    graph, pairs = line_graph(n, CPU), made(2, n * (n - 1) // 2, 3)
    written_out = [(i, j) for i in range(n) for j in range(i + 1, n)]

    square = to_square(pairs, graph)

    assert torch.equal(square, square.transpose(1, 2))
    assert not square.diagonal(dim1=1, dim2=2).any()
    assert torch.equal(square[:, graph.first, graph.second], pairs)
    assert graph.n_pairs == len(written_out)
    assert list(zip(graph.first.tolist(), graph.second.tolist(), strict=True)) == written_out


@given(SIZES)
def test_pairs_of_atoms_are_ordered_by_the_other_and_atoms_of_pairs_are_their_incidence(n):
    graph, pairs, atoms = line_graph(n, CPU), made(1, n * (n - 1) // 2, 3), made(2, n, 3)
    square = to_square(pairs, graph)

    got, ends = incident_pairs(pairs, graph), endpoint_atoms(atoms, graph)

    torch.testing.assert_close(ends.sum(2), incidence(n).double().T @ atoms)
    assert torch.equal(ends[:, :, 0], atoms[:, graph.first])
    assert torch.equal(ends[:, :, 1], atoms[:, graph.second])
    for i in range(n):
        others = [j for j in range(n) if j != i]
        assert torch.equal(got[0, i], square[0, i, others])


@given(st.lists(st.booleans(), min_size=2, max_size=9))
def test_masks_say_which_pairs_have_two_real_atoms(real):
    n, mask = len(real), torch.tensor([real])
    graph = line_graph(n, CPU)

    pairs, incident = pair_mask(mask, graph), incident_mask(mask, graph)

    for m, (i, j) in enumerate(zip(graph.first.tolist(), graph.second.tolist(), strict=True)):
        assert bool(pairs[0, m]) == (real[i] and real[j])
    for i in range(n):
        assert incident[0, i].tolist() == [real[j] for j in range(n) if j != i]


@given(st.integers(2, 5))
def test_gradients_of_both_gathers_are_right(n):
    graph = line_graph(n, CPU)
    pairs = made(2, n * (n - 1) // 2, 2).requires_grad_()
    atoms = made(2, n, 2).requires_grad_()

    assert torch.autograd.gradcheck(lambda x: incident_pairs(x, graph), pairs)
    assert torch.autograd.gradcheck(lambda x: endpoint_atoms(x, graph), atoms)
    assert torch.autograd.gradcheck(lambda x: to_square(x, graph), pairs)
