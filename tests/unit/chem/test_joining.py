"""Building blocks of known molecules, and molecules of them: examples, and what always holds."""

from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement, pairwise, product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem import joining
from duallgd_cli.chem.building_blocks import NO_BLOCKS, BuildingBlocks
from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, fingerprint, parse_smiles
from duallgd_cli.chem.joining import (
    _cuttable,
    _parts,
    _read,
    cut,
    joined,
    known_halves,
    likeliest,
    parts_of,
    together,
)
from duallgd_cli.chem.molecule import disassemble, formula_of
from tests.made_molecules import QUESTIONS

ASPIRIN, PARACETAMOL = "CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Nc1ccc(O)cc1"
# Molecules of three parts at least, two of them at the ends of bonds that can be cut.
MADE_UP = (
    ASPIRIN, PARACETAMOL, "COc1ccc(CCN)cc1", "CCOC(=O)CN1CCOCC1", "Clc1ccc(CNC(=O)c2ccco2)cc1",
    "CC(=O)NCCc1c[nH]c2ccc(OC)cc12", "OCC1OC(Oc2ccccc2CO)C(O)C(O)C1O", "C[N+](C)(C)CCOC(C)=O",
)  # fmt: skip
EVEN = np.zeros(FINGERPRINT_BITS)


def told(mol):
    """Log-odds of the bits of a molecule, nearly certain."""
    log_odds = np.full(FINGERPRINT_BITS, -5.0)
    log_odds[fingerprint(mol)] = 5.0
    return log_odds


@lru_cache(maxsize=200)
def of(*smiles):
    return cut(map(parts_of, map(parse_smiles, smiles)))


def test_ends_come_before_linkers_and_frequent_ones_first():
    blocks = of("Cc1ccccc1", "Cc1ccc(C)cc1", "Oc1ccccc1")

    assert blocks.smiles == ("*C", "*c1ccccc1", "*O", "*c1ccc(C)cc1", "*c1ccc(*)cc1")
    assert blocks.seen.tolist() == [2, 2, 1, 1, 1]
    assert Formula(tuple(blocks.counts[0].tolist())) == Formula.parse("CH3")
    assert of("C1CCC2CCCCC2C1", "C=C", "c1ccccc1").smiles == NO_BLOCKS.smiles  # are not cut


@pytest.mark.parametrize("smiles", MADE_UP)
def test_a_molecule_is_put_together_from_its_own_parts(smiles):
    mol = parse_smiles(smiles)

    made = [one for one, _ in together(of(smiles), formula_of(mol), told(mol), 1_000)]

    assert canonical_smiles(mol) in map(canonical_smiles, made)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(QUESTIONS)), min_size=1, max_size=4), st.data())
def test_all_that_is_made_is_a_molecule_of_the_formula_and_of_its_parts(names, data):
    known = [QUESTIONS[name] for name in names]
    blocks, wanted = of(*known), QUESTIONS[data.draw(st.sampled_from(sorted(QUESTIONS)))]
    formula = formula_of(parse_smiles(data.draw(st.sampled_from([*known, wanted]))))

    for mol, worth in together(blocks, formula, EVEN, 1_000):
        assert disassemble(mol).formula == formula
        assert worth <= 4 * 3 * np.log(len(known))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(MADE_UP), min_size=1, max_size=3, unique=True),
    st.sampled_from(MADE_UP),
    st.integers(0, 9),
)
def test_all_parts_that_fit_are_found(known, wanted, seed):
    """Against all pairs and triples of blocks, one by one."""
    blocks, formula = of(*known), formula_of(parse_smiles(wanted))
    log_odds = np.random.default_rng(seed).normal(size=FINGERPRINT_BITS)
    ends, linkers = range(blocks.n_ends), range(blocks.n_ends, len(blocks.smiles))
    triples = [
        *((-1, *pair) for pair in combinations_with_replacement(ends, 2)),
        *(
            (linker, *pair)
            for linker, pair in product(linkers, combinations_with_replacement(ends, 2))
        ),
    ]
    counts = np.append(blocks.counts.astype(int), np.zeros((1, N_ELEMENTS), int), 0)  # of none
    fits = {one for one in triples if (counts[list(one)].sum(0) == formula.array).all()}

    found = {
        (linker, *sorted(ends)) for linker, *ends in likeliest(blocks, formula, log_odds, 1_000)
    }

    assert found == fits


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(QUESTIONS)), st.integers(0, 99), st.integers(1, 9))
def test_of_more_than_are_compared_those_of_the_best_sums_stay(name, seed, compared):
    """Sums over the bits of each block; against all pairs and triples of blocks."""
    blocks, formula = of(*MADE_UP, QUESTIONS[name]), formula_of(parse_smiles(QUESTIONS[name]))
    log_odds = np.random.default_rng(seed).normal(size=FINGERPRINT_BITS)

    def total(row):
        rows = np.array([block for block in row if block >= 0])
        return log_odds[blocks.bits_of(rows)[0]].sum() + blocks.worth[rows].sum()

    with mock.patch.multiple(joining, _LINKERS_AT_ONCE=2, _AT_ONCE=2):
        every = likeliest(blocks, formula, log_odds, 99_999)
        with mock.patch.object(joining, "_COMPARED", compared):
            found = likeliest(blocks, formula, log_odds, 99_999)

    kept, all_ = ({(row[0], *sorted(row[1:])) for row in rows.tolist()} for rows in (found, every))
    best = sorted(map(total, all_), reverse=True)[:compared]
    assert sorted(map(total, kept), reverse=True) == pytest.approx(best[: len(kept)])
    # Two ends of one kind are listed either way round.
    assert len(found) >= min(len(best), compared)


