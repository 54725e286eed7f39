"""What weights keep of the spectra of known molecules: of fold train alone, the most telling."""

import pytest
import torch

from duallgd_cli.generator.templates import known_molecules
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.fragment_kernel import UNMIXED
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.train import known_spectra as module
from duallgd_cli.train.known_spectra import fit_kernel, known_spectra
from tests.made_prepared import SPECTRA, made_spectra

TRAIN = tuple(row for row in SPECTRA if row[-1] == "train")


def kept(path, *rows):
    spectra = made_spectra(path, *rows)
    known = known_molecules(spectra.molecules, 100).molecules
    return known_spectra(spectra, known), known, spectra


def test_nothing_of_folds_val_and_test_is_kept(tmp_path):
    every, _, _ = kept(tmp_path / "every")
    train, _, _ = kept(tmp_path / "train", *TRAIN)

    assert every.keys() == {"n_places", "place", "weight"}
    for name, tensor in train.items():
        assert torch.equal(every[name], tensor), name


def test_each_fragment_and_loss_of_a_molecule_is_kept_once(tmp_path):
    tensors, known, _ = kept(tmp_path / "spectra")

    start = 0
    for n_places in tensors["n_places"].tolist():
        own = tensors["place"][start : start + n_places]
        assert len(own.unique()) == n_places > 0
        start += n_places
    assert start == len(tensors["weight"])
    assert len(known) == len(tensors["n_places"]) == 3


def test_a_fragment_of_two_spectra_is_kept_at_its_brightest(tmp_path):
    one, _, _ = kept(tmp_path / "one", TRAIN[1])
    both, _, _ = kept(tmp_path / "both", TRAIN[1], (*TRAIN[1][:3], "60", "train"))

    assert torch.equal(one["place"], both["place"])
    assert torch.equal(one["weight"], both["weight"])


def test_only_the_most_telling_are_kept(tmp_path, monkeypatch):
    whole, _, _ = kept(tmp_path / "whole")
    monkeypatch.setattr(module, "_KEPT", 2)
    short, _, _ = kept(tmp_path / "short")

    assert short["n_places"].tolist() == [2, 2, 2]
    assert set(short["place"].tolist()) < set(whole["place"].tolist())


@pytest.mark.parametrize("rows", [SPECTRA, TRAIN])
def test_without_fold_val_the_encoder_stays_alone(tmp_path, rows):
    _, known, spectra = kept(tmp_path / "spectra", *rows)
    torch.manual_seed(1)
    encoder = FormulaTransformer(EncoderSettings(layers=1, width=16, heads=4)).eval()

    mixing = fit_kernel(encoder, spectra, known)["mixing"]

    assert torch.equal(mixing, UNMIXED) == (rows is TRAIN)
    assert mixing.isfinite().all()
