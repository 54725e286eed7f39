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
from duallgd_cli.checkpoint.format import write_tensors
from duallgd_cli.errors import WeightsError
from plugins.authors_network.tests import made_reference as made

FEATURES = "denoiser.dual_layers.{}.attn.feature_map.random_features"


@pytest.fixture
def fine_tuned(network):
    return made.fine_tuned_file(network)


@pytest.fixture(scope="module")
def peaks():
    counts = torch.randint(0, 6, (1, 4, 18), generator=torch.Generator().manual_seed(1)).float()
    types, adduct = torch.tensor([[0, 0, 0, 3]]), torch.zeros(1, 4, dtype=torch.long)
    return FormulaPeaks(counts, types, adduct, torch.rand(1, 4), torch.tensor([4]))


@torch.no_grad()
def test_a_converted_checkpoint_gives_the_source_network_s_numbers(
    network, fine_tuned, saved, peaks, tmp_path
):
    target = tmp_path / "ours" / "reference.safetensors"
    atom_class, mask = torch.tensor([[0, 0, 3, 1, 0]]), torch.ones(1, 5, dtype=torch.bool)
    bond = torch.tensor([[1, 0, 0, 2, 1, 0, 4, 0, 1, 0]])
    condition = torch.linspace(0, 1, 24)[None]
    graphs = with_features(made.SETTINGS, atom_class, mask, bond, torch.tensor([0.4]), condition)

    reference.save(target, convert(saved(fine_tuned), seed=5))
    checkpoint = reference.load(target)
    got = checkpoint.build()

    assert checkpoint.settings == made.SETTINGS
    same = {
        name: tensor.equal(got.state_dict()[name]) for name, tensor in network.state_dict().items()
    }
    assert {name for name, is_same in same.items() if not is_same} <= {
        FEATURES.format(n) for n in (0, 1)
    }
    assert torch.equal(got.condition(peaks), network.condition(peaks))
    drawn = {FEATURES.format(n): checkpoint.tensors[FEATURES.format(n)] for n in (0, 1)}
    whole = reference.ReferenceDualLGD(made.SETTINGS).eval()
    whole.load_state_dict({**network.state_dict(), **drawn})
    assert torch.equal(got.denoiser(graphs), whole.denoiser(graphs))
    record = checkpoint.record
    assert (record["source"], len(record["source_sha256"])) == ("authors.ckpt", 64)
    assert (record["epoch"], record["feature_seed"]) == (49, 5)
    assert record["switches"]["cross_attention_mode"] == "bidirectional"
    assert json.dumps(record)


def test_the_random_features_come_from_the_recorded_seed_at_the_reference_s_scale(
    fine_tuned, saved
):
    path = saved(fine_tuned)
    first, again, other = (convert(path, seed).tensors for seed in (5, 5, 6))
    rows = first[FEATURES.format(1)]

    assert torch.equal(rows, again[FEATURES.format(1)])
    assert not torch.equal(rows, other[FEATURES.format(1)])
    assert not torch.equal(rows, first[FEATURES.format(0)])
    assert rows.norm(dim=1) == pytest.approx([(made.SETTINGS.denoiser.n_features / 4) ** -0.5] * 6)

    # Those that the authors call iid are plain Gaussian rows.
    fine_tuned["hyper_parameters"] = made.hyper_parameters({"performer_feature_type": "iid"})
    rows = convert(saved(fine_tuned), seed=5).tensors[FEATURES.format(0)]
    plain = torch.randn(rows.shape, generator=torch.Generator().manual_seed(5))
    assert torch.equal(rows, plain)


@torch.no_grad()
def test_a_pretrained_part_is_converted_alone(network, saved, peaks, tmp_path):
    reference.save(tmp_path / "w.safetensors", convert(saved(made.decoder_file(network))))
    decoder = reference.load(tmp_path / "w.safetensors")
    encoder = convert(saved(made.encoder_file(network)))

    assert (decoder.parts, decoder.settings.marginal) == (("denoiser",), made.SETTINGS.marginal)
    built = decoder.build(decoder.parts).denoiser
    assert torch.equal(built.mlp_in_X[0].weight, network.denoiser.mlp_in_X[0].weight)
    with pytest.raises(WeightsError, match="no encoder and no projection"):
        decoder.build()
    assert (encoder.parts, encoder.settings.encoder) == (("encoder",), made.SETTINGS.encoder)
    assert torch.equal(encoder.build(["encoder"]).encoder(peaks), network.encoder(peaks))


def test_a_compiled_copy_of_the_decoder_is_left_out(fine_tuned, saved):
    state = fine_tuned["state_dict"]
    for name in [name for name in state if name.startswith("decoder.")]:
        state[f"_compiled_decoder._orig_mod.{name.removeprefix('decoder.')}"] = state[name]

    assert convert(saved(fine_tuned)).parts == reference.PARTS


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
        ("dataset_infos", "hold no bond marginals.*KeyError: 'dataset_infos'"),
        ("cfg", "hold no bond marginals.*KeyError: 'cfg'"),
    ],
)
def test_what_is_not_supported_or_missing_is_refused_by_name(fine_tuned, saved, changes, message):
    if isinstance(changes, dict):
        fine_tuned["hyper_parameters"] = made.hyper_parameters(**changes)
    else:
        del fine_tuned["hyper_parameters"][changes]

    with pytest.raises(WeightsError, match=message):
        convert(saved(fine_tuned))


def test_variants_of_the_authors_switches_become_ours():
    assert variant_of({}) == {}
    assert variant_of({"use_cross_attention": False}) == {"synchronisation": "none"}
    assert variant_of({"linear_attention_type": "softmax"}) == {"kernel": "softmax"}
    assert variant_of({"use_dual_stream": False}) == {"streams": "atoms", "readout": "edges"}


def test_other_weights_files_are_told_apart_and_refused(fine_tuned, saved, tmp_path):
    path, nowhere = tmp_path / "w.safetensors", tmp_path / "nowhere.safetensors"
    whole = convert(saved(fine_tuned))
    reference.save(path, whole)

    assert can_load(path)
    path.write_bytes(b"damaged")
    assert not can_load(path)
    assert not can_load(nowhere)
    for file, said in ((path, "broken"), (nowhere, "do not exist")):
        with pytest.raises(WeightsError, match=said):
            reference.load(file)
    short = {n: t for n, t in whole.tensors.items() if "film_primal" not in n}
    with pytest.raises(WeightsError, match="4 missing"):
        replace(whole, tensors=short).build()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("3", "unreadable metadata: a mapping was expected, not int"),
        ('{"denoiser": {"dropout": 0.1}}', "by another version .*dropout.* convert the author"),
    ],
)
def test_metadata_of_another_kind_or_version_get_one_sentence(tmp_path, settings, message):
    metadata = {"format_version": "1", "preset": "reference", "record": "{}", "settings": settings}
    write_tensors(tmp_path / "w.safetensors", {"a": torch.ones(1)}, metadata)

    with pytest.raises(WeightsError, match=message):
        reference.load(tmp_path / "w.safetensors")
