"""The authors' network behind the generator's seam: honest in its order, drawn to the end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_authors_network import generator
from duallgd_authors_network.generator import BY_FREQUENCY
from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import ConfigError, OutOfTimeError, WeightsError
from duallgd_cli.predict.model import load_model
from duallgd_cli.ranking.ranking import rank
from duallgd_cli.results import HypothesisResult, Structure
from duallgd_cli.sources import Query
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.types import Feature, Hypothesis
from plugins.authors_network.tests import made_reference as made
from tests.made_spectra import made_spectrum
from tests.made_training import cpu

SAMPLING = SamplingSettings(steps=4, samples=9)


@pytest.fixture(scope="module")
def weights(network, tmp_path_factory):
    return made.converted(tmp_path_factory.mktemp("weights"), made.fine_tuned_file(network))


@pytest.fixture(scope="module")
def source(weights):
    (source,) = load_model(weights, cpu()).sources
    return source


def annotated(formula="C3H7NO2", adduct="[M+H]+", mz=(44.0495, 62.0237)):
    spectrum = made_spectrum(mz, np.linspace(1, 0.5, len(mz)), precursor_mz=90.055)
    hypothesis = Hypothesis(Feature((spectrum,)), Formula.parse(formula), BY_NAME[adduct])
    return annotate(hypothesis)


def query(source, spectrum=None, **values):
    spectrum = spectrum or annotated()
    return Query(spectrum, source.encode(spectrum)[0], **{"sampling": SAMPLING, **values})


def drawn(source, spectrum=None, seed=1, n=9, **values):
    return source.draw(query(source, spectrum, **values), n, seed)


def test_each_graph_has_the_shape_of_the_formula_and_is_a_proposal(source):
    got, proposals = drawn(source), list(source.propose(query(source), 9, 1))

    assert got.bond_class.shape == (9, 15)
    assert torch.isfinite(got.bond_log_prob).all()
    assert (got.log_likelihood < 0).all()
    assert len(proposals) == 9
    assert all((one.mol is None) == bool(one.rejection) for one in proposals)
    # A permanent cation is read by its atoms.
    assert drawn(source, annotated("C5H14NO+", "[M]+")).bond_class.shape == (9, 21)


def test_a_draw_follows_from_spectrum_and_seed_and_not_from_chunks(source, monkeypatch):
    first, again, other = (drawn(source, seed=seed) for seed in (1, 1, 2))
    elsewhere = drawn(source, annotated(mz=(45.03, 72.04)))
    monkeypatch.setattr(generator, "chunk_size", lambda *_: 2)
    parts = drawn(source)

    np.testing.assert_array_equal(first.bond_class, again.bond_class)
    np.testing.assert_array_equal(first.bond_class, parts.bond_class)
    np.testing.assert_allclose(first.log_likelihood, parts.log_likelihood, rtol=1e-4)
    assert (first.bond_class != other.bond_class).any()
    assert (first.log_likelihood != elsewhere.log_likelihood).any()


def test_the_last_step_is_drawn_with_what_noise_is_left_at_zero(source):
    got = drawn(source, n=200)

    log_prob, bonds = got.bond_log_prob.double(), got.bond_class
    assert (bonds != log_prob.argmax(-1)).any()
    shares = torch.nn.functional.one_hot(bonds, 5).double().mean((0, 1))
    torch.testing.assert_close(shares, log_prob.exp().mean((0, 1)), atol=0.05, rtol=0)


def test_time_runs_out_between_steps(source):
    def late():
        raise OutOfTimeError

    with pytest.raises(OutOfTimeError):
        drawn(source, check=late)


def test_autocast_leaves_the_features_alone(weights):
    (source,) = load_model(weights, replace(cpu(), autocast_dtype=torch.bfloat16)).sources

    assert torch.isfinite(drawn(source).log_likelihood).all()


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (made.decoder_file, "no encoder and no projection"),
        (made.encoder_file, "no denoiser and no proj"),
    ],
)
def test_a_part_of_the_system_cannot_predict(network, tmp_path, content, missing):
    path = made.converted(tmp_path, content(network))

    with pytest.raises(WeightsError, match=f"{missing}.* so they cannot predict"):
        load_model(path, cpu())


@pytest.mark.parametrize("scale", [1, 100])
def test_candidates_are_ranked_by_how_often_they_were_drawn(scale):
    drawn_as = {"most": (3, -500.0), "less likely": (2, -40.0), "likelier": (2, -2.0)}
    structures = tuple(
        Structure(name, "", f"{place}" * 27, scale * count, 0, log_likelihood)
        for place, (name, (count, log_likelihood)) in enumerate(drawn_as.items())
    )
    outcome = HypothesisResult("ok", n_heavy=6, structures=structures, sampled=7 * scale)

    candidates, _ = rank((outcome,), BY_FREQUENCY)

    assert [candidate.smiles for candidate in candidates] == ["most", "likelier", "less likely"]


@pytest.mark.parametrize(
    ("n_steps", "evaluations", "steps"),
    [(5, 2, (5, 2, 0)), (7, 2, (7, 4, 0)), (100, 4, (100, 75, 50, 25, 0))],
)
def test_jumps_are_even_and_rounded_half_to_even(n_steps, evaluations, steps):
    assert generator.evenly_spaced(n_steps, evaluations) == steps
    with pytest.raises(ConfigError, match=f"steps must be 1 to {n_steps}, not {n_steps + 1}"):
        generator.evenly_spaced(n_steps, n_steps + 1)
