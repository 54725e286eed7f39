from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.ranking.ranking import (
    CORRECTION,
    FEATURES,
    RankingModel,
    SampleStatistics,
    candidate_confidence,
    rank,
)
from duallgd_cli.results import HypothesisResult, Structure


def structure(name, samples=1, **values):
    """A structure with a made-up key; 14 letters of block, of which `name` are the first."""
    key = f"{name.ljust(14, 'X')}-UHFFFAOYSA-N"
    scores = {name: values.pop(name) for name in FEATURES if name in values}
    values = {"repaired": 0, "log_likelihood": -10.0, "scores": scores} | values
    return Structure(smiles=name, inchi=f"InChI={name}", inchikey=key, samples=samples, **values)


def outcome(*structures, **values):
    about = {"formula": "C9H8O4", "adduct": "[M+H]+", "n_heavy": 10, "sampled": 100} | values
    return HypothesisResult(status="ok", structures=structures, **about)


def ranked(*structures, model=None, **values):
    return rank((outcome(*structures, **values),), model or RankingModel())[0]


@pytest.mark.parametrize(
    ("structures", "expected"),
    [
        ([structure("B"), structure("A")], "AB"),  # ties by InChIKey, whatever the order
        ([structure("A"), structure("B")], "AB"),
        ([structure("A", 3), structure("B", 3, log_likelihood=-9.0)], "BA"),  # by likelihood
        (  # which outweighs a few samples
            [
                structure("A", 1, fingerprint_tanimoto=0.9),
                structure("B", 3, fingerprint_tanimoto=0.1),
            ],
            "AB",
        ),
    ],
)
def test_what_decides_between_molecules_drawn_as_often_or_nearly(structures, expected):
    assert "".join(one.smiles for one in ranked(*structures)) == expected


def test_the_score_is_the_weighted_sum_of_the_extra_scores():
    model = RankingModel(repaired_share=-2.0, fingerprint_log_likelihood=0.3)
    shown = structure("A", 4, repaired=1, fingerprint_log_likelihood=-20.0)

    (candidate,) = ranked(shown, model=model)

    extra = candidate.extra_scores
    assert candidate.score == pytest.approx(sum(extra[n] * getattr(model, n) for n in FEATURES))
    assert (extra["repaired"], extra["repaired_share"]) == (1, 0.25)
    assert extra["log_share"] == pytest.approx(np.log(0.04))


def test_a_molecule_under_two_adducts_is_one_candidate_with_both_weights():
    def under(*adducts, source="file"):
        return [
            outcome(
                structure("A", samples), adduct=adduct, log_prior=np.log(p), formula_source=source
            )
            for adduct, samples, p in adducts
        ]

    (one,), _ = rank(under(("[M+H]+", 10, 0.5), ("[M+Na]+", 30, 0.5)), RankingModel())
    assert (one.samples, one.adduct) == (40, "[M+Na]+")
    assert one.score == pytest.approx(np.log(0.5 * 0.1 + 0.5 * 0.3))
    # Of predicted formulas it has both shares.
    (alone,), _ = rank(under(("[M+H]+", 9, 0.5)), RankingModel())
    two = under(("[M+H]+", 9, 0.5), ("[M+NH4]+", 9, 0.25), source="predicted")
    (found,), _ = rank(two, RankingModel())
    assert found.adduct == "[M+H]+"
    assert found.confidence == pytest.approx(0.75 * alone.confidence)


@pytest.mark.parametrize(
    ("shares", "present", "above_even", "expected"),
    [
        # the share of the weights times the chance that the right one was drawn
        ([0.6, 0.3, 0.1], 50.0, 0.0, [0.6, 0.3, 0.1]),
        ([0.6, 0.3, 0.1], 0.0, 0.0, [0.3, 0.15, 0.05]),
        # likely first candidates are corrected by a slope of their own: odds of nine, their root
        ([0.9, 0.1], 50.0, -0.5, [0.75, 0.1]),
        ([0.4, 0.3, 0.3], 50.0, -0.5, [0.4, 0.3, 0.3]),
    ],
)
def test_confidence_is_a_probability_of_each(shares, present, above_even, expected):
    model = RankingModel(present=present, corrected_odds_above_even=above_even)

    found = candidate_confidence(np.log(shares), SampleStatistics(20), model)

    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("weight", "more", "less"),
    [
        ("present_score_samples", {"log_samples": 4.0}, {"log_samples": 1.0}),
        ("present_atoms", {"n_heavy": 30}, {"n_heavy": 10}),
        ("present_share", {"log_share": -1.0}, {"log_share": -3.0}),
        ("present_distinct", {"log_distinct": -0.5}, {"log_distinct": -1.0}),
        ("present_samples", {"log_samples": 4.0}, {}),
        ("present_steps", {"log_steps": 2.0}, {}),
        ("present_environments", {}, {"environments": -2.0}),
    ],
)
def test_what_says_that_the_right_one_was_drawn(weight, more, less):
    def total(weight, statistics, scores=(1.0, 0.0)):
        model = RankingModel(present=-3.0, **{weight: 0.5})
        return candidate_confidence(np.array(scores), SampleStatistics(**statistics), model).sum()

    assert total(weight, more) > total(weight, less)
    assert total("present_score", {}) > total("present_score", {}, (0.0, -1.0))


