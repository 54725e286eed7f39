"""Batches of molecules: complete, within budget, resumable, and true to the molecules."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.identity import inchikey_block
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.data.imitation import Imitation, neighbours
from duallgd_cli.model.duallgd import keep_bits
from duallgd_cli.train.decoder import BatchPlan, MoleculeCollator
from tests.made_graphs import made_molecules
from tests.made_prepared import bond_class, molecules_of

SIZES = np.random.default_rng(0).integers(2, 30, 200)


def n_pairs(size):
    return size * (size - 1) // 2


@given(st.integers(0, 5), st.integers(1, 8), st.integers(1, 3000), st.integers(0, 99))
def test_molecules_come_once_an_epoch_and_the_budget_of_pairs_is_kept(epoch, bucket, budget, seed):
    """Unless one molecule alone exceeds it."""
    plan = BatchPlan(budget, bucket, seed)

    batches = plan.epoch(SIZES, epoch)

    order, other = (np.concatenate(own).tolist() for own in (batches, plan.epoch(SIZES, epoch + 1)))
    assert sorted(order) == list(range(len(SIZES)))
    assert order != other, "another order each epoch"
    for members in batches:
        padded = plan.padded(SIZES[members])
        assert len(set(padded.tolist())) == 1, "one size a batch"
        assert len(members) == 1 or len(members) * n_pairs(padded[0]) <= budget
        assert (padded >= SIZES[members]).all()
        assert (padded - SIZES[members] < bucket).all()
        assert padded[0] % bucket == 0


@given(st.integers(0, 100), st.integers(1, 7))
def test_ranks_take_turns_over_all_batches_also_when_resumed_at_a_step(first, world_size):
    plan = BatchPlan(300, 2, 3)
    alone = [b.tolist() for b in islice(plan.stream(SIZES, 0), (first + 40) * world_size)]

    streams = [islice(plan.stream(SIZES, first, r, world_size), 40) for r in range(world_size)]
    turns = [b.tolist() for step in zip(*streams, strict=True) for b in step]

    assert turns == alone[first * world_size :]


def graphs(molecules, size, share=0.0, seed=1):
    collator = MoleculeCollator(molecules, None, share)
    rows = np.arange(len(molecules))
    return collator.graphs(rows, size, np.random.default_rng(seed))


def bonds_of(graph, molecules, row, size):
    """Bond classes of one molecule, without its padding."""
    n = int(molecules.n_heavy[row])
    low, high = np.triu_indices(size, 1)
    return graph[row].numpy()[(low < n) & (high < n)]


def test_atoms_and_bonds_stand_where_the_molecule_has_them_and_none_at_padding():
    molecules, size = molecules_of(), 16
    collator = MoleculeCollator(molecules, None)

    graph, pair_mask = graphs(molecules, size)
    atom_class, mask, formula, charge = collator.formula(np.arange(len(molecules)), size)

    assert not graph[~pair_mask].any()
    assert not atom_class[~mask].any()
    assert mask.sum(1).tolist() == molecules.n_heavy.tolist()
    for row in range(len(molecules)):
        bonds = bond_class(molecules, row)
        assert np.array_equal(bonds_of(graph, molecules, row, size), bonds)
        assert int(pair_mask[row].sum()) == len(bonds)
        assert atom_class[row][mask[row]].tolist() == molecules.formula(row).atom_class.tolist()
        assert formula[row].tolist() == molecules.atom_counts[row].tolist()
        assert charge[row] == molecules.charge[row]


@pytest.mark.parametrize("seed", range(5))
def test_relabelling_within_elements_keeps_the_molecule(seed):
    molecules, size = molecules_of(), 14

    graph, _ = graphs(molecules, size, 1.0, seed)

    for row in range(len(molecules)):
        bonds = bonds_of(graph, molecules, row, size)
        found = assemble(molecules.formula(row), bonds)
        assert molecules.inchikey[row].decode() == inchikey_block(found)


def condition_of(molecules, imitation, seed=1):
    collator = MoleculeCollator(molecules, imitation)
    return collator.condition(np.arange(len(molecules)), 9, np.random.default_rng(seed))


def test_a_true_fingerprint_is_certain_of_its_bits():
    molecules = made_molecules(20)

    known = condition_of(molecules, None)

    for row in range(20):
        own = known.bit_log_prob[row].isfinite()
        assert known.bit[row][own].tolist() == molecules.fingerprint_bits(row).tolist()
        assert not known.bit_log_prob[row][own].any()


def test_an_imitated_prediction_is_kept_as_in_use():
    molecules = made_molecules(50)
    imitation = Imitation(molecules, neighbours(molecules, torch.device("cpu")), 0.1)

    known = condition_of(molecules, imitation)

    expected = keep_bits(imitation(np.arange(50), np.random.default_rng(1)), 160)
    torch.testing.assert_close((known.bit, known.bit_log_prob), expected, rtol=0, atol=0)
