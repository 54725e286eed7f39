"""Weights files: read back as written, and refused in a sentence where they are not whole."""

import json
import random
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from duallgd_cli.checkpoint.format import (
    Checkpoint,
    load,
    read_tensors,
    require_trained,
    save,
    write_tensors,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.peaks import from_annotated, peak_batch
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from tests.made_graphs import condition, noisy_bonds, small_settings, stirred
from tests.made_spectra import annotated
from tests.memory import bounded_memory

RECORD = {"data": {"structures": {"molecules": 3}}, "step": 7}
RANKING = {"log_share": 0.5, "n_spectra": 12}


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings())


@pytest.fixture
def checkpoint(model):
    return Checkpoint(model.settings, dict(model.state_dict()), RECORD, RANKING)


@pytest.fixture
def path(tmp_path, checkpoint):
    path = tmp_path / "run" / "model.safetensors"
    save(path, checkpoint)
    return path


def second_encoder():
    torch.manual_seed(2)
    sizes = EncoderSettings(layers=3, width=12, heads=3, summary=5)
    return dict(FormulaTransformer(sizes).state_dict())


def test_everything_reads_back_as_written(path, checkpoint):
    beside = {
        "reranker": {"log_prevalence": torch.arange(4.0), "presence.bias": torch.ones(2)},
        "templates": {"bits": torch.tensor([-1, 30_000], dtype=torch.int16)},
        "contrast": second_encoder(),
    }
    save(path, replace(checkpoint, **beside, database={"n_spectra": 3}))

    found = load(path)

    for part, arrays in {"tensors": checkpoint.tensors, **beside}.items():
        got = getattr(found, part)
        assert got.keys() == arrays.keys()
        assert all(torch.equal(got[name], arrays[name]) for name in arrays)
    assert (found.settings, found.record) == (checkpoint.settings, RECORD)
    assert (found.ranking, found.database) == (RANKING, {"n_spectra": 3})
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]
    assert path.stat().st_mode & 0o444 == 0o444


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["denoiser.bit_embedding.weight", "encoder.peak_in.weight"])
def test_matrices_take_a_byte_a_number_and_keep_two_digits(path, checkpoint, name, dtype):
    codes = checkpoint.tensors[name].clone()
    codes[3] *= 1e-9  # a row that all but vanished
    changed = replace(checkpoint, tensors={**checkpoint.tensors, name: codes})
    save(path, changed, dtype, short_codes=True)

    assert load_file(path)[name].dtype == torch.int8
    got = load(path)
    assert got.tensors.keys() == checkpoint.tensors.keys()
    largest = codes.abs().amax(1, keepdim=True)
    error = (got.tensors[name] - codes).abs() / largest.clamp_min(1e-5)
    assert error.max() < 0.01
    again = path.with_name("again.safetensors")
    save(again, got, dtype, short_codes=True)
    torch.testing.assert_close(load(again).tensors[name], got.tensors[name])


def outputs(network):
    """Logits of the bonds of a molecule with half the noise, and of the fingerprint."""
    known, bonds, t = condition(["C9H8O4"]), noisy_bonds(13)[None], torch.tensor([250])
    torch.manual_seed(1)
    with torch.no_grad():
        peaks = annotated([Formula.parse(text).counts for text in ("C7H5O2", "C6H5")], "C9H8O4")
        logits = network.encoder(peak_batch([from_annotated(peaks)]))
        return network.denoiser(bonds, t, network.denoiser.context(known)), logits


