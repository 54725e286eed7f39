"""Structures like measured ones are chosen from many, and nothing that is held out is lost."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.elements import INDEX
from duallgd_cli.data.alike import domain_classifier, log_odds, morgan_bits, select_alike
from duallgd_cli.data.prepared import Molecules, load_molecules, read_manifest
from duallgd_cli.errors import UnreadableError, UsageError
from tests.made_prepared import (
    SPECTRA,
    bond_class,
    molecules_of,
    spectra_folder,
    structures_folder,
    verify,
)

ESTERS = [f"{'C' * n}OC(=O){'C' * m}" for n in range(1, 9) for m in range(1, 6)]
CHLORIDES = [f"{'C' * n}C(Cl){'C' * m}" for n in range(1, 9) for m in range(1, 6)]


def measured(path, *smiles):
    rows = [(one, "[M+H]+", "C2H5", "20", "train") for one in smiles]
    return spectra_folder(path, *rows)


def bits_of(*smiles):
    molecules = molecules_of(*smiles)
    return morgan_bits(molecules, np.arange(len(molecules)))


def test_the_classifier_is_where_the_penalised_loss_is_least():
    known, others = bits_of("CCO", "CCCO", "CCN"), bits_of("CCCl", "CCCCl", "CCO")
    weight = domain_classifier(known, others).requires_grad_()

    loss = torch.nn.functional.softplus(-log_odds(known, weight)).mean()
    loss = loss + torch.nn.functional.softplus(log_odds(others, weight)).mean()
    (loss + 0.001 * weight[:-1].square().sum()).backward()

    assert weight.grad.abs().max() < 1e-4


def test_molecules_like_measured_ones_are_chosen(tmp_path):
    structures = structures_folder(tmp_path / "all", *ESTERS[::2], *CHLORIDES)
    like = measured(tmp_path / "measured", *ESTERS[1::2])

    select_alike(structures, tmp_path / "alike", like, 15)

    chosen, manifest = load_molecules(tmp_path / "alike"), read_manifest(tmp_path / "alike")
    verify(tmp_path / "alike")
    assert len(chosen) == manifest["molecules"] == 15
    esters = chosen.atom_counts[:, INDEX["Cl"]] == 0
    # By chance it would be five.
    assert esters.sum() >= 12
    assert manifest["mean_log_odds"] > manifest["mean_log_odds_before"]


def test_held_out_folds_are_kept_whole_and_order_stays(tmp_path):
    folds = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3]
    structures = structures_folder(tmp_path / "all", fold=folds)
    like = spectra_folder(tmp_path / "measured", *SPECTRA)

    select_alike(structures, tmp_path / "alike", like, 2)

    chosen, before = load_molecules(tmp_path / "alike"), load_molecules(structures)
    assert chosen.fold.tolist() == [0, 0, 1, 1, 2, 3, 3, 3]
    places = [before.inchikey.tolist().index(key) for key in chosen.inchikey.tolist()]
    assert places == sorted(places)


def test_measured_molecules_are_kept_once_if_wanted(tmp_path):
    structures = structures_folder(tmp_path / "all", "CCCCCOC(=O)CC", "CCOC(=O)CCC", "CCCl")
    like = measured(tmp_path / "measured", "CCCCCOC(=O)CCC", "CCCCCOC(=O)CC", "CCO")

    select_alike(structures, tmp_path / "alike", like, 99, min_atoms=8, with_measured=True)

    chosen, manifest = load_molecules(tmp_path / "alike"), read_manifest(tmp_path / "alike")
    verify(tmp_path / "alike")
    assert chosen.n_heavy.tolist() == [11, 10, 8]
    assert manifest["molecules"] == len(set(chosen.inchikey.tolist())) == 3
    expected = molecules_of("CCCCCOC(=O)CCC", "CCCCCOC(=O)CC", "CCOC(=O)CCC")
    for place in range(3):
        own = [m for m in range(3) if expected.inchikey[m] == chosen.inchikey[place]]
        for one in (bond_class, Molecules.fingerprint_bits):
            np.testing.assert_array_equal(one(chosen, place), one(expected, own[0]))


def test_what_cannot_be_chosen_from_is_refused(tmp_path):
    structures = structures_folder(tmp_path / "all")
    like = spectra_folder(tmp_path / "measured")
    held_out = structures_folder(tmp_path / "held out", fold=[3] * 12)
    rows = [(*row[:-1], "val") for row in SPECTRA]
    untrained = spectra_folder(tmp_path / "untrained", *rows)

    for first, reference, out, error, message in (
        (like, like, "alike", UsageError, "holds spectra"),
        (structures, structures, "alike", UsageError, "not spectra"),
        (structures, like, "all", UsageError, "give another output"),
        (structures, like, "measured", UsageError, "give another output"),
        (held_out, like, "alike", UnreadableError, "no molecule of fold train of 1 to 100 heavy"),
        (structures, untrained, "alike", UnreadableError, "no molecule of fold train of 1 to 100"),
    ):
        with pytest.raises(error, match=message):
            select_alike(first, tmp_path / out, reference, 3)
    verify(structures)
    verify(like)
