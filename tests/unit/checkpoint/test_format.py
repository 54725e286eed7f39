"""Weights files: read back as written, and refused in a sentence where they are not whole."""

import base64
import json
import random
import zlib
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from duallgd_cli.checkpoint.format import Checkpoint, load, read_tensors, save, write_tensors
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from tests.made_graphs import condition, noisy_bonds, small_settings, stirred
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


@pytest.mark.parametrize(
    ("part", "arrays"),
    [
        ("reranker", {"log_prevalence": torch.arange(4.0), "presence.bias": torch.ones(2)}),
        ("templates", {"bits": torch.tensor([-1, 30_000], dtype=torch.int16)}),
    ],
)
def test_what_lies_beside_the_network_comes_back_as_it_was(path, checkpoint, part, arrays):
    save(path, replace(checkpoint, **{part: arrays}), torch.float16)

    got = load(path)

    found = getattr(got, part)
    assert found.keys() == arrays.keys()
    assert all(torch.equal(found[name], arrays[name]) for name in arrays)
    got.build()  # no tensor is left over


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["denoiser.bit_embedding.weight", "encoder.peak_in.weight"])
def test_some_matrices_take_a_byte_a_number_and_keep_two_digits(path, checkpoint, name, dtype):
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


def second_encoder():
    torch.manual_seed(2)
    sizes = EncoderSettings(layers=3, width=12, heads=3, summary=5)
    return dict(FormulaTransformer(sizes).state_dict())


def test_a_second_encoder_has_sizes_of_its_own(path, checkpoint):
    tensors = second_encoder()
    save(path, replace(checkpoint, contrast=tensors))

    found = load(path).contrast_encoder().state_dict()

    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    ("name", "given"),
    [("pool.bias", None), ("pool.bias", torch.tensor(1.0)), ("pool.bias", torch.ones(5)),
     ("layers.2.up.bias", None), ("hidden.bias", torch.ones(0))],
)  # fmt: skip
def test_a_second_encoder_that_is_none_is_refused(checkpoint, name, given):
    tensors = {n: t for n, t in {**second_encoder(), name: given}.items() if t is not None}

    with pytest.raises(WeightsError, match="weights do not fit"):
        replace(checkpoint, contrast=tensors).contrast_encoder()


def metadata_of(path):
    with safe_open(path, framework="pt") as stream:
        return stream.metadata()


def rewritten(path, **changes):
    """The file with other metadata and a digest that fits; None leaves an entry out."""
    tensors, metadata = read_tensors(path)
    write_tensors(path, tensors, {k: v for k, v in (metadata | changes).items() if v is not None})
    return path


def test_everything_reads_back_as_written(path, checkpoint):
    found = load(path)

    assert found.settings == checkpoint.settings
    assert found.record == RECORD
    assert found.ranking == RANKING
    assert found.tensors.keys() == checkpoint.tensors.keys()
    assert all(torch.equal(found.tensors[n], t) for n, t in checkpoint.tensors.items())


def test_a_built_network_is_the_one_that_was_saved(path, model):
    built = load(path).build()

    known, bonds, t = condition(["C9H8O4"]), noisy_bonds(13)[None], torch.tensor([250])
    with torch.no_grad():
        expected = model.denoiser(bonds, t, model.denoiser.context(known))
        got = built.denoiser(bonds, t, built.denoiser.context(known))
    assert torch.equal(got, expected)
    assert not built.training


def test_what_networks_were_trained_with_around_a_core_is_left_out(path, checkpoint, model):
    marks = {"denoiser.pair_known": torch.ones(model.settings.denoiser.pair_width)}
    save(path, replace(checkpoint, tensors=checkpoint.tensors | marks))

    got = load(path)

    assert got.tensors.keys() == checkpoint.tensors.keys()
    got.build()  # no tensor is left over


