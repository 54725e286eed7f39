"""The authors' network behind the generator's seam: honest in its order, drawn to the end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_authors_network import generator as reference_generate
from duallgd_authors_network.generator import BY_FREQUENCY
from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import WeightsError
from duallgd_cli.generator.network import load_model
from duallgd_cli.predict.generation import OutOfTimeError
from duallgd_cli.predict.ranking import rank
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.types import Feature, Hypothesis
from plugins.authors_network.tests.made_reference import (
    converted,
    decoder_file,
    encoder_file,
    fine_tuned_file,
    stirred_network,
)
from tests.made_spectra import made_spectrum
from tests.made_training import cpu

SAMPLING = SamplingSettings(steps=4, samples=9)
ALANINE = Formula.parse("C3H7NO2")


@pytest.fixture(scope="module")
def network():
    return stirred_network()


@pytest.fixture(scope="module")
def weights(network, tmp_path_factory):
    return converted(tmp_path_factory.mktemp("weights"), fine_tuned_file(network))


@pytest.fixture(scope="module")
def generator(weights):
    return load_model(weights, cpu()).generator


def annotated(formula=ALANINE, adduct="[M+H]+", mz=(44.0495, 62.0237)):
    spectrum = made_spectrum(mz, np.linspace(1, 0.5, len(mz)), precursor_mz=90.055)
    return annotate(Hypothesis(Feature((spectrum,)), formula, BY_NAME[adduct]))


def test_what_is_drawn_has_the_shape_of_the_formula(generator):
    got = generator.generate(annotated(), SAMPLING, seed=1)

    assert got.bond_class.shape == (9, 15)
    assert got.bond_class.dtype == np.int8
    assert np.isfinite(got.bond_log_prob).all()
    assert (got.log_likelihood < 0).all()
    # Trained on bonds alone, the encoder's last layer need not be a fingerprint any more.
    assert got.fingerprint is None


def test_a_draw_follows_from_spectrum_and_seed(generator):
    first, again, other = (generator.generate(annotated(), SAMPLING, seed=s) for s in (1, 1, 2))
    elsewhere = generator.generate(annotated(mz=(45.03, 72.04)), SAMPLING, seed=1)

    np.testing.assert_array_equal(first.bond_class, again.bond_class)
    assert (first.bond_class != other.bond_class).any()
    assert (first.log_likelihood != elsewhere.log_likelihood).any()


def test_chunks_change_no_sample(generator, monkeypatch):
    whole = generator.generate(annotated(), SAMPLING, seed=1)
    monkeypatch.setattr(reference_generate, "samples_at_once", lambda *_: 2)

    parts = generator.generate(annotated(), SAMPLING, seed=1)

    np.testing.assert_array_equal(parts.bond_class, whole.bond_class)
    np.testing.assert_allclose(parts.log_likelihood, whole.log_likelihood, rtol=1e-4)


def test_the_last_step_is_drawn_with_what_noise_is_left_at_zero(generator):
    got = generator.generate(annotated(), replace(SAMPLING, samples=200), seed=1)

    log_prob = torch.from_numpy(got.bond_log_prob).double()
    drawn = torch.from_numpy(got.bond_class).long()
    assert (drawn != log_prob.argmax(-1)).any()
    shares = torch.nn.functional.one_hot(drawn, 5).double().mean((0, 1))
    torch.testing.assert_close(shares, log_prob.exp().mean((0, 1)), atol=0.05, rtol=0)


def test_a_permanent_cation_is_read_by_its_atoms(generator):
    choline = Formula.parse("C5H14NO+")

    got = generator.generate(annotated(choline, "[M]+"), SAMPLING, seed=1)

    assert got.bond_class.shape == (9, 21)


def test_time_runs_out_between_steps(generator):
    with pytest.raises(OutOfTimeError):
        generator.generate(annotated(), replace(SAMPLING, timeout_s=1e-9), seed=1)


def test_autocast_leaves_the_features_alone(weights):
    runtime = replace(cpu(), autocast_dtype=torch.bfloat16)
    model = load_model(weights, runtime)

    got = model.generator.generate(annotated(), SAMPLING, seed=1)

    assert np.isfinite(got.log_likelihood).all()


@pytest.mark.parametrize(
    ("content", "missing"),
    [(decoder_file, "no encoder and no projection"), (encoder_file, "no denoiser and no proj")],
)
def test_a_part_of_the_system_cannot_predict(network, tmp_path, content, missing):
    path = converted(tmp_path, content(network))

    with pytest.raises(WeightsError, match=f"{missing}.* so they cannot predict"):
        load_model(path, cpu())


def test_candidates_are_ranked_by_how_often_they_were_drawn():
    few, many = (_candidates(samples) for samples in ((3, 2, 2), (300, 200, 200)))

    for smiles in (few, many):
        assert smiles == ["most", "likelier", "less likely"]


def _candidates(samples):
    from duallgd_cli.predict.prediction import HypothesisResult, Structure

    names = ("most", "less likely", "likelier")
    likelihoods = (-500.0, -40.0, -2.0)
    structures = tuple(
        Structure(name, "", f"{place}" * 27, count, 0, 0, log_likelihood)
        for place, (name, count, log_likelihood) in enumerate(
            zip(names, samples, likelihoods, strict=True)
        )
    )
    outcome = HypothesisResult("ok", n_heavy=6, structures=structures, sampled=sum(samples))
    candidates, _ = rank((outcome,), BY_FREQUENCY)
    return [candidate.smiles for candidate in candidates]
