"""The denoiser as OpenVINO evaluates it is the rewritten one; what stands against that is said."""

import ctypes
import gc
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError
from duallgd_cli.generator import openvino as engine
from duallgd_cli.generator.network import ModelGenerator, load_model
from duallgd_cli.generator.openvino import Converted, converted_for
from duallgd_cli.generator.rewritten import Rewritten
from duallgd_cli.model.duallgd import KNOWN
from duallgd_cli.runtime import Runtime
from tests.made_graphs import condition, small_settings, stirred

SIZES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "atom_width": st.sampled_from([8, 24, 64]),
        "pair_width": st.sampled_from([8, 16, 64]),
        "cross_heads": st.sampled_from([1, 2, 8]),
        "atom_heads": st.sampled_from([1, 4]),
        "pair_features": st.sampled_from([3, 16]),
    }
)
FORMULAS = ["CO", "C2H6O", "C4H7NO2S", "C9H8O4", "C17H19NO3"]


def asked(dtype=None, threads=1, name="openvino", device="cpu"):
    return Runtime(torch.device(device), dtype, False, threads, engine=name)


def noisy(n_atoms, samples, seed):
    generator = torch.Generator().manual_seed(seed)
    bonds = torch.randint(0, 5, (samples, n_atoms * (n_atoms - 1) // 2), generator=generator)
    return bonds + KNOWN * (torch.rand(bonds.shape, generator=generator) < 0.2)


def logits(network, model, formula, samples=2, t=250, seed=1):
    known = condition([formula], seed=seed)
    with torch.inference_mode():
        bound = network.bound(model.denoiser.context(known), samples)
        return bound(noisy(known.atom_class.shape[1], samples, seed), t)


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("openvino", reason="openvino is not installed: duallgd[openvino]")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@settings(deadline=None, max_examples=4)
@given(SIZES, st.lists(st.sampled_from(FORMULAS), min_size=2, max_size=2), st.integers(1, 99))
def test_logits_are_those_of_the_rewritten_network(library, sizes, formulas, seed):
    """One conversion serves all sizes."""
    model = stirred(small_settings(**sizes), seed=seed, share=0.5)
    exact = Rewritten(model.denoiser, torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_kept", lambda core, place, options: None)
        patch.setattr(engine, "_keep", lambda place, content: None)
        converted = converted_for(model, asked(), "")

    for samples, formula in enumerate(formulas, 1):
        given_too = (model, formula, samples, 100 * seed % 500, seed)
        got, expected = (logits(network, *given_too) for network in (converted, exact))
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.slow
def test_bfloat16_is_as_near_to_float32_as_that_of_pytorch(library, cache):
    if "BF16" not in library.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has no bfloat16")
    errors = torch.zeros(2)
    for seed in range(1, 5):
        sizes = {"layers": 3, "pair_width": 32, "atom_width": 32, "cross_width": 32}
        model = stirred(small_settings(**sizes), seed=seed)
        exact = logits(Rewritten(model.denoiser, torch.float32), model, "C9H8O4", 3, seed=seed)
        lower = (
            Rewritten(model.denoiser, torch.bfloat16),
            converted_for(model, asked(torch.bfloat16), str(seed)),
        )
        found = [logits(network, model, "C9H8O4", 3, seed=seed) for network in lower]
        errors += torch.stack([(x - exact).square().mean() for x in found])

    assert errors[1] < 1.25 * errors[0]


def test_a_generator_draws_the_same_graphs_with_any_engine_and_number_of_threads(library, cache):
    model, drawn = stirred(small_settings()), []
    few = SamplingSettings(steps=4, samples=300, max_memory_mib=64)
    for threads, part in (
        (1, Rewritten(model.denoiser, torch.float32)),
        (1, converted_for(model, asked(), "")),
        (2, converted_for(model, asked(threads=2), "")),
    ):
        generator = ModelGenerator(model, asked(threads=threads), rewritten=part)
        drawn.append(generator.draw_given(condition(["C9H8O4"]), few, seed=1)[0])

    for samples in drawn[1:]:
        assert torch.equal(samples.bond_class, drawn[0].bond_class)
    assert torch.equal(drawn[1].bond_log_prob, drawn[2].bond_log_prob)


def test_what_was_converted_is_taken_from_the_cache(library, cache, monkeypatch):
    model = stirred(small_settings())
    first = logits(converted_for(model, asked(), "a"), model, "C9H8O4")
    monkeypatch.setattr(engine, "_traced", lambda layers: pytest.fail("converted again"))

    again = logits(converted_for(model, asked(), "a"), model, "C9H8O4")

    assert torch.equal(again, first)
    assert len(list((cache / "openvino").iterdir())) == 1


def of_another(content):
    """A cache that is whole and holds something else."""
    stream = io.BytesIO()
    np.savez(stream, layers=np.frombuffer(b"another", np.uint8))
    return stream.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: b"",
        lambda content: content[:400] + bytes([content[400] ^ 1]) + content[401:],
        of_another,
    ],
)
def test_a_broken_or_foreign_cache_is_made_again(library, cache, caplog, damage):
    model = stirred(small_settings())
    first = logits(converted_for(model, asked(), "a"), model, "C9H8O4")
    (place,) = (cache / "openvino").iterdir()
    whole = place.read_bytes()
    place.write_bytes(damage(whole))

    again = logits(converted_for(model, asked(), "a"), model, "C9H8O4")

    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{place} cannot be read, and is made again"]
    assert torch.equal(again, first)
    assert np.load(io.BytesIO(place.read_bytes()))["layers"].size > len(b"another")


def test_a_cache_that_cannot_be_written_is_one_warning(library, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "file"))

    assert isinstance(converted_for(stirred(small_settings()), asked(), "a"), Converted)

    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("cannot be kept for the next run: Not a directory")


