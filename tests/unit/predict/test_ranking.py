"""Candidates are ranked, their confidence is a probability, and the finest certain level is said.

Generated molecules and structures of databases are one list, by the law of total probability.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli import config
from duallgd_cli.errors import UnreadableError
from duallgd_cli.ranking.one_list import (
    Membership,
    Ranking,
    of_databases,
    with_level,
)
from duallgd_cli.ranking.ranking import (
    CORRECTION,
    FEATURES,
    RankingModel,
    SampleStatistics,
    candidate_confidence,
    rank,
)
from duallgd_cli.results import (
    Candidate,
    HypothesisResult,
    LikelyPart,
    Prediction,
    Structure,
)
from duallgd_cli.spectra.types import Source


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
    # Samples count for less the more there are, if that was fitted.
    assert of_all.counted(RankingModel()) == of_all
    counted = of_all.counted(RankingModel(saturation=0.01)).log_samples
    assert np.exp(counted) == pytest.approx(80 / 1.8)
    # The ten with fewest new environments say how usual candidates are; M was not scored.
    drawn = [structure(name, known_environments=-float(n)) for n, name in enumerate("ABCDEFGHIJKL")]
    usual = SampleStatistics.of((outcome(*drawn, structure("M")),), RankingModel())
    assert (usual.environments, of_all.environments) == (pytest.approx(-4.5), 0)


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


GENERATED = RankingModel(n_spectra=9, present=0.0)
OF_DATABASE = RankingModel(n_spectra=9, present=2.0)


def in_database(name, **values):
    return structure(name, 0, sources=("database",), log_likelihood=None, **values)


def both(name, samples, **values):
    return structure(name, samples, sources=("database", "noise"), **values)


def ranking(share=0.5, **membership):
    return Ranking(GENERATED, OF_DATABASE, Membership(**membership), share)


def confidences(ranked):
    """Confidences by name, in order, of what a ranking gave: candidates, and the first ten's."""
    candidates, first_ten = ranked
    values = [one.confidence for one in candidates]
    assert values == sorted(values, reverse=True)
    assert first_ten == pytest.approx(math.fsum(values[:10]))
    assert math.fsum(values) <= 1 + 1e-9
    assert min(values) >= 0
    found = {one.smiles: one.confidence for one in candidates}
    assert len(found) == len(candidates)
    return found


MIXED = (
    structure("A", 5, fingerprint_tanimoto=0.5),
    in_database("D", fingerprint_tanimoto=0.4),
    both("E", 3, fingerprint_tanimoto=0.7),
    structure("B", 1),
)
TRIED = outcome(*MIXED, sampled=9)


def test_each_is_its_confidence_in_its_world_times_the_probability_of_that_world():
    inside = confidences(rank(of_databases((TRIED,)), OF_DATABASE))
    outside = (replace(TRIED, structures=(MIXED[0], MIXED[3])),)

    expected = {name: 0.3 * value for name, value in inside.items()}
    for name, value in confidences(rank(outside, GENERATED)).items():
        expected[name] = 0.7 * value
    assert confidences(ranking(0.3).rank((TRIED,))) == pytest.approx(expected)
    # A predicted formula has its own list, times its probability.
    predicted = replace(TRIED, formula_source="predicted", log_prior=math.log(0.25))
    quarter = {name: value / 4 for name, value in expected.items()}
    assert confidences(ranking(0.3).rank((predicted,))) == pytest.approx(quarter)
    # Who is certain gets the structures of the database alone.
    alone = {one.smiles: one.log_likelihood for one in ranking(1.0).rank((TRIED,))[0]}
    assert alone == {"D": None, "E": -10.0}


def test_without_weights_the_probability_is_what_the_user_believes():
    alone = (outcome(in_database("D", fingerprint_tanimoto=0.9), sampled=0),)

    assert ranking(0.2).chance((TRIED,)) == pytest.approx(0.2)
    assert ranking(0.2).chance((outcome(structure("A", 5), sampled=9),)) == 0
    better = ranking(advantage=0.5, leader=0.5)
    assert 0.5 < better.chance((TRIED,)) < better.chance(alone) < 1


def test_a_header_brings_the_ranking_back_and_another_versions_is_refused():
    whole = ranking(0.4, advantage=0.5)
    parts = {"ranking": GENERATED, "database": OF_DATABASE, "membership": whole.membership}
    model = {name: config.dump(part) for name, part in parts.items()}
    settings = {"sampling": {"database_share": 0.4}}

    assert Ranking.recorded(model, settings, "x.csv") == whole
    for changed, own in ((model | {"membership": {"rivalry": 1.0}}, settings), (model, {})):
        with pytest.raises(UnreadableError, match="another version"):
            Ranking.recorded(changed, own, "x.csv")


def matched(*structures, probability, block="L", **values):
    """A hypothesis with the best match of a library."""
    match = {
        "inchikey": structure(block).inchikey, "offered": True, "probability": probability,
    }  # fmt: skip
    return outcome(*structures, known={"library_match": match}, **values)


IN_LIBRARY = structure("L", 0, sources=("library",), log_likelihood=None, fingerprint_tanimoto=0.2)
DRAWN = (structure("A", 5, fingerprint_tanimoto=0.6), structure("B", 3, fingerprint_tanimoto=0.5))
PLAIN = confidences(Ranking(GENERATED).rank((outcome(*DRAWN),)))
DRAWN_TOO = (structure("A", 5, sources=("library", "noise"), fingerprint_tanimoto=0.6), DRAWN[1])


