"""What each stage trains on, whose turn it is, and what it does where data are scarce."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.settings import DiffusionSettings
from duallgd_cli.train import encoder as module
from duallgd_cli.train.decoder import (
    DecoderStage,
    InTurns,
    MoleculeCollator,
    bond_loss,
    graph_batch,
)
from duallgd_cli.train.encoder import EncoderStage, SpectrumSampler, fingerprint_figures
from duallgd_cli.train.settings import TrainingData, TrainingSettings
from tests.made_graphs import made_molecules, small_settings, stirred
from tests.made_prepared import SPECTRA, made_spectra

SETTINGS = TrainingSettings(data=TrainingData(pairs_per_batch=400, spectra_per_batch=6))


def with_data(**changes):
    return replace(SETTINGS, data=replace(SETTINGS.data, **changes))


def test_the_bond_loss_is_the_cross_entropy_of_real_pairs_at_noise_of_every_level(model):
    molecules = made_molecules(6, smallest=3, largest=7)
    planned = np.arange(6), 9
    batch = graph_batch(MoleculeCollator(molecules, None), planned, np.random.default_rng(2))
    # What the loss of padded pairs would be must not matter.
    dirty = replace(batch, bond_class=torch.where(batch.pair_mask, batch.bond_class, 3))

    with torch.no_grad():
        summed, count = bond_loss(model, batch)
        again, _ = bond_loss(model, dirty)

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
    others = made_molecules(4, fold=[1, 0, 1, 2])  # judge where there are none
    for own, rows in ((stage.molecules, [4, 5, 6, 7]), (made_molecules(5), [0, 2])):
        judged = DecoderStage(own, SETTINGS, held_out=others)
        assert judged.validation_rows.tolist() == rows
        assert judged.validate(model)
    assert EncoderStage(train_only, None, SETTINGS).validate(model) == {}


def test_a_stage_without_what_it_trains_on_says_so(spectra, tmp_path):
    unlabelled = made_spectra(tmp_path / "s", *(row for row in SPECTRA if row[-1] != "train"))
    for stage, given, message in (
        (DecoderStage, (made_molecules(3, fold=[1, 2, 3]), SETTINGS), "no molecule of fold train"),
        (EncoderStage, (unlabelled, None, SETTINGS), "no spectrum of fold train"),
        (EncoderStage, (spectra, unlabelled, SETTINGS), "no spectrum of fold train"),
        (
            DecoderStage,
            (made_molecules(3), with_data(max_atoms=2)),
            "fold train of at most 2 heavy",
        ),
    ):
        with pytest.raises(UnreadableError, match=message):
            stage(*given)


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

    sources = stage.collate(None, step).spectra

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


@pytest.mark.parametrize("n_collections", [1, 2, 3])
def test_steps_take_turns_over_collections_also_when_resumed(n_collections):
    structures = [made_molecules(20, largest=5 + n) for n in range(n_collections)]
    stage = InTurns([DecoderStage(molecules, SETTINGS) for molecules in structures])
    whole = list(islice(stage.plan(0), 24))

    for step, planned in enumerate(whole):
        # Of ten steps the last are on the others.
        turn = max(0, step % 10 - 10 + n_collections)
        formulas = stage.collate(planned, step).condition.formula.int().tolist()
        assert {*map(tuple, formulas)} <= {*map(tuple, structures[turn].atom_counts.tolist())}
    for first in range(0, 19, 3):
        for got, expected in zip(islice(stage.plan(first), 5), whole[first:], strict=False):
            np.testing.assert_array_equal(got[0], expected[0])
            assert got[1] == expected[1]
