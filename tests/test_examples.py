"""Examples of the Python interface run: the notebook in a kernel, the score with a stand-in."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.predict.api import with_own
from examples.own_source import Notebook
from examples.rescore import OneCut, fragment_mz
from tests.made_spectra import ASPIRIN, block, mgf
from tests.stub_model import stub_model

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_the_notebook_runs_and_writes_what_mzmine_imports(tmp_path, monkeypatch):
    """With the stand-in for the network: the cells are what is tested here."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("spectra.mgf", "formulas.csv"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    notebook = nbformat.read(EXAMPLES / "from_mzmine.ipynb", as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert "model = load()" in first.source
    first.source += "\nfrom tests.stub_model import stub_model\nmodel = stub_model()"
    first.source = first.source.replace("model = load()", "")

    run = client(notebook, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown = [output for cell in run.cells for output in cell.get("outputs", ())]
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in shown)
    with (tmp_path / "for_mzmine.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"id", "mz", "rt", "name", "adduct", "formula", "smiles", "inchi_key", "score"} == {
        *rows[0]
    }


def test_the_notebook_is_stored_without_output():
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(EXAMPLES / "from_mzmine.ipynb", as_version=4)
    nbformat.validate(notebook)

    assert not any(cell.get("outputs") for cell in notebook.cells)


def test_one_cut_of_ethyl_acetate_gives_its_pieces():
    found = fragment_mz(Chem.MolFromSmiles("CCOC(C)=O"), charge=1)

    for mass in (89.0597, 61.0284, 43.0178, 29.0386):  # M+H, acetic acid+H, acetyl, ethyl
        assert np.abs(found - mass).min() < 0.001


def test_the_score_favours_what_explains_the_peaks(tmp_path):
    spectra = mgf(tmp_path / "in.mgf", block(ASPIRIN))

    found = with_own(stub_model(), scores=[OneCut()]).predict(spectra, samples=40)
    scores = [one.extra_scores["one_cut"] for one in found[0].candidates]

    assert max(scores) > 0
    assert found.record["weights"]["own"] == ["one_cut"]


def test_a_source_of_ones_own_stands_beside_the_others(tmp_path):
    spectra = mgf(tmp_path / "in.mgf", block(ASPIRIN))

    found = with_own(stub_model(), sources=[Notebook()]).predict(spectra, samples=40, top_k=99)

    (own,) = (one for one in found[0].candidates if "notebook" in one.sources)
    assert own.smiles == "CC(=O)Oc1ccccc1C(=O)O"
