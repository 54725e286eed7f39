"""Random graphs and the nearest training spectra, and a finished evaluation beside others."""

import numpy as np
import pytest
from rivals import (
    ANALOGUE,
    RANDOM,
    analogue_predictions,
    main,
    nearest,
    random_graph,
    share_difference,
)

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.evaluate.suites import Suite
from duallgd_cli.evaluate.tables import Truth
from tests import labelled_table
from tests.made_runs import rows_of

pytest.importorskip("scipy", reason="needs the evaluate extra")

FORMULAS = ("C9H8O4", "C20H25ClN4O2S", "C10H17N3O6S", "C5H14NO+", "H3O4P", "C6H6Br2", "CH4")


def is_connected(n, bond_class):
    adjacency = np.zeros((n, n), dtype=bool)
    adjacency[np.triu_indices(n, 1)] = bond_class > 0
    reached = {0}
    for _ in range(n):
        reached |= {b for a in reached for b in np.flatnonzero((adjacency | adjacency.T)[a])}
    return len(reached) == n


@pytest.mark.parametrize("text", FORMULAS)
def test_graphs_are_connected_and_become_molecules_of_the_formula(text):
    formula = Formula.parse(text)
    generator = np.random.default_rng(0)

    for _ in range(10):
        graph = random_graph(formula, generator)

        assert is_connected(formula.n_heavy, graph)
        assert isinstance(assemble(formula, graph), tuple)


def row(identifier, mzs, smiles, fold="train", adduct="[M+H]+", precursor=200.0):
    return {
        "identifier": identifier,
        "mzs": ",".join(map(str, mzs)),
        "intensities": ",".join("1" for _ in mzs),
        "smiles": smiles,
        "precursor_mz": str(precursor),
        "adduct": adduct,
        "fold": fold,
    }


NEAR, FAR = ([100.01, 120.01, 70.0], "CCN"), ([60.0, 70.0], "CCO")


@pytest.mark.parametrize(
    ("peaks", "training", "named"),
    [
        ([100.01, 120.01], [row("far", *FAR), row("near", *NEAR)], ("CCN",)),
        # Masses are shifted, losses from the precursor are the same.
        (
            [100.0, 120.0],
            [
                row("shifted", [114.0, 134.0], "CCN", precursor=214.0),
                row("unlike", [50.0, 61.0], "CCO", precursor=214.0),
            ],
            ("CCN",),
        ),
        ([100.0], [row("a", [100.0], "CCN", adduct="[M-H]-")], ()),
        (
            [100.0],
            [row("a", [100.0], "CCN"), row("b", [100.0], "NCC"), row("c", [100.0, 60.0], "CCO")],
            ("CCN", "CCO"),
        ),
        ([200.0], [row("a", [200.0], "CCN"), row("b", [], "CCO")], ()),
        ([], [row("a", [200.0], "CCN"), row("b", [], "CCO")], ()),
    ],
    ids=[
        "the most similar spectrum", "neutral losses", "the other polarity",
        "a molecule once for all its spectra", "the precursor says nothing", "no peaks",
    ],
)  # fmt: skip
def test_molecules_of_the_most_similar_spectra_come_first(peaks, training, named):
    query = row("q", peaks, "CC")

    assert nearest([query], training, 10)["q"].smiles == named
    assert nearest([query], training, 1)["q"].smiles == named[:1]


def test_relatives_are_found_in_made_spectra_of_the_fold_train():
    rows = labelled_table.rows(1)
    suite = Suite("made", (), lambda: iter(rows))
    truths = [Truth(r["identifier"], r["smiles"], r["smiles"]) for r in rows if r["fold"] == "test"]

    found = analogue_predictions(suite, truths, 1)

    assert {name: one.smiles for name, one in found.items() if name != "S20"} == {
        "S00": ("COC(=O)c1ccccc1O",),
        "S10": ("Cn1c(=O)[nH]c2ncn(C)c2c1=O",),
    }
    assert analogue_predictions(Suite("made", (), lambda: iter(rows[:3])), truths, 1) == {}


def test_differences_of_shares_have_newcombe_s_interval():
    """36 and 26 of 50 pairs, 12 and 2 of them discordant: his table III, method 8."""
    ours = np.array([1.0] * 36 + [0.0] * 14)
    theirs = np.array([1.0] * 24 + [0.0] * 12 + [1.0] * 2 + [0.0] * 12)
    names = [str(i) for i in range(50)]

    found = share_difference(ours, theirs, names)
    both_wrong = share_difference(np.zeros(5), np.zeros(5), list("abcde"))

    assert found.mean == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((0.0618, 0.3242), abs=2e-3)
    assert both_wrong.mean == 0
    assert (both_wrong.low, both_wrong.high) == pytest.approx((-0.4345, 0.4345), abs=1e-4)


@pytest.mark.usefixtures("stand_in")
def test_all_stand_beside_an_evaluation(study, evaluated, table, tmp_path):
    evaluated("test", top_k=(1, 3))

    done = study(main, "test", "--other", "test", "--benchmark", table)

    assert done.code == 0, done.err
    rows = rows_of(tmp_path / "test" / "rivals.tsv")
    means = {(row["rival"], row["metric"]): row["mean"] for row in rows}
    twin = [row for row in rows if row["rival"] == "test"]
    assert {row["ours_minus_theirs_mean"] for row in twin} == {"0"}
    assert {name: mean for name, mean in means.items() if name[0] != "test"} == {
        (RANDOM, "accuracy@1"): "0",
        (RANDOM, "accuracy@3"): "0",
        (RANDOM, "tanimoto@1"): "0.102983",
        (RANDOM, "tanimoto@3"): "0.122654",
        (ANALOGUE, "accuracy@1"): "0",
        (ANALOGUE, "accuracy@3"): "0",
        (ANALOGUE, "tanimoto@1"): "0.319234",
        (ANALOGUE, "tanimoto@3"): "0.319234",
    }
    assert {row["track"] for row in rows} == {"formula known"}
