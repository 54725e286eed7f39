from dataclasses import replace

import pytest

from duallgd_cli.evaluate.intervals import wilson
from duallgd_cli.evaluate.settings import EvaluateSettings
from tests.scored_entries import scored

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
ISOMER = "COC(=O)c1ccccc1C(=O)O"


PLAIN = EvaluateSettings(mces=False, workers=1)


def one(candidates, truth=ASPIRIN, **settings):
    wanted = replace(PLAIN, **settings)
    scores = scored([("s", "m", truth, candidates)], wanted)
    return {name: column[0] for name, column in scores.columns.items()}


def test_a_hit_counts_from_its_rank_on():
    row = one([ISOMER, ASPIRIN], top_k=(1, 2, 10))
    late = one(["CCC"] * 30 + [ASPIRIN])

    assert [row[f"accuracy@{k}"] for k in (1, 2, 10)] == [0.0, 1.0, 1.0]
    assert (late["accuracy@10"], late["oracle_accuracy"]) == (0.0, 1.0)
    assert row["tanimoto@1"] < 1.0
    assert row["tanimoto@2"] == row["tanimoto@10"] == 1.0


def test_tanimoto_counted_by_hand():
    # Ethanol and dimethyl ether share no environment: methyl carbons differ in their neighbour
    # only from radius 1 on, so exactly the radius-0 methyl bit is shared.
    ethanol = {"CH3", "CH2", "OH", "CH3-C", "CH2(-C)(-O)", "OH-C"}
    ether = {"CH3", "O", "CH3-O", "O(-C)(-C)"}

    row = one(["COC"], truth="CCO")

    assert row["tanimoto@1"] == len(ethanol & ether) / len(ethanol | ether)


def test_no_candidate_counts_as_wrong():
    row = one([], mces=True)

    assert row["accuracy@1"] == row["accuracy@10"] == 0.0
    assert row["tanimoto@1"] == row["tanimoto@10"] == 0.0
    assert row["mces@1"] == row["mces@10"] == 100.0
    assert row["oracle_accuracy"] == row["oracle_tanimoto"] == row["candidates"] == 0.0


def test_a_candidate_that_is_no_molecule_keeps_its_rank():
    row = one(["not a molecule", "C(C)(C)(C)(C)C", ASPIRIN], top_k=(1, 2, 3), mces=True)

    assert [row[f"accuracy@{k}"] for k in (1, 2, 3)] == [0.0, 0.0, 1.0]
    assert [row[f"mces@{k}"] for k in (1, 2, 3)] == [100.0, 100.0, 0.0]
    assert (row["candidates"], row["valid"], row["formula_exact"]) == (3.0, 1.0, 1.0)


def test_a_repeated_candidate_keeps_its_rank():
    row = one([ISOMER, ISOMER, ASPIRIN], top_k=(2, 3))

    assert [row["accuracy@2"], row["accuracy@3"]] == [0.0, 1.0]
    assert row["distinct"] == 2.0
    # Of the formula is what has its hydrogens, too.
    assert one(["CC=O", "CCO", "COC"], truth="CCO")["formula_exact"] == 2.0


def test_stereochemistry_and_writing_do_not_matter():
    row = one(["C[C@@H](N)C(O)=O"], truth="C[C@H](N)C(=O)O", mces=True)

    assert (row["accuracy@1"], row["tanimoto@1"], row["mces@1"]) == (1.0, 1.0, 0.0)


def test_plain_tuples_are_entries_and_clusters_reach_the_summary():
    scores = scored(
        [("1", "a", "CCO", ["CCO"]), ("2", "a", "CCO", ["CCO"]), ("3", "b", "CC", [])], PLAIN
    )

    estimate = scores.means(["accuracy@1"])["accuracy@1"]

    assert estimate.mean == pytest.approx(2 / 3)
    assert (estimate.low, estimate.high) == pytest.approx(wilson(2 / 3, 2.25))


def test_pairs_that_were_solved_are_counted():
    entries = [("1", "a", ASPIRIN, [ISOMER]), ("2", "a", ASPIRIN, [ISOMER, "CCO"])]

    scores = scored(entries, replace(PLAIN, mces=True))

    assert scores.columns["mces@1"].tolist() == [4.0, 4.0]
    assert scores.mces_work["mces"] == {"pairs": 2, "timeouts": 0}


def test_of_many_spectra_it_is_said_how_far_they_are(caplog):
    caplog.set_level("INFO")

    scored([(str(i), "m", ASPIRIN, [ISOMER]) for i in range(50)], PLAIN)

    assert caplog.messages == [f"{done} of 50 spectra scored" for done in range(5, 51, 5)]


@pytest.mark.slow
def test_several_processes_give_the_same_scores():
    entries = [(str(i), "m", ASPIRIN, [ISOMER, "CCO"]) for i in range(4)]

    alone, many = (
        scored(entries, replace(PLAIN, mces=True, workers=workers)).columns for workers in (1, 2)
    )

    assert {k: v.tolist() for k, v in alone.items()} == {k: v.tolist() for k, v in many.items()}
