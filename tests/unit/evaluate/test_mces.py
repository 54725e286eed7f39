import math
import random

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import mces
from duallgd_cli.evaluate.mces import (
    Interval,
    Search,
    SolvedPairs,
    lower_bound,
    molecule_graph,
)

pytest.importorskip("myopic_mces", reason="needs the evaluate extra")

SMILES = (
    "CCO",
    "COC",
    "CC(=O)Oc1ccccc1C(=O)O",
    "COC(=O)c1ccccc1C(=O)O",
    "O=C(O)c1ccc(OC(C)=O)cc1",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "C1CCCCC1O",
    "CCCCCC=O",
    "C#CCN",
    "ClC(Cl)(Cl)Cl",
    "O=S(=O)(O)c1ccccc1",
    "C",
)
HARD = ("O=C(O)C1=CC(O)C(O)C(O)C1C(=O)NCCc1ccccc1", "NC(Cc1ccc(O)cc1)C(=O)OC1CC(O)=CC(O)C1CO")


def theirs(first, second, threshold=15):
    from myopic_mces import MCES

    answer = MCES(
        first,
        second,
        threshold=threshold,
        solver="HiGHS",
        solver_options={"msg": False, "threads": 1},
        always_stronger_bound=True,
    )
    return round(answer[1], 6)


def distance(first, second, **limits):
    return Search().minima(first, [second], [1], **limits)[0]


@pytest.mark.parametrize(
    ("first", "second", "by_hand"),
    [
        ("CCO", "CCO", 0.0),
        # CCO has bonds C-C and C-O, COC has twice C-O: one bond is left over on either side.
        ("CCO", "COC", 2.0),
        # The shared C-C stays, the C-O of ethanol has no partner.
        ("CCO", "CC", 1.0),
        # One double bond against a single one.
        ("CC=O", "CCO", 1.0),
        # Six aromatic bonds of order 1.5 against six single ones.
        ("c1ccccc1", "C1CCCCC1", 3.0),
        # No bond at all.
        ("C", "O", 0.0),
    ],
)
def test_a_distance_counted_by_hand_is_found(first, second, by_hand):
    assert distance(first, second) == by_hand
    assert distance(second, first) == by_hand


def test_the_bound_is_the_stronger_bound_of_myopic_mces():
    from myopic_mces import construct_graph, filter2

    for first in SMILES:
        for second in SMILES:
            ours = lower_bound(molecule_graph(first), molecule_graph(second))
            assert ours == pytest.approx(filter2(construct_graph(first), construct_graph(second)))


def test_single_pairs_are_those_of_myopic_mces():
    pairs = random.Random(0).sample([(a, b) for a in SMILES for b in SMILES if a < b], 12)

    assert [distance(*pair) for pair in pairs] == [theirs(*pair) for pair in pairs]


def test_the_minimum_is_the_minimum_of_single_pairs_for_every_k():
    truth, others = SMILES[2], [SMILES[i] for i in (5, 10, 8, 4, 3)]
    single = [theirs(truth, other) for other in others]

    found = Search().minima(truth, others, [1, 2, 3, 4, 5])

    assert found == [min(single[:k]) for k in (1, 2, 3, 4, 5)]


def test_above_the_threshold_the_bound_stands():
    bound = lower_bound(molecule_graph(HARD[0]), molecule_graph(HARD[1]))

    assert distance(*HARD, threshold=bound - 1) == bound


def test_a_pair_that_no_mapping_brings_below_the_threshold_scores_the_threshold():
    bound = lower_bound(molecule_graph(HARD[0]), molecule_graph(HARD[1]))
    below = theirs(*HARD) - 0.5
    assert bound <= below

    assert distance(*HARD, threshold=below) == below


@pytest.mark.parametrize(
    ("candidates", "ceiling", "expected"),
    [
        ([], 100.0, [100.0, 100.0]),
        ([None, None], 100.0, [100.0, 100.0]),
        (["CC(C)(C)C(C)(C)C"], 4.0, [4.0, 4.0]),
        (["COC"], 100.0, [2.0, 2.0]),
    ],
    ids=["no candidate", "no molecule", "never above the ceiling", "fewer candidates than k"],
)
def test_what_there_is_counts_up_to_the_ceiling(candidates, ceiling, expected):
    assert Search().minima("CCO", candidates, [1, 10], ceiling=ceiling) == expected


