import json
import math

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import Scorer
from duallgd_cli.evaluate import run as use_case
from duallgd_cli.evaluate.run import Choice, ScoreRequest, score_predictions
from duallgd_cli.evaluate.suites import table

TRUTH = (
    "identifier\tsmiles\tfold\tadduct\n"
    "a\tCCO\ttest\t[M+H]+\nb\tCC(=O)O\ttest\t[M-H]-\nc\tCCN\ttest\t[M+H]+\nd\tCCC\ttrain\t[M+H]+\n"
)
PREDICTIONS = (
    "spectrum_id,rank,smiles,confidence,status\n"
    "a,1,COC,0.5,ok\na,2,OCC,0.3,ok\nb,1,CC(O)=O,0.75,ok\nd,1,CCC,0.9,ok\nx,,,,no_formula\n"
)


@pytest.fixture(autouse=True)
def without_plots(monkeypatch):
    monkeypatch.setattr(use_case, "write_plots", lambda *_: {})


@pytest.fixture
def request_(tmp_path):
    (tmp_path / "truth.tsv").write_text(TRUTH)
    (tmp_path / "out.csv").write_text(PREDICTIONS)
    return ScoreRequest(
        predictions=tmp_path / "out.csv",
        suite=table.truth_only(tmp_path / "truth.tsv"),
        output=tmp_path / "report" / "here",
        choice=Choice(fold="test"),
    )


def test_a_report_holds_the_numbers_counted_by_hand(request_):
    evaluated = score_predictions(request_)

    found = json.loads(evaluated.files["results.json"].read_text())
    means = {name: metric["per_spectrum"]["mean"] for name, metric in found["metrics"].items()}
    # Of a, b, c: b is right at once, a at rank two, c was not predicted.
    assert means["accuracy@1"] == pytest.approx(1 / 3)
    assert means["accuracy@10"] == pytest.approx(2 / 3)
    assert found["statuses"] == {"ok": 2, "not_predicted": 1}
    assert found["predicted_but_not_in_truth"] == 2
    assert (found["spectra"], found["molecules"]) == (3, 3)
    assert found["data"]["fold"] == "test"


def test_tables_stand_beside_the_results(request_):
    files = score_predictions(request_).files

    header, *rows = files["per_spectrum.tsv"].read_text().splitlines()
    assert header.startswith("spectrum_id\tmolecule\tsmiles\taccuracy@1")
    assert [row.split("\t")[0] for row in rows] == ["a", "b", "c"]
    groups = files["groups.tsv"].read_text().splitlines()
    assert any(line.startswith("adduct\t[M+H]+\t2\t2") for line in groups)
    assert files["calibration.tsv"].read_text().splitlines()[1].startswith("confidence\t1\t0.5\t0")


def test_the_same_spectra_have_the_same_split_hash(request_, tmp_path):
    first = score_predictions(request_).results["data"]["split_sha256"]
    lines = TRUTH.splitlines()
    (tmp_path / "truth.tsv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")

    assert score_predictions(request_).results["data"]["split_sha256"] == first


def test_tables_that_share_no_identifier_are_refused(request_, tmp_path):
    (tmp_path / "out.csv").write_text("spectrum_id,smiles\nother,CCO\n")

    with pytest.raises(UsageError, match=r"none of the 3 spectra .* like '[abc]' .* 'other' here"):
        score_predictions(request_)


def test_a_folder_that_cannot_be_made_is_refused(request_, tmp_path):
    (tmp_path / "report").write_text("a file")

    with pytest.raises(UsageError, match="cannot be made"):
        score_predictions(request_)


def test_an_unknown_choice_is_refused():
    with pytest.raises(UsageError, match="--spectra-per-molecule is 1 or all, not 'some'"):
        Choice(spectra_per_molecule="some")


def test_results_are_valid_json_even_where_a_number_does_not_exist(request_, tmp_path):
    (tmp_path / "out.csv").write_text("spectrum_id,smiles\na,CCO\n")

    evaluated = score_predictions(request_)

    text = evaluated.files["results.json"].read_text()
    assert "NaN" not in text
    assert json.loads(text)["calibration"] == {}
    assert math.isfinite(json.loads(text)["metrics"]["accuracy@1"]["per_spectrum"]["mean"])


def test_other_ranks_may_be_asked_for(request_):
    from dataclasses import replace

    found = score_predictions(replace(request_, scorer=Scorer(top_k=(2, 5)))).results

    assert found["metrics"]["accuracy@2"]["per_spectrum"]["mean"] == pytest.approx(2 / 3)
    assert "accuracy@1" not in found["metrics"]
