"""Laws of the denoiser: equivariance, independence of padding and batch, honest input."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from duallgd_cli.model.tensors import map_tensors
from duallgd_cli.train.decoder import MoleculeCollator
from tests.made_graphs import (
    FORMULAS,
    condition,
    made_molecules,
    noisy_bonds,
    pad_bonds,
    real_pairs,
    rows_of,
    small_settings,
    stirred,
)
from tests.made_molecules import another_order, moved

N_STEPS = 500
FEW = settings(max_examples=15)
BOTH_KERNELS = pytest.mark.parametrize("pair_features", [8, 0])


@cache
def denoiser(pair_features=8, sees_positions=True):
    net = stirred(small_settings(pair_features=pair_features)).denoiser
    for part in () if sees_positions else (net.place, net.place_from_end, net.relative):
        part.requires_grad_(False).weight.zero_()
    return net


@torch.no_grad()
def logits(bonds, t, known, net=None):
    net = net or denoiser()
    steps = torch.full((len(bonds),), t) if isinstance(t, int) else torch.tensor(t)
    return net(bonds, steps, net.context(known))


def relabelled(bonds, order, t, known, net):
    """Logits of a graph in the order it has, put in another one, and of the graph in that."""
    turned = torch.from_numpy(moved(bonds.numpy(), order))
    plain, other = (logits(graph[None], t, known, net)[0] for graph in (bonds, turned))
    return torch.from_numpy(moved(plain.numpy(), order)), other


@FEW
@given(st.sampled_from(FORMULAS), st.integers(1, N_STEPS), st.integers(0, 10_000))
@BOTH_KERNELS
def test_without_positions_relabelled_atoms_give_relabelled_logits(pair_features, formula, t, seed):
    known = condition([formula])
    bonds = noisy_bonds(known.atom_class.shape[1], seed=seed)
    order = another_order(known.atom_class[0].numpy(), np.random.default_rng(seed))

    plain, other = relabelled(bonds, order, t, known, denoiser(pair_features, False))

    assert_close(other, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("t", [1, N_STEPS])
def test_with_positions_the_position_within_an_element_is_seen(t):
    order = np.array([1, 0, *range(2, 12)])

    plain, other = relabelled(noisy_bonds(12), order, t, condition(["C6H12O6"]), denoiser())

    assert (other - plain).abs().max() > 1e-3


@FEW
@given(
    st.lists(st.tuples(st.sampled_from(FORMULAS), st.integers(1, N_STEPS)), min_size=1, max_size=4),
    st.integers(0, 10_000),
)
@BOTH_KERNELS
def test_a_graph_padded_in_a_batch_has_the_logits_it_has_alone(pair_features, graphs_at, seed):
    """Every graph at a noise level of its own."""
    net, size = denoiser(pair_features), 15
    formulas, steps = zip(*graphs_at, strict=True)
    together = condition(formulas, size, seed)
    n_heavy = together.atom_mask.sum(1).tolist()
    graphs = [noisy_bonds(n, seed=seed + i) for i, n in enumerate(n_heavy)]
    padded = torch.stack([pad_bonds(g, n, size) for g, n in zip(graphs, n_heavy, strict=True)])

    whole = logits(padded, steps, together, net)

    for row, (graph, n, t) in enumerate(zip(graphs, n_heavy, steps, strict=True)):
        own = rows_of(together, slice(row, row + 1))
        own = replace(own, atom_class=own.atom_class[:, :n], atom_mask=own.atom_mask[:, :n])
        alone = logits(graph[None], t, own, net)[0]
        assert_close(real_pairs(whole[row], n, size), alone, atol=1e-5, rtol=1e-5)


def context_of(molecules):
    """Tensors of the context of the first molecule, as training makes it."""
    collator, listed = MoleculeCollator(molecules, None), []
    known = collator.condition(np.array([0]), 5, np.random.default_rng(0))
    with torch.no_grad():
        map_tensors(denoiser().context(known), lambda tensor: listed.append(tensor) or tensor)
    return listed


@pytest.mark.parametrize(
    ("name", "change", "reaches"),
    [
        ("bond_type", lambda kinds: kinds % 4 + 1, False),
        ("bond_pair", lambda pairs: pairs * 0 + np.array([0, 4], pairs.dtype), False),
        ("inchikey", lambda keys: np.full_like(keys, b"Z" * 14), False),
        ("fold", lambda folds: folds + 2, False),
        ("bits", lambda bits: np.append(bits[:-1], bits[-1] ^ 1), True),
        ("atom_counts", lambda counts: counts + (np.arange(13) == 12).astype(np.uint8), True),
        ("charge", lambda charges: charges + 1, True),
    ],
)
def test_formula_charge_and_fingerprint_reach_the_network_and_nothing_else(name, change, reaches):
    molecules = made_molecules(1, smallest=5, largest=5)
    value = getattr(molecules, name)
    other = replace(molecules, **{name: change(value).astype(value.dtype)})

    pairs = zip(context_of(molecules), context_of(other), strict=True)

    assert all(torch.equal(*both) for both in pairs) is not reaches


def test_logits_are_added_to_the_noisy_graph_itself_and_are_float32_under_autocast():
    net, known, bonds = denoiser(), condition(["C9H8O4"]), noisy_bonds(13)[None]

    with torch.autocast("cpu", torch.bfloat16):
        low = logits(bonds, 100, known)
    silent = stirred(small_settings()).denoiser
    with torch.no_grad():
        silent.readout.weight.zero_()
        silent.readout.bias.zero_()

    assert low.dtype == torch.float32
    assert (low - logits(bonds, 100, known, net)).abs().max() < 0.3
    got = logits(bonds, 100, known, silent)
    assert torch.equal(got, torch.nn.functional.one_hot(bonds, 5).float())


def test_every_parameter_of_the_denoiser_gets_a_gradient():
    net, known = stirred(small_settings(layers=3)).denoiser, condition(FORMULAS)
    bonds = torch.stack([noisy_bonds(n, 13) for n in known.atom_mask.sum(1).tolist()])

    steps = torch.tensor([450, 400, 350, 200, 250])
    net(bonds, steps, net.context(known)).square().mean().backward()

    dead = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert not dead
