"""Accuracy of predicted formulas, counted by hand."""

from types import SimpleNamespace

from duallgd_cli.evaluate.groups import formula_accuracy
from duallgd_cli.evaluate.run import tried_formulas
from duallgd_cli.evaluate.tables import Truth
from duallgd_cli.results import HypothesisResult

TRUTHS = [
    Truth("a", "CCO", "ethanol"),
    Truth("b", "COC", "ether"),
    Truth("c", "C[N+](C)(C)CCO", "choline"),
    Truth("d", "C[Fe]C", "outside the vocabulary"),
]


def test_a_formula_counts_from_its_rank_on_and_none_is_wrong():
    others = [f"C{n}H4" for n in range(1, 20)]
    ranked = {"a": ["C2H6O"], "b": [*others[:5], "C2H6O"], "c": [*others[:10], "C5H14NO+"]}

    (group,) = formula_accuracy(TRUTHS, ranked | {"d": [""]}, seed=0)

    means = [group["estimates"][f"formula_accuracy@{k}"]["mean"] for k in (1, 5, 10)]
    assert (group["spectra"], means) == (4, [0.25, 0.25, 0.5])


def test_formulas_that_were_tried_stand_by_their_probability_once():
    hypotheses = tuple(
        HypothesisResult("ok", formula=formula, log_prior=prior)
        for formula, prior in (("C2H6O", -2.0), ("CH4", -0.5), ("C2H6O", -0.1), ("", 0.0))
    )
    prediction = SimpleNamespace(spectrum_id="a", hypotheses=hypotheses)

    assert tried_formulas([prediction]) == {"a": ["C2H6O", "CH4"]}
