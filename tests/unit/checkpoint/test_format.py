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
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from tests.made_graphs import small_settings, stirred
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


@pytest.fixture(scope="module")
def second_encoder():
    torch.manual_seed(2)
    sizes = EncoderSettings(layers=3, width=12, heads=3, summary=5)
    return dict(FormulaTransformer(sizes).state_dict())


def assert_holds(found, expected):
    assert not [n for n, tensor in expected.items() if not torch.equal(found[n], tensor)]


def changed(tensors, name, tensor):
    """Tensors of which one is another, or missing."""
    return {n: t for n, t in {**tensors, name: tensor}.items() if t is not None}


def test_everything_reads_back_as_written(path, checkpoint, second_encoder):
    beside = {
        "reranker": {"log_prevalence": torch.arange(4.0), "presence.bias": torch.ones(2)},
        "templates": {"bits": torch.tensor([-1, 30_000], dtype=torch.int16)},
        "contrast": second_encoder,
    }
    save(path, replace(checkpoint, **beside, database={"n_spectra": 3}))

    found = load(path)

    for part, arrays in {"tensors": checkpoint.tensors, **beside}.items():
        assert getattr(found, part).keys() == arrays.keys()
        assert_holds(getattr(found, part), arrays)
    described = found.settings, found.record, found.ranking, found.database
    assert described == (checkpoint.settings, RECORD, RANKING, {"n_spectra": 3})
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]
    assert path.stat().st_mode & 0o444 == 0o444


@pytest.mark.parametrize(
    ("dtype", "short_codes", "tolerance", "size"),
    [
        (torch.float32, False, 0.0, 1.0),
        (torch.float16, False, 1e-3, 0.6),
        (torch.bfloat16, False, 8e-3, 0.6),
        (torch.float16, True, 8e-3, 0.35),
        (torch.bfloat16, True, 1e-2, 0.4),
    ],
)
def test_numbers_come_back_but_for_a_share_of_the_largest_of_their_row(
    path, checkpoint, dtype, short_codes, tolerance, size
):
    embedding, whole = "denoiser.bit_embedding.weight", path.stat().st_size
    codes = checkpoint.tensors[embedding].clone()
    codes[3] *= 1e-9  # a row that all but vanished
    written = replace(checkpoint, tensors=checkpoint.tensors | {embedding: codes})
    save(path, written, dtype, short_codes=short_codes)
    assert path.stat().st_size <= whole * size
    stored = load_file(path)

    found = load(path)
    # Random features travel with the weights: another seed in the settings changes nothing.
    other = replace(found.settings.denoiser, feature_seed=9)
    built = replace(found, settings=replace(found.settings, denoiser=other)).build()
    save(path, found, dtype, short_codes=short_codes)
    again = load(path).tensors

    assert not built.training
    for name, tensor in built.state_dict().items():
        expected = written.tensors[name]
        if expected.is_floating_point():
            error = tensor - expected
            assert (error.abs() <= tolerance * expected.abs().amax(-1, True) + 1e-7).all(), name
            assert tensor.dtype == torch.float32
            is_code = short_codes and tensor.dim() == 2
            assert stored[name].dtype == (torch.int8 if is_code else dtype)
        torch.testing.assert_close(again[name], tensor)


def test_a_second_encoder_is_whole_or_takes_from_the_first_what_it_lacks(
    checkpoint, second_encoder
):
    lower = {n[8:]: t for n, t in checkpoint.tensors.items() if n.startswith("encoder.")}
    upper = {name: lower[name] + 1 for name in ("hidden.bias", "fingerprint.weight")}
    for given, expected in ((second_encoder, second_encoder), (upper, lower | upper)):
        assert_holds(replace(checkpoint, contrast=given).contrast_encoder().state_dict(), expected)
    for wrong in (
        *(
            changed(second_encoder, "pool.bias", t)
            for t in (None, torch.tensor(1.0), torch.ones(5))
        ),
        changed(second_encoder, "layers.2.up.bias", None),
        changed(second_encoder, "hidden.bias", torch.ones(0)),
        {"hidden.bias": torch.ones(3)},
    ):
        with pytest.raises(WeightsError, match="weights do not fit"):
            replace(checkpoint, contrast=wrong).contrast_encoder()


def spoil(path, change):
    """Keep so many bytes, or others, or none; or change metadata and tensors, with a new digest."""
    if isinstance(change, dict):
        tensors, metadata = read_tensors(path)
        both = {
            name: value
            for name, value in {**tensors, **metadata, **change}.items()
            if value is not None
        }
        texts = {name: value for name, value in both.items() if isinstance(value, str)}
        write_tensors(
            path, {n: torch.as_tensor(both[n]) for n in both.keys() - texts.keys()}, texts
        )
    elif change is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:change] if isinstance(change, int) else change)


