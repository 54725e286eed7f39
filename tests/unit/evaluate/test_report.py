"""The report of an evaluation: numbers that can be counted, and groups of spectra."""

import csv
import json
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

PLAIN = EvaluateSettings(mces=False, workers=1)
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
    given = {"predictions": tmp_path / "out.csv", "truth": tmp_path / "truth.tsv", "fold": "test"}
    return replace(PLAIN, **given, out=tmp_path / "report" / "here")


def test_pictures_show_every_group_and_every_bin(settings, monkeypatch):
    axes = pytest.importorskip("matplotlib.axes", reason="plots are an extra").Axes
    drawn, errorbar = [], axes.errorbar
    monkeypatch.setattr(
        axes,
        "errorbar",
        lambda own, x, y, **how: drawn.append((x, y)) or errorbar(own, x, y, **how),
    )

    groups = evaluate(settings)["groups"]

    for name in ("groups.png", "calibration.png"):
        assert (settings.folder / name).read_bytes().startswith(b"\x89PNG")
    (first, _), _, (stated, observed) = drawn
    assert (first[0], len(first)) == (pytest.approx(1 / 3), 1 + len(groups))
    assert list(zip(stated, observed, strict=True)) == [(0.5, 0.0), (0.75, 1.0)]


def test_a_report_holds_numbers_that_can_be_counted(settings):
    inputs = inputs_of(settings)
    inputs.notes["seconds"] = {"a": 2.5}
    report(settings, inputs)

    def cells(table, *columns):
        with (settings.folder / f"{table}.tsv").open(newline="") as file:
            return [tuple(row[c] for c in columns) for row in csv.DictReader(file, delimiter="\t")]

    found = json.loads((settings.folder / "results.json").read_text())
    # Of a, b, c: b is right at once, a at rank two, c was not predicted.
    means = [found["metrics"][f"accuracy@{k}"]["mean"] for k in (1, 10)]
    assert means == pytest.approx([1 / 3, 2 / 3])
    assert found["statuses"] == {"ok": 2, "not_predicted": 1}
    assert found["predicted_but_not_in_truth"] == 2
    assert (found["spectra"], found["molecules"], found["data"]["fold"]) == (3, 3, "test")
    assert cells("per_spectrum", "status", "accuracy@1", "confidence", "seconds") == [
        ("ok", "0", "0.5", "2.5"),
        ("ok", "1", "0.75", ""),
        ("not_predicted", "0", "", ""),
    ]
    rows = [mean for metric, mean in cells("groups", "metric", "mean") if metric == "accuracy@10"]
    assert rows == ["0.666667", "0.666667", "0.5", "1"]  # all; then by atoms, then by adduct
    assert cells("calibration", "of", "stated", "observed") == [
        ("confidence", "0.5", "0"),
        ("confidence", "0.75", "1"),
    ]


def test_the_same_spectra_have_the_same_split_hash(settings):
    first = evaluate(settings)["data"]["split_sha256"]
    head, *lines = TRUTH.splitlines()
    settings.truth.write_text("\n".join([head, *reversed(lines)]) + "\n")

    with pytest.raises(UsageError, match=r"results\.json exists; .* add --force"):
        evaluate(settings)
    assert evaluate(replace(settings, force=True))["data"]["split_sha256"] == first


def test_what_cannot_be_scored_is_refused(settings, tmp_path):
    (tmp_path / "report").write_text("a file")
    with pytest.raises(UsageError, match="cannot be made"):
        evaluate(settings)
    settings.predictions.write_text("spectrum_id,smiles\nother,CCO\n")
    with pytest.raises(UsageError, match=r"none of the 3 .* '[abc]' .* 'other' here"):
        evaluate(replace(settings, out=tmp_path / "elsewhere"))


def test_results_are_valid_json_even_where_a_number_does_not_exist(settings):
    settings.predictions.write_text("spectrum_id,smiles\na,CCO\n")

    evaluate(settings)

    text = (settings.folder / "results.json").read_text()
    assert ("NaN" in text, json.loads(text)["calibration"]) == (False, {})


NOTES = {"nearest_training": {"0": 0.71, "1": 0.3}, "explained_peaks": {"0": 0.0, "2": 3.0}}
ENERGIES = [{"collision_energy": text} for text in ("10", "10.5", "35", "120", "", "ramp")]
SIZES = [{"smiles": "C" * n} for n in (15, 16, 20, 21, 45, 46)]


@pytest.mark.parametrize(
    ("by", "fields", "expected"),
    [
        ("heavy_atoms", SIZES, {"<= 15": 1, "16-20": 2, "21-25": 1, "41-45": 1, ">= 46": 1}),
        ("adduct", [{"adduct": "[M+H]+"}, {}], {"[M+H]+": 1, "missing": 1}),
        (
            "collision_energy",
            ENERGIES,
            {"<= 10 eV": 1, "10-20 eV": 1, "30-45 eV": 1, "> 60 eV": 1, "missing": 2},
        ),
        ("nearest_training", [{}] * 3, {"<= 0.3": 1, "0.7-0.85": 1, "missing": 1}),
        ("explained_peaks", [{}] * 3, {"0": 1, "3-5": 1, "missing": 1}),
        ("instrument", [{}], {}),  # a kind that no spectrum has
    ],
)
def test_spectra_are_grouped_and_every_kind_covers_all_of_them(by, fields, expected):
    names = [str(number) for number in range(len(fields))]
    truths = [
        Truth(n, row.get("smiles", "CCO"), n, row) for n, row in zip(names, fields, strict=True)
    ]
    entries = [(t, t, t, [t.smiles] * (number % 2)) for number, t in enumerate(truths)]

    groups = [row for row in strata(scored(entries, PLAIN, truths), NOTES) if row["by"] == by]

    assert [(group["label"], group["spectra"]) for group in groups] == list(expected.items())
    right = sum(group["spectra"] * group["estimates"]["accuracy@1"]["mean"] for group in groups)
    assert not groups or right == pytest.approx(len(truths) // 2)


def test_formulas_that_were_tried_stand_by_their_probability_once():
    priors = (("C2H6O", -2.0), ("CH4", -0.5), ("C2H6O", -0.1), ("", 0.0))
    hypotheses = [HypothesisResult("ok", formula=name, log_prior=prior) for name, prior in priors]

    tried = tried_formulas([SimpleNamespace(spectrum_id="a", hypotheses=hypotheses)])
    assert tried == {"a": ["C2H6O", "CH4"]}
