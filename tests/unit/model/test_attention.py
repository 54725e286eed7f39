"""Attention, exact and by random features, and along the line graph, against the formulas."""

import pytest
import torch
from torch.nn import functional

from duallgd_cli.model.line_graph import AtomsFromPairs, PairsFromAtoms, incident_mask, line_graph
from duallgd_cli.model.tensors import (
    favor_attention,
    linear,
    orthogonal_features,
    projection,
    softmax_attention,
)
from tests.made_graphs import dense_attention, incidence

BATCH, TOKENS, HEADS, WIDTH = 2, 7, 2, 8


def made(scale=1.0):
    generator = torch.Generator().manual_seed(2)
    shape = (BATCH, TOKENS, HEADS * WIDTH)
    query, key, value = (torch.randn(shape, generator=generator) for _ in range(3))
    mask = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    mask[1, 5:] = False
    return query * scale, key * scale, value, mask


def favor(query, key, value, mask, drawn):
    weight = projection(drawn, value.dtype)
    return favor_attention(linear(query, weight), linear(key, weight), key, value, mask, len(drawn))


def features(n_features, seed=3):
    generator = torch.Generator().manual_seed(seed)
    drawn = [orthogonal_features(n_features, WIDTH, generator) for _ in range(HEADS)]
    return torch.stack(drawn)


def test_softmax_attention_is_the_textbook_formula():
    query, key, value, mask = made()

    got = softmax_attention(query, key, value, mask, HEADS)

    torch.testing.assert_close(got, dense_attention(query, key, value, mask[:, None], HEADS))


def test_favor_attention_approaches_softmax_as_features_grow():
    query, key, value, mask = made(0.7)
    exact = softmax_attention(query, key, value, mask, HEADS)

    def error(n_features):
        drawn = torch.randn(8, HEADS, n_features, WIDTH, generator=torch.Generator().manual_seed(3))
        found = [favor(query, key, value, mask, one) - exact for one in drawn]
        return float(torch.stack(found).abs().mean())

    few, more, most = error(16), error(256), error(4096)

    assert few > 2 * more > 4 * most
    assert most < 0.05


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_favor_attention_is_its_formula_head_by_head(dtype, near):
    *given, mask = made()
    query, key, value = (x.to(dtype).float() for x in given)
    drawn = features(10)
    parts = []
    for head in range(HEADS):
        own = slice(head * WIDTH, (head + 1) * WIDTH)
        q, k = (x[..., own] * WIDTH**-0.25 for x in (query, key))
        q_phi, k_phi = (
            torch.exp(x @ drawn[head].T - x.square().sum(-1, keepdim=True) / 2) for x in (q, k)
        )
        k_phi = k_phi * mask[..., None]
        weight = q_phi @ k_phi.transpose(1, 2)
        parts.append(weight @ value[..., own] / (weight.sum(-1, keepdim=True) + 1e-6))

    got = favor(*(x.to(dtype) for x in (query, key, value)), mask, drawn)

    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), torch.cat(parts, -1), atol=near, rtol=10 * near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", ["softmax", "favor"])
