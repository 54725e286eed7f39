"""The decoder: batches complete, within budget, resumable, and true to the molecules."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.identity import inchikey_block
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.data.imitation import Imitation, neighbours
from duallgd_cli.diffusion.sampler import alpha_bar
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.duallgd import keep_bits
from duallgd_cli.model.settings import DiffusionSettings
from duallgd_cli.train import decoder
from duallgd_cli.train.decoder import BatchPlan, DecoderStage, MoleculeCollator
from duallgd_cli.train.settings import TrainingData, TrainingSettings
from tests.made_graphs import made_molecules, small_settings, stirred
from tests.made_prepared import bond_class, molecules_of

SIZES = np.random.default_rng(0).integers(2, 30, 200)
SETTINGS = TrainingSettings(data=TrainingData(pairs_per_batch=400))


@given(st.integers(0, 5), st.integers(1, 8), st.integers(1, 3000), st.integers(0, 99))
def test_molecules_come_once_an_epoch_and_the_budget_of_pairs_is_kept(epoch, bucket, budget, seed):
    """Unless one molecule alone exceeds it."""
    plan = BatchPlan(budget, bucket, seed)

    batches = plan.epoch(SIZES, epoch)

    order, other = (np.concatenate(own).tolist() for own in (batches, plan.epoch(SIZES, epoch + 1)))
    assert sorted(order) == list(range(len(SIZES)))
    assert order != other, "another order each epoch"
    for members in batches:
        (size,) = set(plan.padded(SIZES[members]).tolist())
        assert len(members) == 1 or len(members) * size * (size - 1) // 2 <= budget
        assert size % bucket == 0
        assert ((SIZES[members] <= size) & (SIZES[members] > size - bucket)).all()


@given(st.integers(0, 100), st.integers(1, 7))
def test_ranks_take_turns_over_all_batches_also_when_resumed_at_a_step(first, world_size):
    plan = BatchPlan(300, 2, 3)
    alone = [b.tolist() for b in islice(plan.stream(SIZES, 0), (first + 40) * world_size)]

    streams = [islice(plan.stream(SIZES, first, r, world_size), 40) for r in range(world_size)]
    turns = [b.tolist() for step in zip(*streams, strict=True) for b in step]

    assert turns == alone[first * world_size :]


def test_atoms_and_bonds_are_those_of_the_molecule_and_none_at_padding():
    molecules, size = molecules_of(), 16
    rows, collator = np.arange(len(molecules)), MoleculeCollator(molecules, None)

    graph, pair_mask = collator.graphs(rows, size)
    atom_class, mask, formula, charge = collator.formula(rows, size)

    assert not graph[~pair_mask].any()
    assert not atom_class[~mask].any()
    assert formula.tolist() == molecules.atom_counts.tolist()
    assert charge.tolist() == molecules.charge.tolist()
    low, high = np.triu_indices(size, 1)
    for row, n in enumerate(molecules.n_heavy):
        assert pair_mask[row].tolist() == ((low < n) & (high < n)).tolist()
        assert atom_class[row][mask[row]].tolist() == molecules.formula(row).atom_class.tolist()
        bonds = graph[row][pair_mask[row]].numpy()
        assert (bonds == bond_class(molecules, row)).all()
        found = inchikey_block(assemble(molecules.formula(row), bonds))
        assert found == molecules.inchikey[row].decode()


def test_a_fingerprint_is_certain_of_its_bits_or_imitated_as_in_use():
    molecules, rows = made_molecules(50), np.arange(50)
    imitation = Imitation(molecules, neighbours(molecules, torch.device("cpu")), 0.1)

    true, imitated = (
        MoleculeCollator(molecules, by).condition(rows, 9, np.random.default_rng(1))
        for by in (None, imitation)
    )

    for row in range(50):
        own = true.bit_log_prob[row].isfinite()
        assert true.bit[row][own].tolist() == molecules.bits_of(np.array([row]))[1].tolist()
        assert not true.bit_log_prob[row][own].any()
    expected = keep_bits(imitation(rows, np.random.default_rng(1)), 160)
    torch.testing.assert_close((imitated.bit, imitated.bit_log_prob), expected, rtol=0, atol=0)


def test_the_bond_loss_is_the_cross_entropy_of_real_pairs_at_noise_of_every_level(
    model, monkeypatch
):
    molecules = made_molecules(6, smallest=3, largest=7)
    collator = MoleculeCollator(molecules, None)
    batch = collator.batch((np.arange(6), 9), np.random.default_rng(2))
    # What the loss of padded pairs would be must not matter.
    dirty = replace(batch, bond_class=torch.where(batch.pair_mask, batch.bond_class, 3))

    with torch.no_grad():
        summed, count = decoder.bond_loss(model, batch)
        again, _ = decoder.bond_loss(model, dirty)

    assert int(count) == int((molecules.n_heavy * (molecules.n_heavy - 1) // 2).sum())
    assert float(again) == pytest.approx(float(summed))
    assert 0.1 < float(summed / count) < 10
    assert sorted((batch.level * 6).floor().int().tolist()) == list(range(6))
    shares = []
    monkeypatch.setattr(decoder, "corrupt", lambda clean, share, *_: shares.append(share) or clean)
    levels = torch.tensor([0.0, 0.001, 0.002, 0.5, 0.999, 1.0], dtype=torch.float64)
    decoder.bond_loss(model, replace(batch, level=levels))
    torch.testing.assert_close(shares[0], alpha_bar(500)[[1, 1, 2, 251, 500, 500]])


@pytest.mark.parametrize("largest", [100, 5])
def test_the_decoder_trains_on_fold_train_and_looks_at_dev_and_val(largest):
    molecules = made_molecules(40, smallest=1, fold=[0, 1, 2, 3] * 10)
    settings = replace(SETTINGS, data=replace(SETTINGS.data, max_atoms=largest))
    stage = DecoderStage(molecules, settings)

    trained = {int(r) for rows, _ in islice(stage.plan(0), 60) for r in rows}

    able = [row for row in range(40) if 2 <= molecules.n_heavy[row] <= largest]
    assert trained == {row for row in able if molecules.fold[row] == 0}
    assert set(stage.validation_rows.tolist()) == {r for r in able if molecules.fold[r] in (1, 3)}


@pytest.mark.parametrize(
    ("folds", "data", "message"),
    [
        ([1, 2, 3], TrainingData(), "no molecule of fold train"),
        ([0, 0, 0], TrainingData(max_atoms=2), "fold train of at most 2 heavy"),
    ],
)
def test_without_molecules_to_train_on_it_says_so(folds, data, message):
    with pytest.raises(UnreadableError, match=message):
        DecoderStage(made_molecules(3, fold=folds), TrainingSettings(data=data))


def test_ranks_draw_noise_of_their_own(model):
    stages = [DecoderStage(made_molecules(20), SETTINGS, (rank, 2)) for rank in range(2)]
    planned = next(stages[0].plan(3))

    with torch.no_grad():
        one, two = (float(stage.loss(model, stage.collate(planned, 3))[0]) for stage in stages)

    assert one != two


def test_figures_are_of_the_steps_that_there_are_and_of_held_out_molecules_if_any(model):
    sizes = replace(small_settings(layers=1), diffusion=DiffusionSettings(n_steps=200))
    own, none = made_molecules(8, fold=[0] * 4 + [3] * 4), made_molecules(5)
    others = made_molecules(4, fold=[1, 0, 1, 2])  # judge where there are none

    assert sorted(DecoderStage(own, SETTINGS).validate(stirred(sizes))) == ["nll_150", "nll_50"]
    assert DecoderStage(none, SETTINGS).validate(model) == {}
    for molecules, rows in ((own, [4, 5, 6, 7]), (none, [0, 2])):
        judged = DecoderStage(molecules, SETTINGS, held_out=others)
        assert judged.validation_rows.tolist() == rows
        assert judged.validate(model)


@pytest.mark.parametrize("n_collections", [1, 2, 3])
def test_steps_take_turns_over_collections_also_when_resumed(n_collections):
    structures = [made_molecules(20, largest=5 + n) for n in range(n_collections)]
    stage = decoder.InTurns([DecoderStage(molecules, SETTINGS) for molecules in structures])
    whole = list(islice(stage.plan(0), 24))

    for step, planned in enumerate(whole):
        # Of ten steps the last are on the others.
        turn = max(0, step % 10 - 10 + n_collections)
        formulas = stage.collate(planned, step).condition.formula.int().tolist()
        assert {*map(tuple, formulas)} <= {*map(tuple, structures[turn].atom_counts.tolist())}
    for first in range(0, 19, 3):
        for got, expected in zip(islice(stage.plan(first), 5), whole[first:], strict=False):
            assert (got[0].tolist(), got[1]) == (expected[0].tolist(), expected[1])
