"""Graphs that begin as an analogue's: what changes in a batch, and what the network is told."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.data.analogues import NOISED, Analogues
from duallgd_cli.data.batches import MoleculeCollator
from duallgd_cli.diffusion.schedule import alpha_bar
from duallgd_cli.errors import ConfigError
from duallgd_cli.training.analogue_starts import AnalogueStarts
from duallgd_cli.training.decoder import bond_loss, graph_batch, noise_steps
from duallgd_cli.training.joint import JointStage
from duallgd_cli.training.settings import TrainingData, TrainingSettings
from tests.made_graphs import made_molecules, small_settings, stirred
from tests.made_prepared import molecules_of

KNOWN = ("CCCCCO", "CCCCCN", "CCCC(C)O")
ASKED = ("CCCC(O)C", "CCOCCC", "CCC(C)CN", "ClCCl")  # known itself; two isomers; like none
T = 500


def batch_of(*smiles, size=9, seed=3):
    molecules = molecules_of(*smiles)
    collator = MoleculeCollator(molecules, None)
    return graph_batch(collator, (np.arange(len(smiles)), size), np.random.default_rng(seed))


def starts(share=1.0):
    return AnalogueStarts(Analogues(molecules_of(*KNOWN)), share)


def degrees(bond_class, size=9):
    square = torch.zeros(len(bond_class), size, size, dtype=torch.long)
    square[:, *torch.triu_indices(size, size, 1)] = bond_class
    return (square + square.mT).sum(2).sort(1).values


def test_without_a_share_a_batch_stays_as_it_is():
    batch = batch_of(*ASKED)

    begun = starts(0.0).begin(batch, T)

    assert not begun.analogue.any()
    assert torch.equal(begun.begun, batch.graph.bond_class)
    assert torch.equal(begun.graph.bond_class, batch.graph.bond_class)
    assert torch.equal(begun.level, batch.level)


def test_what_begins_as_an_analogue_is_the_same_molecule_with_other_labels():
    batch = batch_of(*ASKED)

    begun = starts().begin(batch, T)

    assert begun.analogue.tolist()[1:] == [1, 1, 0]  # none has chlorine
    assert torch.equal(degrees(begun.graph.bond_class), degrees(batch.graph.bond_class))
    assert (begun.begun >= 0).all()
    assert not begun.begun[~batch.graph.pair_mask].any()
    assert (begun.level[:3] <= batch.level[:3]).all()
    assert (begun.level[:3] < max(NOISED)).all()


def test_a_molecule_is_not_its_own_analogue():
    only = AnalogueStarts(Analogues(molecules_of("CCCC(C)O")), 1.0)

    begun = only.begin(batch_of("CCCC(O)C"), T)

    assert not begun.analogue.any()


def test_bonds_that_differ_are_mended_as_the_posterior_mends_them():
    """Of many graphs at the same level, the share that is still the analogue's."""
    batch = batch_of(*["CCOCCC"] * 400)
    level = 0.6
    batch = replace(batch, level=torch.full((400,), level, dtype=torch.float64))
    only = AnalogueStarts(Analogues(molecules_of("CCCCCO")), 1.0)

    begun = only.begin(batch, T)

    lost = 1 - alpha_bar(T)
    for first in NOISED:
        rows = begun.level == level * first
        assert rows.sum() > 100
        differ = (begun.begun != begun.graph.bond_class)[rows].float().sum(1)
        most = differ.max()  # some graph keeps all of them, or the share is above this
        step = noise_steps(torch.tensor([level * first]), T)
        left = float(lost[step] / lost[round(first * T)])
        assert float(differ.mean() / most) == pytest.approx(left, abs=0.12)


def test_the_same_batch_begins_the_same_way():
    batch = batch_of(*ASKED)

    one, other = (starts(0.5).begin(batch, T) for _ in range(2))

    assert torch.equal(one.begun, other.begun)
    assert torch.equal(one.analogue, other.analogue)


def test_the_network_is_told_of_analogues():
    model = stirred(small_settings())
    begun = starts().begin(batch_of(*ASKED), T)
    t = noise_steps(begun.level, T)

    with torch.no_grad():
        told, _ = bond_loss(model, begun, t)
        untold, _ = bond_loss(model, replace(begun, analogue=None), t)
        nobody, _ = bond_loss(model, replace(begun, analogue=torch.zeros(4)), t)

    assert float(told) != pytest.approx(float(untold), abs=1e-6)
    assert float(nobody) == pytest.approx(float(untold))


def test_analogues_are_for_the_joint_stage_alone():
    with pytest.raises(ConfigError, match="analogue_share is for the joint stage alone"):
        TrainingSettings(stage="decoder", data=TrainingData(analogue_share=0.5))


def test_in_the_joint_stage_structures_and_spectra_begin_so(spectra):
    data = TrainingData(pairs_per_batch=400, analogue_share=1.0)
    settings = TrainingSettings(stage="joint", data=data)
    stage = JointStage(spectra, [made_molecules(20)], None, settings)
    model = stirred(small_settings())
    model.zero_grad()

    for step, planned in zip(range(2), stage.plan(0), strict=False):
        loss, _ = stage.loss(model, stage.collate(planned, step))
        assert torch.isfinite(loss)
        loss.backward()

    assert model.denoiser.from_analogue.grad.abs().sum() > 0
