"""Example files are what their script makes; what pages show runs on them, and examples run."""

import csv
import gzip
import re
import shutil

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem.rdMolDescriptors import CalcMolFormula

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.predict import selftest
from duallgd_cli.predict.api import with_own
from examples import demo, make_examples
from examples.own_source import Notebook
from examples.rescore import OneCut, fragment_mz
from tests.cli.conftest import EXAMPLES
from tests.made_spectra import ASPIRIN, block, mgf
from tests.stub_model import stub_model
from tests.test_documents import commands

RUN = {"predict", "score", "features", "formulas", "merge", "report", "database"}
# Commands with a placeholder, or of what only a folder of one's own has, or a trained recipe.
NOT_HERE = {"runs/", "FILE", "big.mgf", "run/duallgd.safetensors"}


def shown(path):
    """The commands of the blocks of a page, not those inside of a sentence."""
    blocks = re.findall(r"^(?: {4}[^\n]*\n)+", path.read_text(encoding="utf-8"), re.MULTILINE)
    for words in commands("".join(blocks)):
        if words[0] in RUN and not NOT_HERE & set(words):
            yield words


PAGES = [
    path
    for path in (EXAMPLES.parent / "README.md", *sorted(EXAMPLES.parent.glob("docs/*.md")))
    if path.name != "speed.md" and any(shown(path))
]


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_shows_runs(path, duallgd, databases, tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("workflow"))
    shutil.copy(EXAMPLES / "spectra.mzML", tmp_path / "run.mzML")
    for name in ("spectra.mgf", "features.mgf"):
        mgf(tmp_path / name, block(ASPIRIN, feature_id="1"))
    mgf(tmp_path / "gnps.mgf", block(ASPIRIN, smiles="CC(=O)Oc1ccccc1C(=O)O"))
    (tmp_path / "formulas.csv").write_text("feature_id,formula\n1,C9H8O4\n")
    (tmp_path / "quant.csv").write_text("row ID,row m/z,row retention time\n1,181.0495,2.5\n")
    (tmp_path / "mine.smi").write_text("CC(=O)Oc1ccccc1C(=O)O aspirin\n")
    (tmp_path / "guide.csv").write_text("feature_id,require\n1,carboxylic acid\n")
    with gzip.open(tmp_path / "coconut.csv.gz", "wt") as file:
        file.write("smiles\nCC(=O)Oc1ccccc1C(=O)O\n")
    if path.name != "README.md" and "coconut" in path.read_text(encoding="utf-8"):
        assert not duallgd("database", "add", "coconut.csv.gz").code

    for words in shown(path):
        few = ["--samples", "5", "--workers", "1"] if words[0] in {"predict", "score"} else []
        done = duallgd(*words, *few, *([] if "--resume" in words else ["--force"]))

        assert done.code == 0, f"duallgd {' '.join(words)}: {done.err}"


def test_the_files_are_those_that_the_script_writes(tmp_path, monkeypatch):
    names = ("spectra.mgf", "spectra.mzML", "formulas.csv", "structures.csv")
    committed = {name: (make_examples.HERE / name).read_text(encoding="utf-8") for name in names}
    committed["selftest.mgf"] = make_examples.SELFTEST.read_text(encoding="utf-8")
    monkeypatch.setattr(make_examples, "HERE", tmp_path)
    monkeypatch.setattr(make_examples, "SELFTEST", tmp_path / "selftest.mgf")

    make_examples.main()

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == committed


@pytest.mark.parametrize("made", make_examples.SPECTRA, ids=lambda made: made.molecule)
def test_fragments_are_parts_of_their_precursor_and_the_demo_knows_its_structure(made):
    parent = Formula.parse(made.precursor.removesuffix("+Na"))

    for ion in made.peaks.split()[::2]:
        fragment = Formula.parse(ion.removesuffix("+Na"))
        assert all(f <= p for f, p in zip(fragment.counts, parent.counts, strict=True)), ion
    formula = CalcMolFormula(parse_smiles(demo.STRUCTURES[made.molecule]))
    assert Formula.parse(formula) == Formula.parse(made.formula)


@pytest.mark.parametrize("path", [EXAMPLES / "spectra.mgf", selftest.SPECTRA])
def test_nothing_in_the_files_says_what_they_are(path):
    text = path.read_text(encoding="utf-8").upper()

    names = {"SMILES", "INCHI", *(made.molecule.upper() for made in make_examples.SPECTRA)}
    assert [name for name in names if name in text] == []
    if path == selftest.SPECTRA:
        assert len(selftest.EXPECTED) == text.count("BEGIN IONS")


@pytest.mark.slow
def test_the_demo_tells_right_from_wrong_and_known_from_new(tmp_path, capsys):
    (tmp_path / "demo.csv").write_text(
        "feature_id,rank,smiles,inchikey14,confidence,family_confidence,sources,level,status\n"
        "1,1,Cn1c(=O)c2c(ncn2C)n(C)c1=O,RYYVLZVUVIJVGH,0.9,0.9,database noise,structure,ok\n"
        "2,1,c1cc[nH]c1,AAAAAAAAAAAAAA,0.2,0.3,templates,family,ok\n"
        "2,2,NC(Cc1c[nH]c2ccccc12)C(=O)O,QIVBCDIJIAJPQS,0.1,0.75,noise,family,ok\n"
        "3,,,,,,,nothing,timeout\n"
    )

    rows = demo.compared(tmp_path / "demo.csv")
    demo.show(rows)

    columns = ("true structure", "from", "certain to")
    told = {row["molecule"]: tuple(row[name] for name in columns) for row in rows}
    assert set(told) == set(demo.STRUCTURES)
    assert told["caffeine"] == ("first", "database noise", "structure 0.90")
    assert told["tryptophan"] == ("rank 2", "templates", "family 0.75")
    assert told["quercetin"][0] == "not found"
    assert {row["trained on"] for row in rows} == {"yes", "no"}
    shown = capsys.readouterr().out
    assert "1 of 11 first candidates are right" in shown
    assert "c1cc[nH]c1" in shown


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
