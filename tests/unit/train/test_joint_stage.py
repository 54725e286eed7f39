"""The joint stage: whose turn it is, what reaches which network, what is held out."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from duallgd_cli.chem.elements import HYDROGEN
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.train.decoder import JointStage
from duallgd_cli.train.known_spectra import kernel_beside
from duallgd_cli.train.settings import TrainingData, TrainingSettings
from tests.made_graphs import made_molecules, small_settings, stirred

SETTINGS = TrainingSettings(data=TrainingData(pairs_per_batch=400, spectra_per_batch=6))


def test_without_a_molecule_small_enough_the_joint_stage_says_so(spectra):
    settings = replace(SETTINGS, data=replace(SETTINGS.data, max_atoms=3))

    with pytest.raises(UnreadableError, match=r"of fold train .* at most 3 heavy atoms"):
        JointStage(spectra, [], None, settings)


@pytest.fixture(scope="module", params=[(0, False), (1, False), (0, True), (1, True), (2, True)])
def joint(request, spectra, simulated):
    """The joint stage and the sources that take turns."""
    n_collections, and_simulated = request.param
    structures = [made_molecules(20, largest=5 + n) for n in range(n_collections)]
    sources = [spectra.molecules, *structures, *([simulated.molecules] if and_simulated else [])]
    stage = JointStage(spectra, structures, simulated if and_simulated else None, SETTINGS)
    return stage, sources


def test_a_resumed_plan_is_the_rest_of_the_whole_one(joint):
    stage, _ = joint

    whole = list(islice(stage.plan(0), 14))
    for first in range(9):
        resumed = list(islice(stage.plan(first), 5))
        for got, expected in zip(resumed, whole[first:], strict=False):
            np.testing.assert_array_equal(got[0], expected[0])
            assert got[1] == expected[1]


def test_joint_steps_take_turns_over_their_sources(joint):
    stage, sources = joint

    for step, planned in enumerate(islice(stage.plan(0), 7)):
        batch = stage.collate(planned, step)
        formulas = {tuple(row) for row in sources[step % len(sources)].atom_counts.tolist()}
        assert {tuple(row) for row in batch.condition.formula.int().tolist()} <= formulas
        assert (batch.spectra is None) == any(
            sources[step % len(sources)] is decoder.molecules for decoder in stage.decoders
        )


def test_spectra_and_graphs_of_a_joint_batch_are_of_the_same_molecules(spectra, simulated):
    stage = JointStage(spectra, [], simulated, SETTINGS)

    for step, planned in enumerate(islice(stage.plan(0), 4)):
        batch = stage.collate(planned, step)
        # Ions that are simulated or made here differ from their molecules by hydrogens alone.
        np.testing.assert_array_equal(
            batch.spectra.peaks.parent[:, :HYDROGEN], batch.condition.formula[:, :HYDROGEN]
        )
        assert batch.n_samples == batch.spectra.n_samples


def test_simulated_spectra_of_large_molecules_are_left_out_of_joint_steps(spectra, simulated):
    settings = replace(SETTINGS, data=replace(SETTINGS.data, max_atoms=5))
    stage = JointStage(spectra, [], simulated, settings)

    sizes = {
        int(n)
        for step, planned in enumerate(islice(stage.plan(0), 12))
        for n in stage.collate(planned, step).condition.atom_mask.sum(1)
    }

    assert sizes == {3, 4, 5}


def test_the_joint_loss_reaches_encoder_and_denoiser(spectra):
    model = stirred(small_settings(layers=1)).train()
    stage = JointStage(spectra, [], None, SETTINGS)

    summed, count = stage.loss(model, stage.collate(next(stage.plan(0)), 0))
    (summed / count).backward()

    for part in (model.encoder, model.denoiser):
        assert sum(float(p.grad.abs().sum()) for p in part.parameters() if p.grad is not None) > 0
    # Through the bits that condition the denoiser too, not by the fingerprint loss alone.
    assert model.encoder.fingerprint.weight.grad.abs().sum() > 0


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


def test_beside_a_frozen_encoder_known_spectra_have_their_say(spectra, simulated):
    model = stirred(small_settings(layers=1)).eval()
    frozen = replace(SETTINGS, stage="joint", freeze_encoder=True)
    alone = JointStage(spectra, [], simulated, frozen)
    beside = JointStage(
        spectra, [], simulated, frozen, kernel=kernel_beside(model.encoder, spectra)
    )

    batch = alone.collate(next(alone.plan(0)), 0)

    assert not torch.equal(alone.loss(model, batch)[0], beside.loss(model, batch)[0])
    assert alone.validate(model) != beside.validate(model)


def test_held_out_spectra_of_large_molecules_are_not_judged(spectra):
    settings = replace(SETTINGS, data=replace(SETTINGS.data, max_atoms=7))

    figures = JointStage(spectra, [], None, settings).validate(stirred(small_settings(layers=1)))

    assert not [name for name in figures if name.startswith("predicted")]


FROZEN = replace(SETTINGS, stage="joint", freeze_encoder=True)


def test_beside_a_frozen_encoder_no_step_is_on_measured_spectra(spectra, simulated):
    structures = made_molecules(20, largest=5)
    stage = JointStage(spectra, [structures], simulated, FROZEN)

    kinds = [
        stage.collate(planned, step).spectra is None
        for step, planned in enumerate(islice(stage.plan(0), 6))
    ]

    assert kinds == [True, False] * 3
    assert stage.turns[1].molecules is simulated.molecules


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


def test_a_frozen_encoder_needs_simulated_spectra(spectra):
    with pytest.raises(UsageError, match="data simulate"):
        JointStage(spectra, [], None, FROZEN)