def test_random_features_travel_with_the_weights(path, checkpoint):
    """Another seed in the settings changes nothing: what was drawn is stored."""
    found = load(path)
    other = replace(found.settings.denoiser, feature_seed=1)

    built = replace(found, settings=replace(found.settings, denoiser=other)).build()

    name = "denoiser.layers.0.pair_attention.features"
    assert torch.equal(built.state_dict()[name], checkpoint.tensors[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_halves_the_file_and_comes_back_in_float32(tmp_path, path, dtype):
    whole = load(path)
    save(tmp_path / "half.safetensors", whole, dtype)

    found = load(tmp_path / "half.safetensors")

    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * path.stat().st_size
    assert {t.dtype for t in found.tensors.values()} == {torch.float32}
    tolerance = 2e-3 if dtype == torch.float16 else 1e-2
    for name, tensor in whole.tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor, rtol=tolerance, atol=tolerance)
    found.build()


def test_only_a_whole_file_appears_and_anyone_may_read_it(path):
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]
    assert path.stat().st_mode & 0o444 == 0o444


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(WeightsError, match=r"none\.safetensors do not exist; give a .* --weights"):
        load(tmp_path / "none.safetensors")


@pytest.mark.parametrize("keep", [0, 5, 200, -1, None])
def test_a_truncated_file_and_one_of_another_kind_are_refused_in_a_sentence(path, keep):
    path.write_bytes(path.read_bytes()[:keep] if keep is not None else b"PK\x03\x04pickle" * 100)

    with pytest.raises(WeightsError, match=r"are broken \(.*\); fetch or copy them again"):
        load(path)


@pytest.mark.parametrize("version", ["2", None])
def test_another_format_version_is_refused(path, version):
    rewritten(path, format_version=version)

    with pytest.raises(WeightsError, match=rf"format version {version}, this version reads 1; use"):
        load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": None},
        {"settings": "{not json"},
        {"settings": '{"denoiser": {"colour": 3}}'},
        {"settings": '{"denoiser": {"layers": 0}}'},
        {"settings": "[]"},
        {"record": None},
        {"ranking": "{"},
        *({name: '{"a":' * 100_000 + "1" + "}" * 100_000} for name in ("settings", "record")),
        # No base64, cut short, other bytes, a cut short mapping, and [1].
        {"ancestors": "%"},
        {"ancestors": "eJw="},
        {"ancestors": "eJwLSizIzEsHAAeJAqU="},
        {"ancestors": "eNqrVkpUsgIABJUBWw=="},
        {"ancestors": "eNqLNowFAAHTAOo="},
    ],
)
def test_unreadable_metadata_are_refused_in_a_sentence(path, changes):
    rewritten(path, **changes)

    with pytest.raises(WeightsError, match="have unreadable metadata"):
        load(path)


def test_missing_unused_and_misshapen_tensors_are_counted_and_named(checkpoint):
    tensors = dict(checkpoint.tensors)
    del tensors["denoiser.readout.bias"]
    tensors["denoiser.colour"] = torch.zeros(2)
    tensors["encoder.norm.weight"] = torch.zeros(3)

    with pytest.raises(WeightsError) as raised:
        replace(checkpoint, tensors=tensors).build()

    message = str(raised.value)
    assert "1 missing ['denoiser.readout.bias']" in message
    assert "1 unused ['denoiser.colour']" in message
    assert "1 of another shape ['encoder.norm.weight']" in message


ANCESTORS = {f"run{n}": {"seed": n, "data": {"sha256": "0" * 64}} for n in range(30)}


def test_records_of_earlier_runs_are_packed_and_come_back(path, checkpoint):
    save(path, replace(checkpoint, record=RECORD | {"ancestors": ANCESTORS}))

    assert load(path).record == RECORD | {"ancestors": ANCESTORS}
    assert json.loads(metadata_of(path)["record"]) == RECORD
    assert len(metadata_of(path)["ancestors"]) < 0.3 * len(json.dumps(ANCESTORS))


def test_records_of_earlier_runs_that_are_not_packed_are_read(path):
    written = rewritten(path, record=json.dumps(RECORD | {"ancestors": ANCESTORS}))

    assert load(written).record["ancestors"] == ANCESTORS


