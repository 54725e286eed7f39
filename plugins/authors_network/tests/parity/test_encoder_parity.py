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
    names = sorted({name.partition("/")[0] for name in stored if name.startswith("single")})
    singles = [name for name in names if f"{name}/types" in stored]
    return {name: peaks(stored, name) for name in singles}


def peaks(stored, name):
    return FormulaPeaks(
        stored[f"{name}/form_vec"],
        stored[f"{name}/types"],
        stored[f"{name}/ion_vec"].long(),
        stored[f"{name}/intens"],
        stored[f"{name}/num_peaks"],
    )


def encoder(weights):
    """An encoder of the size that the authors' tensors have."""
    model = ReferenceEncoder(encoder_settings(weights))
    model.load_state_dict(weights)
    return model.eval()


@pytest.fixture(scope="module")
def narrow(parity):
    return encoder(parity.weights("mist_narrow.safetensors"))


@torch.no_grad()
def test_narrow_fingerprints_are_the_reference_s(stored, spectra, narrow):
    assert spectra
    for name, single in spectra.items():
        assert_close(
            narrow.spectra_encoder[0](single), stored[f"narrow/{name}_h0"], atol=1e-5, rtol=0
        )
        assert_close(narrow(single), stored[f"narrow/{name}_fp"], atol=1e-5, rtol=0)


@torch.no_grad()
def test_full_fingerprints_are_the_reference_s(parity, stored, spectra):
    full = sorted({m[1] for m in (re.match(r"(full(\d+))/", name) for name in stored) if m})
    assert full
    for name in full:
        sums = parity.json("mist_full_recipe_checksums.json")
        model = encoder(released_weights(sums, sizes(stored, name), parity.recipe_seed()))

        for single, seen in spectra.items():
            assert_close(model(seen), stored[f"{name}/{single}_fp"], atol=1e-3, rtol=0)
            assert_close(
                model.spectra_encoder[0](seen), stored[f"{name}/{single}_h0"], atol=1e-3, rtol=0
            )


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
