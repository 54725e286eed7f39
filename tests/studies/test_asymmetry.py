"""Attention weights as the study sees them, in small networks with made weights."""

from dataclasses import replace

import asymmetry
import numpy as np
import pytest
import torch
from asymmetry import EndAttention, KnownMolecule, NoiseLevels, first_weights, load_studied, watched

from duallgd_cli.checkpoint import format as own_format
from duallgd_cli.errors import UsageError
from duallgd_cli.reference import weights_file as reference
from duallgd_cli.reference.denoiser import ReferenceDenoiser
from duallgd_cli.reference.settings import ReferenceDenoiserSettings, ReferenceSettings
from tests.made_graphs import condition, noisy_bonds, small_settings, stirred

CPU = torch.device("cpu")
NOISE = NoiseLevels((50, 500), draws=3)
REFERENCE = {"layers": 2, "condition_width": 16, "atom_width": 16, "edge_width": 8, "heads": 2}


def molecule(formula="C4H7NO2S", key="MADE"):
    known = condition([formula])
    n = known.atom_class.shape[1]
    return KnownMolecule(key, known.atom_class[0].numpy(), noisy_bonds(n).numpy(), known)


def own():
    return asymmetry.ours(stirred(small_settings()), CPU)


def authors(**changes):
    settings = ReferenceSettings(ReferenceDenoiserSettings(**(REFERENCE | changes)))
    torch.manual_seed(1)
    return asymmetry.authors(ReferenceDenoiser(settings.denoiser).eval(), None, settings, CPU)


@pytest.mark.parametrize("studied", [own(), authors()], ids=["default", "reference"])
def test_weights_come_by_layer_level_and_pair_and_watching_changes_nothing(studied):
    known = molecule()
    names = [name for name, _ in studied.network.named_modules()]
    noisy = noisy_bonds(8, seed=4).expand(2, -1)
    before = studied.denoiser(known, 2)(noisy, 50)

    with watched(studied.network) as watchers:
        within = studied.denoiser(known, 2)(noisy, 50)

    assert torch.equal(within, before)
    assert [tuple(watcher.first.shape[:2]) for watcher in watchers] == [(2, 28)] * 2
    assert [name for name, _ in studied.network.named_modules()] == names
    assert not any(isinstance(part, EndAttention) for part in studied.network.modules())
    first = first_weights(studied, known, NOISE, [0, 1])
    assert (first.shape, first.dtype) == ((2, 2, 28), np.float64)
    assert ((first > 0) & (first < 1)).all()
    np.testing.assert_array_equal(first_weights(studied, known, NOISE, [1]), first[1:])


@pytest.mark.parametrize(
    ("variant", "layers", "message"),
    [
        ({"synchronisation": "atoms"}, [0], "do not attend to their two atoms"),
        ({"synchronisation": "none"}, [0], "do not attend to their two atoms"),
        ({"synchronisation": "unmasked"}, [0], "layer 1 of this network no pair attends to its"),
    ],
)
def test_ablations_without_this_attention_are_refused(variant, layers, message):
    with pytest.raises(UsageError, match=message):
        first_weights(authors(**variant), molecule(), NOISE, layers)


def test_both_kinds_of_weights_files_are_studied(tmp_path):
    model = stirred(small_settings())
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    own_format.save(ours, own_format.Checkpoint(model.settings, model.state_dict()))
    network = authors()
    settings = ReferenceSettings(network.network.settings)
    tensors = {f"denoiser.{name}": t for name, t in network.network.state_dict().items()}
    reference.save(theirs, reference.ReferenceCheckpoint(settings, tensors))
    fine_tuned = tmp_path / "fine.safetensors"
    projection = torch.nn.Linear(4096, 16)
    more = {f"projection.{name}": t for name, t in projection.state_dict().items()}
    reference.save(fine_tuned, reference.ReferenceCheckpoint(settings, tensors | more))

    found = [first_weights(load_studied(path, CPU, False), molecule(), NOISE, [0, 1])
             for path in (ours, theirs, fine_tuned)]  # fmt: skip

    expected = first_weights(asymmetry.ours(model, CPU), molecule(), NOISE, [0, 1])
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], first_weights(network, molecule(), NOISE, [0, 1]))
    assert not np.allclose(found[2], found[1])
    with pytest.raises(UsageError, match="--condition true"):
        load_studied(theirs, CPU, predicted=True)


def test_a_pre_trained_decoder_reads_the_fingerprint_folded_to_its_width():
    known = molecule()
    folded, further = (
        replace(known, condition=replace(known.condition, bit=torch.tensor([bits])))
        for bits in ([0, 3], [3, 16, 35])
    )

    first, again, other = (
        first_weights(authors(), one, NOISE, [1]) for one in (folded, further, known)
    )

    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