@pytest.mark.parametrize(
    ("dtype", "short_codes", "tolerance", "size"),
    [
        (torch.float32, False, 0.0, 1.0),
        (torch.float16, False, 2e-3, 0.6),
        (torch.bfloat16, False, 2e-2, 0.6),
        (torch.float16, True, 2e-2, 0.35),
    ],
)
def test_a_built_network_says_what_the_saved_one_did(
    path, checkpoint, model, dtype, short_codes, tolerance, size
):
    """But for a root mean square error of a share of the spread of its outputs."""
    whole = path.stat().st_size
    save(path, checkpoint, dtype, short_codes=short_codes)

    found = load(path)
    built = found.build()

    assert {tensor.dtype for tensor in found.tensors.values()} == {torch.float32}
    assert not built.training
    for got, expected in zip(outputs(built), outputs(model), strict=True):
        error = (got - expected).square().mean().sqrt()
        assert float(error) <= tolerance * float(expected.std())
    assert path.stat().st_size <= whole * size


def test_a_second_encoder_has_sizes_of_its_own_and_one_that_is_none_is_refused(checkpoint):
    tensors = second_encoder()

    found = replace(checkpoint, contrast=tensors).contrast_encoder().state_dict()

    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    for name, given in (
        *(("pool.bias", other) for other in (None, torch.tensor(1.0), torch.ones(5))),
        ("layers.2.up.bias", None),
        ("hidden.bias", torch.ones(0)),
    ):
        wrong = {n: t for n, t in {**tensors, name: given}.items() if t is not None}
        with pytest.raises(WeightsError, match="weights do not fit"):
            replace(checkpoint, contrast=wrong).contrast_encoder()


def test_what_a_second_encoder_lacks_is_that_of_the_first(checkpoint):
    lower = {n[8:]: t for n, t in checkpoint.tensors.items() if n.startswith("encoder.")}
    upper = {name: lower[name] + 1 for name in ("hidden.bias", "fingerprint.weight")}

    found = replace(checkpoint, contrast=upper).contrast_encoder().state_dict()

    assert all(torch.equal(found[name], t) for name, t in {**lower, **upper}.items())
    with pytest.raises(WeightsError, match="weights do not fit"):
        replace(checkpoint, contrast={"hidden.bias": torch.ones(3)}).contrast_encoder()


def test_random_features_travel_with_the_weights(path, checkpoint):
    """Another seed in the settings changes nothing: what was drawn is stored."""
    found = load(path)
    other = replace(found.settings.denoiser, feature_seed=1)

    built = replace(found, settings=replace(found.settings, denoiser=other)).build()

    name = "denoiser.layers.0.pair_attention.features"
    assert torch.equal(built.state_dict()[name], checkpoint.tensors[name])


def rewritten(path, tensors=None, **changes):
    """The file with other tensors and metadata, and a digest that fits; None leaves one out."""
    old, metadata = read_tensors(path)
    kept = {name: text for name, text in (metadata | changes).items() if text is not None}
    write_tensors(path, old | (tensors or {}), kept)


def cut_off(keep):
    return lambda path: path.write_bytes(path.read_bytes()[:keep])


def with_metadata(name, *values):
    return [lambda path, value=value: rewritten(path, **{name: value}) for value in values]


def with_tensor(name, values):
    return lambda path: rewritten(path, {name: torch.tensor(values)})


NESTED, SECOND = '{"a":' * 100_000 + "1" + "}" * 100_000, "denoiser.readout.weight.scale"
SIZES = ('{"denoiser": {"colour": 3}}', '{"denoiser": {"layers": 0}}')
SPOILT = {
    r"are broken \(.*\); fetch or copy them again": [
        *map(cut_off, (0, 5, 200, -1)),
        lambda path: path.write_bytes(b"PK\x03\x04pickle" * 100),
    ],
    "do not exist; give a .* --weights": [lambda path: path.unlink()],
    "format version (2|None), this version reads 1; use": with_metadata(
        "format_version", "2", None
    ),
    "have unreadable metadata": [
        *with_metadata("settings", None, "{not json", *SIZES, '{"diffusion": {"time_shift": NaN}}'),
        *with_metadata("settings", "[]", NESTED),
        *with_metadata("record", None, NESTED),
        *with_metadata("ranking", "{"),
    ],
    "broken .[a-z.]* holds values that are no finite": [
        with_tensor("denoiser.readout.bias", [0.0, float("nan")]),
        with_tensor("evidence.x", [0.0, -float("inf")]),
    ],
    "scale fits no matrix": [
        with_tensor("x.scale", [1.0]),
        with_tensor(SECOND, [[1.0, 1], [1, 1]]),
    ],
}


