"""An encoder learns what bits speak for a molecule beside its isomers, on made spectra."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.data.molecular_graph import Rival
from duallgd_cli.data.peaks import from_prepared, peak_batch
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.train import contrast
from duallgd_cli.train.contrast import bit_sums, fit_contrast
from tests.made_prepared import ESTERS, made_spectra


def bits(smiles):
    return fingerprint(parse_smiles(smiles))


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    rows = [(one, "[M+H]+", peak, "20", "train") for one, peak in ESTERS.items()]
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra", *rows)


def rivals_of_all(spectra):
    """Of each molecule, itself and the other esters of its formula."""
    names = [name.decode() for name in spectra.molecules.inchikey.tolist()]
    row = {one: names.index(inchikey_block(parse_smiles(one))) for one in ESTERS}
    others = {one: [two for two in ESTERS if len(two) == len(one) and two != one] for one in ESTERS}
    return {row[one]: [Rival(None, bits(two)) for two in (one, *others[one])] for one in ESTERS}


def test_scores_of_bits_are_summed_molecule_by_molecule():
    scores = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    first = [np.array([0, 3], np.uint16), np.array([1], np.uint16)]
    second = [np.array([], np.uint16), np.array([2, 3], np.uint16), np.array([0], np.uint16)]

    got = bit_sums(scores, [first, second])

    assert [one.tolist() for one in got] == [[3, 1], [0, 13, 4]]


def test_molecules_are_told_from_rivals_by_their_peaks(spectra, monkeypatch):
    """Chance would put 3 of 8 first; the encoder itself is left as it was."""
    quick = {"_STEPS": 150, "_SPECTRA": 16, "_LEARNING_RATE": 3e-3, "_DROPOUT": 0.0}
    for name, value in quick.items():
        monkeypatch.setattr(contrast, name, value)
    torch.manual_seed(1)
    encoder = FormulaTransformer(EncoderSettings(layers=1, width=32, heads=2, summary=32)).eval()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    rivals, told = rivals_of_all(spectra), []

    tensors, record = fit_contrast(encoder, spectra, rivals, 1, told.append)

    assert (record["contrasted"], len(told)) == (150 * 16, 150)
    assert all(torch.equal(before[name], one) for name, one in encoder.state_dict().items())
    encoder.load_state_dict(tensors)
    assert first_of_rivals(encoder, spectra, rivals) == len(ESTERS)


def first_of_rivals(encoder, spectra, rivals):
    firsts = 0
    for spectrum, molecule in enumerate(spectra.molecule.tolist()):
        with torch.no_grad():
            said = encoder(peak_batch([from_prepared(spectra, [spectrum])]))
        (scores,) = bit_sums(said, [[one.bits for one in rivals[molecule]]])
        firsts += bool((scores[0] > scores[1:]).all())
    return firsts


def test_without_rivals_there_is_nothing_to_learn(spectra):
    encoder = FormulaTransformer(EncoderSettings(layers=1, width=16, heads=2, summary=16))

    assert fit_contrast(encoder, spectra, {0: (Rival(None, bits("CCO")),), 1: ()}) == ({}, {})