NESTED = '{"a":' * 100_000 + "1" + "}" * 100_000
SPOILT = {
    r"are broken \(.*\); fetch or copy them again": [0, 5, 200, -1, b"PK\x03\x04pickle" * 100],
    "do not exist; give a .* --weights": [None],
    "format version (2|None), this version reads 1; use": [
        {"format_version": "2"}, {"format_version": None}
    ],
    "have unreadable metadata": [
        *({"settings": text} for text in (
            None, "{not json", "[]", NESTED, '{"denoiser": {"colour": 3}}',
            '{"denoiser": {"layers": 0}}', '{"diffusion": {"time_shift": NaN}}',
            '{"denoiser": {"layers": 1e308}}', f'{{"encoder": {{"width": {"9" * 5000}}}}}',
        )),
        {"record": None}, {"record": NESTED}, {"ranking": "{"},
    ],
    "broken .[a-z.]* holds values that are no finite": [
        {"denoiser.readout.bias": [0.0, float("nan")]}, {"evidence.x": [0.0, -float("inf")]},
    ],
    "scale fits no matrix": [
        {"x.scale": [1.0]}, {"denoiser.readout.weight.scale": [[1.0, 1], [1, 1]]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "change"), [(said, change) for said, changes in SPOILT.items() for change in changes]
)
def test_a_file_that_is_not_whole_and_sound_is_refused_in_a_sentence(path, said, change):
    spoil(path, change)

    with pytest.raises(WeightsError, match=said):
        load(path)


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        ("denoiser.readout.bias", None, r"1 missing \['denoiser.readout.bias'\], 0 unused"),
        ("denoiser.colour", torch.zeros(2), r"0 missing \[\], 1 unused \['denoiser.colour'\], 0 o"),
        ("encoder.norm.weight", torch.zeros(3), r"1 of another shape \['encoder.norm.weight'\]"),
    ],
)
def test_missing_unused_and_misshapen_tensors_are_counted_and_named(checkpoint, name, tensor, said):
    with pytest.raises(WeightsError, match=said):
        replace(checkpoint, tensors=changed(checkpoint.tensors, name, tensor)).build()


def test_a_flipped_byte_does_not_go_unnoticed(path):
    sound = path.read_bytes()
    random_at = random.Random(1).sample(range(len(sound)), 30)

    for at in (*random_at, *range(8, 400, 18), len(sound) - 1):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        with pytest.raises(WeightsError):
            load(path)


def test_files_of_version_0_1_are_read(path, checkpoint, model):
    """They hold what networks are no longer told."""
    marks = {"denoiser.pair_known": torch.ones(model.settings.denoiser.pair_width)}
    tensors, metadata = read_tensors(path)
    settings = json.dumps(json.loads(metadata["settings"]) | {"variant": "full"})
    stored = tensors | marks, metadata | {"ancestors": "eJw=", "settings": settings}
    write_tensors(path, *stored)

    found = load(path)

    assert (found.settings, found.record) == (checkpoint.settings, RECORD)
    found.build()  # no tensor is left over
    save_file(stored[0], path, stored[1])
    with pytest.raises(WeightsError, match="have no digest, so nobody can tell whether they are"):
        load(path)


@pytest.mark.parametrize(
    ("start", "schedule", "refused"),
    [
        (-1, "quadratic", None),  # as in all files of versions up to 0.2
        (100, "quadratic", r"unknown setting denoiser\.fade_from"),
        (-1, "uniform", r"unknown setting diffusion\.schedule"),
    ],
)
def test_what_is_always_so_is_read_and_what_was_otherwise_refused(path, start, schedule, refused):
    settings = json.loads(read_tensors(path)[1]["settings"])
    settings["denoiser"] |= {"fade_from": start, "fade_to": 0}
    settings["diffusion"] |= {"schedule": schedule}
    spoil(path, {"settings": json.dumps(settings)})

    with pytest.raises(WeightsError, match=refused) if refused else nullcontext():
        load(path).build()


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
    spoil(path, {"settings": json.dumps(settings)})

    with bounded_memory(100), pytest.raises(WeightsError, match="weights do not fit"):
        load(path).build()


def test_weights_with_a_part_that_was_never_trained_do_not_predict():
    for record in ({"step": 7}, {"trained": ["denoiser", "encoder"]}):
        require_trained(record, "w")
    for trained, part in ((["denoiser"], "encoder"), (["encoder"], "denoiser"), (-1, "encoder")):
        with pytest.raises(WeightsError, match=f"the {part} of weights w was never trained"):
            require_trained({"trained": trained}, "w")
