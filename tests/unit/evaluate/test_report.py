"""The report of an evaluation: numbers that can be counted, and groups of spectra."""

import csv
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.report import report, strata
from duallgd_cli.evaluate.run import evaluate, inputs_of, tried_formulas
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.results import HypothesisResult
from tests.scored_entries import scored

TRUTH = (
    "identifier\tsmiles\tfold\tadduct\n"
    "a\tCCO\ttest\t[M+H]+\nb\tCC(=O)O\ttest\t[M-H]-\nc\tCCN\ttest\t[M+H]+\nd\tCCC\ttrain\t[M+H]+\n"
)
PREDICTIONS = (
    "spectrum_id,rank,smiles,confidence,status\n"
    "a,1,COC,0.5,ok\na,2,OCC,0.3,ok\nb,1,CC(O)=O,0.75,ok\nd,1,CCC,0.9,ok\nx,,,,no_formula\n"
)


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


def table_of(folder, name):
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_pictures_show_every_group_and_every_bin(settings, monkeypatch):
    pytest.importorskip("matplotlib", reason="plots are an extra")
    from matplotlib.axes import Axes

    drawn, errorbar = [], Axes.errorbar

    def noted(axes, x, y, **how):
        drawn.append((x, y))
        return errorbar(axes, x, y, **how)

    monkeypatch.setattr(Axes, "errorbar", noted)

    found = evaluate(settings)

    for name in ("groups.png", "calibration.png"):
        assert (settings.folder / name).read_bytes().startswith(b"\x89PNG")
    (first, _), _, (stated, observed) = drawn
    assert first[0] == pytest.approx(1 / 3)
    assert len(first) == 1 + len(found["groups"])
    assert list(zip(stated, observed, strict=True)) == [(0.5, 0.0), (0.75, 1.0)]


def test_a_report_holds_numbers_that_can_be_counted(settings):
    inputs = inputs_of(settings)
    inputs.notes["seconds"] = {"a": 2.5}
    report(settings, inputs)

    found = json.loads((settings.folder / "results.json").read_text())
    spectra = table_of(settings.folder, "per_spectrum.tsv")
    groups = table_of(settings.folder, "groups.tsv")
    calibration = table_of(settings.folder, "calibration.tsv")
    # Of a, b, c: b is right at once, a at rank two, c was not predicted.
    assert found["metrics"]["accuracy@1"]["mean"] == pytest.approx(1 / 3)
    assert found["metrics"]["accuracy@10"]["mean"] == pytest.approx(2 / 3)
    assert found["statuses"] == {"ok": 2, "not_predicted": 1}
    assert found["predicted_but_not_in_truth"] == 2
    assert (found["spectra"], found["molecules"]) == (3, 3)
    assert found["data"]["fold"] == "test"
    assert [(row["status"], row["accuracy@1"], row["confidence"]) for row in spectra] == [
        ("ok", "0", "0.5"), ("ok", "1", "0.75"), ("not_predicted", "0", "")
    ]  # fmt: skip
    assert [row["seconds"] for row in spectra] == ["2.5", "", ""]
    assert [row["mean"] for row in groups if row["metric"] == "accuracy@10"] == [
        "0.666667",  # all; then by atoms, then by adduct
        *("0.666667", "0.5", "1"),
    ]
    assert [(row["of"], row["stated"], row["observed"]) for row in calibration] == [
        ("confidence", "0.5", "0"), ("confidence", "0.75", "1")
    ]  # fmt: skip


def test_the_same_spectra_have_the_same_split_hash(settings, tmp_path):
    first = evaluate(settings)["data"]["split_sha256"]
    lines = TRUTH.splitlines()
    (tmp_path / "truth.tsv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")

    with pytest.raises(UsageError, match=r"results\.json exists; .* add --force"):
        evaluate(settings)
    assert evaluate(replace(settings, force=True))["data"]["split_sha256"] == first


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("out.csv", "spectrum_id,smiles\nother,CCO\n", r"none of the 3 .* '[abc]' .* 'other' here"),
        ("report", "a file", "cannot be made"),
    ],
)
def test_what_cannot_be_scored_is_refused(settings, tmp_path, name, text, message):
    (tmp_path / name).write_text(text)

    with pytest.raises(UsageError, match=message):
        evaluate(settings)


def test_results_are_valid_json_even_where_a_number_does_not_exist(settings, tmp_path):
    (tmp_path / "out.csv").write_text("spectrum_id,smiles\na,CCO\n")

    evaluate(settings)

    text = (settings.folder / "results.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["calibration"] == {}
    assert math.isfinite(json.loads(text)["metrics"]["accuracy@1"]["mean"])


NUMBERS = {"nearest_training": {"0": 0.71, "1": 0.3}, "explained_peaks": {"0": 0.0, "2": 3.0}}
ENERGIES = [{"collision_energy": text} for text in ("10", "10.5", "35", "120", "", "ramp")]
SIZES = [{"smiles": "C" * n} for n in (15, 16, 20, 21, 45, 46)]


@pytest.mark.parametrize(
    ("by", "fields", "expected"),
    [
        (
            "heavy_atoms",
            SIZES,
            [("<= 15", 1), ("16-20", 2), ("21-25", 1), ("41-45", 1), (">= 46", 1)],
        ),
        ("adduct", [{"adduct": "[M+H]+"}, {}], [("[M+H]+", 1), ("missing", 1)]),
        (
            "collision_energy",
            ENERGIES,
            [("<= 10 eV", 1), ("10-20 eV", 1), ("30-45 eV", 1), ("> 60 eV", 1), ("missing", 2)],
        ),
        ("nearest_training", [{}] * 3, [("<= 0.3", 1), ("0.7-0.85", 1), ("missing", 1)]),
        ("explained_peaks", [{}] * 3, [("0", 1), ("3-5", 1), ("missing", 1)]),
        ("instrument", [{}], []),  # a kind that no spectrum has
    ],
)
def test_spectra_are_grouped_and_every_kind_covers_all_of_them(by, fields, expected):
    truths = [
        Truth(str(number), one.get("smiles", "CCO"), str(number), one)
        for number, one in enumerate(fields)
    ]
    entries = [
        (t.spectrum_id, t.molecule, t.smiles, [t.smiles] * (number % 2))
        for number, t in enumerate(truths)
    ]

    scores = scored(entries, EvaluateSettings(mces=False, workers=1), truths)
    groups = [group for group in strata(scores, NUMBERS) if group["by"] == by]

    assert [(group["label"], group["spectra"]) for group in groups] == expected
    right = sum(one["spectra"] * one["estimates"]["accuracy@1"]["mean"] for one in groups)
    assert not groups or right == pytest.approx(len(truths) // 2)


def test_formulas_that_were_tried_stand_by_their_probability_once():
    hypotheses = tuple(
        HypothesisResult("ok", formula=formula, log_prior=prior)
        for formula, prior in (("C2H6O", -2.0), ("CH4", -0.5), ("C2H6O", -0.1), ("", 0.0))
    )
    prediction = SimpleNamespace(spectrum_id="a", hypotheses=hypotheses)

    assert tried_formulas([prediction]) == {"a": ["C2H6O", "CH4"]}
