"""Attention, exact and by random features, and along the line graph, against the formulas."""

import pytest
import torch
from torch.nn import functional

from duallgd_cli.model.layers import AtomsFromPairs, PairsFromAtoms, incident_mask, line_graph
from duallgd_cli.model.tensors import (
    favor_attention,
    linear,
    orthogonal_features,
    projection,
    softmax_attention,
)
from tests.made_graphs import dense_attention, incidence

BATCH, TOKENS, HEADS, WIDTH = 2, 7, 2, 8
PRECISIONS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def made(scale=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    shape = (BATCH, TOKENS, HEADS * WIDTH)
    query, key, value = (torch.randn(shape, generator=generator) for _ in range(3))
    mask = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    mask[1, 5:] = False
    return (query * scale).to(dtype), (key * scale).to(dtype), value.to(dtype), mask


def favor(query, key, value, mask, drawn):
    weight = projection(drawn, value.dtype)
    return favor_attention(linear(query, weight), linear(key, weight), key, value, mask, len(drawn))


def features(n_features):
    generator = torch.Generator().manual_seed(3)
    return torch.stack([orthogonal_features(n_features, WIDTH, generator) for _ in range(HEADS)])


def test_softmax_attention_is_the_textbook_formula_which_favor_approaches_as_features_grow():
    query, key, value, mask = made(0.7)
    exact = softmax_attention(query, key, value, mask, HEADS)

    def error(n_features):
        drawn = torch.randn(8, HEADS, n_features, WIDTH, generator=torch.Generator().manual_seed(3))
        found = [favor(query, key, value, mask, one) - exact for one in drawn]
        return float(torch.stack(found).abs().mean())

    few, more, most = error(16), error(256), error(4096)

    torch.testing.assert_close(exact, dense_attention(query, key, value, mask[:, None], HEADS))
    assert few > 2 * more > 4 * most
    assert most < 0.05


@PRECISIONS
def test_favor_attention_is_its_formula_head_by_head(dtype):
    *given, mask = made(dtype=dtype)
    query, key, value = (x.float() for x in given)
    drawn, parts = features(10), []
    for head in range(HEADS):
        own = slice(head * WIDTH, (head + 1) * WIDTH)
        q, k = (x[..., own] * WIDTH**-0.25 for x in (query, key))
        q_phi, k_phi = (
            torch.exp(x @ drawn[head].T - x.square().sum(-1, keepdim=True) / 2) for x in (q, k)
        )
        weight = q_phi @ (k_phi * mask[..., None]).transpose(1, 2)
        parts.append(weight @ value[..., own] / (weight.sum(-1, keepdim=True) + 1e-6))

    got = favor(*given, mask, drawn)

    near = {torch.float32: 1e-5, torch.bfloat16: 0.03}[dtype]
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), torch.cat(parts, -1), atol=near, rtol=10 * near)
    assert favor(*made(40.0, dtype), drawn).isfinite().all()  # large states


def test_random_features_are_orthogonal_as_long_as_gaussian_rows_and_have_no_preferred_side():
    drawn = orthogonal_features(40_000, WIDTH, torch.Generator().manual_seed(4))

    products = drawn[:WIDTH] @ drawn[:WIDTH].T
    assert drawn.shape == (40_000, WIDTH)
    assert (products - torch.diag(products.diagonal())).abs().max() < 1e-4
    assert abs(float(drawn.square().sum(1).mean()) - WIDTH) < 0.1  # E |w|^2 = D
    assert drawn.mean(0).abs().max() < 5 / 200


CPU = torch.device("cpu")
ATOM, PAIR, INNER = 6, 10, 8


def states(n, cls):
    """Atoms and pairs, the line graph, and a module that attends along it."""
    generator = torch.Generator().manual_seed(n)
    atoms = torch.randn(BATCH, n, ATOM, generator=generator, dtype=torch.float64)
    pairs = torch.randn(BATCH, n * (n - 1) // 2, PAIR, generator=generator, dtype=torch.float64)
    torch.manual_seed(1)
    widths = (ATOM, PAIR) if cls is AtomsFromPairs else (PAIR, ATOM)
    return atoms, pairs, line_graph(n, CPU), cls(*widths, INNER, HEADS).double()


@pytest.mark.parametrize(("n", "n_real"), [(2, 2), (3, 2), (9, 8)])
def test_an_atom_attends_to_its_pairs_as_under_the_dense_mask(n, n_real):
    """But not to those with padded atoms."""
    atoms, pairs, graph, attention = states(n, AtomsFromPairs)
    real = torch.ones(BATCH, n, dtype=torch.bool)
    real[1, n_real:] = False

    got = attention(atoms, pairs, incident_mask(real, graph), graph)

    mask = incidence(n) & (real[:, graph.first] & real[:, graph.second])[:, None, :]
    mask = mask | ~real[:, :, None]  # rows of padded atoms mean nothing, and must not be NaN here
    mixed = dense_attention(
        attention.query(atoms), attention.key(pairs), attention.value(pairs), mask, HEADS
    )
    # The softmax itself runs in float32, whatever the states are in.
    torch.testing.assert_close(got[real], attention.out(mixed)[real], atol=1e-6, rtol=1e-6)
    assert got.isfinite().all()
    alone = torch.arange(n).expand(BATCH, n) == 0  # an atom without any real pair
    got = attention(atoms, pairs, incident_mask(alone, graph), graph)
    torch.testing.assert_close(got[:, 0], attention.out.bias.expand(BATCH, -1))


@pytest.mark.parametrize("n", [2, 3, 9])
def test_a_pair_attends_to_its_two_atoms_by_a_softmax_over_two(n):
    atoms, pairs, graph, attention = states(n, PairsFromAtoms)

    got = attention(pairs, atoms, graph)

    mixed = dense_attention(
        attention.query(pairs), attention.key(atoms), attention.value(atoms), incidence(n).T, HEADS
    )
    torch.testing.assert_close(got, attention.out(mixed))


def operands(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    parts = (shape, (24, shape[-1]), (24,))
    return [torch.randn(part, generator=generator).to(dtype) for part in parts]


@pytest.mark.parametrize("shape", [(1, 8), (40, 8), (3, 7, 33), (2, 5, 4, 64), (0, 3, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
@torch.inference_mode()
def test_without_gradients_the_result_is_that_of_the_formula(shape, dtype):
    x, weight, bias = operands(*shape, dtype=dtype)
    rest = torch.randn(*shape[:-1], 24).to(dtype)
    near = {"atol": 2e-5, "rtol": 1e-5} if dtype.itemsize > 2 else {"atol": 0.05, "rtol": 0.02}

    for bias_given in (bias, None):
        double = [None if part is None else part.double() for part in (x, weight, bias_given)]
        expected = functional.linear(*double)
        got = linear(x, weight, bias_given)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), expected, **near)
        got = linear(x, weight, bias_given, relu=True)
        torch.testing.assert_close(got.double(), expected.relu(), **near)
    got = linear(x, weight, bias, onto=rest)
    torch.testing.assert_close(
        got.double(),
        rest.double() + functional.linear(*map(torch.Tensor.double, (x, weight, bias))),
        **near,
    )


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_autocast_decides_the_precision(stored):
    x, weight, bias = operands(50, 16)

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        got = linear(x, weight.to(stored), bias.to(stored), relu=True)
        expected = functional.linear(x, weight, bias).relu()

    assert got.dtype == torch.bfloat16
    assert torch.equal(got, expected)
