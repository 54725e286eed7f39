"""The network's parts by their formulas: attention, the line graph, graph features, the encoder."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path
from torch.nn import functional

from duallgd_cli.chem.elements import HEAVY, LOWEST_VALENCES
from duallgd_cli.model import encoder as encoder_module
from duallgd_cli.model import layers, tensors
from duallgd_cli.model.duallgd import MAX_HOPS, MIN_PROBABILITY, graph_features, keep_bits
from duallgd_cli.model.encoder import FormulaTransformer, count_features
from duallgd_cli.model.layers import AtomsFromPairs, Masks, PairsFromAtoms, line_graph
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.model.tensors import (
    favor_attention,
    linear,
    orthogonal_features,
    projection,
    softmax_attention,
)
from tests.made_graphs import dense_attention, incidence, made_peaks, peak_batch, some_rows

BATCH, TOKENS, HEADS, WIDTH = 2, 7, 2, 8


def made(*shape, seed=2, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tokens(scale, dtype=torch.float32):
    """Queries, keys, values and the mask of two graphs, the second one shorter."""
    query, key, value = made(3, BATCH, TOKENS, HEADS * WIDTH)
    mask = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    mask[1, 5:] = False
    return (query * scale).to(dtype), (key * scale).to(dtype), value.to(dtype), mask


def favor(query, key, value, mask, drawn):
    weight = projection(drawn, value.dtype)
    return favor_attention(linear(query, weight), linear(key, weight), key, value, mask, len(drawn))


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_softmax_and_favor_attention_are_their_formulas_head_by_head(dtype, near):
    *given, mask = tokens(1.0, dtype)
    query, key, value = (x.float().unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for x in given)
    generator = torch.Generator().manual_seed(3)
    drawn = torch.stack([orthogonal_features(10, WIDTH, generator) for _ in range(HEADS)])

    def phi(x):
        x = x * WIDTH**-0.25
        return torch.exp(x @ drawn.transpose(1, 2) - x.square().sum(-1, keepdim=True) / 2)

    weight = phi(query) @ (phi(key) * mask[:, None, :, None]).transpose(2, 3)
    expected = weight @ value / (weight.sum(-1, keepdim=True) + 1e-6)
    got = favor(*given, mask, drawn)

    exact = softmax_attention(*given, mask, HEADS).float()
    dense = dense_attention(*(x.float() for x in given), mask[:, None], HEADS)
    torch.testing.assert_close(exact, dense, atol=near, rtol=10 * near)
    assert got.dtype == dtype
    expected = expected.transpose(1, 2).flatten(2)
    torch.testing.assert_close(got.float(), expected, atol=near, rtol=10 * near)
    assert favor(*tokens(40.0, dtype), drawn).isfinite().all()  # large states


def test_random_features_are_orthogonal_as_long_as_gaussian_rows_and_have_no_preferred_side():
    drawn = orthogonal_features(40_000, WIDTH, torch.Generator().manual_seed(4))

    products = drawn[:WIDTH] @ drawn[:WIDTH].T
    assert drawn.shape == (40_000, WIDTH)
    assert (products - torch.diag(products.diagonal())).abs().max() < 1e-4
    assert abs(float(drawn.square().sum(1).mean()) - WIDTH) < 0.1  # E |w|^2 = D
    assert drawn.mean(0).abs().max() < 5 / 200


@pytest.mark.parametrize("n", [2, 3, 5])
def test_pairs_stand_in_row_major_order_and_gathers_have_right_gradients(n):
    graph, real = line_graph(n, torch.device("cpu")), torch.arange(n)[None] != 1
    low, high = torch.triu_indices(n, n, 1)
    atoms, pairs = (made(2, k, 2, dtype=torch.float64) for k in (n, len(low)))

    square, ends = layers.to_square(pairs, graph), layers.endpoint_atoms(atoms, graph)

    assert torch.equal(square[:, low, high], pairs)
    assert torch.equal(square, square.transpose(1, 2))
    assert not square.diagonal(dim1=1, dim2=2).any()
    assert torch.equal(ends, atoms[:, torch.stack([low, high], 1)])
    assert torch.equal(layers.pair_mask(real, graph), real[:, low] & real[:, high])
    others = [[other for other in range(n) if other != atom] for atom in range(n)]
    near = torch.stack([square[:, atom, rest] for atom, rest in enumerate(others)], 1)
    assert torch.equal(layers.incident_pairs(pairs, graph), near)
    assert torch.equal(Masks.of(real, graph).incident, real[:, torch.tensor(others)])
    for gather, rows in (
        (layers.incident_pairs, pairs), (layers.endpoint_atoms, atoms), (layers.to_square, pairs)
    ):  # fmt: skip
        assert torch.autograd.gradcheck(lambda x, f=gather: f(x, graph), rows.requires_grad_())


@pytest.mark.parametrize(("n", "n_real"), [(2, 2), (3, 2), (9, 8)])
def test_attention_along_the_line_graph_is_that_under_the_dense_mask(n, n_real):
    """An atom attends to its pairs, but not to those with padded atoms; a pair to its two atoms."""
    torch.manual_seed(1)
    graph, real = line_graph(n, torch.device("cpu")), torch.ones(BATCH, n, dtype=torch.bool)
    real[1, n_real:] = False
    atoms = made(BATCH, n, 6, dtype=torch.float64)
    pairs = made(BATCH, n * (n - 1) // 2, 10, dtype=torch.float64)
    at_atoms, at_pairs = AtomsFromPairs(6, 10, 8, HEADS), PairsFromAtoms(10, 6, 8, HEADS)

    def dense(attention, own, other, mask):
        rows = attention.query(own), attention.key(other), attention.value(other)
        return attention.out(dense_attention(*rows, mask, HEADS))

    new_atoms = at_atoms.double()(atoms, pairs, Masks.of(real, graph).incident, graph)
    new_pairs = at_pairs.double()(pairs, atoms, graph)

    mask = incidence(n) & (real[:, graph.first] & real[:, graph.second])[:, None, :]
    mask = mask | ~real[:, :, None]  # rows of padded atoms mean nothing, and must not be NaN here
    expected = dense(at_atoms, atoms, pairs, mask)
    # The softmax itself runs in float32, whatever the states are in.
    torch.testing.assert_close(new_atoms[real], expected[real], atol=1e-6, rtol=1e-6)
    assert new_atoms.isfinite().all()
    torch.testing.assert_close(new_pairs, dense(at_pairs, pairs, atoms, incidence(n).T))
    alone = torch.arange(n).expand(BATCH, n) == 0  # an atom without any real pair
    new_atoms = at_atoms(atoms, pairs, Masks.of(alone, graph).incident, graph)
    torch.testing.assert_close(new_atoms[:, 0], at_atoms.out.bias.expand(BATCH, -1))


@pytest.mark.parametrize("shape", [(1, 8), (40, 8), (3, 7, 33), (2, 5, 4, 64), (0, 3, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
@torch.inference_mode()
def test_without_gradients_the_result_is_that_of_the_formula(shape, dtype):
    x, weight, bias, rest = (
        made(*part, dtype=dtype) for part in (shape, (24, shape[-1]), (24,), (*shape[:-1], 24))
    )
    near = {"atol": 2e-5, "rtol": 1e-5} if dtype.itemsize > 2 else {"atol": 0.05, "rtol": 0.02}
    plain = functional.linear(x.double(), weight.double())

    for got, expected in (
        (linear(x, weight), plain),
        (linear(x, weight, bias), plain + bias.double()),
        (linear(x, weight, bias, relu=True), (plain + bias.double()).relu()),
        (linear(x, weight, relu=True), plain.relu()),
        (linear(x, weight, bias, onto=rest), plain + bias.double() + rest.double()),
    ):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), expected, **near)


@pytest.mark.parametrize("has_bfloat16", [True, False])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_autocast_decides_the_precision(monkeypatch, stored, has_bfloat16):
    if not has_bfloat16:  # as many processors; oneDNN refuses it there
        monkeypatch.setattr(tensors, "_FAST", (torch.float32,))
    x, weight, bias = made(50, 16), made(24, 16), made(24)

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        got = linear(x, weight.to(stored), bias.to(stored), relu=True)
        expected = functional.linear(x, weight, bias).relu()

    assert got.dtype == torch.bfloat16
    assert torch.equal(got, expected)


def features(bonds, atoms, hydrogens=0.0):
    """Of one graph without padding."""
    n = len(atoms)
    whole = torch.ones(1, n, dtype=torch.bool), torch.tensor([hydrogens])
    graph = line_graph(n, torch.device("cpu"))
    seen = graph_features(torch.tensor([bonds]), torch.tensor([atoms]), *whole, graph)
    return [part[0].numpy() for part in seen]


def random_bonds(n, seed, density):
    rng, m = np.random.default_rng(seed), n * (n - 1) // 2
    return np.where(rng.random(m) < density, rng.integers(1, 5, m), 0).tolist()


CHAIN = [int(high == low + 1) for low in range(9) for high in range(low + 1, 9)]
CASES = [(n, seed, density) for n in (2, 5, 9, 14) for seed in (1, 2) for density in (0.12, 0.35)]


@pytest.mark.parametrize("bonds", [*(random_bonds(*case) for case in CASES), CHAIN])
def test_features_are_those_of_paths_walks_and_sums_over_bonds(bonds):
    n = math.isqrt(2 * len(bonds)) + 1
    low, high = np.triu_indices(n, 1)
    square = np.zeros((n, n), int)
    square[low, high] = square[high, low] = bonds
    adjacency, atoms = (square > 0).astype(int), [row % len(HEAVY) for row in range(n)]
    power = [np.linalg.matrix_power(adjacency, length) for length in range(6)]
    hops = np.minimum(shortest_path(adjacency, unweighted=True), MAX_HOPS)[low, high]
    valence = np.array([0, 1, 2, 3, 1.5])[square].sum(1)
    free = np.array(LOWEST_VALENCES)[atoms] - valence
    closed = [*(power[k].diagonal() for k in (3, 4, 5)), (power[3] ** 2).sum(1)]
    sums = [adjacency.sum(1), valence, free, (square == 4).sum(1)]

    pair_token, walks, by_atom, _ = features(bonds, atoms)

    assert pair_token.tolist() == (np.array(bonds) * (MAX_HOPS + 1) + hops).tolist()
    np.testing.assert_allclose(by_atom, np.stack([*sums, *map(np.log1p, closed)], 1), rtol=1e-6)
    between = [np.log1p(power[k][low, high]) for k in (2, 3, 4, 5)]
    np.testing.assert_allclose(walks, np.stack(between, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("bonds", "atoms", "hydrogens", "totals"),
    [
        # C, C, O: two single bonds, six hydrogens. An atom counts as far from itself.
        ([1, 0, 1], [0, 0, 2], 6.0, [2 / 3, 2 / 3, 0, 0, 3 / 9, 0]),
        # O bonded twice to one carbon and twice to the other: two valences too many; N is alone.
        ([0, 0, 2, 0, 2, 0], [0, 0, 1, 2], 0.0, [2 / 4, 1, 5 / 4, -2 / 4, 10 / 16, 1 / 4]),
    ],
)
def test_totals_see_bonds_free_valences_and_atoms_apart(bonds, atoms, hydrogens, totals):
    np.testing.assert_allclose(features(bonds, atoms, hydrogens)[-1], totals, atol=1e-6)


def test_the_most_probable_bits_are_kept_and_improbable_ones_shut_out():
    probability = torch.tensor([[0.1, 0.9, 0.0, 0.5], [0.3, 0.2, 0.25, 0.01]], requires_grad=True)
    low = torch.tensor([[0.5, MIN_PROBABILITY, MIN_PROBABILITY * 0.99, 0.0]])

    bit, log_prob = keep_bits(probability, 2)
    every, shut = keep_bits(low, 10)
    keep_bits(probability, 4)[1].exp().sum().backward()

    assert bit.tolist() == [[1, 3], [0, 2]]
    torch.testing.assert_close(log_prob.exp(), torch.tensor([[0.9, 0.5], [0.3, 0.25]]))
    assert (every.shape, shut[0].isfinite().tolist()) == ((1, 4), [True, True, False, False])
    assert probability.grad.isfinite().all()
    assert probability.grad[0, 2] == 0


NEAR = {"atol": 1e-5, "rtol": 1e-5}


def encoder(**changes):
    torch.manual_seed(1)
    return FormulaTransformer(
        EncoderSettings(layers=2, width=16, heads=4, fingerprint_bits=64, **changes)
    ).eval()


def test_a_spectrum_in_a_batch_has_the_logits_it_has_alone_its_peaks_in_any_order():
    net, spectra = encoder(), [made_peaks(n, seed=n) for n in (0, 1, 4, 17, 30)]

    together = net(peak_batch(spectra))

    assert together.isfinite().all()
    for row, spectrum in enumerate(spectra):
        turned = some_rows(spectrum, np.random.default_rng(5).permutation(len(spectrum.mz)))
        torch.testing.assert_close(together[row], net(peak_batch([turned]))[0], **NEAR)


def test_many_spectra_have_the_logits_and_gradients_of_one_padded_batch(monkeypatch):
    net = encoder(dropout=0.0).train()
    batch = peak_batch([made_peaks(n % 23, seed=n) for n in range(40)])

    def gradients():
        net.zero_grad()
        logits = net(batch)
        (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
        return logits.detach(), [p.grad for p in net.parameters()]

    logits, parts = gradients()
    monkeypatch.setattr(encoder_module, "_AT_ONCE", 40)
    expected, whole = gradients()

    torch.testing.assert_close(logits, expected, **NEAR)
    torch.testing.assert_close(parts, whole, atol=1e-4, rtol=1e-4)


def test_the_formula_and_a_missing_energy_are_told_and_gradients_are_finite():
    net, known, empty = encoder(), made_peaks(4), made_peaks(0)
    missing, zero = (torch.full_like(known.energy_ev, value) for value in (np.nan, 0))

    without = net(peak_batch([replace(known, energy_ev=missing), empty]))
    without.sum().backward()

    others = [replace(known, energy_ev=zero), replace(empty, parent=empty.parent + 1)]
    assert without.isfinite().all()
    assert ((without - net(peak_batch(others))).abs().max(1).values > 1e-4).all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_a_count_is_a_ramp_over_thresholds_and_a_twentieth():
    ramp = [1, 1, 2 / 3, 2 / 5, 2 / 8, 2 / 13, 2 / 21, 2 / 20]

    torch.testing.assert_close(count_features(torch.tensor([[2.0]])), torch.tensor([ramp]))
