import numpy as np
import pytest

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.molecule import Assembled, assemble
from duallgd_cli.evaluate.random_graphs import random_graph

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
