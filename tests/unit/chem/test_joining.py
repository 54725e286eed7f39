"""Molecules by one change of a known one or of known parts: examples, and what always holds."""

from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement, pairwise, product
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem import identity, joining
from duallgd_cli.chem.building_blocks import NO_BLOCKS, BuildingBlocks
from duallgd_cli.chem.edits import edited
from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, fingerprint, parse_smiles
from duallgd_cli.chem.joining import cut, joined, known_halves, likeliest, parts_of, together
from duallgd_cli.chem.molecule import assemble, formula_of
from tests.made_molecules import QUESTIONS, disassembled

# Each pair is one change apart, in both directions.
PAIRS = {
    "methyl in place of hydrogen": ("Cn1c(=O)c2[nH]cnc2n(C)c1=O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O"),
    "hydroxyl in place of hydrogen": ("CC(=O)Nc1ccccc1", "CC(=O)Nc1ccc(O)cc1"),
    "a group moved": ("Oc1ccccc1Cl", "Oc1ccc(Cl)cc1"),
    "a group for another of other atoms": ("Cc1ccccc1C(=O)O", "OCc1ccccc1C(=O)O"),
    "an alcohol oxidised": (
        "CC12CCC3C(CCC4=CC(=O)CCC43C)C1CCC2O", "CC12CCC3C(CCC4=CC(=O)CCC43C)C1CCC2=O",
    ),
    "a double bond reduced": ("O=C(O)C=Cc1ccccc1", "O=C(O)CCc1ccccc1"),
    "a double bond moved": ("C=CCC", "CC=CC"),
    "an epoxide": ("C(=Cc1ccccc1)c1ccccc1", "c1ccc(C2OC2c2ccccc2)cc1"),
    "a longer chain": ("CCCCCCCCC(=O)O", "CCCCCCCCCC(=O)O"),
    "oxygen in a ring": ("O=C1CCCC1", "O=C1CCCCO1"),
    "a ring": ("CCCCCC", "C1CCCCC1"),
    "nitrogen for carbon": ("c1ccccc1", "c1ccncc1"),
    "sulphur for oxygen": ("c1ccoc1", "c1ccsc1"),
    "an ether lengthened": ("CCOCC", "CCCOCC"),
    "a side chain in a ring": ("CC(C)c1ccccc1", "CCCc1ccccc1"),
    "an amine methylated": ("CC(N)Cc1ccccc1", "CNC(C)Cc1ccccc1"),
    "a hydroxyl for an amine": ("NCCc1ccccc1", "OCCc1ccccc1"),
    "a methyl moved": ("CCOCC", "COCCC"),
    "a cation": ("C[N+](C)(C)CCO", "C[N+](C)(C)CC(=O)O"),
}  # fmt: skip
MOLECULES = sorted({smiles for pair in PAIRS.values() for smiles in pair})


@lru_cache(maxsize=200)
def of(*smiles):
    """Building blocks of molecules."""
    return cut(map(parts_of, map(parse_smiles, smiles)))


BLOCKS = of("CC(=O)O", "Oc1ccccc1", "OCc1ccccc1", "Clc1ccccc1", "CCC")
ALL_BLOCKS = of(*QUESTIONS.values(), *MOLECULES, "C" * 20)


def made(known, unknown, blocks=BLOCKS):
    """Whether a change of the one molecule makes the other."""
    molecules = edited(parse_smiles(known), formula_of(parse_smiles(unknown)), blocks)
    return canonical_smiles(parse_smiles(unknown)) in map(canonical_smiles, molecules)


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS.keys())
def test_one_change_leads_there_and_back(one, other):
    assert made(one, other)
    assert made(other, one)


def test_a_group_comes_from_known_molecules_alone():
    """Quercetin to its glucoside: only where some known molecule has a glucose."""
    quercetin = "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"
    glucoside = quercetin.replace("c(O)c(-c2", "c(OC3OC(CO)C(O)C(O)C3O)c(-c2", 1)

    assert not made(quercetin, glucoside)
    assert made(quercetin, glucoside, of("COC1OC(CO)C(O)C(O)C1O"))


