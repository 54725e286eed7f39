"""Prepared data and a network that tests of the stages share."""

import pytest

from duallgd_cli.data.prepared import load_spectra
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import made_spectra
from tests.made_simulation import simulated_folder


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return load_spectra(simulated_folder(tmp_path_factory.mktemp("made") / "simulated"))


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings(layers=1))
