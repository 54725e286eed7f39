"""Every command that a page for users shows runs on the examples, with a stand-in for the model."""

import gzip
import shutil

import pytest

from tests.cli.conftest import EXAMPLES
from tests.made_spectra import ASPIRIN, block, mgf
from tests.test_documents import _CODE, ROOT, commands

RUN = {"predict", "score", "features", "formulas", "merge", "report", "database"}
# Commands with a placeholder, or of what only a folder of one's own has, or a trained recipe.
NOT_HERE = {"runs/", "FILE", "big.mgf", "run/duallgd.safetensors"}


def shown(path):
    """The commands of the blocks of a page, not those inside of a sentence."""
    text = path.read_text(encoding="utf-8")
    blocks = [code for code in _CODE.findall(text) if code.startswith(" ")]
    for words in commands("".join(blocks)):
        if words[0] in RUN and not NOT_HERE & set(words):
            yield words


PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if any(shown(path)) and path.name != "speed.md"
]


@pytest.fixture
def files(tmp_path):
    """What the pages name, made of the examples."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("workflow"))
    for name in ("spectra.mgf", "features.mgf"):
        mgf(tmp_path / name, block(ASPIRIN, feature_id="1"))
    mgf(tmp_path / "gnps.mgf", block(ASPIRIN, smiles="CC(=O)Oc1ccccc1C(=O)O"))
    shutil.copy(EXAMPLES / "spectra.mzML", tmp_path / "run.mzML")
    (tmp_path / "formulas.csv").write_text("feature_id,formula\n1,C9H8O4\n")
    (tmp_path / "quant.csv").write_text("row ID,row m/z,row retention time\n1,181.0495,2.5\n")
    (tmp_path / "mine.smi").write_text("CC(=O)Oc1ccccc1C(=O)O aspirin\n")
    (tmp_path / "guide.csv").write_text("feature_id,require\n1,carboxylic acid\n")
    with gzip.open(tmp_path / "coconut.csv.gz", "wt") as file:
        file.write("smiles\nCC(=O)Oc1ccccc1C(=O)O\n")


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_shows_runs(path, duallgd, files, tmp_path, monkeypatch):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DUALLGD_DATABASES", str(tmp_path / "databases"))
    if path.name != "README.md" and "coconut" in path.read_text(encoding="utf-8"):
        assert not duallgd("database", "add", "coconut.csv.gz").code

    for words in shown(path):
        few = ["--samples", "5", "--workers", "1"] if words[0] in {"predict", "score"} else []
        done = duallgd(*words, *few, *([] if "--resume" in words else ["--force"]))

        assert done.code == 0, f"duallgd {' '.join(words)}: {done.err}"
