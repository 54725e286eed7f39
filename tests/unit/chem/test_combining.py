"""Bits where building blocks are joined, beside RDKit's bits of the molecules that are made."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.combining import NO_BIT, are_even, bits_where_joined
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.joining import _joined, _read, cut
from tests.made_molecules import QUESTIONS

# Ends and linkers with rings, charges, hypervalent atoms, and one atom between two open bonds.
MADE_UP = (
    "CC(=O)Oc1ccccc1C(=O)O", "COc1ccc(CCN)cc1", "CS(=O)(=O)NCCCl", "CP(=O)(OC)OCC#N",
    "OCC1OC(Oc2ccccc2CO)C(O)C(O)C1O", "C[N+](C)(C)CCOC(C)=O", "FC(F)(F)c1cn(CCBr)cn1", "CC(C)(C)C",
)  # fmt: skip
BLOCKS = cut(map(parse_smiles, (*MADE_UP, *QUESTIONS.values())))
ENDS, LINKERS = range(BLOCKS.n_ends), range(BLOCKS.n_ends, len(BLOCKS.smiles))
ROWS = st.tuples(st.sampled_from([-1, *LINKERS]), st.sampled_from(ENDS), st.sampled_from(ENDS))


def made(row):
    parts = [None if block < 0 else _read(BLOCKS.smiles[block]) for block in row]
    mol = _joined(*parts)
    Chem.SanitizeMol(mol)
    return mol


def computed(row):
    """Bits of a molecule: those of its blocks, and those where they are joined."""
    own, _ = BLOCKS.bits_of(np.array([block for block in row if block >= 0]))
    joined = bits_where_joined(BLOCKS.smiles, np.array([row]))
    return {*own.tolist(), *joined[joined != NO_BIT].tolist()}


def is_tiny(mol):
    """Whether other surroundings are the same bonds, which RDKit counts once."""
    in_three = any(len(ring) == 3 for ring in mol.GetRingInfo().AtomRings())
    return in_three or Chem.GetDistanceMatrix(mol).max() < 4


@settings(max_examples=300, deadline=None)
@given(ROWS)
def test_bits_are_those_of_the_molecule(row):
    mol = made(row)
    whole = set(fingerprint(mol).tolist())

    assert whole <= computed(row)
    if not is_tiny(mol):
        assert computed(row) == whole


@given(st.lists(ROWS, min_size=2, max_size=9))
def test_many_molecules_are_computed_like_each_alone(rows):
    together = bits_where_joined(BLOCKS.smiles, np.array(rows))

    for row, bits in zip(rows, together, strict=True):
        assert set(bits) | {NO_BIT} == set(bits_where_joined(BLOCKS.smiles, np.array([row]))[0]) | {
            NO_BIT
        }


@pytest.mark.parametrize(
    ("linker", "is_even"), [("*C*", True), ("*c1ccc(*)cc1", True), ("*OC*", False)]
)
def test_a_linker_is_even_if_its_ends_may_be_exchanged(linker, is_even):
    smiles = (linker, "*C", "*O")

    assert are_even(smiles, np.array([[0, 1, 2]])).tolist() == [is_even]