def test_padded_tokens_change_nothing(kernel, dtype):
    *given, mask = made()
    query, key, value = (x.to(dtype) for x in given)

    def attend(query, key, value, mask):
        if kernel == "softmax":
            return softmax_attention(query, key, value, mask, HEADS)
        return favor(query, key, value, mask, features(16))

    whole = attend(query, key, value, mask)
    noise = torch.where(mask[..., None], 0.0, 7.0).to(dtype)
    disturbed = attend(query, key + noise, value - noise, mask)
    alone = attend(query[1:, :5], key[1:, :5], value[1:, :5], mask[1:, :5])

    torch.testing.assert_close(disturbed[mask], whole[mask])
    near = {torch.float32: 1e-6, torch.bfloat16: 0.02}[dtype]
    torch.testing.assert_close(alone[0], whole[1, :5], atol=near, rtol=10 * near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_states_do_not_overflow_favor(dtype):
    *given, mask = made(40.0)
    query, key, value = (x.to(dtype) for x in given)

    got = favor(query, key, value, mask, features(16))

    assert got.isfinite().all()


def test_random_features_are_orthogonal_within_a_block_and_as_long_as_gaussian_rows():
    drawn = orthogonal_features(800, WIDTH, torch.Generator().manual_seed(4))

    block = drawn[:WIDTH]
    products = block @ block.T
    off_diagonal = products - torch.diag(products.diagonal())
    assert drawn.shape == (800, WIDTH)
    assert off_diagonal.abs().max() < 1e-4
    # E |w|^2 = D for a Gaussian row.
    assert abs(float(drawn.square().sum(1).mean()) - WIDTH) < 0.5


def test_random_features_have_no_preferred_side():
    drawn = orthogonal_features(40_000, WIDTH, torch.Generator().manual_seed(4))

    assert drawn.mean(0).abs().max() < 5 / 200


CPU = torch.device("cpu")
ATOM, PAIR, INNER = 6, 10, 8


def states(n):
    generator = torch.Generator().manual_seed(n)
    atoms = torch.randn(BATCH, n, ATOM, generator=generator, dtype=torch.float64)
    pairs = torch.randn(BATCH, n * (n - 1) // 2, PAIR, generator=generator, dtype=torch.float64)
    return atoms, pairs


def module(cls):
    torch.manual_seed(1)
    widths = (ATOM, PAIR) if cls is AtomsFromPairs else (PAIR, ATOM)
    return cls(*widths, INNER, HEADS).double()


@pytest.mark.parametrize(("n", "n_real"), [(2, 2), (3, 2), (9, 8)])
def test_an_atom_attends_to_its_pairs_as_under_the_dense_mask(n, n_real):
    """But not to those with padded atoms."""
    atoms, pairs = states(n)
    graph, attention = line_graph(n, CPU), module(AtomsFromPairs)
    real = torch.ones(BATCH, n, dtype=torch.bool)
    real[1, n_real:] = False

    got = attention(atoms, pairs, incident_mask(real, graph), graph)

    mask = incidence(n) & (real[:, graph.first] & real[:, graph.second])[:, None, :]
    mask = mask | ~real[:, :, None]  # rows of padded atoms mean nothing, and must not be NaN here
    mixed = dense_attention(
        attention.query(atoms), attention.key(pairs), attention.value(pairs), mask, HEADS
    )
    expected = attention.out(mixed)
    # The softmax itself runs in float32, whatever the states are in.
    torch.testing.assert_close(got[real], expected[real], atol=1e-6, rtol=1e-6)
    assert got.isfinite().all()


@pytest.mark.parametrize("n", [2, 3, 9])
def test_a_pair_attends_to_its_two_atoms_by_a_softmax_over_two(n):
    atoms, pairs = states(n)
    graph, attention = line_graph(n, CPU), module(PairsFromAtoms)

    got = attention(pairs, atoms, graph)

    mixed = dense_attention(
        attention.query(pairs), attention.key(atoms), attention.value(atoms), incidence(n).T, HEADS
    )
    torch.testing.assert_close(got, attention.out(mixed))


def test_a_molecule_without_any_real_pair_gives_no_nan():
    atoms, pairs = states(3)
    graph, attention = line_graph(3, CPU), module(AtomsFromPairs)
    real = torch.tensor([[True, False, False]]).expand(BATCH, 3)

    got = attention(atoms, pairs, incident_mask(real, graph), graph)

    torch.testing.assert_close(got[:, 0], attention.out.bias.expand(BATCH, -1))


def operands(*shape, width=24):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=generator)
    return x, torch.randn(width, shape[-1], generator=generator), torch.randn(width)


@pytest.mark.parametrize("shape", [(1, 8), (40, 8), (3, 7, 33), (2, 5, 4, 64), (0, 3, 8)])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_without_gradients_the_result_is_that_of_the_formula(shape, with_bias, relu):
    x, weight, bias = operands(*shape)
    expected = functional.linear(x.double(), weight.double(), bias.double() if with_bias else None)
    expected = expected.relu() if relu else expected

    with torch.inference_mode():
        got = linear(x, weight, bias if with_bias else None, relu=relu)

    torch.testing.assert_close(got.double(), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_product_is_added_to_what_is_there(dtype):
    x, weight, bias = (part.to(dtype) for part in operands(5, 8))
    rest = torch.randn(5, 24).to(dtype)

    with torch.inference_mode():
        got = linear(x, weight, bias, onto=rest)

    expected = rest.double() + functional.linear(*(part.double() for part in (x, weight, bias)))
    torch.testing.assert_close(got, expected.to(dtype), atol=1e-5, rtol=0.01)


def test_a_slice_of_a_wider_tensor_is_taken_as_it_is():
    x, weight, bias = operands(6, 10, 96)
    part = x[..., 32:64]

    with torch.inference_mode():
        got = linear(part, weight[:, :32], bias)

    expected = functional.linear(part.contiguous(), weight[:, :32].contiguous(), bias)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_precisions_are_those_of_pytorch(dtype):
    x, weight, bias = (part.to(dtype) for part in operands(5, 8))

    with torch.inference_mode():
        assert torch.equal(linear(x, weight, bias), functional.linear(x, weight, bias))


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_autocast_decides_the_precision(stored):
    x, weight, bias = operands(50, 16)

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        got = linear(x, weight.to(stored), bias.to(stored), relu=True)
        expected = functional.linear(x, weight, bias).relu()

    assert got.dtype == torch.bfloat16
    assert torch.equal(got, expected)
