"""A fragment model learns what made spectra show, and remembers how they were measured."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.data.fragmentation import SHIFTS, fragment_features, fragments
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.errors import UnreadableError
from duallgd_cli.train.simulator import fit_simulator, list_measured
from tests.made_prepared import made_spectra, molecules_of
from tests.made_simulation import ORBITRAP, drawn_by, ion

# Acids that show one peak each: what is left when hydroxide goes.
ACIDS = {
    "CC(=O)O": "C2H3O",
    "CCC(=O)O": "C3H5O",
    "CCCC(=O)O": "C4H7O",
    "CC(C)C(=O)O": "C4H7O",
    "CCCCC(=O)O": "C5H9O",
    "OC(=O)c1ccccc1": "C7H5O",
    "OC(=O)Cc1ccccc1": "C8H7O",
    "OC(=O)C1CCCCC1": "C7H11O",
}
UNSEEN = "CCCCCC(=O)O"


@pytest.fixture(scope="module")
def acids(tmp_path_factory):
    rows = [(smiles, "[M+H]+", peak, "20", "train") for smiles, peak in ACIDS.items()]
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra", *rows)


@pytest.fixture(scope="module")
def of_acids(acids):
    return fit_simulator(acids, steps=80)


def test_a_fragment_that_is_always_seen_becomes_the_likeliest(of_acids):
    fitted, _ = of_acids
    assert not fitted.model.training, "nothing is dropped any more"

    molecules = molecules_of(UNSEEN)
    found = fragments(graph_of(molecules, 0), np.random.default_rng(1))
    with torch.no_grad():
        presence, mean = fitted.model(torch.from_numpy(fragment_features(found, ion())))
    row, column = divmod(int(presence.argmax()), len(SHIFTS))
    acyl = molecules_of("CCCCCC=O").atom_counts[0] - np.eye(13, dtype=int)[12]
    np.testing.assert_array_equal(found.counts[row], acyl)
    assert SHIFTS[column] == -1
    chance = torch.sigmoid(presence).flatten().sort(descending=True).values
    assert chance[0] > 0.5 > 2 * chance[1]
    assert float(mean[row, column]) == pytest.approx(0, abs=0.5)  # always the base peak

    drawn = [
        drawn_by(fitted, molecules, 0, np.random.default_rng(seed)).subformula for seed in range(40)
    ]
    assert np.mean([(rows == acyl).all(1).any() for rows in drawn]) > 0.5


def test_a_fit_says_what_it_saw_and_how_well_it_does(spectra, of_acids):
    told = []

    _, record = fit_simulator(spectra, 3, 7, told.append)
    _, unjudged = of_acids

    assert (record["spectra"], record["steps"], record["seed"]) == (5, 3, 7)
    assert 0 < record["val"]["cosine"] < 1
    assert told == [1, 1, 1]
    assert unjudged["val"] == {}


def test_ions_are_those_of_fold_train_and_molecules_count_alike(spectra):
    fitted, _ = fit_simulator(spectra, 1)

    share = {}
    for one, weight in zip(fitted.ions, np.diff(fitted.share_up_to, prepend=0), strict=True):
        key = (ADDUCTS[one.adduct].name, one.instrument, str(one.energy_ev))
        share[key] = share.get(key, 0) + weight
    third = pytest.approx(1 / 3)
    ninth = pytest.approx(1 / 9)
    assert share == {
        ("[M+H]+", ORBITRAP, "20.0"): ninth,
        ("[M+H]+", ORBITRAP, "40.0"): ninth,
        ("[M-H]-", ORBITRAP, "nan"): ninth,
        ("[M+H]+", ORBITRAP, "30.0"): third,
        ("[M+H]+", ORBITRAP, "10.0"): third,
    }


@pytest.mark.parametrize(("fold", "expected"), [("train", 5), ("val", 1), ("test", 1), ("dev", 0)])
def test_measured_spectra_are_those_of_a_fold(spectra, fold, expected):
    found = list_measured(spectra, fold, np.random.default_rng(1))

    assert len(found) == expected
    for one in found:
        features, intensity = one.tensors
        assert len(features) == len(intensity) == len(one.found.counts)
        assert 0 < intensity.max() <= 1


def test_a_spectrum_of_which_no_peak_is_a_fragment_is_left_out(tmp_path):
    rows = [
        ("CC(=O)O", "[M+H]+", "C2H3O", "20", "train"),
        ("CC(=O)O", "[M+H]+", "C2H", "40", "train"),
        # Two oxygens at the ends of a chain: no cut leaves them alone.
        ("OCCO", "[M+H]+", "H3O2", "20", "train"),
    ]

    found = list_measured(
        made_spectra(tmp_path / "spectra", *rows), "train", np.random.default_rng(1)
    )

    assert [(one.ion.energy_ev, one.weight) for one in found] == [(20.0, 0.5), (40.0, 0.5)]


def test_ions_that_cannot_be_simulated_are_left_out(tmp_path):
    rows = [("CC(=O)O", "[M+Na]+", "C2H3O", "20", "train")]

    with pytest.raises(UnreadableError, match="none of fold train that can be simulated"):
        fit_simulator(made_spectra(tmp_path / "spectra", *rows), 1)
