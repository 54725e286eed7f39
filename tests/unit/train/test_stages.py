"""What each stage trains on, whose turn it is, and what it does where data are scarce."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from duallgd_cli.chem.elements import HYDROGEN
from duallgd_cli.data.batches import MoleculeCollator
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.model.settings import DiffusionSettings
from duallgd_cli.train import encoder as module
from duallgd_cli.train.decoder import DecoderStage, JointStage, bond_loss, graph_batch
from duallgd_cli.train.encoder import EncoderStage, SpectrumSampler, fingerprint_figures
from duallgd_cli.train.kernel_fit import kernel_beside
from duallgd_cli.train.settings import TrainingData, TrainingSettings
from tests.made_graphs import made_molecules, small_settings, stirred
from tests.made_prepared import SPECTRA, made_spectra

SETTINGS = TrainingSettings(data=TrainingData(pairs_per_batch=400, spectra_per_batch=6))
FROZEN = replace(SETTINGS, stage="joint", freeze_encoder=True)


def with_data(**changes):
    return replace(SETTINGS, data=replace(SETTINGS.data, **changes))


def test_the_bond_loss_is_the_cross_entropy_of_real_pairs_at_noise_of_every_level(model):
    molecules = made_molecules(6, smallest=3, largest=7)
    planned = np.arange(6), 9
    batch = graph_batch(MoleculeCollator(molecules, None), planned, np.random.default_rng(2))
    graph = batch.graph
    # What the loss of padded pairs would be must not matter.
    dirty = replace(graph, bond_class=torch.where(graph.pair_mask, graph.bond_class, 3))

    with torch.no_grad():
        summed, count = bond_loss(model, batch)
        again, _ = bond_loss(model, replace(batch, graph=dirty))

    assert int(count) == int((molecules.n_heavy * (molecules.n_heavy - 1) // 2).sum())
    assert float(again) == pytest.approx(float(summed))
    assert 0.1 < float(summed / count) < 10
    assert sorted((batch.level * 6).floor().int().tolist()) == list(range(6))


@pytest.mark.parametrize("largest", [100, 5])
def test_the_decoder_trains_on_fold_train_and_looks_at_dev_and_val(largest):
    molecules = made_molecules(40, fold=[0, 1, 2, 3] * 10)
    stage = DecoderStage(molecules, with_data(max_atoms=largest))

    trained = {int(r) for rows, _ in islice(stage.plan(0), 60) for r in rows}

    able = [row for row in range(40) if molecules.n_heavy[row] <= largest]
    assert trained == {row for row in able if molecules.fold[row] == 0}
    assert set(stage.validation_rows.tolist()) == {r for r in able if molecules.fold[r] in (1, 3)}


def test_ranks_draw_noise_of_their_own(model):
    stages = [DecoderStage(made_molecules(20), SETTINGS, (rank, 2)) for rank in range(2)]
    planned = next(stages[0].plan(3))

    with torch.no_grad():
        one, two = (float(stage.loss(model, stage.collate(planned, 3))[0]) for stage in stages)

    assert one != two


def test_figures_are_of_the_steps_that_there_are_and_of_held_out_data_if_any(model, tmp_path):
    train_only = made_spectra(tmp_path / "s", *(row for row in SPECTRA if row[-1] == "train"))
    sizes = replace(small_settings(layers=1), diffusion=DiffusionSettings(n_steps=200))
    stage = DecoderStage(made_molecules(8, fold=[0, 0, 0, 0, 3, 3, 3, 3]), SETTINGS)

    assert sorted(stage.validate(stirred(sizes))) == ["nll_150", "nll_50"]
    assert DecoderStage(made_molecules(5), SETTINGS).validate(model) == {}
    assert EncoderStage(train_only, None, SETTINGS).validate(model) == {}
    assert JointStage(train_only, [], None, SETTINGS).validate(model) == {}


def test_a_stage_without_what_it_trains_on_says_so(spectra, tmp_path):
    unlabelled = made_spectra(tmp_path / "s", *(row for row in SPECTRA if row[-1] != "train"))
    for stage, given, message in (
        (DecoderStage, (made_molecules(3, fold=[1, 2, 3]), SETTINGS), "no molecule of fold train"),
        (EncoderStage, (unlabelled, None, SETTINGS), "no spectrum of fold train"),
        (EncoderStage, (spectra, unlabelled, SETTINGS), "no spectrum of fold train"),
        (JointStage, (spectra, [], unlabelled, SETTINGS), "no spectrum of fold train"),
        (JointStage, (spectra, [], None, with_data(max_atoms=3)), r"fold train .* at most 3 heavy"),
    ):
        with pytest.raises(UnreadableError, match=message):
            stage(*given)
    with pytest.raises(UsageError, match="simulated spectra"):
        JointStage(spectra, [], None, FROZEN)


def test_a_drawn_group_is_of_one_ion_of_one_molecule_of_the_fold(spectra):
    sampler = SpectrumSampler(spectra)
    generator = np.random.default_rng(1)
    seen = set()

    for draw in range(300):
        place = draw % len(sampler.molecules)
        molecule, numbers = sampler.draw_from(place, generator)
        seen |= set(numbers)
        assert molecule == sampler.molecules[place]
        assert {int(spectra.molecule[n]) for n in numbers} == {molecule}
        assert len({int(spectra.adduct[n]) for n in numbers}) == 1
        assert len(set(numbers)) == len(numbers)

    assert seen == {number for number, row in enumerate(SPECTRA) if row[-1] == "train"}
    drawn = [int(spectra.molecule[group[0]]) for group in sampler.groups(60, generator)]
    assert min(drawn.count(int(molecule)) for molecule in sampler.molecules) > 10


@pytest.mark.parametrize(
    ("share", "measured_from", "step", "dropout", "n_simulated", "expected"),
    [
        (0.5, 0.0, 0, None, 3, 0.4),
        (0.33, 0.0, 0, 0.1, 2, 0.1),
        (0.0, 0.0, 0, None, 0, 0.4),
        (1.0, 0.0, 0, None, 6, 0.4),
        (0.5, 0.25, 1, None, 6, 0.4),  # measured ones come after a share of the steps
        (0.5, 0.25, 2, 0.1, 3, 0.1),
    ],
)
def test_an_encoder_batch_holds_measured_and_simulated_spectra(
    spectra, simulated, share, measured_from, step, dropout, n_simulated, expected, monkeypatch
):
    changes = {"measured_from": measured_from, "simulated_dropout": dropout}
    settings = replace(with_data(simulated_share=share, **changes), steps=8)
    stage = EncoderStage(spectra, simulated, settings)
    assert stage.collate(None, step).n_samples == 6
    monkeypatch.setattr(module, "packed_batch", lambda sources, _: sources)

    sources = stage.collate(None, step)

    held = [(own, len(groups), dropout) for own, groups, dropout in sources]
    assert held == [(spectra, 6 - n_simulated, 0.4), (simulated, n_simulated, expected)]


def test_runs_of_any_seed_are_looked_at_by_the_same_spectra(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_VALIDATION_SPECTRA", 1)
    train, val = SPECTRA[0], SPECTRA[5]
    spectra = made_spectra(tmp_path / "spectra", train, val, (*val[:3], "40", "val"))

    stages = (EncoderStage(spectra, None, replace(SETTINGS, seed=seed)) for seed in range(20))

    assert len({tuple(stage.validation) for stage in stages}) == 1


def test_the_threshold_is_the_one_that_serves_best():
    truth = torch.zeros(1, 4096)
    truth[0, [1, 5, 9]] = 1
    probability = truth * 0.32 + 0.01
    probability[0, 20] = 0.28

    figures = fingerprint_figures(probability, truth)

    assert figures["fp_threshold"] == 0.3
    assert figures["fp_tanimoto"] == pytest.approx(1)


@pytest.mark.parametrize(("n_collections", "and_simulated"), [(0, False), (0, True), (2, True)])
def test_joint_steps_take_turns_over_their_sources_also_when_resumed(
    spectra, simulated, n_collections, and_simulated
):
    structures = [made_molecules(20, largest=5 + n) for n in range(n_collections)]
    sources = [spectra.molecules, *structures, *([simulated.molecules] if and_simulated else [])]
    decoders = [DecoderStage(molecules, SETTINGS) for molecules in structures]
    stage = JointStage(spectra, decoders, simulated if and_simulated else None, SETTINGS)
    whole = list(islice(stage.plan(0), 14))

    for step, planned in enumerate(whole[:7]):
        batch, source = stage.collate(planned, step), sources[step % len(sources)]
        formulas = {tuple(row) for row in source.atom_counts.tolist()}
        assert {tuple(row) for row in batch.condition.formula.int().tolist()} <= formulas
        assert (batch.spectra is None) == any(source is one for one in structures)
        if batch.spectra is not None:
            # Ions that are simulated or made here differ from their molecules by hydrogens alone.
            ions, molecules = batch.spectra.parent, batch.condition.formula
            np.testing.assert_array_equal(ions[:, :HYDROGEN], molecules[:, :HYDROGEN])
            assert batch.n_samples == batch.spectra.n_samples
    for first in range(9):
        for got, expected in zip(islice(stage.plan(first), 5), whole[first:], strict=False):
            np.testing.assert_array_equal(got[0], expected[0])
            assert got[1] == expected[1]


def test_held_out_spectra_are_judged_by_what_is_predicted_from_them(spectra):
    model, other = stirred(small_settings(layers=1)), stirred(small_settings(layers=1))
    with torch.no_grad():
        other.encoder.fingerprint.bias += torch.linspace(-3, 3, 4096)
    names = [f"predicted_nll_{t}" for t in (50, 150, 250, 350, 500)]

    figures = JointStage(spectra, [], None, SETTINGS).validate(model)
    again = JointStage(spectra, [], None, replace(SETTINGS, seed=5)).validate(model)
    told_otherwise = JointStage(spectra, [], None, SETTINGS).validate(other)

    assert [figures[name] for name in names] == [again[name] for name in names]
    assert all(0 < figures[name] != told_otherwise[name] for name in names)
    none_of_fold_val = JointStage(spectra, [], None, with_data(max_atoms=7)).validate(model)
    assert names[0] not in none_of_fold_val


def test_beside_a_frozen_encoder_known_spectra_have_their_say_and_measured_ones_no_step(
    spectra, simulated
):
    model = stirred(small_settings(layers=1)).eval()
    kernel = kernel_beside(model.encoder, spectra)
    decoder = DecoderStage(made_molecules(20, largest=5), FROZEN)
    alone = JointStage(spectra, [decoder], simulated, FROZEN)
    beside = JointStage(spectra, [], simulated, FROZEN, kernel=kernel)

    batches = [alone.collate(plan, step) for step, plan in enumerate(islice(alone.plan(0), 4))]

    assert [batch.spectra is None for batch in batches] == [True, False] * 2
    assert alone.turns[1].molecules is simulated.molecules
    assert not torch.equal(alone.loss(model, batches[1])[0], beside.loss(model, batches[1])[0])
    assert alone.validate(model) != beside.validate(model)


def test_a_frozen_encoder_says_the_same_each_time_and_only_the_denoiser_learns(spectra, simulated):
    model = stirred(small_settings(layers=1))
    for part in model.encoder.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    model.train().encoder.requires_grad_(False)
    stage = JointStage(spectra, [], simulated, FROZEN)
    batch = stage.collate(next(stage.plan(0)), 0)

    first, pairs = stage.loss(model, batch)
    second, _ = stage.loss(model, batch)
    (first / pairs).backward()

    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert any(parameter.grad is not None for parameter in model.denoiser.parameters())