@st.composite
def known_and_formulas(draw):
    """A known molecule, and a formula near it, if it has the atoms, or of any other molecule."""
    known = parse_smiles(draw(st.sampled_from([*QUESTIONS.values(), *MOLECULES])))
    if draw(st.booleans()):
        return known, formula_of(parse_smiles(draw(st.sampled_from(MOLECULES))))
    changes = [("O", ""), ("CH2", ""), ("NH", ""), ("H2", ""), ("S", ""), ("N", "CH"), ("S", "O")]
    more, fewer = (
        Formula.parse(text).array if text else 0
        for text in draw(st.sampled_from([("", ""), *changes, *(pair[::-1] for pair in changes)]))
    )
    formula = formula_of(known)
    counts = (formula.array + more - fewer).clip(0).tolist()
    return known, Formula(tuple(counts), formula.charge + draw(st.sampled_from([0, 0, 1, -1])))


STEROID = parse_smiles("CC12CCC3C(CCC4=CC(=O)CCC43C)C1CCC2O")


@settings(max_examples=110, deadline=None)
@example((STEROID, Formula.parse("C19H28O3")))  # an atom more: its rings stay whole
@given(known_and_formulas())
def test_what_is_made_is_sound_of_the_formula_and_the_same_in_any_order_of_atoms(case):
    """Atoms, charge and bonds come back from its matrix."""
    known, formula, bare = *case, identity.charge_free_smiles
    turned = Chem.RenumberAtoms(known, list(range(known.GetNumAtoms()))[::-1])

    molecules = list(edited(known, formula, ALL_BLOCKS))

    again = set(map(canonical_smiles, edited(turned, formula, ALL_BLOCKS)))
    assert set(map(canonical_smiles, molecules)) == again
    for mol in molecules:
        bits = fingerprint(mol)
        assert not Chem.SanitizeMol(mol, catchErrors=True)
        assert bits.tolist() == fingerprint(parse_smiles(canonical_smiles(mol))).tolist()
        parts = disassembled(mol)  # one fragment, no radical, known elements
        assert parts.formula == formula
        assert bare(mol) == bare(assemble(formula, parts.bond_class))


# Molecules of three parts at least, two of them at the ends of bonds that can be cut.
MADE_UP = (
    "CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Nc1ccc(O)cc1", "COc1ccc(CCN)cc1", "CCOC(=O)CN1CCOCC1",
    "Clc1ccc(CNC(=O)c2ccco2)cc1", "CC(=O)NCCc1c[nH]c2ccc(OC)cc12",
    "OCC1OC(Oc2ccccc2CO)C(O)C(O)C1O", "C[N+](C)(C)CCOC(C)=O",
)  # fmt: skip
WHOLE = (*MADE_UP, *QUESTIONS.values())
EVEN = np.zeros(FINGERPRINT_BITS)


def formula_from(smiles):
    return formula_of(parse_smiles(smiles))


def test_ends_come_before_linkers_and_frequent_ones_first():
    blocks = of("Cc1ccccc1", "Cc1ccc(C)cc1", "Oc1ccccc1")

    assert blocks.smiles == ("*C", "*c1ccccc1", "*O", "*c1ccc(C)cc1", "*c1ccc(*)cc1")
    assert blocks.seen.tolist() == [2, 2, 1, 1, 1]
    assert Formula(tuple(blocks.counts[0].tolist())) == Formula.parse("CH3")
    assert of("C1CCC2CCCCC2C1", "C=C", "c1ccccc1").smiles == NO_BLOCKS.smiles  # are not cut


@pytest.mark.parametrize("smiles", MADE_UP)
def test_a_molecule_is_put_together_from_its_own_parts(smiles):
    mol = parse_smiles(smiles)
    sure = np.full(FINGERPRINT_BITS, -5.0)
    sure[fingerprint(mol)] = 5.0

    made = [one for one, _ in together(of(smiles), formula_of(mol), sure, 1_000)]

    assert canonical_smiles(mol) in map(canonical_smiles, made)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=4), st.data())
