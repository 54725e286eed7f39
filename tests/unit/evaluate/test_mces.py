import subprocess
import sys

import pytest

from duallgd_cli.evaluate import metrics as mces
from duallgd_cli.evaluate.metrics import Minima, minima, search

pytest.importorskip("myopic_mces", reason="needs the evaluate extra")
pulp = pytest.importorskip("pulp", reason="needs the evaluate extra")

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccc(OC(C)=O)cc1"  # acetoxy group moved
OTHERS = (
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "O=S(=O)(O)c1ccccc1",
    "C#CCN",
    ISOMER,
    "COC(=O)c1ccccc1C(=O)O",
)
HARD = ("O=C(O)C1=CC(O)C(O)C(O)C1C(=O)NCCc1ccccc1", "NC(Cc1ccc(O)cc1)C(=O)OC1CC(O)=CC(O)C1CO")
PAIR = ("CCO", "COC")


def theirs(first, second, threshold=15):
    """Distance and bound as myopic-mces gives them, in one call where one suffices."""
    from myopic_mces import MCES

    if hasattr(pulp, "LpSolveStatus"):
        pytest.skip("myopic-mces cannot ask PuLP 4 how it ended")
    quiet = {"msg": False, "threads": 1}
    answer = MCES(
        *(first, second), threshold=threshold, solver="HiGHS", solver_options=quiet,
        always_stronger_bound=True,
    )  # fmt: skip
    return round(answer[1], 6)


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


def test_the_minimum_is_that_of_single_pairs_of_myopic_mces_for_every_k():
    single = [theirs(ASPIRIN, other) for other in OTHERS]

    assert [distance(ASPIRIN, other) for other in OTHERS] == single
    found = minima(ASPIRIN, OTHERS, [1, 2, 3, 4, 5]).values
    assert list(found) == [min(single[:k]) for k in (1, 2, 3, 4, 5)]


def test_above_the_threshold_the_bound_stands_and_below_it_the_threshold():
    bound, exact = theirs(*HARD, threshold=0), distance(*HARD)
    assert bound < exact - 0.5

    assert distance(*HARD, threshold=bound - 1) == bound
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
    ids=["no candidate", "no molecule", "at most the ceiling", "fewer than k", "a hit"],
)
def test_what_there_is_counts_up_to_the_ceiling(candidates, ceiling, expected):
    found = minima("CCO", candidates, [1, 10], ceiling=ceiling)

    assert found.values == expected
    assert expected[0] or found.pairs == 0  # a hit at rank one leaves nothing to solve


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((2.5, False), Minima((2.5,), 1, 0)),
        ((None, False), Minima((15.0,), 1, 0)),
        ((None, True), Minima((15.0,), 1, 1)),
        ((3.0, True), Minima((3.0,), 1, 1)),
    ],
    ids=["proven", "above the cutoff", "out of time: the worst", "a mapping"],
)
def test_a_pair_counts_as_its_answer_or_as_the_worst_it_may_be(monkeypatch, answer, expected):
    asked = []
    monkeypatch.setattr(mces, "search", lambda *given: asked.append(given) or answer)

    assert minima("COC", ["CCO"], [1]) == expected
    assert asked == [(*PAIR, 15.0)]


def test_only_what_can_lower_the_minimum_is_looked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(mces, "search", lambda *given: asked.append(given[2]) or (2.0, False))

    minima("CCO", ["COC", "CC=O"], [1, 2])

    assert asked == [15.0, 1.5]


@pytest.mark.parametrize("limit_s", [0.001, 0.1])
def test_a_solver_stopped_early_never_beats_the_truth(limit_s):
    exact = theirs(*HARD)

    found, is_late = search(*sorted(HARD), 15.0, limit_s)

    assert found is None or exact <= found <= 15.0
    assert found == exact or is_late


def test_just_within_the_cutoff_is_proven_and_just_above_is_not_there():
    assert search(ASPIRIN, ISOMER, 2.0) == (2.0, False)
    assert search(ISOMER, ASPIRIN, 1.5) == (None, False)


def test_solvers_say_nothing():
    solve = f"from duallgd_cli.evaluate.metrics import search; search{(*PAIR, 15.0)}"

    done = subprocess.run([sys.executable, "-c", solve], capture_output=True, check=True)

    assert (done.stdout, done.stderr) == (b"", b"")
