import math

import numpy as np
import pytest

from duallgd_cli.evaluate import mapping
from duallgd_cli.evaluate.bounds import MoleculeGraph, molecule_graph

pytest.importorskip("highspy", reason="needs the evaluate extra")

CHAIN = MoleculeGraph(("C", "C", "C"), np.array([[0, 1], [1, 2]]), np.array([1.0, 2.0]))
SINGLE = MoleculeGraph(("C", "C", "C"), np.array([[0, 1], [1, 2]]), np.array([1.0, 1.0]))
# Its acetoxy group moved along the ring: one bond is left over on either side.
ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Oc1ccc(C(=O)O)cc1"


def found(first, second, cutoff=15.0):
    return mapping.search(molecule_graph(first), molecule_graph(second), cutoff, 30.0)


def test_a_distance_is_what_a_mapping_leaves_over():
    assert mapping.distance({}, CHAIN, SINGLE) == 5.0
    assert mapping.distance({0: 0, 1: 1, 2: 2}, CHAIN, SINGLE) == 1.0
    assert mapping.distance({0: 2, 1: 1}, CHAIN, SINGLE) == 3.0


def test_the_best_mapping_is_proven():
    answer = found(ASPIRIN, ISOMER)

    assert answer.is_final
    assert answer.distance == 2.0
    assert found(ISOMER, ASPIRIN) == answer


def test_just_within_the_cutoff_is_found_and_just_above_is_not():
    assert found(ASPIRIN, ISOMER, cutoff=2.0) == mapping.Answer(2.0, is_final=True)
    assert found(ASPIRIN, ISOMER, cutoff=1.5) == mapping.Answer(None, is_final=True)


def test_no_time_proves_nothing():
    answer = mapping.search(molecule_graph(ASPIRIN), molecule_graph(ISOMER), 15.0, 0.0)

    assert not answer.is_final
    assert answer.distance is None or 2.0 <= answer.distance <= math.inf


@pytest.mark.parametrize(("first", "second"), [("C", "O"), ("C", "C"), ("CCO", "C"), ("C", "CCO")])
def test_molecules_without_bonds_have_an_answer(first, second):
    bonds = sum(len(molecule_graph(smiles).orders) for smiles in (first, second))

    assert found(first, second) == mapping.Answer(float(bonds), is_final=True)
