"""Spectra without a formula: the most probable formulas share the samples and the confidence."""

from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli import formulas as room
from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import Failure
from duallgd_cli.formulas import FormulaSettings, RankedFormula, predicted_formulas
from duallgd_cli.predict import settings
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.ranking.ranking import RankingModel, rank
from duallgd_cli.spectra.types import Feature
from tests.made_runs import first_rows, lines_of, predicted, request
from tests.made_spectra import ASPIRIN, CAFFEINE, block, made_spectrum, mgf
from tests.stub_model import stub_model
from tests.unit.predict.test_ranking import outcome, structure

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=2, samples=40), top_k=50)


def ranked(*probabilities):
    """Formulas with these probabilities, the carbon chain one longer each."""
    return [
        RankedFormula(Formula.parse(f"C{n}H{2 * n}O"), BY_NAME["[M+H]+"], np.log(p), 0.0, 1.0, 1, 1)
        for n, p in enumerate(probabilities, start=2)
    ]


def proposed(monkeypatch, *probabilities, most=5, largest=100):
    monkeypatch.setattr(room, "rank_formulas", lambda *_: ranked(*probabilities))
    feature = Feature((made_spectrum(),))
    return predicted_formulas(feature, FormulaSettings(), largest, most)


@pytest.mark.parametrize(
    ("probabilities", "most", "expected"),
    [
        ((0.96, 0.03), 5, 1),
        ((0.7, 0.2, 0.06, 0.03), 5, 3),
        ((0.3, 0.2, 0.1, 0.1, 0.1, 0.1), 5, 5),
        ((0.3, 0.2, 0.1, 0.1, 0.1, 0.1), 1, 1),
        ((0.2,), 5, 1),
        ((0.87, 0.02, 0.01), 5, 1),  # a narrow tolerance: the rest lies beyond it
    ],
)
def test_as_many_formulas_are_tried_as_hold_the_probability(
    monkeypatch, probabilities, most, expected
):
    found = proposed(monkeypatch, *probabilities, most=most)

    assert len(found) == expected
    assert [np.exp(one.log_prior) for one in found] == pytest.approx(probabilities[:expected])
    assert sum(one.share for one in found) == pytest.approx(1.0)
    assert {one.source for one in found} == {"predicted"}


def test_formulas_that_the_weights_cannot_draw_are_left_out(monkeypatch):
    assert len(proposed(monkeypatch, 0.6, 0.3, largest=3)) == 1
    refused = proposed(monkeypatch, 0.6, largest=2)
    assert isinstance(refused, Failure)
    assert refused.status == "too_large"


def test_samples_are_shared_by_probability_but_none_gets_fewer_than_fifteen(tmp_path, monkeypatch):
    def two(feature, **_):
        first, second = ranked(0.8, 0.1)
        return [
            room.Hypothesis(
                feature,
                Formula.parse(text),
                one.adduct,
                one.log_probability,
                source="predicted",
                share=share,
            )
            for text, one, share in (("C9H8O4", first, 0.9), ("C13H8O", second, 0.1))
        ]

    monkeypatch.setattr(settings, "predicted_formulas", two)
    made = mgf(tmp_path / "in.mgf", block(ASPIRIN, formula=None))

    predict(request(made, tmp_path / "out.jsonl", settings=SETTINGS), stub_model())

    (found,) = lines_of(tmp_path / "out.jsonl")
    assert [one["sampled"] for one in found["hypotheses"]] == [36, 15]
    assert [one["formula_probability"] for one in found["hypotheses"]] == pytest.approx([0.8, 0.1])
    assert {one["formula_source"] for one in found["hypotheses"]} == {"predicted"}


def test_a_molecule_under_two_adducts_has_both_shares():
    same = [
        outcome(structure("A", 9), adduct=adduct, formula_source="predicted", log_prior=np.log(p))
        for adduct, p in (("[M+H]+", 0.5), ("[M+NH4]+", 0.25))
    ]
    (alone,), _ = rank((replace(same[0], formula_source="file"),), RankingModel())

    (found,), _ = rank(tuple(same), RankingModel())

    assert found.adduct == "[M+H]+"
    assert found.confidence == pytest.approx(0.75 * alone.confidence)


@pytest.mark.parametrize("formula", [None, "predict"])
def test_the_formula_of_the_file_is_used_unless_it_is_to_be_ignored(tmp_path, formula):
    two = [block(CAFFEINE, formula=one) for one in (None, "C99H9")]
    asked = replace(SETTINGS, formula=formula, group_by="none")

    rows = predicted(tmp_path, block(ASPIRIN), *two, settings=asked)

    first = first_rows(rows)
    source = [first[index]["formula_source"] for index in "012"]
    assert source == (["file", "predicted", ""] if formula is None else ["predicted"] * 3)
    assert first["2"]["status"] == ("formula_mismatch" if formula is None else "ok")
    likeliest = {row["index"]: row for row in rows if row["formula_rank"] == "1"}
    assert likeliest["1"]["formula"] == "C8H10N4O2"
    assert 0.5 < float(likeliest["1"]["formula_probability"]) < 1
    if formula is None:
        assert first["0"]["formula_probability"] == "1"


def test_what_a_table_lacks_is_predicted(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("title,formula\na,C8H10N4O2\nb,\n")

    two = [block(CAFFEINE, formula=None, title=name) for name in "ab"]
    rows = predicted(tmp_path, *two, formulas=table, settings=SETTINGS)

    assert {row["spectrum_id"]: row["formula_source"] for row in rows} == {
        "a": "table",
        "b": "predicted",
    }
    assert {row["status"] for row in rows} == {"ok"}