class Incapable:
    """A processor without bfloat16."""

    def get_property(self, device, name):
        return ["FP32"]


class SignalStack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_stack_that_signals_are_handled_on_outlives_the_networks(library, cache):
    networks = [converted_for(stirred(small_settings()), asked(), name) for name in "ab"]
    while networks:
        networks.pop(0)
        gc.collect()

    found = SignalStack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(found))
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    assert found.start
    assert any(start <= found.start < end for start, end in mapped)


def refused(model, runtime):
    """What is said when OpenVINO was asked for; where the engine is chosen PyTorch is."""
    automatic = Runtime(runtime.device, runtime.autocast_dtype, False, 1, engine="auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_LEAST_PARAMETERS", 0)
        assert converted_for(model, automatic, "") is None
    with pytest.raises(UsageError) as error:
        converted_for(model, runtime, "")
    return str(error.value)


@pytest.mark.parametrize(
    ("version", "core", "said"),
    [
        (None, None, "OpenVINO is not installed; run pip install 'duallgd[openvino]'"),
        ("2023.0.1", None, "OpenVINO 2023.0.1 is too old; run pip install 'openvino>=2025'"),
        ("2026.4.1", None, "OpenVINO 2026.4.1 cannot be loaded (import of openvino halted"),
        ("2026.4.1", Incapable, "OpenVINO has no bfloat16 on this processor; leave out --prec"),
    ],
)
def test_a_library_that_cannot_be_used_is_one_sentence(monkeypatch, version, core, said):
    monkeypatch.setattr(engine, "version_of", lambda library: version)
    monkeypatch.setitem(sys.modules, "openvino", core and SimpleNamespace(Core=core))

    sentence = refused(stirred(small_settings()), asked(torch.bfloat16))

    assert sentence.startswith(said)
    assert sentence.endswith(", or use --engine torch")


def test_a_device_or_a_network_it_has_no_use_for_is_one_sentence():
    exact = refused(stirred(small_settings(pair_features=0)), asked())

    assert "OpenVINO evaluates only networks with random features" in exact
    other = refused(stirred(small_settings()), asked(device="meta"))
    assert "OpenVINO runs on a CPU, not on meta; add --device cpu" in other


def test_a_network_that_it_cannot_convert_is_one_sentence(library, cache, monkeypatch):
    def fail(layers):
        raise RuntimeError("Check failed\nno rule for aten::new")

    monkeypatch.setattr(engine, "_traced", fail)

    assert "cannot convert the network: no rule for aten::new, or use --engine torch" in refused(
        stirred(small_settings()), asked()
    )


def test_a_loaded_model_says_which_engine_it_has(library, cache, tmp_path):
    model, path = stirred(small_settings()), tmp_path / "mine.safetensors"
    save(path, Checkpoint(model.settings, dict(model.state_dict()), {"step": 9}))

    names = [load_model(path, asked(name=name)).engine for name in ("openvino", "torch", "auto")]

    assert names == ["openvino", "torch", "torch"]
