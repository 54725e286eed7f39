"""Fragments are what a hand finds that cuts bonds on paper; atoms are called as chemists do."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.elements import HYDROGEN
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.joining import atoms_of
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.data import fragmentation
from duallgd_cli.data.fragmentation import SHIFTS, fragments
from duallgd_cli.data.molecular_graph import N_ATOM_TYPES, atom_types, cutting_cost, graph_of
from tests.made_prepared import SMILES, molecules_of
from tests.made_simulation import QTOF, ion

# Of the columns of what cuts look like.
BOND_CLASSES, N_CUTS, SIZE = slice(20, 24), 26, 27


def found_in(smiles, n_pairs=100_000, n_triples=0, seed=1):
    graph = graph_of(molecules_of(smiles), 0)
    return fragments(graph, np.random.default_rng(seed), n_pairs, n_triples)


def formulas(found):
    return [str(Formula(tuple(row.astype(int).tolist()))) for row in found.counts]


def on_paper(smiles, n_cuts):
    """Counts of every part that is left when up to so many bonds are cut."""
    mol = parse_smiles(smiles)
    parts = {tuple(range(mol.GetNumAtoms()))}
    for size in range(1, n_cuts + 1):
        for cut in combinations(range(mol.GetNumBonds()), size):
            parts.update(Chem.GetMolFrags(Chem.FragmentOnBonds(mol, cut, addDummies=False)))
    atoms = atoms_of(mol)
    return {tuple(atoms[list(part)].sum(0).tolist()) for part in parts}


def as_set(found):
    return {tuple(row.astype(int).tolist()) for row in found.counts}


@pytest.mark.parametrize(
    ("smiles", "n_cuts"),
    [
        *((smiles, 2) for smiles in (*SMILES[4:6], SMILES[7], SMILES[9], "N#CC=Cc1ccc2ccccc2c1")),
        *((smiles, n) for smiles in ("CC(C)(C)OC(=O)NCCS", "C1CC2CCC1C2") for n in (2, 3)),
    ],
)
def test_fragments_are_the_parts_that_cuts_leave_on_paper(smiles, n_cuts):
    assert as_set(found_in(smiles, n_triples=4000 * (n_cuts == 3))) == on_paper(smiles, n_cuts)


def test_cuts_at_heteroatoms_cost_less_and_costs_add_up():
    found = found_in("CCO")

    cost = dict(zip(formulas(found), found.cost.tolist(), strict=True))
    assert cost["C2H5"] == cost["HO"] < cost["CH3"] == cost["CH3O"] < cost["CH2"]
    assert cost["CH2"] == pytest.approx(cost["C2H5"] + cost["CH3"])
    single, one, every = ({*formulas(found_in("CCOC", n))} for n in (0, 1, 99))
    assert one - single == {"O"}  # between the two bonds to oxygen, which are tried first
    assert every - one == {"CH2", "CH2O"}


def test_atoms_beyond_the_64th_count_as_the_others_do_and_arcs_of_a_ring_share_a_row():
    found = found_in(f"C1{'C' * 68}C1")

    assert {*formulas(found)} == {"CH2"} | {f"C{n}H{2 * n}" for n in range(2, 71)}
    assert found.cuts[1:, N_CUTS].tolist() == [2] * 69
    np.testing.assert_allclose(found.cuts[1:, -1], np.log(70), rtol=1e-6)  # of a length


@pytest.mark.parametrize("smiles", [*SMILES, "n1nnn[nH]1"])
def test_rows_are_distinct_parts_by_ascending_cost_and_say_how_they_were_cut_out(smiles):
    """Hydrogens that no valence shows are shared."""
    found, whole = found_in(smiles, 40, 20), molecules_of(smiles).atom_counts[0]

    n, n_cuts = len(found.counts), found.cuts[:, N_CUTS]
    np.testing.assert_array_equal(found.counts[0], whole)
    assert len(np.unique(found.counts, axis=0)) == n
    assert ((found.counts >= 0) & (found.counts <= whole)).all()
    assert (found.counts == np.rint(found.counts)).all()
    assert (np.diff(found.cost) >= 0).all()
    assert found.cost[0] == 0 < found.cost[1:].min()
    assert not found.cuts[0, : N_CUTS + 1].any()
    assert found.cuts[0, SIZE] == 1 > found.cuts[1:, SIZE].max()
    assert n_cuts[1:].min() >= 1
    # Every bond that was cut has an inner and an outer end, each of one element group.
    for columns in (BOND_CLASSES, slice(0, 6), slice(10, 16)):
        np.testing.assert_array_equal(found.cuts[:, columns].sum(1), n_cuts)
    assert found.cuts.shape == (n, fragmentation.N_CUT_FEATURES)
    assert found.atom_types.shape == (n, fragmentation.N_ATOM_TYPE_FEATURES)
    assert (found.atom_types >= 0).all()
    assert (found.atom_types[:, : 6 * N_ATOM_TYPES] <= 1).all()  # ramps


def test_only_triples_depend_on_the_seed():
    first, other = (found_in(SMILES[4], seed=seed) for seed in (1, 2))
    drawn, again, others = (found_in(SMILES[4], 0, 150, seed) for seed in (3, 3, 4))

    np.testing.assert_array_equal(first.cuts, other.cuts)
    np.testing.assert_array_equal(drawn.cuts, again.cuts)
    assert as_set(drawn) != as_set(others)


def random_isomers(generator, n_atoms, n_rings, n_molecules):
    """Connected graphs of the same atoms with as many bonds of any classes, rings anywhere."""
    element = np.sort(generator.integers(0, 4, n_atoms))
    for _ in range(n_molecules):
        tree = {(int(generator.integers(atom)), atom) for atom in range(1, n_atoms)}
        others = sorted(set(combinations(range(n_atoms), 2)) - tree)
        chosen = generator.permutation(len(others))[:n_rings]
        pair = np.array([*tree, *(others[place] for place in chosen)], int).reshape(-1, 2)
        yield MolecularGraph(element, pair, generator.integers(1, 5, len(pair)), 2 * n_atoms)


def cut_literally(graph, draws):
    """Number of parts and least cost of each combination of heavy atoms, one cut set at a time."""
    bonds, b = graph.pair.tolist(), len(graph.pair)
    chance = np.exp(-cutting_cost(graph).astype(float))
    below = np.cumsum(chance) / chance.sum()
    triples = [set(np.searchsorted(below, draw).tolist()) for draw in draws]
    cut_out = {}
    for cut in [*({bond} for bond in range(b)), *map(set, combinations(range(b), 2)), *triples, ()]:
        part_of = list(range(len(graph.element)))
        for bond, (low, high) in enumerate(bonds):
            if bond not in cut:
                part_of = [part_of[low] if part == part_of[high] else part for part in part_of]
        for which in set(part_of):
            part = frozenset(atom for atom, part in enumerate(part_of) if part == which)
            is_cut = [(low in part) != (high in part) for low, high in bonds]
            cut_out[part] = sum(cutting_cost(graph)[is_cut].tolist())
    of_atoms = {}
    for part, cost in cut_out.items():
        atoms = tuple(np.bincount(graph.element[sorted(part)], minlength=4).tolist())
        of_atoms.setdefault(atoms, []).append(cost)
    return {atoms: (len(costs), min(costs)) for atoms, costs in of_atoms.items()}


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(0, 3), st.integers(1, 4))
def test_isomers_at_once_give_what_literal_cuts_of_each_give(seed, n_atoms, n_rings, n_molecules):
    generator = np.random.default_rng(seed)
    graphs = list(random_isomers(generator, n_atoms, n_rings, n_molecules))
    draws = generator.random((10 if len(graphs[0].pair) else 0, 3))

    together = fragmentation.fragments_of_isomers(graphs, draws)

    assert (np.diff(together.molecule) >= 0).all()
    for number, graph in enumerate(graphs):
        mine = together.molecule == number
        alone = fragmentation.fragments_of_isomers([graph], draws)
        for name in ("counts", "cost", "inside", "cuts", "atom_types"):
            np.testing.assert_array_equal(getattr(together, name)[mine], getattr(alone, name))
        assert alone.inside[0].all()
        np.testing.assert_array_equal(alone.cuts[:, N_CUTS - 1], alone.cost)
        found = {}
        for counts, cost, log_parts in zip(
            alone.counts[:, :4], alone.cost, alone.cuts[:, -1], strict=True
        ):
            before, least = found.get(tuple(counts), (0, np.inf))
            found[tuple(counts)] = before + np.exp(log_parts), min(least, cost)
        expected = cut_literally(graph, draws)
        assert found.keys() == expected.keys()
        for atoms, of_atoms in expected.items():
            assert found[atoms] == pytest.approx(of_atoms, abs=1e-4)


ATOM_TYPES = list(atom_types(graph_of(molecules_of("CC"), 0), np.zeros(1, bool)))


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("CCO", "1 methyl, 1 methylene of a chain, 1 oxygen of an alcohol"),
        ("CC(C)C", "3 methyl, 1 branching carbon of a chain"),
        ("CC(=O)O", "1 carbon of an acid/ester/amide, 1 methyl, 1 oxygen of a phenol or acid"),
        ("CC(=O)OC", "1 carbon of an acid/ester/amide, 2 methyl, 1 oxygen of an ether or ester"),
        ("CC(C)=O", "1 carbon of a ketone or aldehyde, 2 methyl"),
        ("CC(N)=S", "1 carbon of an acid/ester/amide, 1 methyl, 1 nitrogen of an amide"),
        ("CNCC", "2 methyl, 1 methylene of a chain, 1 nitrogen of an amine"),
        ("Nc1ccccc1", "6 aromatic carbon, 1 nitrogen of an aniline"),
        ("Oc1cccnc1", "5 aromatic carbon, 1 aromatic nitrogen, 1 oxygen of a phenol or acid"),
        ("C=CC", "2 carbon of a double bond, 1 methyl"),
        ("CC#N", "1 carbon of a triple bond, 1 methyl, 1 nitrogen of a multiple bond"),
        ("CS", "1 methyl, 1 sulphur of a thiol or sulphide"),
        ("CS(N)(=O)=O", "1 methyl, 1 nitrogen of an amide"),
        ("CCl", "1 methyl"),
        ("C1CCCCC1", "6 saturated carbon of a ring"),
    ],
)
def test_atoms_are_what_a_chemist_calls_them(smiles, expected):
    graph, mol = graph_of(molecules_of(smiles), 0), parse_smiles(smiles)
    rings = mol.GetRingInfo().NumRings()  # which does not keep the molecule alive

    found = atom_types(graph, np.full(len(graph.pair), bool(rings)))

    assert sum(own.astype(int) for own in found.values()).max() <= 1
    named = (f"{own.sum()} {name}" for name, own in found.items() if own.any())
    assert ", ".join(named).replace("acid, ester or amide", "acid/ester/amide") == expected


def test_fragments_say_what_they_keep_and_lose_and_where_they_were_cut():
    """Ethylamine cut between its carbons."""
    found = found_in("CCN")
    (row,) = np.flatnonzero((found.counts[:, :2] == 1).all(1))  # CH2=NH2+ without its methyl
    methyl, methylene, amine = (
        ATOM_TYPES.index(name)
        for name in ("methyl", "methylene of a chain", "nitrogen of an amine")
    )

    expected = np.zeros((10, N_ATOM_TYPES))
    for place, step in enumerate((1, 3, 8)):
        expected[place, [methylene, amine]] = expected[place + 3, methyl] = 1 / step
    # Inner end, beside it, outer end, beside that.
    expected[[6, 7, 7, 8, 9], [methylene, methyl, amine, methyl, methylene]] = 1
    np.testing.assert_allclose(found.atom_types[row], expected.ravel(), rtol=1e-6)


ACID = "OC(=O)c1ccccc1"


@pytest.mark.parametrize(
    ("smiles", "adduct", "peaks", "expected"),
    [
        # Counted from the hydrogens that carry the charge.
        ("CCO", "[M+H]+", {"C2H5": 1.0, "H3O": 0.5}, {("C2H5", -1): 1.0, ("HO", 1): 0.5}),
        ("CCO", "[M-H]-", {"C2H5": 1.0, "H3O": 0.5}, {("C2H5", 1): 1.0, ("HO", 3): 0.5}),
        ("CCO", "[M]+", {"C2H5": 1.0, "H3O": 0.5}, {("C2H5", 0): 1.0, ("HO", 2): 0.5}),
        # Of fragments of its heavy atoms the cheapest: not CH2, for which two bonds are cut.
        ("CCO", "[M+H]+", {"CH3": 0.5}, {("CH3", -1): 0.5}),
        # C3 is propyl at one end, for one cut, or C3H2 in the middle of the chain, for two.
        ("CCCC#CCO", "[M+H]+", {"C3H3": 1.0}, {("C3H2", 0): 1.0}),
        ("CCCC#CCO", "[M+H]+", {"C3H7": 1.0}, {("C3H7", -1): 1.0}),
        # None explains it.
        (ACID, "[M+H]+", {"C8H5": 1.0, "CH9": 1.0, "N": 1.0}, {}),
        (ACID, "[M+H]+", {}, {}),
        (ACID, "[M+H]+", {"C8H5": 1.0, "C7H5O": 0.25}, {("C7H5O", -1): 0.25}),
        # Hydrogens more or less by five at most.
        ("CCO", "[M+H]+", {"C2H": 1.0}, {("C2H5", -5): 1.0}),
        ("CCO", "[M+H]+", {"C2": 1.0}, {}),
        ("CCO", "[M+H]+", {"C2H11": 1.0}, {("C2H5", 5): 1.0}),
    ],
)
def test_a_peak_goes_to_the_fragment_that_explains_it_best(smiles, adduct, peaks, expected):
    found, given = found_in(smiles, 500, 150), np.array([*peaks.values()], np.float16)
    subformula = np.array([Formula.parse(text).array for text in peaks], np.uint8)

    got = fragmentation.measured_intensity(
        found, ion(adduct), subformula.reshape(-1, HYDROGEN + 1), given
    )

    named = formulas(found)
    assert got.shape == (len(named), len(SHIFTS))
    assert {(named[c], SHIFTS[s]): float(got[c, s]) for c, s in np.argwhere(got)} == expected


def test_features_tell_fragment_ion_and_energy_apart_and_are_of_atoms_or_of_cuts():
    found = found_in("CC(=O)Nc1ccccc1O")
    ions = [ion(), ion("[M-H]-"), ion(instrument=QTOF)]
    ions += [ion(energy_ev=ev) for ev in (30.0, 0.0, float("nan"))]

    every = [fragmentation.fragment_features(found, one) for one in ions]

    for one, features in zip(ions, every, strict=True):
        of_atoms = fragmentation.atom_features(found.counts, found.counts[0], one)
        np.testing.assert_array_equal(features[:, fragmentation.OF_ATOMS], of_atoms)
        np.testing.assert_array_equal(
            features[:, fragmentation.OF_CUTS], fragmentation.cut_features(found)
        )
        assert features.shape == (len(found.counts), fragmentation.N_INPUTS)
        assert np.isfinite(features).all()
    rows = np.concatenate(every)
    assert len(np.unique(rows, axis=0)) == len(rows)
