import numpy as np
import pytest

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.molecule import Assembled, assemble
from duallgd_cli.evaluate.baselines import analogue_predictions, nearest, random_graph
from duallgd_cli.evaluate.suites import Suite
from duallgd_cli.evaluate.tables import Truth
from tests import labelled_table

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
        assert isinstance(assemble(formula, graph), Assembled)


def test_the_generator_alone_decides():
    formula = Formula.parse("C9H8O4")

    first, same, other = (random_graph(formula, np.random.default_rng(s)) for s in (1, 1, 2))

    assert (first == same).all()
    assert (first != other).any()


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


def test_the_molecule_with_the_most_similar_spectrum_comes_first():
    training = [row("far", [60.0, 70.0], "CCO"), row("near", [100.01, 120.01, 70.0], "CCN")]

    assert nearest([row("q", [100.01, 120.01], "CC")], training, 10)["q"].smiles == ("CCN",)


def test_neutral_losses_count_where_masses_are_shifted():
    training = [
        row("shifted", [114.0, 134.0], "CCN", precursor=214.0),
        row("unlike", [50.0, 61.0], "CCO", precursor=214.0),
    ]

    assert nearest([row("q", [100.0, 120.0], "CC")], training, 10)["q"].smiles == ("CCN",)


def test_the_other_polarity_is_not_compared():
    training = [row("a", [100.0], "CCN", adduct="[M-H]-")]

    assert nearest([row("q", [100.0], "CC")], training, 10)["q"].smiles == ()


def test_a_molecule_is_named_once_however_many_spectra_it_has():
    training = [
        row("a", [100.0], "CCN"),
        row("b", [100.0], "NCC"),
        row("c", [100.0, 60.0], "CCO"),
    ]

    assert nearest([row("q", [100.0], "CC")], training, 10)["q"].smiles == ("CCN", "CCO")
    assert nearest([row("q", [100.0], "CC")], training, 1)["q"].smiles == ("CCN",)


def test_the_precursor_and_empty_spectra_say_nothing():
    training = [row("a", [200.0], "CCN"), row("b", [], "CCO")]

    assert nearest([row("q", [200.0], "CC"), row("r", [], "CC")], training, 5)["q"].smiles == ()


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
