"""The authors' checkpoints: stand-ins of their structure, converted, saved and loaded again."""

import json
import re
from dataclasses import replace

import pytest
import torch

from duallgd_authors_network import can_load
from duallgd_authors_network import weights_file as reference
from duallgd_authors_network.convert import convert, variant_of
from duallgd_authors_network.encoder import FormulaPeaks
from duallgd_authors_network.features import with_features
from duallgd_cli.errors import WeightsError
from plugins.authors_network.tests.made_reference import (
    SETTINGS,
    decoder_file,
    encoder_file,
    fine_tuned_file,
    hyper_parameters,
    stirred_network,
    their_model,
)


@pytest.fixture(scope="module")
def network():
    return stirred_network()


@pytest.fixture
def fine_tuned(network):
    return fine_tuned_file(network)


def graphs():
    atom_class = torch.tensor([[0, 0, 3, 1, 0]])
    known = SETTINGS, atom_class, torch.ones(1, 5, dtype=torch.bool)
    bond = torch.tensor([[1, 0, 0, 2, 1, 0, 4, 0, 1, 0]])
    return with_features(*known, bond, torch.tensor([0.4]), torch.linspace(0, 1, 24)[None])


def peaks():
    counts = torch.randint(0, 6, (1, 4, 18), generator=torch.Generator().manual_seed(1)).float()
    types, adduct = torch.tensor([[0, 0, 0, 3]]), torch.zeros(1, 4, dtype=torch.long)
    return FormulaPeaks(counts, types, adduct, torch.rand(1, 4), torch.tensor([4]))


@torch.no_grad()
def test_a_converted_checkpoint_gives_the_source_network_s_numbers(
    network, fine_tuned, saved, tmp_path
):
    target = tmp_path / "ours" / "reference.safetensors"

    reference.save(target, convert(saved(fine_tuned), seed=5))
    checkpoint = reference.load(target)
    got = checkpoint.build()

    assert checkpoint.settings == SETTINGS
    for name, tensor in got.state_dict().items():
        if "random_features" not in name:
            assert torch.equal(tensor, network.state_dict()[name]), name
    spectrum = peaks()
    assert torch.equal(got.condition(spectrum), network.condition(spectrum))
    for theirs, ours in zip(network.denoiser.dual_layers, got.denoiser.dual_layers, strict=True):
        theirs.attn.feature_map.random_features = ours.attn.feature_map.random_features
    assert torch.equal(got.denoiser(graphs()), network.denoiser(graphs()))


def test_the_random_features_come_from_the_recorded_seed_at_the_reference_s_scale(
    fine_tuned, saved
):
    path = saved(fine_tuned)
    first, again, other = (convert(path, seed) for seed in (5, 5, 6))
    name = "denoiser.dual_layers.1.attn.feature_map.random_features"

    rows = first.tensors[name]

    assert first.record["feature_seed"] == 5
    assert torch.equal(rows, again.tensors[name])
    assert not torch.equal(rows, other.tensors[name])
    assert not torch.equal(rows, first.tensors[name.replace("1", "0")])
    blocks = SETTINGS.denoiser.n_features / 4
    assert rows.norm(dim=1) == pytest.approx([blocks**-0.5] * 6)


def test_features_that_the_authors_call_iid_are_plain_gaussian_rows(fine_tuned, saved):
    chosen = {**their_model()["duallgd"], "performer_feature_type": "iid"}
    fine_tuned["hyper_parameters"] = hyper_parameters(duallgd=chosen)

    got = convert(saved(fine_tuned), seed=5)

    generator = torch.Generator().manual_seed(5)
    rows = got.tensors["denoiser.dual_layers.0.attn.feature_map.random_features"]
    assert torch.equal(rows, torch.randn(rows.shape, generator=generator))


def test_the_record_says_where_the_weights_come_from(fine_tuned, saved):
    got = convert(saved(fine_tuned))

    assert got.record["source"] == "authors.ckpt"
    assert len(got.record["source_sha256"]) == 64
    assert got.record["epoch"] == 49
    assert got.record["switches"]["cross_attention_mode"] == "bidirectional"
    assert json.dumps(got.record)


def test_a_pretrained_decoder_is_converted_alone(network, saved, tmp_path):
    reference.save(tmp_path / "w.safetensors", convert(saved(decoder_file(network))))
    got = reference.load(tmp_path / "w.safetensors")

    assert got.parts == ("denoiser",)
    assert got.settings.marginal == SETTINGS.marginal
    built = got.build(got.parts).denoiser
    assert torch.equal(built.mlp_in_X[0].weight, network.denoiser.mlp_in_X[0].weight)
    with pytest.raises(WeightsError, match="no encoder and no projection"):
        got.build()


