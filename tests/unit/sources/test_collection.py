"""Known molecules to start from: which, and what becomes of their atoms."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.errors import UsageError, WeightsError
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
from tests.made_queries import chances, collection_of

BUTANOL, BUTYLAMINE = "CCCCO", "CCCCN"
KNOWN = (BUTANOL, BUTYLAMINE, "Oc1cccc2ccccc12", "CCCCCCCCCCCCCCCC")


def near(known, chance, formula):
    """SMILES of the known molecules that are near a formula."""
    found = known.near(chance, Formula.parse(formula))
    return [canonical_smiles(molecule_of(one)) for one in found]


def test_similarity_is_the_soft_tanimoto_to_the_predicted_chances():
    known, rng = collection_of(BUTANOL, BUTYLAMINE), np.random.default_rng(0)
    bits = [bits_of(known.molecules, row) for row in (0, 1)]
    for _ in range(20):
        chance = rng.random(4096).astype(np.float32)
        common = [chance[own].sum() for own in bits]
        like = [c / (chance.sum() + len(b) - c) for c, b in zip(common, bits, strict=True)]

        found = near(known, chance, "C4H11NO")

        assert found == ([BUTANOL, BUTYLAMINE] if like[0] > like[1] else [BUTYLAMINE, BUTANOL])


@pytest.mark.parametrize(
    ("known", "chance", "formula", "first"),
    [
        # Naphthol and hexadecane are too far from four carbons and an oxygen.
        (KNOWN, chances(BUTANOL), "C4H10O", [BUTANOL, BUTYLAMINE]),
        (KNOWN, chances(BUTYLAMINE), "C4H10O", [BUTYLAMINE, BUTANOL]),
        # Fewer atoms to add or cut off make a molecule more alike, where no bit says anything.
        (("CCCCCO", "CCCCCCO"), chances(low=0.5), "C5H12O", ["CCCCCO", "CCCCCCO"]),
        (("CCCCCO", "CCCCCCO"), chances(low=0.5), "C6H14O", ["CCCCCCO", "CCCCCO"]),
    ],
)
def test_the_nearest_come_first_and_the_far_are_left_out(known, chance, formula, first):
    assert near(collection_of(*known), chance, formula) == first


def fitted(graph, atoms, rng):
    """Bonds of a molecule on the atoms of a formula: its ends and its class."""
    classes = bonds_between(graph, placed(graph, atoms, rng), len(atoms))
    ends, on = np.triu_indices(len(atoms), 1), np.flatnonzero(classes)
    return list(zip(*(values[on].tolist() for values in (*ends, classes)), strict=True))


@given(st.integers(0, 2**32 - 1))
def test_a_molecule_is_put_on_the_atoms_of_a_formula(seed):
    rng = np.random.default_rng(seed)
    graph = graph_of(made_molecules(1, seed=seed % 1000), 0)
    counts = rng.integers(0, 5, N_HEAVY) * (rng.random(N_HEAVY) < 0.4)
    counts[0] += 1 + rng.integers(8)
    atoms = np.repeat(np.arange(N_HEAVY), counts)

    got = fitted(graph, atoms, rng)

    own = np.bincount(graph.element, minlength=N_HEAVY)
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
        bonds = fitted(graph, np.zeros(7, np.int64), np.random.default_rng(seed))

        assert [kind for *_, kind in bonds].count(4) == 6  # the ring is whole
        assert len(bonds) == 7


def test_a_molecule_of_the_formula_starts_as_it_is():
    isomer = molecules_of(BUTANOL)

    start = starts([graph_of(isomer, 0)], Formula.parse("C4H10O"), 3, 0)

    assert start.tolist() == [bond_class(isomer, 0).tolist()] * 3


def test_known_molecules_are_those_of_fold_train_up_to_a_size():
    molecules = molecules_of(*KNOWN, fold=[0, 1, 0, 0])

    kept = known_molecules(molecules, max_atoms=11)

    assert kept.names == tuple(molecules.inchikey[[0, 2]].astype(str))  # hexadecane is larger
    assert {"*O", "*CO", "*c1cccc2ccccc12"} <= set(kept.blocks.smiles)
    assert not any("N" in text for text in kept.blocks.smiles)  # butylamine is of another fold
    with pytest.raises(UsageError, match=r"no molecule of at most 2 heavy atoms.*--max-atoms"):
        known_molecules(molecules, max_atoms=2)


def test_known_molecules_and_blocks_come_back_from_a_file():
    kept = collection_of(*KNOWN)

    again = Collection.of(kept.tensors())

    assert (again.names, again.blocks.smiles) == (kept.names, kept.blocks.smiles)
    for row in range(len(KNOWN)):
        assert again.molecules.formula(row) == kept.molecules.formula(row)
        for one in (bond_class, bits_of):
            np.testing.assert_array_equal(one(again.molecules, row), one(kept.molecules, row))
    for name in ("counts", "seen", "n_bits", "bits"):
        pair = (getattr(each.blocks, name) for each in (again, kept))
        np.testing.assert_array_equal(*pair, strict=True)


def test_of_other_structures_only_what_several_of_fold_train_have_is_a_block():
    """Anilines: three are of fold train, and one bears a group that no other has."""
    others = ["Nc1ccccc1", "NCc1ccccc1", "Nc1ccc(CO)cc1", "NC1CCC1", "NC1CCC1", "NC1CCC1"]
    structures = molecules_of(*others, fold=[0, 0, 0, 0, 1, 1])

    kept = known_molecules(molecules_of(*KNOWN), 99, structures)

    blocks = dict(zip(kept.blocks.smiles, kept.blocks.seen.tolist(), strict=True))
    assert blocks["*N"] == 1 + 4  # butylamine's own, and those of fold train
    assert "*c1ccccc1" not in blocks  # only two
    assert "*C1CCC1" not in blocks


@pytest.mark.parametrize("smiles", ["C[N+](C)(C)CCO", BUTANOL])
def test_an_odd_number_of_electrons_is_that_of_a_cation(smiles):
    assert canonical_smiles(molecule_of(graph_of(molecules_of(smiles), 0))) == smiles


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("atom_counts", torch.zeros(4, 12, dtype=torch.uint8)),
        ("n_bonds", torch.full((4,), 200, dtype=torch.uint8)),
        ("n_bits", torch.full((4,), 1.0)),
        ("inchikey", torch.full((3, 14), 65, dtype=torch.uint8)),
        ("blocks", lambda blocks: blocks[:-9]),
        ("bond_pair", lambda pairs: pairs[:-1]),
        ("bond_type", lambda types: types[:-1]),
        ("bits", lambda bits: bits[:-1]),
    ],
)
def test_arrays_that_describe_no_molecules_are_refused(name, value):
    tensors = collection_of(*KNOWN).tensors()
    tensors[name] = value(tensors[name]) if callable(value) else value

    with pytest.raises(WeightsError, match="the templates in the weights are broken"):
        Collection.of(tensors)
    del tensors[name]  # weights of before there were any blocks, and so on
    with pytest.raises(WeightsError, match=rf"'{name}' of templates; fetch or copy"):
        Collection.of(tensors)
