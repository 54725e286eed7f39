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

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
def test_the_notebook_runs_and_writes_what_mzmine_imports(tmp_path, monkeypatch):
    """With the stand-in for the network: the cells are what is tested here."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    for name in ("spectra.mgf", "formulas.csv"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    notebook = nbformat.read(EXAMPLES / "from_mzmine.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # stored without output
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert "model = load()" in first.source
    stand_in = "from tests.stub_model import stub_model\nmodel = stub_model()"
    first.source = first.source.replace("model = load()", stand_in)

    run = client(notebook, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown = [output for cell in run.cells for output in cell.get("outputs", ())]
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in shown)
    with (tmp_path / "for_mzmine.csv").open(newline="") as file:
        columns = csv.DictReader(file).fieldnames
    assert " ".join(sorted(columns)) == "adduct formula id inchi_key mz name rt score smiles"


def test_one_cut_of_ethyl_acetate_gives_its_pieces():
    fragments = fragment_mz(Chem.MolFromSmiles("CCOC(C)=O"), charge=1)

    for mass in (89.0597, 61.0284, 43.0178, 29.0386):  # M+H, acetic acid+H, acetyl, ethyl
        assert np.abs(fragments - mass).min() < 0.001


def test_a_score_and_a_source_of_ones_own_stand_beside_the_others(tmp_path):
    spectra = mgf(tmp_path / "in.mgf", block(ASPIRIN))
    model = with_own(stub_model(), scores=[OneCut()], sources=[Notebook()])

    predicted = model.predict(spectra, samples=40, top_k=99)

    candidates = predicted[0].candidates
    assert max(one.extra_scores["one_cut"] for one in candidates) > 0
    assert "one_cut" in predicted.record["weights"]["own"]
    own = [one.smiles for one in candidates if "notebook" in one.sources]
    assert own == ["CC(=O)Oc1ccccc1C(=O)O"]
