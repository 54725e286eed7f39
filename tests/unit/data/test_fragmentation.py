"""Fragments are what a hand finds that cuts bonds on paper; atoms are called as chemists do."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.elements import HYDROGEN
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.joining import atoms_of
from duallgd_cli.data.fragmentation import (
    N_ATOM_TYPE_FEATURES,
    N_CUT_FEATURES,
    N_INPUTS,
    OF_ATOMS,
    OF_CUTS,
    Ion,
    atom_features,
    cut_features,
    fragment_features,
    fragments,
    fragments_of_isomers,
)
from duallgd_cli.data.molecular_graph import N_ATOM_TYPES, MolecularGraph, atom_types, graph_of
from tests.made_graphs import made_molecules
from tests.made_prepared import SMILES, molecules_of

ALL = 100_000
# Of the columns of what cuts look like.
BOND_CLASSES, N_CUTS, SIZE = slice(20, 24), 26, 27


def found_in(smiles, n_pairs=ALL, n_triples=0, seed=1):
    graph = graph_of(molecules_of(smiles), 0)
    return fragments(graph, np.random.default_rng(seed), n_pairs, n_triples)


def formulas(found):
    return {str(Formula(tuple(row.astype(int).tolist()))) for row in found.counts}


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


def test_cutting_a_ring_twice_gives_its_arcs():
    found = found_in("C1CCCCC1")

    assert found.cuts[1:, N_CUTS].tolist() == [2] * 5
    np.testing.assert_allclose(found.cuts[1:, -1], np.log(6), rtol=1e-6)  # six arcs of a length


def test_cuts_at_heteroatoms_cost_less_and_costs_add_up():
    found = found_in("CCO")

    names = [str(Formula(tuple(row.astype(int).tolist()))) for row in found.counts]
    cost = dict(zip(names, found.cost.tolist(), strict=True))
    assert cost["C2H5"] == cost["HO"] < cost["CH3"] == cost["CH3O"] < cost["CH2"]
    assert cost["CH2"] == pytest.approx(cost["C2H5"] + cost["CH3"])
    single, one, every = (formulas(found_in("CCOC", n_pairs=n)) for n in (0, 1, ALL))
    assert one - single == {"O"}  # between the two bonds to oxygen, which are tried first
    assert every - one == {"CH2", "CH2O"}


def test_atoms_beyond_the_64th_count_as_the_others_do():
    found = found_in(f"C1{'C' * 68}C1")

    assert formulas(found) == {"CH2"} | {f"C{n}H{2 * n}" for n in range(2, 71)}


@pytest.mark.parametrize("smiles", ["n1nnn[nH]1", "c1cc[nH]c1", "O=[N+]([O-])c1ccccc1"])
def test_hydrogens_that_no_valence_shows_are_shared(smiles):
    found, molecules = found_in(smiles), molecules_of(smiles)

    np.testing.assert_array_equal(found.counts[0], molecules.atom_counts[0])
    assert (found.counts[:, HYDROGEN] <= molecules.atom_counts[0, HYDROGEN]).all()


@pytest.mark.parametrize(
    "smiles",
    [
        "CCO", "CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "OC1CCCCC1CN",
        "CC(C)(C)OC(=O)NCCS", "OB(O)c1ccc(Cl)cc1Br", "CS(C)(=O)=O", "C1CC2CCC1C2",
        "N#CC=Cc1ccc2ccccc2c1",
    ],
)  # fmt: skip
def test_single_and_double_cuts_are_those_made_on_paper(smiles):
    assert as_set(found_in(smiles)) == on_paper(smiles, 2)


@pytest.mark.parametrize("smiles", ["CC(C)(C)OC(=O)NCCS", "C1CC2CCC1C2"])
def test_triple_cuts_add_what_three_cuts_make_on_paper(smiles):
    doubles, triples = as_set(found_in(smiles)), as_set(found_in(smiles, n_triples=4000))

    assert doubles < triples == on_paper(smiles, 3)


@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(0, 20))
def test_rows_are_distinct_parts_by_ascending_cost(seed, n_pairs, n_triples):
    molecules = made_molecules(1, seed, smallest=2, largest=9)

    found = fragments(graph_of(molecules, 0), np.random.default_rng(seed), n_pairs, n_triples)

    np.testing.assert_array_equal(found.counts[0], molecules.atom_counts[0])
    assert len(np.unique(found.counts, axis=0)) == len(found.counts)
    assert ((found.counts >= 0) & (found.counts <= found.counts[0])).all()
    assert (found.counts == np.rint(found.counts)).all()
    assert found.cost[0] == 0
    assert (np.diff(found.cost) >= 0).all()
    assert (found.cost[1:] > 0).all()
    assert found.cuts.shape == (len(found.counts), N_CUT_FEATURES)
    assert found.atom_types.shape == (len(found.counts), N_ATOM_TYPE_FEATURES)
    assert (found.atom_types >= 0).all()
    assert (found.atom_types[:, : 6 * N_ATOM_TYPES] <= 1).all()  # ramps


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
    chance = np.exp(-graph.cost.astype(float))
    below = np.cumsum(chance) / chance.sum()
    triples = [set(np.searchsorted(below, draw).tolist()) for draw in draws]
    parts = set()
    for cut in [*({bond} for bond in range(b)), *map(set, combinations(range(b), 2)), *triples, ()]:
        part_of = list(range(len(graph.element)))
        for bond, (low, high) in enumerate(bonds):
            if bond not in cut:
                part_of = [part_of[low] if part == part_of[high] else part for part in part_of]
        parts.update(
            frozenset(atom for atom, part in enumerate(part_of) if part == which)
            for which in part_of
        )
    cut_out = {}
    for part in parts:
        is_cut = [(low in part) != (high in part) for low, high in bonds]
        cost = sum(graph.cost[is_cut].tolist())
        atoms = tuple(np.bincount(graph.element[sorted(part)], minlength=4).tolist())
        cut_out.setdefault(atoms, []).append(cost)
    return {atoms: (len(costs), min(costs)) for atoms, costs in cut_out.items()}


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(0, 3), st.integers(1, 4))
def test_isomers_at_once_give_what_literal_cuts_of_each_give(seed, n_atoms, n_rings, n_molecules):
    generator = np.random.default_rng(seed)
    graphs = list(random_isomers(generator, n_atoms, n_rings, n_molecules))
    draws = generator.random((10 if len(graphs[0].pair) else 0, 3))

    together = fragments_of_isomers(graphs, draws)

    assert (np.diff(together.molecule) >= 0).all()
    for number, graph in enumerate(graphs):
        mine = together.molecule == number
        alone = fragments_of_isomers([graph], draws)
        for name in ("counts", "cost", "inside", "cuts", "atom_types"):
            np.testing.assert_array_equal(getattr(together, name)[mine], getattr(alone, name))
        assert alone.inside[0].all()
        expected, found = cut_literally(graph, draws), {}
        for counts, cost, cuts in zip(alone.counts, alone.cost, alone.cuts, strict=True):
            assert cuts[N_CUTS - 1] == cost
            n_parts = round(float(np.exp(cuts[-1])))
            before, least = found.get(tuple(counts[:4]), (0, np.inf))
            found[tuple(counts[:4])] = before + n_parts, min(least, float(cost))
        assert found.keys() == expected.keys()
        for atoms, (n_parts, cost) in expected.items():
            assert found[atoms] == (n_parts, pytest.approx(cost, abs=1e-4))


@pytest.mark.parametrize("row", range(len(SMILES)))
def test_cuts_say_how_many_bonds_of_which_class_were_cut(row):
    found = fragments(graph_of(molecules_of(), row), np.random.default_rng(1))

    assert not found.cuts[0, : N_CUTS + 1].any()
    assert found.cuts[0, SIZE] == 1
    assert (found.cuts[1:, SIZE] < 1).all()
    n_cuts = found.cuts[:, N_CUTS]
    np.testing.assert_array_equal(found.cuts[:, BOND_CLASSES].sum(1), n_cuts)
    assert (n_cuts[1:] >= 1).all()
    # Every bond that was cut has an inner and an outer end, each of one element group.
    for ends in (slice(0, 6), slice(10, 16)):
        np.testing.assert_array_equal(found.cuts[:, ends].sum(1), n_cuts)


def test_only_triples_depend_on_the_seed():
    aspirin = "CC(=O)Oc1ccccc1C(=O)O"

    first, other = (found_in(aspirin, seed=seed) for seed in (1, 2))
    drawn, again = (found_in(aspirin, 0, 150, seed=3) for _ in range(2))

    np.testing.assert_array_equal(first.cuts, other.cuts)
    np.testing.assert_array_equal(drawn.cuts, again.cuts)
    assert as_set(drawn) != as_set(found_in(aspirin, 0, 150, seed=4))


ATOM_TYPES = list(atom_types(graph_of(molecules_of("CC"), 0), np.zeros(1, bool)))


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("CCO", {"methyl": 1, "methylene of a chain": 1, "oxygen of an alcohol": 1}),
        ("CC(C)C", {"methyl": 3, "branching carbon of a chain": 1}),
        ("CC(=O)O", {
            "methyl": 1, "carbon of an acid, ester or amide": 1, "oxygen of a phenol or acid": 1,
        }),
        ("CC(=O)OC", {
            "methyl": 2, "carbon of an acid, ester or amide": 1, "oxygen of an ether or ester": 1,
        }),
        ("CC(C)=O", {"methyl": 2, "carbon of a ketone or aldehyde": 1}),
        ("CC(N)=S", {
            "methyl": 1, "carbon of an acid, ester or amide": 1, "nitrogen of an amide": 1,
        }),
        ("CNCC", {"methyl": 2, "methylene of a chain": 1, "nitrogen of an amine": 1}),
        ("Nc1ccccc1", {"aromatic carbon": 6, "nitrogen of an aniline": 1}),
        ("Oc1cccnc1", {
            "aromatic carbon": 5, "aromatic nitrogen": 1, "oxygen of a phenol or acid": 1,
        }),
        ("C=CC#N", {
            "carbon of a double bond": 2, "carbon of a triple bond": 1,
            "nitrogen of a multiple bond": 1,
        }),
        ("CS", {"methyl": 1, "sulphur of a thiol or sulphide": 1}),
        ("CS(N)(=O)=O", {"methyl": 1, "nitrogen of an amide": 1}),
        ("CCl", {"methyl": 1}),
        ("C1CCCCC1", {"saturated carbon of a ring": 6}),
    ],
)  # fmt: skip
def test_atoms_are_what_a_chemist_calls_them(smiles, expected):
    graph = graph_of(molecules_of(smiles), 0)
    rings = Chem.MolFromSmiles(smiles).GetRingInfo().NumRings()

    found = atom_types(graph, np.full(len(graph.pair), bool(rings)))

    assert sum(own.astype(int) for own in found.values()).max() <= 1
    assert {name: own.sum() for name, own in found.items() if own.any()} == expected


def test_fragments_say_what_they_keep_and_lose_and_where_they_were_cut():
    """Ethylamine cut between its carbons."""
    found = found_in("CCN")
    (row,) = np.flatnonzero((found.counts[:, :2] == 1).all(1))  # CH2=NH2+ without its methyl
    kept = found.atom_types[row].reshape(-1, N_ATOM_TYPES)
    methyl, methylene, amine = (
        ATOM_TYPES.index(name)
        for name in ("methyl", "methylene of a chain", "nitrogen of an amine")
    )

    expected = np.zeros((10, N_ATOM_TYPES))
    for step, place in ((1, 0), (3, 1), (8, 2)):
        expected[place, [methylene, amine]] = 1 / step
        expected[place + 3, methyl] = 1 / step
    expected[6, methylene] = 1  # inner end
    expected[7, [methyl, amine]] = 1  # beside it
    expected[8, methyl] = 1  # outer end
    expected[9, methylene] = 1
    np.testing.assert_allclose(kept, expected, rtol=1e-6)


def test_features_are_those_of_the_atoms_and_those_of_the_cuts():
    found, ion = found_in("CC(=O)Nc1ccccc1O"), Ion(BY_NAME["[M-H]-"].index, 1, 20.0)

    features = fragment_features(found, ion)

    of_atoms = atom_features(found.counts, found.counts[0], ion)
    np.testing.assert_array_equal(features[:, OF_ATOMS], of_atoms)
    np.testing.assert_array_equal(features[:, OF_CUTS], cut_features(found))
    assert features.shape == (len(found.counts), N_INPUTS)
