"""Structures like measured ones are chosen from many, and nothing that is held out is lost."""

import numpy as np
import pytest
from torch.nn.functional import softplus

from duallgd_cli.chem.elements import INDEX
from duallgd_cli.data import prepared
from duallgd_cli.data.alike import domain_classifier, log_odds, morgan_bits, select_alike
from duallgd_cli.data.prepared import load_molecules, read_manifest
from duallgd_cli.errors import UnreadableError
from tests.made_prepared import (
    bits_of,
    bond_class,
    molecules_of,
    spectra_folder,
    structures_folder,
    verify,
)

ESTERS = [f"{'C' * n}OC(=O){'C' * m}" for n in range(1, 9) for m in range(1, 6)]
CHLORIDES = [f"{'C' * n}C(Cl){'C' * m}" for n in range(1, 9) for m in range(1, 6)]


def measured(path, *smiles, fold="train"):
    return spectra_folder(path, *((one, "[M+H]+", "C2H5", "20", fold) for one in smiles))


def test_the_classifier_is_where_the_penalised_loss_is_least():
    known, others = (
        morgan_bits(molecules_of(*smiles), np.arange(3))
        for smiles in (("CCO", "CCCO", "CCN"), ("CCCl", "CCCCl", "CCO"))
    )
    weight = domain_classifier(known, others).requires_grad_()

    loss = softplus(-log_odds(known, weight)).mean() + softplus(log_odds(others, weight)).mean()
    (loss + 0.001 * weight[:-1].square().sum()).backward()

    assert weight.grad.abs().max() < 1e-4 < weight[-1].abs()  # the constant is no bit's


def test_molecules_like_measured_ones_are_chosen_in_blocks_as_all_at_once(tmp_path, monkeypatch):
    texts, folds = (*ESTERS[::2], *CHLORIDES, "CCO", "CCN", "CCC"), [0] * 60 + [1, 2, 3]
    structures = structures_folder(tmp_path / "all", *texts, fold=folds)
    like = measured(tmp_path / "measured", *ESTERS[1::2])

    whole = select_alike(structures, tmp_path / "alike", like, 15)
    monkeypatch.setattr(prepared, "BLOCK", 7)
    blocks = select_alike(structures, tmp_path / "blocks", like, 15)

    chosen, before = load_molecules(tmp_path / "alike"), load_molecules(structures)
    assert chosen.fold.tolist() == [0] * 15 + [1, 2, 3]  # what is held out stays whole
    assert (chosen.atom_counts[:15, INDEX["Cl"]] == 0).sum() >= 12  # by chance it would be five
    places = [before.inchikey.tolist().index(key) for key in chosen.inchikey.tolist()]
    assert places == sorted(places)
    assert whole["mean_log_odds"] > whole["mean_log_odds_before"]
    assert blocks == whole == read_manifest(tmp_path / "alike")
    assert (whole["kind"], whole["molecules"], whole["made_from"]["limit"]) == (
        "structures",
        18,
        15,
    )
    verify(tmp_path / "alike")


def test_measured_molecules_are_kept_once_if_wanted(tmp_path):
    structures = structures_folder(tmp_path / "all", "CCCCCOC(=O)CC", "CCOC(=O)CCC", "CCCl")
    like = measured(tmp_path / "measured", "CCCCCOC(=O)CCC", "CCCCCOC(=O)CC", "CCO")

    select_alike(structures, tmp_path / "alike", like, 99, min_atoms=8, with_measured=True)

    chosen = load_molecules(tmp_path / "alike")
    expected = molecules_of("CCCCCOC(=O)CCC", "CCCCCOC(=O)CC", "CCOC(=O)CCC")
    assert chosen.inchikey.tolist() == expected.inchikey.tolist()
    for place in range(3):
        for one in (bond_class, bits_of):
            np.testing.assert_array_equal(one(chosen, place), one(expected, place))


@pytest.mark.parametrize(("held_out", "folds"), [("structures", [3, 3]), ("spectra", [0, 0])])
def test_what_cannot_be_chosen_from_is_refused(tmp_path, held_out, folds):
    structures = structures_folder(tmp_path / "structures", "CCO", "CCN", fold=folds)
    like = measured(tmp_path / "spectra", "CCO", fold="val" if held_out == "spectra" else "train")

    with pytest.raises(UnreadableError, match=rf"{held_out} holds no molecule of fold train of 1 "):
        select_alike(structures, tmp_path / "alike", like, 3)
