"""Predictions imitated for molecules without spectra."""

import os

import numpy as np
import pytest
import torch

from duallgd_cli.data import imitation as module
from duallgd_cli.data.imitation import Imitation, load_neighbours, neighbours
from duallgd_cli.data.prepared import write_blocks
from tests.made_graphs import made_molecules

CPU = torch.device("cpu")


def dense(molecules):
    bits = np.zeros((len(molecules), 4096))
    for row in range(len(molecules)):
        bits[row, molecules.bits_of(np.array([row]))[1]] = 1
    return bits


@pytest.fixture(scope="module")
def molecules():
    return made_molecules(100, fold=[0, 0, 3, 0, 1] * 20)


@pytest.mark.parametrize(("at_once", "window"), [(1024, 10_000), (7, 10_000), (7, 20), (100, 5)])
def test_neighbours_are_the_most_similar_molecules_of_fold_train_of_a_like_mass(
    molecules, monkeypatch, at_once, window
):
    for name, value in {"_AT_ONCE": at_once, "_WINDOW": window, "_N_NEIGHBOURS": 5}.items():
        monkeypatch.setattr(module, name, value)
    order, bits = module.by_mass(molecules), dense(molecules)

    alike = neighbours(molecules, CPU)

    assert alike.shape == (100, 5)
    for place, row in enumerate(order):
        first = place // at_once * at_once
        near = order[max(0, first - window) : first + at_once + window]
        near = near[near != row]
        common = bits[near] @ bits[row]
        similarity = common / (bits[near].sum(1) + bits[row].sum() - common)
        best = dict(zip(near.tolist(), similarity.tolist(), strict=True))
        given = [best[other] for other in alike[row].tolist()]
        np.testing.assert_allclose(given, np.sort(similarity)[::-1][:5], rtol=1e-6)


def test_a_few_molecules_are_neighbours_of_each_other_and_of_themselves_last():
    alike = neighbours(made_molecules(3), CPU).tolist()

    assert [(sorted(row), row[-1]) for row in alike] == [([0, 1, 2], last) for last in range(3)]


def test_neighbours_are_kept_beside_the_data_and_found_anew_when_those_change(molecules, tmp_path):
    write_blocks(tmp_path, [molecules.arrays()], lambda: {"kind": "structures"})
    first, kept = load_neighbours(tmp_path, molecules, CPU), tmp_path / "neighbours.npy"

    def loaded():
        return load_neighbours(tmp_path, molecules, CPU)

    np.save(kept, first[:, ::-1])
    assert np.array_equal(loaded(), first[:, ::-1])
    manifest = (tmp_path / "manifest.json").stat().st_mtime_ns
    os.utime(kept, ns=(manifest - 1, manifest - 1))
    assert np.array_equal(loaded(), first)
    for broken in (lambda: kept.write_bytes(b"broken"), lambda: np.save(kept, first[1:])):
        broken()
        assert np.array_equal(loaded(), first)


def imitated(molecules, clean_share=0.0):
    """Rows of fold train, their true bits and their imitated predictions."""
    imitation = Imitation(molecules, neighbours(molecules, CPU), clean_share)
    rows = np.flatnonzero(molecules.in_folds("train"))
    return rows, dense(molecules)[rows], imitation(rows, np.random.default_rng(2)).numpy()


def test_no_bit_of_a_held_out_molecule_alone_is_ever_likely(molecules):
    _, truth, chance = imitated(molecules)

    only_held_out = ~truth.any(0) & dense(molecules).any(0)
    assert only_held_out.sum() > 20
    assert chance[:, only_held_out].max() < 0.02


def test_bits_that_all_molecules_share_or_lack_together_are_lost_together(molecules, monkeypatch):
    monkeypatch.setattr(module, "_DEVIATION", 0.0)

    _, _, chance = imitated(molecules)

    _, first, inverse = np.unique(dense(molecules), axis=1, return_index=True, return_inverse=True)
    assert len(first) < chance.shape[1] - 100  # there are such bits
    np.testing.assert_allclose(chance, chance[:, first[inverse]], rtol=1e-5)


def test_likely_bits_are_the_more_often_true_and_a_clean_share_is_the_truth():
    _, truth, chance = imitated(made_molecules(1000))

    ranges = (0, 0.02), (0.02, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1)
    shares = [truth[(chance >= low) & (chance < high)].mean() for low, high in ranges]
    assert shares == sorted(shares)
    assert shares[0] < 0.01 < 0.8 < shares[-1]
    assert 0.5 < (chance[truth > 0] < 0.1).mean() < 0.9  # made molecules are hardly alike
    _, truth, chance = imitated(made_molecules(400), clean_share=0.25)
    assert 0.17 < (np.abs(chance - truth) < 1e-6).all(1).mean() < 0.33