def test_of_like_molecules_those_of_frequent_blocks_come_first():
    blocks = of(*MADE_UP)
    blocks = replace(blocks, seen=np.ones_like(blocks.seen))

    rows = likeliest(blocks, formula_of(parse_smiles(ASPIRIN)), EVEN, 1_000).tolist()

    pairs, linked = ([row for row in rows if (row[0] < 0) == alone] for alone in (True, False))
    assert rows == sorted(pairs) + linked  # a linker is worth less than none
    assert len(pairs) > 2
    assert [row[0] for row in linked] == sorted(row[0] for row in linked)


@pytest.mark.parametrize(
    "change",
    [
        {"smiles": ("*C", "*c1ccccc1*")}, {"smiles": ("*C*", "*C")},
        {"counts": np.zeros((5, 3), np.uint8)}, {"seen": np.zeros(5, np.int32)},
        {"n_bits": np.zeros(5, np.uint16)}, {"bits": np.full(9, 5000, np.uint16)},
        {"bits": np.zeros(3, np.float32)},
    ],
)  # fmt: skip
def test_what_is_broken_is_no_block(change):
    broken = replace(of("Cc1ccccc1", "Cc1ccc(C)cc1", "Oc1ccccc1"), **change)

    with pytest.raises(ValueError, match="blocks"):
        BuildingBlocks.read(broken.packed())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_broken_bytes_are_no_blocks(data):
    packed = of("Cc1ccccc1", "Cc1ccc(C)cc1", "Oc1ccccc1").packed().copy()
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))

    for broken in (packed, packed[:place]):
        try:
            BuildingBlocks.read(broken)
        except ValueError:
            continue


WHOLE = (*MADE_UP, *QUESTIONS.values())


def plainly(mol, blocks):
    """Of all bonds, each cut and both parts named: how many molecules have each, logarithms."""
    seen = dict(zip(blocks.smiles, np.log(blocks.seen, dtype=np.float32).tolist(), strict=True))
    values = [[seen.get(text) for text in _parts(mol, (bond,))] for bond in _cuttable(mol)]
    return max([0.0, *(sum(halves) for halves in values if None not in halves)])


def joined_ends(one, other):
    """A molecule of two known halves, which nobody has seen together."""
    made = joined(_read(one).mol, _read(one).places[:1], [_read(other)])
    Chem.SanitizeMol(made)
    return made.GetMol()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=6), st.sampled_from(WHOLE))
def test_halves_are_those_of_which_all_bonds_are_cut(known, smiles):
    """Of molecules whose halves are known, of others, and of those that have two halves anew."""
    blocks = of(*known)
    made = [joined_ends(*pair) for pair in pairwise(blocks.smiles[: blocks.n_ends][:9])]

    for mol in (parse_smiles(smiles), *map(parse_smiles, known), *made):
        assert known_halves(mol, blocks.ends) == plainly(mol, blocks)


@pytest.mark.parametrize(
    ("smiles", "made"),
    [
        ("Nc1ccc(O)cc1", 1 + 2),  # a para ring turned by half is the same
        ("Nc1cc(O)ccn1", 2 + 2),
        ("Cc1cc(C)ccn1", 1 + 2),  # and so is any with two equal ends
    ],
)
def test_a_linker_is_turned_only_where_that_makes_another_molecule(smiles, made):
    """Of three blocks in one or two ways, and of two blocks by either bond."""
    mol = parse_smiles(smiles)

    assert len(list(together(of(smiles), formula_of(mol), EVEN, 99))) == made
