"""Samples that repeat one another, and the fingerprint that is then doubted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Samples
from duallgd_cli.errors import ConfigError
from duallgd_cli.inference.doubt import doubted, graph_keys, repeated
from duallgd_cli.inference.generate import ModelGenerator
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_training import cpu

PENTANE, ISOPENTANE, NEOPENTANE = "CCCCC", "CCC(C)C", "CC(C)(C)C"
SETTINGS = SamplingSettings(steps=2, samples=50)
FORMULA = Formula.parse("C4H7NO2S")


def graph_of(smiles):
    """Bond classes (1, M) and elements (N,)."""
    molecules = molecules_of(smiles)
    n = int(molecules.n_heavy[0])
    row = torch.zeros((1, n * (n - 1) // 2), dtype=torch.int64)
    pair, kind = (torch.from_numpy(part.astype(np.int64)) for part in molecules.bonds(0))
    row[0, pair] = kind
    return row, torch.from_numpy(molecules.atom_class(0))


def renumbered(bond_class, order):
    """The same graphs, their atoms in another order."""
    n = len(order)
    low, high = torch.triu_indices(n, n, 1)
    square = torch.zeros((len(bond_class), n, n), dtype=torch.int64)
    square[:, low, high] = square[:, high, low] = bond_class
    return square[:, order][:, :, order][:, low, high]


@given(st.permutations(range(9)), st.integers(0, 2**32 - 1))
def test_numbering_does_not_change_a_key(order, seed):
    rng = np.random.default_rng(seed)
    bond_class = torch.from_numpy(rng.choice(5, (4, 36), p=[0.7, 0.15, 0.05, 0.02, 0.08]))
    atom_class = torch.from_numpy(rng.integers(0, 3, 9))
    order = torch.tensor(order)

    keys = graph_keys(bond_class, atom_class)

    moved = graph_keys(renumbered(bond_class, order), atom_class[order])
    assert torch.equal(keys, moved)


@pytest.mark.parametrize(
    "isomers",
    [
        (PENTANE, ISOPENTANE, NEOPENTANE),
        ("CCCCO", "CCC(C)O", "CCOCC"),
        ("C=CCC", "CC=CC"),
        ("Cc1ccccc1O", "Cc1cccc(O)c1", "Cc1ccc(O)cc1"),
        ("OCCCCCCCCCCCCCCC(C)C", "OCCCCCCCCCCCCCC(C)CC"),
    ],
)
def test_isomers_have_keys_of_their_own(isomers):
    keys = [int(graph_keys(*graph_of(smiles))[0]) for smiles in isomers]

    assert len(set(keys)) == len(isomers)


@pytest.mark.parametrize(
    ("same", "of", "expected"), [(4, 20, True), (3, 20, False), (9, 19, False)]
)
def test_a_fifth_of_enough_samples_makes_a_repetition(same, of, expected):
    rng = np.random.default_rng(0)
    one, atom_class = graph_of("CCCCCCCCCC")
    others = torch.from_numpy(rng.choice(5, (of - same, one.shape[1])))  # none of them alike
    copies = [renumbered(one, torch.from_numpy(rng.permutation(10))) for _ in range(same)]

    assert repeated(torch.cat([*copies, others]), atom_class) is expected


def test_doubt_moves_bits_towards_one_half_and_keeps_their_order():
    probability = torch.tensor([0.0, 0.001, 0.3, 0.5, 0.9, 1.0])

    got = doubted(probability)

    expected = 1 / (1 + ((1 - probability[1:5]) / probability[1:5]) ** 0.25)
    torch.testing.assert_close(got[1:5], expected)
    assert ((got[:3] > probability[:3]) & (got[:3] < 0.5)).all()
    assert (got.diff() > 0).all()


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings(layers=1))


def drawn_with(model, monkeypatch, repeats, settings=SETTINGS):
    """What was drawn, and the fingerprint bits that each part was told."""
    monkeypatch.setattr("duallgd_cli.inference.generate.repeated", lambda *_: repeats)
    told = []
    plain = ModelGenerator._drawn

    def noted(self, context, *rest):
        told.append((context.condition.bit_log_prob, rest[-1]))
        return plain(self, context, *rest)

    monkeypatch.setattr(ModelGenerator, "_drawn", noted)
    fingerprint = torch.rand(4096, generator=torch.Generator().manual_seed(3)) ** 200
    samples, _ = ModelGenerator(model, cpu()).draw(FORMULA, fingerprint, settings, seed=4)
    return samples, told


def test_only_samples_that_repeat_one_another_are_followed_by_doubt(model, monkeypatch):
    sure, (one, other) = drawn_with(model, monkeypatch, repeats=False)
    unsure, (first, last) = drawn_with(model, monkeypatch, repeats=True)

    assert isinstance(sure, Samples)
    torch.testing.assert_close(one[0], other[0])
    assert (first[1], last[1]) == (slice(30), slice(30, None))
    torch.testing.assert_close(first[0], one[0])
    # Few bits were likely; in doubt all that are kept may be.
    assert last[0].isfinite().sum() > first[0].isfinite().sum()
    assert len(unsure.bond_class) == 50
    torch.testing.assert_close(unsure.bond_class[:30], sure.bond_class[:30])
    assert not torch.equal(unsure.bond_class[30:], sure.bond_class[30:])


def test_without_doubt_all_are_drawn_at_once_and_the_same(model, monkeypatch):
    settings = replace(SETTINGS, doubted_share=0.0)

    two_parts, _ = drawn_with(model, monkeypatch, repeats=False)
    whole, told = drawn_with(model, monkeypatch, repeats=True, settings=settings)

    assert len(told) == 1
    torch.testing.assert_close(whole.bond_class, two_parts.bond_class)
    torch.testing.assert_close(whole.log_likelihood, two_parts.log_likelihood)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_leaves_no_first_samples_is_refused(share):
    with pytest.raises(ConfigError, match="doubted_share must be 0 to below 1"):
        SamplingSettings(doubted_share=share)


def test_one_sample_is_drawn_without_doubt(model, monkeypatch):
    settings = replace(SETTINGS, samples=1, doubted_share=0.9)

    samples, told = drawn_with(model, monkeypatch, repeats=True, settings=settings)

    assert len(samples.bond_class) == len(told) == 1