def test_a_hit_at_rank_one_leaves_nothing_to_solve():
    search = Search()

    assert search.minima("CCO", ["CCO", "COC", "CC=O"], [1, 10]) == [0.0, 0.0]
    assert not search.needed


@pytest.mark.parametrize(
    ("known", "distance", "out_of_time"),
    [
        (Interval(2.0, 2.0), 2.0, False),
        (Interval(15.5, math.inf), 15.0, False),
        (Interval(1.0, math.inf, limit_s=10.0), 15.0, True),
        (Interval(1.0, 3.0, limit_s=10.0), 3.0, True),
    ],
    ids=["proven", "above the cutoff", "out of time: the worst it can be", "a mapping was found"],
)
def test_what_is_known_of_a_pair_is_not_solved_again(known, distance, out_of_time):
    search = Search(limit_s=10.0)
    search.solved["CCO", "COC"] = known

    assert search.minima("COC", ["CCO"], [1]) == [distance]
    assert search.solved["CCO", "COC"] == known
    assert search.timeouts == ({("CCO", "COC")} if out_of_time else set())


def test_a_search_that_ran_out_takes_nothing_from_what_an_earlier_one_proved():
    proven, ran_out = Interval(15.5, float("inf")), Interval(9.0, 40.0, limit_s=10.0)

    together = proven & ran_out

    assert together == ran_out & proven == Interval(15.5, 40.0, limit_s=10.0)
    assert together.settles(15.0)
    assert not together.settles(20.0)


def test_more_time_than_before_tries_again():
    search = Search(limit_s=10.0)
    search.solved["CCO", "COC"] = Interval(1.0, 15.0, limit_s=1.0)

    assert search.minima("COC", ["CCO"], [1]) == [2.0]
    assert search.solved["CCO", "COC"] == Interval(2.0, 2.0, limit_s=1.0)
    assert not search.timeouts


@pytest.mark.parametrize("limit_s", [0.001, 0.05, 0.2])
def test_a_solver_stopped_early_never_beats_the_truth(limit_s):
    exact = theirs(*HARD)

    search = Search(limit_s=limit_s)
    found = search.minima(HARD[0], [HARD[1]], [1])[0]

    assert exact <= found <= 15.0
    assert found == exact or search.timeouts


ASPIRIN, ISOMER = SMILES[2], SMILES[4]  # its acetoxy group moved along the ring


def found(first, second, cutoff=15.0, limit_s=30.0):
    return mces.search(molecule_graph(first), molecule_graph(second), cutoff, limit_s)


def test_just_within_the_cutoff_is_proven_and_just_above_is_not_there():
    assert found(ASPIRIN, ISOMER) == found(ISOMER, ASPIRIN) == Interval(2.0, 2.0)
    assert found(ASPIRIN, ISOMER, cutoff=2.0) == Interval(2.0, 2.0)
    assert found(ASPIRIN, ISOMER, cutoff=1.5) == Interval(2.0, math.inf)


@pytest.mark.parametrize(("first", "second"), [("C", "O"), ("C", "C"), ("CCO", "C"), ("C", "CCO")])
def test_molecules_without_bonds_have_an_answer(first, second):
    bonds = float(sum(len(molecule_graph(smiles).orders) for smiles in (first, second)))

    assert found(first, second) == Interval(bonds, bonds)


def test_solvers_say_nothing(capfd):
    distance(*HARD)

    assert capfd.readouterr() == ("", "")


PAIR = ("CCO", "COC")


def test_solved_pairs_are_kept_in_a_file_and_later_answers_replace_earlier_ones(tmp_path):
    path = tmp_path / "new" / "mces.sqlite"
    solved = {PAIR: Interval(2.0, 2.0), ("C", "CC"): Interval(15.5, math.inf, 3.0)}

    for pair, found in ((PAIR, Interval(1.0, 5.0, 1.0)), *solved.items()):
        SolvedPairs(path)[pair] = found

    assert {pair: SolvedPairs(path)[pair] for pair in solved} == solved
    assert SolvedPairs(path)["N", "O"] is None
    assert SolvedPairs()[PAIR] is None


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    path = tmp_path / "mces.sqlite"
    path.write_text("not a database, but long enough to have a header of its own")

    with pytest.raises(UsageError, match="--mces-cache"):
        SolvedPairs(path)
