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
from duallgd_cli.errors import OutOfTimeError, WeightsError
from duallgd_cli.predict.model import load_model
from duallgd_cli.ranking.ranking import rank
from duallgd_cli.sources import Query
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
    (source,) = load_model(weights, cpu()).sources
    return source


def drawn(source, annotated, seed=1, sampling=SAMPLING, **values):
    fingerprint, _ = source.encode(annotated)
    query = Query(annotated, fingerprint, sampling=sampling, **values)
    return source.draw(query, sampling.samples, seed)


def annotated(formula=ALANINE, adduct="[M+H]+", mz=(44.0495, 62.0237)):
    spectrum = made_spectrum(mz, np.linspace(1, 0.5, len(mz)), precursor_mz=90.055)
    return annotate(Hypothesis(Feature((spectrum,)), formula, BY_NAME[adduct]))


def test_what_is_drawn_has_the_shape_of_the_formula(generator):
    got = drawn(generator, annotated())

    assert got.bond_class.shape == (9, 15)
    assert torch.isfinite(got.bond_log_prob).all()
    assert (got.log_likelihood < 0).all()


def test_each_graph_is_a_proposal(generator):
    query = Query(annotated(), generator.encode(annotated())[0], sampling=SAMPLING)

    proposals = list(generator.propose(query, 9, 1))

    assert len(proposals) == 9
    assert all((one.mol is None) == bool(one.rejection) for one in proposals)


def test_a_draw_follows_from_spectrum_and_seed(generator):
    first, again, other = (drawn(generator, annotated(), s) for s in (1, 1, 2))
    elsewhere = drawn(generator, annotated(mz=(45.03, 72.04)))

    np.testing.assert_array_equal(first.bond_class, again.bond_class)
    assert (first.bond_class != other.bond_class).any()
    assert (first.log_likelihood != elsewhere.log_likelihood).any()


def test_chunks_change_no_sample(generator, monkeypatch):
    whole = drawn(generator, annotated())
    monkeypatch.setattr(reference_generate, "chunk_size", lambda *_: 2)

    parts = drawn(generator, annotated())

    np.testing.assert_array_equal(parts.bond_class, whole.bond_class)
    np.testing.assert_allclose(parts.log_likelihood, whole.log_likelihood, rtol=1e-4)


def test_the_last_step_is_drawn_with_what_noise_is_left_at_zero(generator):
    got = drawn(generator, annotated(), sampling=replace(SAMPLING, samples=200))

    log_prob, bonds = got.bond_log_prob.double(), got.bond_class
    assert (bonds != log_prob.argmax(-1)).any()
    shares = torch.nn.functional.one_hot(bonds, 5).double().mean((0, 1))
    torch.testing.assert_close(shares, log_prob.exp().mean((0, 1)), atol=0.05, rtol=0)


def test_a_permanent_cation_is_read_by_its_atoms(generator):
    choline = Formula.parse("C5H14NO+")

    got = drawn(generator, annotated(choline, "[M]+"))

    assert got.bond_class.shape == (9, 21)


def test_time_runs_out_between_steps(generator):
    def late():
        raise OutOfTimeError

    with pytest.raises(OutOfTimeError):
        drawn(generator, annotated(), check=late)


def test_autocast_leaves_the_features_alone(weights):
    runtime = replace(cpu(), autocast_dtype=torch.bfloat16)
    (source,) = load_model(weights, runtime).sources

    got = drawn(source, annotated())

    assert torch.isfinite(got.log_likelihood).all()


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
    from duallgd_cli.results import HypothesisResult, Structure

    names = ("most", "less likely", "likelier")
    likelihoods = (-500.0, -40.0, -2.0)
    structures = tuple(
        Structure(name, "", f"{place}" * 27, count, 0, log_likelihood)
        for place, (name, count, log_likelihood) in enumerate(
            zip(names, samples, likelihoods, strict=True)
        )
    )
    outcome = HypothesisResult("ok", n_heavy=6, structures=structures, sampled=sum(samples))
    candidates, _ = rank((outcome,), BY_FREQUENCY)
    return [candidate.smiles for candidate in candidates]