@torch.no_grad()
def test_a_bare_encoder_is_converted_alone(network, saved):
    got = convert(saved(encoder_file(network)))

    assert got.parts == ("encoder",)
    assert got.settings.encoder == SETTINGS.encoder
    spectrum = peaks()
    assert torch.equal(got.build(["encoder"]).encoder(spectrum), network.encoder(spectrum))


def test_a_compiled_copy_of_the_decoder_is_left_out(fine_tuned, saved):
    state = fine_tuned["state_dict"]
    copies = {
        f"_compiled_decoder._orig_mod.{n.removeprefix('decoder.')}": t
        for n, t in state.items()
        if n.startswith("decoder.")
    }

    got = convert(saved({**fine_tuned, "state_dict": {**state, **copies}}))

    assert got.parts == reference.PARTS


BETA = "decoder.film_dual.beta.bias"


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        (BETA, None, "1 missing ['denoiser.film_dual.beta.bias'], 0 unused"),
        ("decoder.mlp_out_X.0.weight", 1, "0 missing [], 1 unused ['denoiser.mlp_out_X.0.weight']"),
        ("tf_layers.0.weight", 1, "0 missing [], 1 unused ['tf_layers.0.weight']"),
        (BETA, 3, "1 of another shape ['denoiser.film_dual.beta.bias']"),
    ],
)
def test_tensors_that_do_not_fit_are_named(fine_tuned, saved, name, size, message):
    fine_tuned["state_dict"].pop(name, None)
    if size is not None:
        fine_tuned["state_dict"][name] = torch.ones(size)

    with pytest.raises(WeightsError, match=re.escape(message)):
        convert(saved(fine_tuned))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition": "uniform"}, "transition=uniform"),
        ({"extra_features": "cycles"}, "extra_features=cycles"),
        ({"diffusion_steps": 7}, "the settings say 7"),
        ({"duallgd": {"use_linear_dual_attention": False}}, "use_linear_dual_attention=False"),
        ({"duallgd": {"cross_heads": 4}}, "different numbers of heads"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(fine_tuned, saved, changes, message):
    fine_tuned["hyper_parameters"] = hyper_parameters(**changes)

    with pytest.raises(WeightsError, match=message):
        convert(saved(fine_tuned))


@pytest.mark.parametrize("gone", ["dataset_infos", "cfg"])
def test_a_decoder_without_its_statistics_is_refused(fine_tuned, saved, gone):
    del fine_tuned["hyper_parameters"][gone]

    with pytest.raises(WeightsError, match=f"hold no bond marginals.*KeyError: '{gone}'"):
        convert(saved(fine_tuned))


def test_variants_of_the_authors_switches_become_ours():
    assert variant_of({}) == {}
    assert variant_of({"use_cross_attention": False}) == {"synchronisation": "none"}
    assert variant_of({"linear_attention_type": "softmax"}) == {"kernel": "softmax"}
    assert variant_of({"use_dual_stream": False}) == {"streams": "atoms", "readout": "edges"}


def test_other_weights_files_are_told_apart(network, fine_tuned, saved, tmp_path):
    path = tmp_path / "w.safetensors"
    reference.save(path, convert(saved(fine_tuned)))

    assert can_load(path)
    path.write_bytes(b"damaged")
    assert not can_load(path)
    assert not can_load(tmp_path / "nowhere.safetensors")
    with pytest.raises(WeightsError, match="broken"):
        reference.load(path)
    with pytest.raises(WeightsError, match="do not exist"):
        reference.load(tmp_path / "nowhere.safetensors")


def test_a_checkpoint_whose_tensors_do_not_fit_its_settings_is_refused(fine_tuned, saved):
    whole = convert(saved(fine_tuned))
    short = {n: t for n, t in whole.tensors.items() if "film_primal" not in n}

    with pytest.raises(WeightsError, match="4 missing"):
        replace(whole, tensors=short).build()


def test_metadata_of_another_kind_or_version_get_one_sentence(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "w.safetensors"
    for settings, message in (
        ("3", "unreadable metadata: a mapping was expected, not int"),
        (
            '{"denoiser": {"dropout": 0.1}}',
            "by another version .*dropout.* convert the author",
        ),
    ):
        metadata = {"format_version": "1", "preset": "reference", "record": "{}"}
        save_file({"a": torch.ones(1)}, path, metadata | {"settings": settings})

        with pytest.raises(WeightsError, match=message):
            reference.load(path)
