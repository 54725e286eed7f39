"""Traits of spectra typed from chemistry, measured and simulated."""

import numpy as np
import pytest

from duallgd_cli.train.simulator import compare
from tests.made_prepared import made_spectra
from tests.made_simulation import simulator

# Of catechol: a loss of water; the molecule less an electron, a radical; and a carbon with both
# oxygens, which no cut gives, as each carbon holds one at most.
SHOWN = "C6H5O C6H6O2 CHO2"


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "spectra"
    return made_spectra(
        folder,
        ("Oc1ccccc1O", "[M+H]+", SHOWN, "20", "val"),
        ("CCO", "[M+H]+", "C2H5", "20", "train"),
        ("CC(=O)OCC[N+](C)(C)C", "[M]+", "", "20", "test"),
    )


def test_measured_traits_are_those_a_hand_counts(spectra):
    measured = compare(simulator(), spectra, "val", 1)["measured"]

    assert measured.peaks == 3
    assert measured.unpaired == measured.uncut == pytest.approx(1 / 3)
    assert measured.log_intensity == pytest.approx(np.log(1 / 2), abs=1e-3)
    assert str(measured) == (
        "3 peaks a spectrum, 33% with an unpaired electron, 33% that no cut gives, "
        "median intensity 0.500"
    )


def test_simulated_traits_are_those_of_the_simulator(spectra):
    """One that shows no fragment leaves the ion; one that shows them all, more peaks."""
    few, many = (
        compare(simulator(log_odds=odds), spectra, "val", 1)["simulated"] for odds in (-50, 50)
    )

    assert (few.peaks, few.unpaired, few.uncut, few.log_intensity) == (1, 0, 0, 0)
    assert many.peaks > 20
    assert 0.3 < many.unpaired < 0.7


def test_a_fold_without_peaks_has_no_traits(spectra):
    assert compare(simulator(), spectra, "dev", 1) == {}


def test_a_comparison_follows_from_its_seed(spectra):
    first, again, other = (compare(simulator(), spectra, "val", seed) for seed in (1, 1, 2))

    assert first == again != other