def test_a_flipped_byte_does_not_go_unnoticed(path):
    sound, whole = path.read_bytes(), load(path)
    random_at = random.Random(1).sample(range(len(sound)), 60)

    for at in (*random_at, *range(8, 400, 9), len(sound) - 1):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        try:
            found = load(path)
        except WeightsError:
            continue
        # Only what names the digest may break and leave everything else as it was.
        assert (found.settings, found.record) == (whole.settings, whole.record)
        assert all(torch.equal(found.tensors[n], t) for n, t in whole.tensors.items())


def test_files_from_before_there_was_a_digest_are_read(path, checkpoint):
    tensors, metadata = read_tensors(path)
    save_file(tensors, path, metadata)

    assert load(path).settings == checkpoint.settings


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "name", ["denoiser.readout.bias", "encoder.norm.weight", "evidence.log_prevalence"]
)
def test_what_is_no_number_is_refused_wherever_it_stands(path, name, value):
    tensors, metadata = read_tensors(path)
    tensors["evidence.log_prevalence"] = torch.zeros(9)
    tensors[name][-1] = value
    write_tensors(path, tensors, metadata)

    with pytest.raises(WeightsError, match=f"broken .{name} holds values that are no finite"):
        load(path)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("denoiser", "atom_heads", 0),
        ("denoiser", "pair_heads", -2),
        ("denoiser", "layers", 10**9),
        ("denoiser", "atom_width", 10**9),
        ("denoiser", "pair_features", 10**9),
        ("denoiser", "position_limit", 10**9),
        ("denoiser", "feature_seed", -1),
        ("encoder", "heads", 0),
        ("encoder", "layers", 10**9),
        ("encoder", "fingerprint_bits", 0),
        ("diffusion", "n_steps", 10**12),
        ("diffusion", "time_shift", float("nan")),
        ("diffusion", "marginal", [float("nan")] * 5),
        ("diffusion", "marginal", [float("inf")] * 5),
    ],
)
def test_absurd_settings_are_refused_in_a_sentence(path, part, name, value):
    settings = json.loads(metadata_of(path)["settings"])
    settings[part][name] = value
    rewritten(path, settings=json.dumps(settings))

    with pytest.raises(WeightsError, match="unreadable metadata"):
        load(path)


@pytest.mark.parametrize(
    ("part", "sizes"),
    [
        ("denoiser", {"atom_width": 60_000}),
        ("denoiser", {"pair_width": 60_000, "pair_heads": 1, "pair_features": 60_000}),
        ("denoiser", {"layers": 250, "global_width": 60_000}),
        ("denoiser", {"pair_feed": 60_000}),
        ("encoder", {"width": 60_000, "layers": 250}),
        ("encoder", {"summary": 60_000, "fingerprint_bits": 60_000}),
    ],
)
def test_sizes_are_compared_before_memory_is_taken_for_them(path, part, sizes):
    settings = json.loads(metadata_of(path)["settings"])
    settings[part] |= sizes
    rewritten(path, settings=json.dumps(settings))

    with bounded_memory(100), pytest.raises(WeightsError, match="weights do not fit"):
        load(path).build()


def test_networks_of_a_study_are_refused_and_files_that_say_they_are_none_are_read(path, model):
    settings = json.loads(metadata_of(path)["settings"])

    rewritten(path, settings=json.dumps(settings | {"variant": "full"}))
    assert load(path).settings == model.settings
    rewritten(path, settings=json.dumps(settings | {"variant": "single-stream"}))
    with pytest.raises(WeightsError, match="hold the network of a study, which is gone; use other"):
        load(path)


def test_records_of_earlier_runs_that_would_fill_the_memory_are_refused(path):
    pack = zlib.compressobj(9)
    bomb = b"".join([pack.compress(b" " * (1 << 24)) for _ in range(16)] + [pack.flush()])
    rewritten(path, ancestors=base64.b64encode(bomb).decode())

    with bounded_memory(100), pytest.raises(WeightsError, match=r"cut short or longer than \d+ M"):
        load(path)


def test_a_scale_that_fits_no_matrix_is_refused(path):
    tensors, metadata = read_tensors(path)
    for added in ({"x.scale": torch.ones(1)}, {"denoiser.readout.weight.scale": torch.ones(2, 2)}):
        write_tensors(path, tensors | added, metadata)

        with pytest.raises(WeightsError, match="scale fits no matrix"):
            load(path)
