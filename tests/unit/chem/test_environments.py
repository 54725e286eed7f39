"""Environments that known structures have: counted by hand, kept in few bits, none forgotten."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.scores import environments, known_environments, unknown_environments

ESTERS = ["CCOC(C)=O", "CCCOC(C)=O", "CCOC(=O)CC", "CCCCOC(=O)c1ccccc1", "COC(=O)c1ccncc1"]
ALL = [*ESTERS, "CCO", "CC(C)N", "OC1CCCCC1", "c1ccc2[nH]ccc2c1", "CS(=O)(=O)N(C)C"]


def known(*smiles):
    return known_environments([environments(parse_smiles(one)) for one in smiles] * 2)


@pytest.mark.parametrize(
    ("smiles", "count"),
    [
        ("CCO", 0),
        # Atoms alone, CH3 and OH beside CH2 are ethanol's. New are each CH2 with both neighbours,
        # and one look at all atoms: whatever sees the same bonds counts once.
        ("CCCO", 3),
        ("N", 1),
    ],
)
def test_what_ethanol_has_is_known_and_all_else_is_not(smiles, count):
    assert unknown_environments(parse_smiles(smiles), known("CCO")) == count


def test_nothing_is_known_of_no_structures():
    table = known_environments([])

    assert not table.any()
    assert unknown_environments(parse_smiles("CCO"), table) == 6


@given(st.lists(st.sampled_from(ALL), min_size=1, unique=True))
def test_no_known_structure_has_an_unknown_environment(smiles):
    table = known(*smiles)

    assert all(unknown_environments(parse_smiles(one), table) == 0 for one in smiles)
    assert table.size & (table.size - 1) == 0
    assert np.unpackbits(table).mean() < 0.55  # about one in twenty at most passes by chance