def test_all_that_is_made_is_a_molecule_of_the_formula_and_of_its_parts(known, data):
    formula = formula_from(data.draw(st.sampled_from(known) | st.sampled_from(WHOLE)))

    for mol, worth in together(of(*known), formula, EVEN, 1_000):
        assert disassembled(mol).formula == formula
        assert worth <= 4 * 3 * np.log(len(known))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(WHOLE), min_size=1, max_size=3, unique=True),
    st.sampled_from(MADE_UP),
    st.integers(0, 9),
    st.integers(1, 9),
)
def test_all_parts_that_fit_are_listed_and_of_more_than_are_compared_those_of_the_best_sums(
    known, wanted, seed, compared
):
    """Against all pairs and triples of blocks, one by one, and the summed bits of each block."""
    blocks, formula = of(*known, wanted), formula_from(wanted)
    log_odds = np.random.default_rng(seed).normal(size=FINGERPRINT_BITS)
    ends = list(combinations_with_replacement(range(blocks.n_ends), 2))
    linkers = [-1, *range(blocks.n_ends, len(blocks.smiles))]
    triples = np.array([(n, *pair) for n, pair in product(linkers, ends)], int).reshape(-1, 3)
    counts = np.append(blocks.counts.astype(int), np.zeros((1, N_ELEMENTS), int), 0)  # of none
    fits = triples[(counts[triples].sum(1) == formula.array).all(1)].tolist()

    def total(row):
        rows = np.array([block for block in row if block >= 0])
        return log_odds[blocks.bits_of(rows)[0]].sum() + blocks.worth[rows].sum()

    with mock.patch.multiple(joining, _LINKERS_AT_ONCE=2, _AT_ONCE=2):
        every = likeliest(blocks, formula, log_odds, 99_999).tolist()
        with mock.patch.object(joining, "_COMPARED", compared):
            found = likeliest(blocks, formula, log_odds, 99_999).tolist()

    kept, listed = ({(row[0], *sorted(row[1:])) for row in rows} for rows in (found, every))
    assert listed == set(map(tuple, fits))
    best = sorted(map(total, listed), reverse=True)[:compared]
    assert sorted(map(total, kept), reverse=True) == pytest.approx(best[: len(kept)])
    # Two ends of one kind are listed either way round.
    assert len(found) >= min(len(best), compared)


def test_of_like_molecules_those_of_frequent_blocks_come_first():
    blocks = of(*MADE_UP)
    blocks = replace(blocks, seen=np.ones_like(blocks.seen))

    rows = likeliest(
        blocks, formula_of(parse_smiles("CC(=O)Oc1ccccc1C(=O)O")), EVEN, 1_000
    ).tolist()

    pairs, linked = ([row for row in rows if (row[0] < 0) == alone] for alone in (True, False))
    assert rows == sorted(pairs) + linked  # a linker is worth less than none
    assert len(pairs) > 2
    assert [row[0] for row in linked] == sorted(row[0] for row in linked)


SMALL = of("Cc1ccccc1", "Cc1ccc(C)cc1", "Oc1ccccc1")


@pytest.mark.parametrize(
    "change",
    [
        {"smiles": ("*C", "*c1ccccc1*")}, {"smiles": ("*C*", "*C")},
        {"counts": np.zeros((5, 3), np.uint8)},
        {"n_bits": np.zeros(5, np.uint16)}, {"bits": np.full(9, 5000, np.uint16)},
        {"bits": np.zeros(3, np.float32)},
    ],
)  # fmt: skip
def test_what_is_broken_is_no_block(change):
    with pytest.raises(ValueError, match="blocks"):
        BuildingBlocks.read(replace(SMALL, **change).packed())


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(SMALL.packed()) - 1), st.integers(1, 255))
def test_broken_bytes_are_no_blocks(place, other):
    packed = SMALL.packed().copy()
    packed[place] ^= other

    for broken in (packed, packed[:place]):
        try:
            BuildingBlocks.read(broken)
        except ValueError:
            continue


def plainly(mol, blocks):
    """Of all bonds, each cut and both parts named: how many molecules have each, logarithms."""
    seen = dict(zip(blocks.smiles, np.log(blocks.seen, dtype=np.float32).tolist(), strict=True))
    parts = [joining._parts(mol, (bond,)) for bond in joining._cuttable(mol)]
    return max([0.0, *(sum(map(seen.get, both)) for both in parts if set(both) <= seen.keys())])


def joined_ends(one, other):
    """A molecule of two known halves, which nobody has seen together."""
    made = joined(joining._read(one).mol, joining._read(one).places[:1], [joining._read(other)])
    Chem.SanitizeMol(made)
    return made.GetMol()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=6), st.sampled_from(WHOLE))
def test_halves_are_those_of_which_all_bonds_are_cut(known, smiles):
    """Of molecules whose halves are known, of others, and of those that have two halves anew."""
    blocks = of(*known)
    made = [joined_ends(*pair) for pair in pairwise(blocks.smiles[: blocks.n_ends][:9])]

    for mol in (*map(parse_smiles, (smiles, *known)), *made):
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
    assert len(list(together(of(smiles), formula_from(smiles), EVEN, 99))) == made