def test_samples_are_counted_over_all_hypotheses_and_shares_within_one():
    proton = outcome(structure("A", 30), structure("B", 2), sampled=50)
    sodium = outcome(structure("A", 6), structure("C", 12), adduct="[M+Na]+", sampled=30)
    failed = HypothesisResult(status="timeout")
    model = RankingModel(steps=5)

    of_all = SampleStatistics.of((proton, sodium, failed), model)
    of_none = SampleStatistics.of((outcome(sampled=30),), model)  # no sample became a molecule

    logs = {"log_share": 30 / (50 + 10), "log_distinct": 3 / 80, "log_samples": 80, "log_steps": 5}
    assert of_all.n_heavy == 10
    assert [getattr(of_all, name) for name in logs] == pytest.approx(np.log([*logs.values()]))
    assert of_none == SampleStatistics(log_samples=np.log(30), log_steps=np.log(5))
    assert SampleStatistics.of((failed,), RankingModel()) == SampleStatistics()


def test_samples_count_for_less_the_more_there_are_and_none_of_it_unless_fitted():
    few, many = (SampleStatistics(log_samples=float(np.log(n))) for n in (1, 300))
    saturated = RankingModel(saturation=0.01)

    assert [one.counted(RankingModel()) for one in (few, many)] == [few, many]
    counted = [np.exp(one.counted(saturated).log_samples) for one in (few, many)]
    np.testing.assert_allclose(counted, [1 / 1.01, 300 / 4])


def test_the_ten_molecules_with_fewest_new_environments_say_how_usual_candidates_are():
    drawn = [structure(name, known_environments=-float(n)) for n, name in enumerate("ABCDEFGHIJKL")]
    unscored = structure("M")

    usual, unknown = (
        SampleStatistics.of((outcome(*structures),), RankingModel()).environments
        for structures in ([*drawn, unscored], [unscored])
    )

    assert (usual, unknown) == (pytest.approx(-4.5), 0)  # 0 to 9; K, L and M are left out


@pytest.mark.parametrize("scores", [[0.0, -1.0], [0.0], [700.0, -700.0]])
@pytest.mark.parametrize("weight", [-800.0, 800.0])
def test_probabilities_stay_within_bounds_at_both_ends(scores, weight):
    model = RankingModel(present=weight, present_score=weight)

    confidence = candidate_confidence(np.array(scores), SampleStatistics(20), model)

    assert np.isfinite(confidence).all()
    assert 0 <= confidence.sum() <= 1 + 1e-12


@given(
    st.lists(st.floats(-30, 30), min_size=1, max_size=20),
    st.tuples(*[st.floats(-5, 5)] * len(CORRECTION)),
    st.floats(-6, 6),
)
def test_a_corrected_first_candidate_keeps_the_order_and_the_sum(scores, corrected, present):
    ordered, plain = np.sort(scores)[::-1], RankingModel(present=present)
    model = replace(plain, **dict(zip(CORRECTION, corrected, strict=True)))

    before, after = (
        candidate_confidence(ordered, SampleStatistics(20, log_samples=3.0), one)
        for one in (plain, model)
    )

    assert (np.diff(after) <= 1e-9).all()
    assert after.sum() <= before.sum() + 1e-9
    if after[0] >= before[0]:  # what the first gains the others lose
        assert after.sum() == pytest.approx(before.sum(), abs=1e-6)


def test_peaks_and_contrast_count_next_to_the_best_of_the_hypothesis():
    names = FEATURES[-6:]
    first, second = (-3.0, 10.0, -8.0, 2.0, 5.0, 0.0), (-4.0, 4.0, -6.0, 0.5, 7.0, -3.0)
    asked = [
        structure("A", **dict(zip(names, first, strict=True))),
        structure("B", **dict(zip(names, second, strict=True))),
        structure("C"),  # could not be asked: like the worst
    ]
    model = RankingModel(familiarity=1.0, peaks_found=1.0, peaks_missed=1.0)

    found = ranked(*asked, model=model)

    assert [(one.smiles, [one.extra_scores[name] for name in names]) for one in found] == [
        ("A", [-3, 0, -2, 2, -2, 0]),
        ("B", [-4, -6, 0, 0.5, 0, -3]),
        ("C", [-4, -6, -2, 0.5, -2, -3]),
    ]


@pytest.mark.parametrize("source", ["file", "predicted"])
@pytest.mark.parametrize("n_explained", [0, 1])
def test_where_next_to_nothing_is_explained_less_confidence_is_stated(source, n_explained):
    explained = outcome(
        *(structure("A", 60), structure("B", 20)),
        **{"n_peaks": 9, "n_explained": 4, "explained_intensity": 0.8, "formula_source": source},
    )
    hardly = {"n_explained": n_explained, "explained_intensity": 0.05 * n_explained}

    by_peaks, top = rank((explained,), RankingModel())
    alone, top_alone = rank((replace(explained, **hardly),), RankingModel())

    assert [one.smiles for one in alone] == [one.smiles for one in by_peaks]
    stated = [one.confidence for one in alone] + [top_alone]
    assert stated == pytest.approx([0.6 * p for p in (*(c.confidence for c in by_peaks), top)])
