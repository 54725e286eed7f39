"""`duallgd predict` with a core that is known, and parts that must or must not be there."""

import json

import pytest

from tests.made_runs import lines_of, rows_of


@pytest.fixture
def guided(duallgd, spectra, formulas, tmp_path, monkeypatch):
    """Predict the examples from a few samples, told more."""
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))

    def run(*options, samples=5):
        given = ("--formulas", formulas, "--samples", samples)
        return duallgd("predict", spectra, *given, *options)

    return run


def test_a_row_says_that_no_sample_has_the_part_and_a_run_that_known_ones_are_out(guided, tmp_path):
    (tmp_path / "own.yaml").write_text("sampling: {exclude_known: true}\n")

    guided("--require", "[#6D5]", "--exclude-known", "-o", "out.csv")
    guided("--require", "[Si]", "--config", "own.yaml", "-o", "file.csv")

    for name, said in (("out.csv", "without [#6D5]"), ("file.csv", "it lacks 1 Si")):
        rows = rows_of(tmp_path / name)
        assert {row["status"] for row in rows} == {"no_candidate"}
        assert all(said in row["message"] for row in rows)
        record = json.loads((tmp_path / f"{name}.run.json").read_text())
        assert record["settings"]["sampling"]["exclude_known"] is True


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.csv").write_text(
        "name,smiles,feature_id\nbutanol,CCCCO,\nphenol,Oc1ccccc1,2\n"
    )
    return tmp_path / "mine.csv"


def test_each_candidate_is_told_from_the_nearest_analogue(guided, tmp_path, mine):
    done = guided("--analogues", mine, "-o", "out.jsonl")

    assert done.code == 0
    rows = lines_of(tmp_path / "out.jsonl")
    names = {}
    for row in rows:
        for one in row["candidates"]:
            assert set(one["analogue"]) == {"smiles", "name", "tanimoto", "change"}
            names.setdefault(row["feature_id"], set()).add(one["analogue"]["name"])
    assert all(found == {"butanol"} for feature, found in names.items() if feature != "2")
    assert "phenol" in names["2"]
    record = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert record["settings"]["analogues"][0]["name"] == str(mine)

    mine.write_text("smiles\nCCO\n")
    refused = guided("--analogues", mine, "-o", "out.jsonl", "--resume")
    assert (refused.code, "analogues" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--database-only"], "--database-only needs a --database FILE"),
        (["--database-share", "0.3"], "--database-share needs a --database FILE"),
        (["--database", "MINE", "--database-only", "--database-share", "0.3"], "give one of them"),
        (["--database", "MINE", "--database-share", "0"], "database_share must be above 0"),
        (["--database", "MINE", "--database-share", "2"], "at most 1"),
        (["--database", "MINE", "--database-share", "nan"], "database_share"),
    ],
)
def test_beliefs_that_are_none_are_refused_in_a_sentence(guided, mine, options, said):
    done = guided(*(mine if option == "MINE" else option for option in options), "-o", "out.csv")

    assert (done.code, said in done.err) == (2, True), done.err


@pytest.fixture
def library(spectra, tmp_path):
    """The spectra themselves with structures, as somebody's library."""
    pytest.importorskip("matchms")
    smiles = {"C9H8O4": "CC(=O)Oc1ccccc1C(=O)O", "C8H10N4O2": "Cn1cnc2c1c(=O)n(C)c(=O)n2C"}
    text = spectra.read_text()
    for formula, one in smiles.items():
        text = text.replace(f"FORMULA={formula}\n", f"FORMULA={formula}\nSMILES={one}\n")
    (tmp_path / "lib.mgf").write_text(text)
    return tmp_path / "lib.mgf"


def test_a_spectrum_of_a_library_is_found_and_offered_first(guided, library, tmp_path):
    done = guided("--library", library, "-o", "out.csv")
    lines = guided("--library", library, "-o", "out.jsonl")

    assert (done.code, lines.code) == (0, 0), done.err + lines.err
    assert "found in lib.mgf" in (tmp_path / "out.csv").read_text()
    rows = [row for row in rows_of(tmp_path / "out.csv") if "library" in row["sources"]]
    assert {(row["rank"], row["schymanski"]) for row in rows} == {("1", "2a")}
    assert all(0.5 < float(row["confidence"]) < 1 for row in rows)
    found = next(one for one in lines_of(tmp_path / "out.jsonl") if one.get("library_match"))
    match, first = found["library_match"], found["candidates"][0]
    assert match["offered"]
    assert (first["smiles"], "library" in first["sources"]) == (match["smiles"], True)
    assert first["confidence"] >= match["probability"]
    record = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert record["settings"]["libraries"][0]["name"] == str(library)


def test_a_table_guides_single_features_and_is_part_of_the_run(guided, tmp_path):
    (tmp_path / "guide.csv").write_text("feature_id,forbid,core\n2,[OX2]-[#1],\n4,,[Si]\n")
    given = ("--guide", "guide.csv", "-o", "out.jsonl")

    done = guided(*given)

    assert done.code == 0, done.err
    rows = lines_of(tmp_path / "out.jsonl")
    named = {row["feature_id"]: row for row in rows}
    assert named["4"]["status"] == "core_mismatch"
    for name, row in named.items():
        assert ("not calibrated" in row["warnings"]) == (name == "2")
    record = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert record["settings"]["tables"][0]["name"] == "guide.csv"

    (tmp_path / "guide.csv").write_text("feature_id,forbid\n2,[F]\n")
    assert "tables" in guided(*given, "--resume").err
