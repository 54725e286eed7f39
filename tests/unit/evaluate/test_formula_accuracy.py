"""Accuracy of predicted formulas: counted by hand, by mass and by known or unknown formula."""

from types import SimpleNamespace

import pytest

from duallgd_cli.evaluate.groups import formula_accuracy
from duallgd_cli.evaluate.run import tried_formulas
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.results import HypothesisResult

ETHANOL, ETHER = Truth("a", "CCO", "ethanol"), Truth("b", "COC", "ether")
CHOLINE = Truth("c", "C[N+](C)(C)CCO", "choline")
# Fluorine, bromine and iodine beside boron: nobody has made it.
UNKNOWN = Truth("d", "OB(O)C(F)(Br)C(I)CCCCCCCCCCCCCCCCCCC", "made up")


def found(truths, ranked):
    groups = formula_accuracy(truths, ranked, seed=0)
    return {
        (group["by"], group["label"]): [
            group["spectra"],
            *(group["estimates"][f"formula_accuracy@{k}"]["mean"] for k in (1, 5, 10)),
        ]
        for group in groups
    }


def test_a_formula_counts_from_its_rank_on_and_none_is_wrong():
    others = [f"C{n}H4" for n in range(1, 20)]
    ranked = {"a": ["C2H6O"], "b": [*others[:5], "C2H6O"], "c": [*others[:10], "C5H14NO+"]}

    shares = found([ETHANOL, ETHER, CHOLINE, UNKNOWN], ranked)

    assert shares["all", "all"] == [4, 0.25, 0.25, 0.5]


def test_groups_are_by_mass_and_by_whether_a_structure_of_the_formula_is_known():
    aspirin = Truth("a", "CC(=O)Oc1ccccc1C(=O)O", "aspirin")
    caffeine = Truth("b", "Cn1cnc2c1c(=O)n(C)c(=O)n2C", "caffeine")

    shares = found([aspirin, caffeine, UNKNOWN], {"a": ["C9H8O4"], "b": ["CH4"]})

    assert shares == {
        ("all", "all"): pytest.approx([3, 1 / 3, 1 / 3, 1 / 3]),
        ("mass", "below 300 Da"): [2, 0.5, 0.5, 0.5],
        ("mass", "from 500 Da"): [1, 0, 0, 0],
        ("formula", "of a known structure"): [2, 0.5, 0.5, 0.5],
        ("formula", "of no known structure"): [1, 0, 0, 0],
    }


def test_a_formula_outside_the_vocabulary_is_never_right_and_has_no_group():
    shares = found([Truth("a", "C[Fe]C", "iron")], {"a": [""]})

    assert shares["all", "all"] == [1, 0, 0, 0]
    assert ("mass", "missing") in shares


def test_formulas_that_were_tried_stand_by_their_probability_once():
    hypotheses = tuple(
        HypothesisResult("ok", formula=formula, log_prior=prior)
        for formula, prior in (("C2H6O", -2.0), ("CH4", -0.5), ("C2H6O", -0.1), ("", 0.0))
    )
    prediction = SimpleNamespace(spectrum_id="a", hypotheses=hypotheses)

    assert tried_formulas([prediction]) == {"a": ["C2H6O", "CH4"]}
