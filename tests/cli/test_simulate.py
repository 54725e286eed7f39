"""`duallgd data simulate`: measured spectra and structures to simulated spectra."""

import re

import pytest

from duallgd_cli.data.prepared import load_spectra, read_manifest
from tests.cli.conftest import command_without, python
from tests.made_prepared import SMILES, verify

ARGUMENTS = ["structures", "--like", "spectra", "-o", "made", "--workers", "1", "--steps", "2"]


def test_options_choose_the_structures_and_the_seed(duallgd, prepared):
    options = ["--limit", "3", "--max-atoms", "9", "--seed", "4", "--steps", "1"]

    done = duallgd("data", "simulate", *ARGUMENTS[:-2], *options)

    assert done.code == 0, done.err
    manifest = read_manifest(prepared / "made")
    assert manifest["settings"] == {"limit": 3, "max_atoms": 9, "seed": 4}
    assert manifest["source"]["model"]["seed"] == 4
    spectra = load_spectra(prepared / "made")
    assert len(spectra) == 3
    assert spectra.molecules.n_heavy.max() <= 9


@pytest.mark.slow
def test_structures_get_spectra_like_measured_ones_without_a_chemistry_library(prepared):
    bare = command_without("rdkit", "matchms", "pyteomics", "lxml", "scipy")

    done = python("-c", bare, "data", "simulate", *ARGUMENTS, cwd=prepared)

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    figure, last = done.stderr.splitlines()
    assert re.fullmatch(r"fold val: cosine of expected and measured spectra 0\.\d{3}", figure)
    assert last == "12 simulated spectra in made"
    verify(prepared / "made")
    assert len(load_spectra(prepared / "made")) == len(SMILES)
    model = read_manifest(prepared / "made")["source"]["model"]
    assert (model["spectra"], model["steps"], model["seed"]) == (5, 2, 1)
    assert 0 <= model["val"]["cosine"] <= 1
