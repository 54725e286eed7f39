"""`duallgd predict` with a core that is known, and parts that must or must not be there."""

import csv
import json

import pytest
from rdkit import Chem

from duallgd_cli.chem.guide import Guide


def found(path):
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def test_candidates_have_what_is_required_and_nothing_that_is_forbidden(
    duallgd, spectra, formulas, tmp_path
):
    guide = Guide(require=("[#6]=[#6]",), forbid=("[OX2]-[OX2]", "[NX3]-[OX2]"))
    options = [f"--require={one}" for one in guide.require]
    options += [f"--forbid={one}" for one in guide.forbid]

    done = duallgd(
        "predict", spectra, "--formulas", formulas, "--samples", 200, *options, "-o", "out.csv"
    )

    assert done.code == 0
    rows = [row for row in found(tmp_path / "out.csv") if row["smiles"]]
    assert rows
    assert not any(guide.fault(Chem.MolFromSmiles(row["smiles"])) for row in rows)


def test_a_row_says_that_no_sample_has_the_part(duallgd, spectra, formulas, tmp_path):
    duallgd("predict", spectra, "--formulas", formulas, "--require", "[Si]", "-o", "out.csv")

    rows = found(tmp_path / "out.csv")
    assert {row["status"] for row in rows} == {"no_candidate"}
    assert all("without [Si]" in row["message"] for row in rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--core", "c1cc"], "error: core 'c1cc' is not a SMILES"),
        (["--core", "[Fe]"], "error: core '[Fe]' holds Fe"),
        (["--require", "xx("], "error: 'xx(' is neither a SMARTS nor the name of a part"),
        (["--forbid", "hexoze"], "error: 'hexoze' is neither a SMARTS nor the name of a part"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(duallgd, spectra, options, said, tmp_path):
    done = duallgd("predict", spectra, *options, "-o", "out.csv")

    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(said)
    assert not list(tmp_path.glob("out.csv*"))


def test_a_run_is_not_resumed_with_another_core(duallgd, spectra, formulas):
    given = ("predict", spectra, "--formulas", formulas, "-o", "out.csv", "--journal", "j.jsonl")
    duallgd(*given, "--core", "CO")

    refused = duallgd(*given, "--core", "CN", "--resume")

    assert refused.code == 2
    assert "sampling.core CO -> CN" in refused.err


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.csv").write_text(
        "name,smiles,feature_id\nbutanol,CCCCO,\nphenol,Oc1ccccc1,2\n"
    )
    return tmp_path / "mine.csv"


def test_each_candidate_is_told_from_the_nearest_analogue(
    duallgd, spectra, formulas, tmp_path, mine
):
    given = ("predict", spectra, "--formulas", formulas, "--samples", 5, "--analogues", mine)

    done = duallgd(*given, "-o", "out.jsonl")

    assert done.code == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    names = {}
    for row in rows:
        for one in row["candidates"]:
            assert set(one["analogue"]) == {"smiles", "name", "tanimoto", "change", "change_name"}
            names.setdefault(row["feature_id"], set()).add(one["analogue"]["name"])
    assert all(found == {"butanol"} for feature, found in names.items() if feature != "2")
    assert "phenol" in names["2"]
    record = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert record["settings"]["analogues"][0]["name"] == str(mine)


def test_a_run_is_not_resumed_with_other_analogues(duallgd, spectra, formulas, mine):
    given = ("predict", spectra, "--formulas", formulas, "-o", "out.csv", "--analogues", mine)
    duallgd(*given)
    mine.write_text("smiles\nCCO\n")

    refused = duallgd(*given, "--resume")

    assert refused.code == 2
    assert "analogues" in refused.err


def test_an_empty_file_of_analogues_is_one_sentence(duallgd, spectra, mine):
    mine.write_text("smiles\n")

    done = duallgd("predict", spectra, "--analogues", mine, "-o", "out.csv")

    assert done.code == 2
    assert done.err.splitlines()[-1].endswith(
        "holds no molecule that can be an analogue: it is empty"
    )