@pytest.mark.parametrize(
    ("said", "spoil"), [(said, spoil) for said, ways in SPOILT.items() for spoil in ways]
)
def test_a_file_that_is_not_whole_and_sound_is_refused_in_a_sentence(path, said, spoil):
    spoil(path)

    with pytest.raises(WeightsError, match=said):
        load(path)


@pytest.mark.parametrize(
    ("name", "tensor", "told"),
    [
        ("denoiser.readout.bias", None, "1 missing ['denoiser.readout.bias'], 0 unused"),
        ("denoiser.colour", torch.zeros(2), "0 missing [], 1 unused ['denoiser.colour'], 0 of"),
        ("encoder.norm.weight", torch.zeros(3), "1 of another shape ['encoder.norm.weight']"),
    ],
)
def test_missing_unused_and_misshapen_tensors_are_counted_and_named(checkpoint, name, tensor, told):
    tensors = {n: t for n, t in {**checkpoint.tensors, name: tensor}.items() if t is not None}

    with pytest.raises(WeightsError) as raised:
        replace(checkpoint, tensors=tensors).build()

    assert told in str(raised.value)


def test_a_flipped_byte_does_not_go_unnoticed(path):
    sound, whole = path.read_bytes(), load(path)
    tensors = {name: tensor.clone() for name, tensor in whole.tensors.items()}  # not of the file
    random_at = random.Random(1).sample(range(len(sound)), 30)

    for at in (*random_at, *range(8, 400, 18), len(sound) - 1):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        try:
            found = load(path)
        except WeightsError:
            continue
        # Only what names the digest may break and leave everything else as it was.
        assert (found.settings, found.record) == (whole.settings, whole.record)
        assert all(torch.equal(found.tensors[n], t) for n, t in tensors.items())


def test_files_of_version_0_1_are_read(path, checkpoint, model):
    """They may have no digest, and hold what networks are no longer told."""
    marks = {"denoiser.pair_known": torch.ones(model.settings.denoiser.pair_width)}
    tensors, metadata = read_tensors(path)
    settings = json.dumps(json.loads(metadata["settings"]) | {"variant": "full"})
    save_file(tensors | marks, path, metadata | {"ancestors": "eJw=", "settings": settings})

    found = load(path)

    assert (found.settings, found.record) == (checkpoint.settings, RECORD)
    found.build()  # no tensor is left over


@pytest.mark.parametrize(
    ("part", "sizes"),
    [
        ("denoiser", {"pair_width": 60_000, "pair_heads": 1, "pair_features": 60_000}),
        ("encoder", {"width": 60_000, "layers": 50}),
    ],
)
def test_sizes_are_compared_before_memory_is_taken_for_them(path, part, sizes):
    settings = json.loads(read_tensors(path)[1]["settings"])
    settings[part] |= sizes
    rewritten(path, settings=json.dumps(settings))

    with bounded_memory(100), pytest.raises(WeightsError, match="weights do not fit"):
        load(path).build()


@pytest.mark.parametrize(
    ("record", "untrained"),
    [
        ({"step": 7}, None),
        ({"trained": ["denoiser", "encoder"]}, None),
        ({"trained": ["denoiser"]}, "encoder"),
        ({"trained": ["encoder"]}, "denoiser"),
        ({"trained": -1}, "encoder"),  # which no version wrote
    ],
)
def test_weights_with_a_part_that_was_never_trained_do_not_predict(record, untrained):
    refused = pytest.raises(WeightsError, match=f"the {untrained} of weights w was never trained")
    with refused if untrained else nullcontext():
        require_trained(record, "w")
