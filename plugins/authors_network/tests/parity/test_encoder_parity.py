"""The reference's spectrum encoder against its own outputs, one spectrum at a time and padded."""

import re

import pytest
import torch
from torch.testing import assert_close

from duallgd_authors_network.convert import encoder_settings
from duallgd_authors_network.encoder import FormulaPeaks, ReferenceEncoder
from duallgd_authors_network.settings import ReferenceEncoderSettings
from plugins.authors_network.tests.parity.networks import recipe

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def stored(parity):
    return parity.arrays("mist_io.npz")


@pytest.fixture(scope="module")
def spectra(stored):
    fields = ("form_vec", "types", "ion_vec", "intens", "num_peaks")
    names = {n.partition("/")[0] for n in stored if n.startswith("single") and n.endswith("/types")}
    values = {name: [stored[f"{name}/{field}"] for field in fields] for name in sorted(names)}
    return {name: FormulaPeaks(*v[:2], v[2].long(), *v[3:]) for name, v in values.items()}


def encoder(weights):
    """An encoder of the size that the authors' tensors have."""
    model = ReferenceEncoder(encoder_settings(weights))
    model.load_state_dict(weights)
    return model.eval()


def same_outputs(model, stored, name, spectra, atol):
    """Whether states and fingerprints of the spectra are those that are stored."""
    assert spectra
    for single, seen in spectra.items():
        state = model.spectra_encoder[0](seen)
        assert_close(state, stored[f"{name}/{single}_h0"], atol=atol, rtol=0)
        assert_close(model(seen), stored[f"{name}/{single}_fp"], atol=atol, rtol=0)


@torch.no_grad()
def test_narrow_fingerprints_are_the_reference_s(parity, stored, spectra):
    narrow = encoder(parity.weights("mist_narrow.safetensors"))
    same_outputs(narrow, stored, "narrow", spectra, 1e-5)


@torch.no_grad()
def test_full_fingerprints_are_the_reference_s(parity, stored, spectra):
    full = sorted({m[1] for m in (re.match(r"(full(\d+))/", name) for name in stored) if m})
    sums = parity.json("mist_full_recipe_checksums.json")
    assert full
    for name in full:
        weights = released_weights(sums, sizes(stored, name), parity.recipe_seed())
        same_outputs(encoder(weights), stored, name, spectra, 1e-3)


def sizes(stored, name):
    """Sizes of a full encoder, from what it gave."""
    own = {key.partition("/")[2]: value for key, value in stored.items() if key.startswith(name)}
    stages = [own[key].shape[1] for key in sorted(own) if key.startswith("batch_int")]
    return ReferenceEncoderSettings(
        width=own["batch_h0"].shape[1],
        fragment_bits=own["batch_frag"].shape[2],
        fingerprint_sizes=(*stages, own["batch_fp"].shape[1]),
    )


def released_weights(sums, settings, seed):
    own = ReferenceEncoder(settings).state_dict()
    table = "spectra_encoder.0.form_embedder_mod.int_to_feat_matrix"
    shapes = {name: tuple(t.shape) for name, t in own.items()}
    return recipe(shapes, seed, sums, {table: own[table]})
