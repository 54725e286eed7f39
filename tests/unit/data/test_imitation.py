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
FOLDS = [0, 0, 3, 0, 1] * 20


def dense(molecules):
    bits = np.zeros((len(molecules), 4096))
    for row in range(len(molecules)):
        bits[row, molecules.fingerprint_bits(row)] = 1
    return bits


@pytest.fixture(scope="module")
def molecules():
    return made_molecules(100, fold=FOLDS)


@pytest.mark.parametrize(("at_once", "window"), [(1024, 10_000), (7, 10_000), (7, 20), (100, 5)])
def test_neighbours_are_the_most_similar_molecules_of_fold_train_of_a_like_mass(
    molecules, monkeypatch, at_once, window
):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    monkeypatch.setattr(module, "_WINDOW", window)
    monkeypatch.setattr(module, "_N_NEIGHBOURS", 5)
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
    alike = neighbours(made_molecules(3), CPU)

    assert [sorted(row) for row in alike.tolist()] == [[0, 1, 2]] * 3
    assert alike[:, -1].tolist() == [0, 1, 2]


def test_neighbours_are_kept_beside_the_data_and_found_anew_when_those_change(molecules, tmp_path):
    write_blocks(tmp_path, [molecules.arrays()], lambda: {"kind": "structures"})
    first = load_neighbours(tmp_path, molecules, CPU)
    kept = tmp_path / "neighbours.npy"
    np.save(kept, first[:, ::-1])

    assert np.array_equal(load_neighbours(tmp_path, molecules, CPU), first[:, ::-1])
    manifest = (tmp_path / "manifest.json").stat().st_mtime_ns
    os.utime(kept, ns=(manifest - 1, manifest - 1))
    assert np.array_equal(load_neighbours(tmp_path, molecules, CPU), first)
    kept.write_bytes(b"broken")
    assert np.array_equal(load_neighbours(tmp_path, molecules, CPU), first)


def imitated(molecules, clean_share=0.0, seed=2):
    imitation = Imitation(molecules, neighbours(molecules, CPU), clean_share)
    rows = np.flatnonzero(molecules.in_folds("train"))
    return rows, imitation(rows, np.random.default_rng(seed)).numpy()


def test_no_bit_of_a_held_out_molecule_alone_is_ever_likely(molecules):
    rows, chance = imitated(molecules)

    bits = dense(molecules).astype(bool)
    only_held_out = ~bits[rows].any(0) & bits.any(0)
    assert only_held_out.sum() > 20
    assert chance[:, only_held_out].max() < 0.02


def test_bits_that_all_molecules_share_or_lack_together_are_lost_together(molecules, monkeypatch):
    monkeypatch.setattr(module, "_DEVIATION", 0.0)
    bits = dense(molecules)

    _, chance = imitated(molecules)

    _, first, inverse = np.unique(bits, axis=1, return_index=True, return_inverse=True)
    assert len(first) < bits.shape[1] - 100  # there are such bits
    np.testing.assert_allclose(chance, chance[:, first[inverse]], rtol=1e-5)


def test_likely_bits_are_the_more_often_true_and_some_true_ones_are_missed():
    molecules = made_molecules(1000)
    rows, chance = imitated(molecules)
    truth = dense(molecules)[rows].astype(bool)

    shares = [
        truth[(chance >= low) & (chance < high)].mean()
        for low, high in ((0, 0.02), (0.02, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1))
    ]

    assert shares == sorted(shares)
    assert shares[0] < 0.01
    assert shares[-1] > 0.8
    assert 0.5 < (chance[truth] < 0.1).mean() < 0.9  # made molecules are hardly alike


def test_a_clean_share_is_the_truth():
    molecules = made_molecules(400)
    rows, chance = imitated(molecules, clean_share=0.25)

    is_true = (np.abs(chance - dense(molecules)[rows]) < 1e-6).all(1)

    assert 0.17 < is_true.mean() < 0.33
