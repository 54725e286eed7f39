"""Samples that start from known molecules: how many, from how much noise, and what is told."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.analogues import Analogues
from duallgd_cli.diffusion import sampler
from duallgd_cli.errors import ConfigError
from duallgd_cli.inference.generate import ModelGenerator
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_training import cpu

BUTANOL = "CCCCO"
SETTINGS = SamplingSettings(steps=10, samples=10)


def known():
    return Analogues(molecules_of(BUTANOL, "CCCCN", "Oc1cccc2ccccc12"))


def predicted(smiles):
    probability = np.full(4096, 0.001, np.float32)
    probability[fingerprint(parse_smiles(smiles))] = 0.9
    return probability


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings(layers=1))


def drawn(model, settings=SETTINGS, analogues=None, formula="C4H11NO", monkeypatch=None):
    """What was drawn, and the tasks that were drawn from."""
    tasks = []
    generator = ModelGenerator(model, cpu(), analogues=analogues)
    if monkeypatch is not None:
        plain = sampler.sample

        def noted(denoise, task, *rest):
            tasks.append(task)
            return plain(denoise, task, *rest)

        monkeypatch.setattr("duallgd_cli.inference.drawing.sample", noted)
    chance = torch.from_numpy(predicted(BUTANOL))
    samples, begun, _ = generator.draw(Formula.parse(formula), chance, settings, seed=4)
    assert begun.tolist() == [False] * (len(begun) - begun.sum()) + [True] * begun.sum()
    return samples, tasks, int(begun.sum())


def test_the_last_samples_start_from_known_molecules_and_the_first_do_not_change(
    model, monkeypatch
):
    without, _, _ = drawn(model)
    partly, tasks, begun = drawn(model, analogues=known(), monkeypatch=monkeypatch)

    fresh, more, less = tasks
    assert fresh.start is None
    assert begun == 4
    assert [task.noise.samples for task in tasks] == [6, 2, 2]
    assert more.start.shape == less.start.shape == (2, 15)
    # A quarter and a tenth of the way to pure noise.
    assert (more.plan.timesteps[0], less.plan.timesteps[0]) == (125, 45)
    assert len({task.noise.seed for task in tasks}) == 3
    assert len(partly.bond_class) == len(partly.log_likelihood) == 10
    torch.testing.assert_close(partly.bond_class[:6], without.bond_class[:6])
    assert not torch.equal(partly.bond_class[6:], without.bond_class[6:])


@pytest.mark.parametrize(
    ("changes", "formula"),
    [
        ({"analogue_share": 0.0}, "C4H11NO"),
        ({"samples": 1, "analogue_share": 0.9}, "C4H11NO"),
        ({"steps": 1}, "C4H11NO"),  # a plan that only visits pure noise
        ({}, "CHCl3"),  # nothing is near
    ],
)
def test_all_start_from_pure_noise_where_there_is_nothing_to_start_from(model, changes, formula):
    settings = replace(SETTINGS, **changes)

    with_known, _, begun = drawn(model, settings, known(), formula)

    without, _, _ = drawn(model, settings, None, formula)
    assert not begun
    torch.testing.assert_close(with_known.bond_class, without.bond_class)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_leaves_none_from_pure_noise_is_refused(share):
    with pytest.raises(ConfigError, match="analogue_share must be 0 to below 1"):
        SamplingSettings(analogue_share=share)


def test_the_network_is_told_which_samples_start_from_known_molecules(model):
    silent = stirred(small_settings(layers=1))
    with torch.no_grad():
        silent.denoiser.from_analogue.zero_()

    told, _, _ = drawn(model, analogues=known())
    untold, _, _ = drawn(silent, analogues=known())

    torch.testing.assert_close(told.log_likelihood[:6], untold.log_likelihood[:6])
    assert (told.log_likelihood[6:] - untold.log_likelihood[6:]).abs().min() > 1e-6
