"""Sampling with the reference network, from peaks to bond graphs."""

import numpy as np
import pytest
import torch

from duallgd_cli.diffusion.jumps import alpha_bar, evenly_spaced
from duallgd_cli.diffusion.sampler import Noise, SamplingTask, sample
from duallgd_cli.errors import UnsupportedElementError
from duallgd_cli.reference.features import atoms_of
from duallgd_cli.reference.generator import bound
from duallgd_cli.reference.settings import (
    ReferenceDenoiserSettings,
    ReferenceEncoderSettings,
    ReferenceSettings,
)
from duallgd_cli.reference.subformula import reference_peaks
from duallgd_cli.reference.weights_file import ReferenceDualLGD

SETTINGS = ReferenceSettings(
    ReferenceDenoiserSettings(layers=2, condition_width=16, atom_width=16, edge_width=8, heads=2),
    ReferenceEncoderSettings(width=16, heads=4, fragment_bits=4, fingerprint_sizes=(8, 16)),
)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return ReferenceDualLGD(SETTINGS).eval()


def condition(network):
    peaks = reference_peaks(
        "C3H7NO2", "[M+H]+", np.array([44.0495, 62.02, 90.055]), np.array([9.0, 1.0, 2.0])
    )
    return network.condition(peaks)


@torch.no_grad()
def test_a_spectrum_becomes_bond_graphs(network):
    known = atoms_of(["C", "C", "C", "N", "O", "O"], SETTINGS)
    denoise = bound(network.denoiser, known, condition(network), SETTINGS.n_steps)

    task = SamplingTask(
        evenly_spaced(SETTINGS.n_steps, 4),
        torch.tensor(SETTINGS.marginal),
        alpha_bar(SETTINGS.n_steps),
        Noise(seed=3, samples=5, n_pairs=15),
    )
    got = sample(denoise, task, slice(0, 5))

    assert got.bond_class.shape == (5, 15)
    assert got.log_likelihood.isfinite().all()


@torch.no_grad()
def test_a_sample_does_not_depend_on_the_others(network):
    known = atoms_of(["C", "C", "O", "O"], SETTINGS)
    denoise = bound(network.denoiser, known, condition(network), SETTINGS.n_steps)
    bond = torch.randint(0, 5, (4, 6), generator=torch.Generator().manual_seed(0))

    together, alone = denoise(bond, 250), denoise(bond[2:3], 250)

    torch.testing.assert_close(together[2:3], alone, atol=1e-5, rtol=1e-5)


def test_elements_outside_the_vocabulary_are_named():
    with pytest.raises(UnsupportedElementError, match="do not know Br"):
        atoms_of(["C", "Br"], SETTINGS)
