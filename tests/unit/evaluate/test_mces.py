"""Distances in bonds, against those that can be counted and those of myopic-mces."""

import pytest

from duallgd_cli.evaluate import metrics
from duallgd_cli.evaluate.metrics import Minima, minima, search

myopic_mces = pytest.importorskip("myopic_mces", reason="needs the evaluate extra")
pulp = pytest.importorskip("pulp", reason="needs the evaluate extra")

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccc(OC(C)=O)cc1"  # acetoxy group moved
OTHERS = ("Cn1cnc2c1c(=O)n(C)c(=O)n2C", "O=S(=O)(O)c1ccccc1", "C#CCN", ISOMER)
HARD = ("O=C(O)C1=CC(O)C(O)C(O)C1C(=O)NCCc1ccccc1", "NC(Cc1ccc(O)cc1)C(=O)OC1CC(O)=CC(O)C1CO")
QUIET = {"msg": False, "threads": 1}


def theirs(first, second, threshold=15):
    """Distance or bound as myopic-mces gives them."""
    if hasattr(pulp, "LpSolveStatus"):
        pytest.skip("myopic-mces cannot ask PuLP 4 how it ended")
    how = {"solver": "HiGHS", "solver_options": QUIET, "always_stronger_bound": True}
    return round(myopic_mces.MCES(first, second, threshold=threshold, **how)[1], 6)


def distance(first, second, **limits):
    return minima(first, [second], [1], **limits).values[0]


@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        ("CCO", "CCO", 0.0),
        ("CCO", "COC", 2.0),  # C-C and C-O against twice C-O: one is left over on either side
        ("CCO", "CC", 1.0),  # the C-O of ethanol has no partner
        ("CC=O", "CCO", 1.0),  # one double bond against a single one
        ("c1ccccc1", "C1CCCCC1", 3.0),  # six of order 1.5 against six single ones
        ("C", "O", 0.0),
        ("C", "CCO", 2.0),
    ],
)
def test_a_distance_that_can_be_counted_is_found(first, second, counted):
    assert distance(first, second) == distance(second, first) == counted


def test_distances_are_those_of_myopic_mces_up_to_the_threshold():
    single = [theirs(ASPIRIN, other) for other in OTHERS]
    bound, exact = theirs(*HARD, threshold=0), distance(*HARD)

    assert [distance(ASPIRIN, other) for other in OTHERS] == single
    assert minima(ASPIRIN, OTHERS, [1, 2, 4]).values == (*single[:1], min(single[:2]), min(single))
    assert bound < exact - 0.5
    assert distance(*HARD, threshold=bound - 1) == bound  # above it the bound stands
    assert distance(*HARD, threshold=exact - 0.5) == exact - 0.5


@pytest.mark.parametrize(
    ("candidates", "ceiling", "expected"),
    [
        ([], 100.0, (100.0, 100.0)),
        ([None, None], 100.0, (100.0, 100.0)),
        (["CC(C)(C)C(C)(C)C"], 4.0, (4.0, 4.0)),
        (["COC"], 100.0, (2.0, 2.0)),
        (["CCO", "COC", "CC=O"], 100.0, (0.0, 0.0)),
    ],
)
def test_what_there_is_counts_up_to_the_ceiling(candidates, ceiling, expected):
    found = minima("CCO", candidates, [1, 10], ceiling=ceiling)

    assert found.values == expected
    assert expected[0] or found.pairs == 0  # a hit at rank one leaves nothing to solve


@pytest.mark.parametrize(
    ("answer", "distances", "timeouts"),
    [
        ((2.5, False), (2.5,), 0),
        ((None, False), (15.0,), 0),  # above the cutoff
        ((None, True), (15.0,), 1),  # out of time: the worst
        ((3.0, True), (3.0,), 1),  # a mapping
    ],
)
def test_a_pair_counts_as_its_answer_or_as_the_worst_it_may_be(
    monkeypatch, answer, distances, timeouts
):
    asked = []
    monkeypatch.setattr(metrics, "search", lambda *given: asked.append(given) or answer)

    assert minima("COC", ["CCO"], [1]) == Minima(distances, 1, timeouts)
    minima("CCO", ["COC", "CC=O"], [1, 2])  # only what can lower the minimum is looked for
    assert asked[:2] == [("CCO", "COC", 15.0)] * 2
    assert [cutoff for *_, cutoff in asked[2:]] == [min(15.0, distances[0] - 0.5)]


def test_a_cutoff_is_inclusive_and_a_solver_stopped_early_never_beats_the_truth():
    exact = theirs(*HARD)

    assert search(ASPIRIN, ISOMER, 2.0) == (2.0, False)
    assert search(ISOMER, ASPIRIN, 1.5) == (None, False)
    for limit_s in (0.001, 0.1):
        found, is_late = search(*sorted(HARD), 15.0, limit_s)
        assert found is None or exact <= found <= 15.0
        assert found == exact or is_late