def test_the_structure_of_a_matching_spectrum_is_as_probable_as_such_matches_are_right():
    def ranked(*structures, **values):
        return Ranking(GENERATED).rank([matched(*structures, **values)])

    both = ranked(*DRAWN, IN_LIBRARY, probability=0.9)
    first = both[0][0]
    assert (first.smiles, first.rank, first.samples, first.sources) == ("L", 1, 0, ("library",))
    assert math.exp(first.score) == pytest.approx(0.9)
    shares = {"L": 0.9} | {name: 0.1 * value for name, value in PLAIN.items()}
    assert confidences(both) == pytest.approx(shares)
    # One that was generated too keeps the higher probability.
    low = ranked(*DRAWN_TOO, block="A", probability=PLAIN["A"] / 2)
    high = ranked(*DRAWN_TOO, block="A", probability=0.95)
    assert confidences(low) == pytest.approx(PLAIN)
    others = PLAIN["B"] * 0.05 / (1 - PLAIN["A"])
    assert confidences(high) == pytest.approx({"A": 0.95, "B": others})
    # Under a predicted formula it is as probable as the formula lets it.
    about = {"probability": 0.9, "formula_source": "predicted"}
    two = [
        matched(*DRAWN, IN_LIBRARY, log_prior=math.log(chance), formula=formula, **about)
        for chance, formula in ((0.6, "C9H8O4"), (0.4, "C8H4O5"))
    ]
    assert confidences(Ranking(GENERATED).rank(two))["L"] == pytest.approx(0.54)


@given(
    share=st.floats(0.01, 0.99),
    samples=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    membership=st.tuples(*[st.floats(-3, 3)] * 4),
    probability=st.floats(0, 1),
    data=st.data(),
)
def test_all_confidences_are_probabilities_whatever_the_weights(
    share, samples, membership, probability, data
):
    structures = [
        both(f"{n}", count) if count % 3 else in_database(f"{n}") if n % 2 else structure(f"{n}", 1)
        for n, count in enumerate(samples)
    ]
    block = data.draw(st.sampled_from([one.smiles for one in (*structures, IN_LIBRARY)]))
    structures += [IN_LIBRARY] if block == "L" else []
    tried = matched(*structures, block=block, probability=probability, sampled=99)

    model = Ranking(GENERATED, OF_DATABASE, Membership(*membership), share)
    found = confidences(model.rank((tried,)))

    assert found.keys() == {one.smiles for one in structures}
    assert found[block] >= probability - 1e-9


PART = LikelyPart("sugar", "hexose", "O", 0.8, 0.1, 0.9)


@pytest.mark.parametrize(
    ("confidences", "others", "expected"),
    [
        ([0.96], {}, ("structure", "2b")),
        ([0.75], {}, ("structure", "3")),
        ([0.7], {}, ("structure", "3")),
        ([0.5, 0.71], {}, ("family", "3")),
        ([0.1, 0.2, 0.7], {}, ("scaffold", "3")),
        ([0.1, 0.2, 0.3], {"parts": [PART]}, ("parts", "3")),
        ([0.1, 0.2, 0.3], {"parts": [], "formula": 0.9}, ("formula", "4")),
        ([0.1, 0.2, 0.3], {"formula": 0.69}, ("nothing", "5")),
        ([], {"formula": 0.9}, ("formula", "4")),
        ([], {"formula": 0.6}, ("nothing", "5")),
        ([0.1], {"formula": 0.2, "found": True}, ("nothing", "2a")),
    ],
)
def test_the_finest_that_is_certain(confidences, others, expected):
    """Of a feature whose first candidate, its family and its scaffold are so probable."""
    match = {name: others[name] for name in others if name == "found"}
    tried = HypothesisResult(
        *("ok", "", "CH4", "[M+H]+"),
        log_prior=math.log(others.get("formula", 1.0)), known={"library_match": match},
    )  # fmt: skip
    chances = [*confidences, *confidences[-1:] * 2][:3] or (0.0, 0.0, 0.0)
    of_its = {"family": "C", "family_confidence": chances[1]}
    of_its |= {"scaffold": "acyclic", "scaffold_confidence": chances[2], "sources": ("library",)}
    first = Candidate(
        1, "C", "InChI", "K" * 27, "CH4", "[M+H]+", 1, None, 0.0, chances[0], **of_its
    )
    one = Prediction(
        *(Source("a.mgf", 0), "a"), formula="CH4", adduct="[M+H]+", hypotheses=(tried,),
        candidates=(first,) if confidences else (), parts=others.get("parts"),
    )  # fmt: skip

    leveled = with_level(one, 0.7)

    assert (leveled.level, leveled.schymanski) == expected


def test_confidence_of_a_family_is_the_sum_of_its_candidates_written_or_not():
    tried = outcome(
        structure("A", 5, family="x", scaffold="s"),
        structure("B", 4, family="x", scaffold="s"),
        structure("C", 3, family="y", scaffold="s"),
        sampled=12,
    )

    (a, b, c), _ = rank((tried,), RankingModel())
    (first,), _ = rank((tried,), RankingModel(), 1)

    pair = a.confidence + b.confidence
    sums = [one.family_confidence for one in (a, b, c, first)]
    assert sums == pytest.approx([pair, pair, c.confidence, pair])
    assert c.scaffold_confidence == pytest.approx(pair + c.confidence)
