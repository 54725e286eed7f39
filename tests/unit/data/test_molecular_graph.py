"""Atom types are what a chemist calls them."""

import numpy as np
import pytest

from duallgd_cli.data.fragmentation import fragments
from duallgd_cli.data.molecular_graph import N_ATOM_TYPES, atom_types, graph_of
from tests.made_prepared import molecules_of

ATOM_TYPES = list(atom_types(graph_of(molecules_of("CC"), 0), np.zeros(1, bool)))


def types_of(smiles, n_ring_bonds=0):
    """How many atoms of each type, by name; of the bonds the last ones listed are in a ring."""
    graph = graph_of(molecules_of(smiles), 0)
    in_ring = np.zeros(len(graph.pair), bool)
    in_ring[len(in_ring) - n_ring_bonds :] = True
    found = atom_types(graph, in_ring)
    assert sum(own.astype(int) for own in found.values()).max() <= 1
    return {name: own.sum() for name, own in found.items() if own.any()}


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
    ],
)  # fmt: skip
def test_atoms_are_what_a_chemist_calls_them(smiles, expected):
    assert types_of(smiles) == expected


def test_saturated_carbons_of_rings_are_told_from_those_of_chains():
    assert types_of("C1CCCCC1", n_ring_bonds=6) == {"saturated carbon of a ring": 6}
    assert types_of("CCCCCC") == {"methyl": 2, "methylene of a chain": 4}


def rows(smiles):
    """Sites about the fragments, by the heavy atoms of those."""
    found = fragments(graph_of(molecules_of(smiles), 0), np.random.default_rng(1), n_triples=0)
    heavy = [tuple(row[:-1].astype(int).tolist()) for row in found.counts]
    return dict(zip(heavy, found.atom_types, strict=True))


def test_fragments_say_what_they_keep_and_lose_and_where_they_were_cut():
    """Ethylamine cut between its carbons; by hand."""
    sites = rows("CCN")
    methyl, methylene, amine = (
        ATOM_TYPES.index(name)
        for name in ("methyl", "methylene of a chain", "nitrogen of an amine")
    )
    kept = sites[(1, 1, *[0] * 10)].reshape(-1, N_ATOM_TYPES)  # CH2=NH2+ without its methyl

    expected = np.zeros((10, N_ATOM_TYPES))
    for step, place in ((1, 0), (3, 1), (8, 2)):
        expected[place, [methylene, amine]] = 1 / step
        expected[place + 3, methyl] = 1 / step
    expected[6, methylene] = 1  # inner end
    expected[7, [methyl, amine]] = 1  # beside it
    expected[8, methyl] = 1  # outer end
    expected[9, methylene] = 1
    np.testing.assert_allclose(kept, expected, rtol=1e-6)


def test_bonds_that_cannot_part_a_molecule_alone_are_those_of_its_rings():
    found = fragments(graph_of(molecules_of("CC1CCCCC1CC"), 0), np.random.default_rng(1))
    whole = found.atom_types[0].reshape(-1, N_ATOM_TYPES)
    kept = whole[2] * 8

    assert not whole[3:].any()  # it lacks nothing and has no ends
    assert dict(zip(ATOM_TYPES, kept.tolist(), strict=True)) == dict.fromkeys(ATOM_TYPES, 0) | {
        "methyl": 2,
        "methylene of a chain": 1,
        "saturated carbon of a ring": 6,
    }
