import json
import math
from dataclasses import replace

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import report as report_layer
from duallgd_cli.evaluate.run import evaluate
from duallgd_cli.evaluate.settings import EvaluateSettings

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
    monkeypatch.setattr(report_layer, "write_plots", lambda *_: {})


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "truth.tsv").write_text(TRUTH)
    (tmp_path / "out.csv").write_text(PREDICTIONS)
    return EvaluateSettings(
        predictions=tmp_path / "out.csv",
        truth=tmp_path / "truth.tsv",
        out=tmp_path / "report" / "here",
        fold="test",
        mces=False,
        workers=1,
    )


def test_a_report_holds_the_numbers_counted_by_hand(settings):
    evaluate(settings)

    found = json.loads((settings.folder / "results.json").read_text())
    means = {name: metric["mean"] for name, metric in found["metrics"].items()}
    # Of a, b, c: b is right at once, a at rank two, c was not predicted.
    assert means["accuracy@1"] == pytest.approx(1 / 3)
    assert means["accuracy@10"] == pytest.approx(2 / 3)
    assert found["statuses"] == {"ok": 2, "not_predicted": 1}
    assert found["predicted_but_not_in_truth"] == 2
    assert (found["spectra"], found["molecules"]) == (3, 3)
    assert found["data"]["fold"] == "test"


def test_the_same_spectra_have_the_same_split_hash(settings, tmp_path):
    first = evaluate(settings)["data"]["split_sha256"]
    lines = TRUTH.splitlines()
    (tmp_path / "truth.tsv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")

    with pytest.raises(UsageError, match=r"results\.json exists; .* add --force"):
        evaluate(settings)
    assert evaluate(replace(settings, force=True))["data"]["split_sha256"] == first


def test_tables_that_share_no_identifier_are_refused(settings, tmp_path):
    (tmp_path / "out.csv").write_text("spectrum_id,smiles\nother,CCO\n")

    with pytest.raises(UsageError, match=r"none of the 3 spectra .* like '[abc]' .* 'other' here"):
        evaluate(settings)


def test_a_folder_that_cannot_be_made_is_refused(settings, tmp_path):
    (tmp_path / "report").write_text("a file")

    with pytest.raises(UsageError, match="cannot be made"):
        evaluate(settings)


def test_results_are_valid_json_even_where_a_number_does_not_exist(settings, tmp_path):
    (tmp_path / "out.csv").write_text("spectrum_id,smiles\na,CCO\n")

    evaluate(settings)

    text = (settings.folder / "results.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["calibration"] == {}
    assert math.isfinite(json.loads(text)["metrics"]["accuracy@1"]["mean"])
