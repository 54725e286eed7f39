"""Spectra without a formula: the most probable formulas share the samples and the confidence."""

from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli import formulas as room
from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure
from duallgd_cli.formulas import FormulaSettings, RankedFormula, predicted_formulas
from duallgd_cli.predict import settings
from duallgd_cli.spectra.types import Feature, Hypothesis
from tests.made_runs import SETTINGS, first_rows, predicted
from tests.made_spectra import ASPIRIN, CAFFEINE, block, made_spectrum, mgf
from tests.stub_model import stub_model

PROTON = BY_NAME["[M+H]+"]


def proposed(monkeypatch, *probabilities, most=5, largest=100):
    """What is proposed of formulas with these probabilities, each a carbon longer."""
    ranked = [
        RankedFormula(Formula.parse(f"C{n}H{2 * n}O"), PROTON, np.log(p), 0.0, 1.0, 1, 1)
        for n, p in enumerate(probabilities, start=2)
    ]
    monkeypatch.setattr(room, "rank_formulas", lambda *_: ranked)
    return predicted_formulas(Feature((made_spectrum(),)), FormulaSettings(), largest, most)


@pytest.mark.parametrize(
    ("probabilities", "options", "expected"),
    [
        ((0.96, 0.03), {}, 1),
        ((0.7, 0.2, 0.06, 0.03), {}, 3),
        ((0.3, 0.2, 0.1, 0.1, 0.1, 0.1), {}, 5),
        ((0.3, 0.2, 0.1, 0.1, 0.1, 0.1), {"most": 1}, 1),
        ((0.2,), {}, 1),
        ((0.87, 0.02, 0.01), {}, 1),  # a narrow tolerance: the rest lies beyond it
        ((0.6, 0.3), {"largest": 3}, 1),  # what the weights cannot draw is left out
    ],
)
def test_as_many_formulas_are_tried_as_hold_the_probability(
    monkeypatch, probabilities, options, expected
):
    found = proposed(monkeypatch, *probabilities, **options)

    assert [np.exp(one.log_prior) for one in found] == pytest.approx(probabilities[:expected])
    assert sum(one.share for one in found) == pytest.approx(1.0)
    assert {one.source for one in found} == {"predicted"}


def test_where_all_are_too_large_it_is_said(monkeypatch):
    refused = proposed(monkeypatch, 0.6, largest=2)

    assert isinstance(refused, Failure)
    assert refused.status == "too_large"


def test_samples_are_shared_by_probability_but_none_gets_fewer_than_fifteen(tmp_path, monkeypatch):
    def two(feature, **_):
        return [
            Hypothesis(feature, Formula.parse(text), PROTON, prior, source="predicted", share=share)
            for text, prior, share in (("C9H8O4", -0.2, 0.9), ("C13H8O", -2.0, 0.1))
        ]

    monkeypatch.setattr(settings, "predicted_formulas", two)
    made = mgf(tmp_path / "in.mgf", block(ASPIRIN, formula=None))
    (one,) = stub_model().predict(made, samples=40, steps=2)

    tried = [(each.sampled, each.log_prior, each.formula_source) for each in one.hypotheses]
    assert tried == [(36, -0.2, "predicted"), (15, -2.0, "predicted")]


@pytest.mark.parametrize(
    ("formula", "sources", "status"),
    [
        (None, ["file", "predicted", ""], "formula_mismatch"),
        ("predict", ["predicted"] * 3, "ok"),
    ],
)
def test_the_formula_of_the_file_is_used_unless_it_is_to_be_ignored(
    tmp_path, formula, sources, status
):
    two = [block(CAFFEINE, formula=one) for one in (None, "C99H9")]

    rows = predicted(
        *(tmp_path, block(ASPIRIN), *two),
        settings=replace(SETTINGS, formula=formula, group_by="none"),
    )

    first = first_rows(rows)
    assert [first[index]["formula_source"] for index in "012"] == sources
    assert first["2"]["status"] == status
    likeliest = {row["index"]: row for row in rows if row["formula_rank"] == "1"}
    assert likeliest["1"]["formula"] == "C8H10N4O2"
    assert 0.5 < float(likeliest["1"]["formula_probability"]) < 1
    assert (first["0"]["formula_probability"] == "1") == (formula is None)


def test_what_a_table_lacks_is_predicted(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("title,formula\na,C8H10N4O2\nb,\n")

    two = [block(CAFFEINE, formula=None, title=name) for name in "ab"]
    rows = predicted(tmp_path, *two, formulas=table)

    found = {tuple(row[n] for n in ("spectrum_id", "formula_source", "status")) for row in rows}
    assert found == {("a", "table", "ok"), ("b", "predicted", "ok")}
