"""Known molecules to start from: which, and what becomes of their atoms."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, fingerprint, parse_smiles
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.errors import UsageError, WeightsError
from duallgd_cli.sources import collection
from duallgd_cli.sources.collection import (
    Collection,
    bonds_between,
    known_molecules,
    molecule_of,
    placed,
    starts,
)
from tests.made_graphs import made_molecules
from tests.made_prepared import bits_of, bond_class, molecules_of

BUTANOL, BUTYLAMINE, NAPHTHOL = "CCCCO", "CCCCN", "Oc1cccc2ccccc12"
KNOWN = (BUTANOL, BUTYLAMINE, NAPHTHOL, "CCCCCCCCCCCCCCCC")


def known():
    return known_molecules(molecules_of(*KNOWN), max_atoms=99)


def predicted(smiles, chance=0.9):
    probability = np.full(4096, 0.001, np.float32)
    probability[fingerprint(parse_smiles(smiles))] = chance
    return probability


def near(molecules, chance, formula):
    """SMILES of the known molecules that are near a formula."""
    found = molecules.near(chance, Formula.parse(formula))
    return [canonical_smiles(molecule_of(one)) for one in found]


def test_similarity_is_the_soft_tanimoto_to_the_predicted_chances():
    molecules = known().molecules
    rng = np.random.default_rng(0)
    for _ in range(20):
        chance = rng.random(4096).astype(np.float32)
        bits = [molecules.bits_of(np.array([row]))[1] for row in (0, 1)]
        common = [chance[own].sum() for own in bits]
        like = [c / (chance.sum() + len(b) - c) for c, b in zip(common, bits, strict=True)]
        expected = [BUTANOL, BUTYLAMINE] if like[0] > like[1] else [BUTYLAMINE, BUTANOL]

        assert near(known(), chance, "C4H11NO") == expected
    # Naphthol and hexadecane are too far from four carbons and an oxygen.
    assert near(known(), predicted(BUTANOL), "C4H10O") == [BUTANOL, BUTYLAMINE]
    assert near(known(), predicted(BUTYLAMINE), "C4H10O") == [BUTYLAMINE, BUTANOL]


def test_fewer_atoms_to_add_or_cut_off_make_a_molecule_more_alike():
    pair = known_molecules(molecules_of("CCCCCO", "CCCCCCO"), max_atoms=99)
    chance = np.full(4096, 0.5, np.float32)  # says nothing

    assert near(pair, chance, "C5H12O") == ["CCCCCO", "CCCCCCO"]
    assert near(pair, chance, "C6H14O") == ["CCCCCCO", "CCCCCO"]


def fitted(graph, atoms, rng):
    return bonds_between(graph, placed(graph, atoms, rng), len(atoms))


def bonds_of(bond_class, n):
    low, high = np.triu_indices(n, 1)
    on = np.flatnonzero(bond_class)
    return list(zip(low[on].tolist(), high[on].tolist(), bond_class[on].tolist(), strict=True))


@given(st.integers(0, 2**32 - 1))
def test_a_molecule_is_put_on_the_atoms_of_a_formula(seed):
    rng = np.random.default_rng(seed)
    graph = graph_of(made_molecules(1, seed=seed % 1000), 0)
    counts = rng.integers(0, 5, N_HEAVY) * (rng.random(N_HEAVY) < 0.4)
    counts[0] += 1 + rng.integers(8)
    atoms = np.repeat(np.arange(N_HEAVY), counts)

    bond_class = fitted(graph, atoms, rng)

    own = np.bincount(graph.element, minlength=N_HEAVY)
    got = bonds_of(bond_class, len(atoms))
    # Bonds are bonds of the molecule between the same elements, none of them twice.
    left = [
        (*sorted(graph.element[pair]), bond)
        for pair, bond in zip(graph.pair, graph.bond_class, strict=True)
    ]
    for low, high, kind in got:
        left.remove((*sorted((atoms[low], atoms[high])), kind))
    # All of them where the formula has room for every atom.
    if (own <= counts).all():
        assert not left
    met = {atom for low, high, _ in got for atom in (low, high)}
    assert len(met) <= np.minimum(own, counts).sum()


def test_ends_of_chains_are_cut_off_before_what_holds_the_rest_together():
    graph = graph_of(molecules_of("CCCCCCc1ccccc1"), 0)

    for seed in range(20):
        bonds = bonds_of(fitted(graph, np.zeros(7, np.int64), np.random.default_rng(seed)), 7)

        assert [kind for *_, kind in bonds].count(4) == 6  # the ring is whole
        assert len(bonds) == 7
    isomer = molecules_of(BUTANOL)  # starts as it is
    start = starts([graph_of(isomer, 0)], Formula.parse("C4H10O"), 3, 0)
    assert start.tolist() == [bond_class(isomer, 0).tolist()] * 3


def test_known_molecules_are_those_of_fold_train_and_come_back_from_a_file():
    molecules = molecules_of(*KNOWN, fold=[0, 1, 0, 0])

    kept = known_molecules(molecules, max_atoms=11)
    again = Collection.of(kept.tensors())

    with pytest.raises(UsageError, match=r"no molecule of at most 2 heavy atoms.*--max-atoms"):
        known_molecules(molecules, max_atoms=2)
    assert len(kept.molecules) == len(again.molecules) == 2  # hexadecane is larger
    assert again.names == tuple(molecules.inchikey[[0, 2]].astype(str))
    for row, own in enumerate((0, 2)):
        assert again.molecules.formula(row) == molecules.formula(own)
        for one in (bond_class, bits_of):
            np.testing.assert_array_equal(one(again.molecules, row), one(molecules, own))
    assert again.blocks.smiles == kept.blocks.smiles
    for name in ("counts", "seen", "n_bits", "bits"):
        np.testing.assert_array_equal(
            getattr(again.blocks, name), getattr(kept.blocks, name), strict=True
        )
    assert {"*O", "*CO", "*c1cccc2ccccc12"} <= set(again.blocks.smiles)
    assert not any("N" in text for text in again.blocks.smiles)  # butylamine is of another fold


def test_of_other_structures_only_what_several_of_fold_train_have_is_a_block():
    """Anilines: three are of fold train, and one bears a group that no other has."""
    others = ["Nc1ccccc1", "NCc1ccccc1", "Nc1ccc(CO)cc1", "NC1CCC1", "NC1CCC1", "NC1CCC1"]
    structures = molecules_of(*others, fold=[0, 0, 0, 0, 1, 1])

    kept = known_molecules(molecules_of(*KNOWN), 99, structures)

    blocks = dict(zip(kept.blocks.smiles, kept.blocks.seen.tolist(), strict=True))
    assert blocks["*N"] == 1 + 4  # butylamine's own, and those of fold train
    assert "*c1ccccc1" not in blocks  # only two
    assert "*C1CCC1" not in blocks


@pytest.mark.slow  # starts processes
def test_two_processes_cut_molecules_as_one_does(monkeypatch):
    monkeypatch.setattr(collection, "in_order", partial(collection.in_order, at_a_time=2))
    told = []

    one, two = (
        known_molecules(molecules_of(*KNOWN), 99, None, told.append, workers).blocks
        for workers in (1, 2)
    )

    assert (one.smiles, one.seen.tolist()) == (two.smiles, two.seen.tolist())
    assert sum(told) == 2 * len(KNOWN)


def test_an_odd_number_of_electrons_is_that_of_a_cation():
    molecules = molecules_of("C[N+](C)(C)CCO", BUTANOL)

    choline, butanol = (molecule_of(graph_of(molecules, row)) for row in range(2))

    assert (canonical_smiles(choline), canonical_smiles(butanol)) == ("C[N+](C)(C)CCO", BUTANOL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("atom_counts", torch.zeros(4, 13, dtype=torch.uint8)),
        ("n_bonds", torch.full((4,), 200, dtype=torch.uint8)),
        ("n_bits", torch.full((4,), 1.0)),
        ("inchikey", torch.full((4, 14), 200, dtype=torch.uint8)),
        ("blocks", lambda blocks: blocks[:-9]),
        ("bond_pair", lambda pairs: with_last(pairs, 99)),
        ("bond_type", lambda types: with_last(types, 5)),
        ("bits", lambda bits: with_last(bits, 4096)),
    ],
)
def test_arrays_that_describe_no_molecules_are_refused(name, value):
    tensors = known().tensors()
    tensors[name] = value(tensors[name]) if callable(value) else value

    with pytest.raises(WeightsError, match="the templates in the weights are broken"):
        Collection.of(tensors)
    del tensors[name]  # weights of before there were any blocks, and so on
    with pytest.raises(WeightsError, match=rf"'{name}' of templates; fetch or copy"):
        Collection.of(tensors)


def with_last(array, value):
    """The array with another last value: one out of range is enough."""
    array.reshape(-1)[-1] = value
    return array
