"""The trained network behind the generator's seam: honest, chunked, timed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import ConfigError, WeightsError
from duallgd_cli.files import sha256
from duallgd_cli.generator.network import (
    BYTES_PER_PAIR,
    ModelGenerator,
    chunk_size,
    formula_condition,
    load_model,
)
from duallgd_cli.generator.planning import Unknown
from duallgd_cli.generator.sampling import deadline
from duallgd_cli.model.duallgd import parameter_counts
from duallgd_cli.predict.model import OutOfTimeError
from duallgd_cli.runtime import Runtime
from tests.made_graphs import small_settings, stirred
from tests.made_spectra import annotated as made_annotated
from tests.made_training import cpu

CPU = torch.device("cpu")
SETTINGS = SamplingSettings(steps=4, samples=7)
FORMULA = Formula.parse("C4H7NO2S")


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings())


@pytest.fixture(scope="module")
def generator(model):
    return ModelGenerator(model, cpu())


def annotated(formula="C4H7NO2S", n_rows=4, seed=1):
    rng = np.random.default_rng(seed)
    mz = np.sort(rng.random(n_rows) * 100 + 50)
    counts = np.minimum(rng.integers(0, 4, (n_rows, N_ELEMENTS)), Formula.parse(formula).array)
    return made_annotated(counts, formula, mz=mz, intensity=rng.random(n_rows))


def test_what_is_drawn_has_the_shape_of_the_formula(generator):
    drawn = generator.generate(annotated(), SETTINGS, seed=1)

    assert drawn.bond_class.shape == (7, 28)
    assert drawn.bond_class.dtype == np.int8
    assert set(np.unique(drawn.bond_class)) <= set(range(5))
    assert drawn.log_likelihood.shape == (7,)
    assert (drawn.log_likelihood < 0).all()
    assert drawn.bond_log_prob.shape == (7, 28, 5)
    assert np.isfinite(drawn.bond_log_prob).all()
    total = np.exp(drawn.bond_log_prob.astype(np.float32)).sum(-1)
    np.testing.assert_allclose(total, 1, atol=5e-3)
    assert drawn.fingerprint.shape == (4096,)
    assert ((drawn.fingerprint >= 0) & (drawn.fingerprint <= 1)).all()
    assert drawn.notes == ()


def test_a_draw_follows_from_its_arguments(generator):
    first, again = (generator.generate(annotated(), SETTINGS, seed=1) for _ in range(2))
    other = generator.generate(annotated(), SETTINGS, seed=2)

    np.testing.assert_array_equal(first.bond_class, again.bond_class)
    np.testing.assert_array_equal(first.log_likelihood, again.log_likelihood)
    assert (first.bond_class != other.bond_class).any()


def test_chunks_change_no_sample(generator, monkeypatch):
    whole = generator.generate(annotated(), SETTINGS, seed=1)
    for chunk in (1, 3):
        monkeypatch.setattr(
            "duallgd_cli.generator.network.chunk_size", lambda *_, chunk=chunk: chunk
        )
        parts = generator.generate(annotated(), SETTINGS, seed=1)

        np.testing.assert_array_equal(parts.bond_class, whole.bond_class)
        np.testing.assert_allclose(parts.log_likelihood, whole.log_likelihood, rtol=1e-4)


@pytest.mark.parametrize("threads", [2, 16])
def test_threads_beside_each_other_draw_the_same(generator, model, monkeypatch, threads):
    monkeypatch.setattr("duallgd_cli.generator.network.chunk_size", lambda *_: 2)
    alone = generator.generate(annotated(), SETTINGS, seed=1)
    beside = ModelGenerator(model, replace(cpu(), threads=threads))

    drawn = beside.generate(annotated(), SETTINGS, seed=1)

    np.testing.assert_array_equal(drawn.bond_class, alone.bond_class)
    np.testing.assert_array_equal(drawn.log_likelihood, alone.log_likelihood)
    np.testing.assert_array_equal(drawn.bond_log_prob, alone.bond_log_prob)


@pytest.mark.parametrize("error", [OutOfTimeError, KeyboardInterrupt])
def test_what_stops_one_thread_stops_all(model, monkeypatch, error):
    monkeypatch.setattr("duallgd_cli.generator.network.chunk_size", lambda *_: 1)
    evaluations = []

    def stop_once():
        evaluations.append(None)
        if len(evaluations) == 3:
            raise error

    beside = ModelGenerator(model, replace(cpu(), threads=2))
    many = replace(SETTINGS, samples=50)

    with pytest.raises(error):
        beside.draw(Unknown(FORMULA, torch.full((4096,), 0.01), check=stop_once), many, 1)
    assert len(evaluations) < 50


def test_running_out_of_memory_halves_the_chunk_and_says_so(generator, model, monkeypatch):
    whole = generator.generate(annotated(), SETTINGS, seed=1)
    forward = model.denoiser.forward

    def small_memory(bond_class, t, context):
        if len(bond_class) > 2:
            raise torch.OutOfMemoryError
        return forward(bond_class, t, context)

    monkeypatch.setattr(model.denoiser, "forward", small_memory)
    drawn = generator.generate(annotated(), SETTINGS, seed=1)

    np.testing.assert_array_equal(drawn.bond_class, whole.bond_class)
    assert drawn.notes == (
        "out of device memory: samples per chunk halved to 3",
        "out of device memory: samples per chunk halved to 1",
    )


def test_memory_that_ends_while_a_graph_is_captured_halves_the_chunk_too(
    generator, model, monkeypatch
):
    whole = generator.generate(annotated(), SETTINGS, seed=1)
    bound = ModelGenerator.denoiser_of

    def capture(self, context, samples):
        try:
            if samples > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            if samples > 4:
                raise RuntimeError("operation failed due to a previous error during capture")
        return bound(self, context, samples)

    monkeypatch.setattr(ModelGenerator, "denoiser_of", capture)
    drawn = generator.generate(annotated(), SETTINGS, seed=1)

    np.testing.assert_array_equal(drawn.bond_class, whole.bond_class)
    assert drawn.notes == ("out of device memory: samples per chunk halved to 3",)


def test_time_runs_out_between_steps(generator):
    late = replace(SETTINGS, timeout_s=1e-9)

    with pytest.raises(OutOfTimeError):
        generator.generate(annotated(), late, seed=1)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("of one sample"), RuntimeError("not permitted when capturing")]
)
def test_what_no_smaller_chunk_mends_is_an_error(generator, model, monkeypatch, error):
    def broken(*_):
        raise error

    monkeypatch.setattr(model.denoiser, "forward", broken)

    with pytest.raises(type(error), match=str(error)):
        generator.generate(annotated(), SETTINGS, seed=1)


def test_the_clock_is_looked_at_when_the_device_is_done(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("duallgd_cli.generator.sampling.time.monotonic", lambda: now[0])

    def finish():
        now[0] += 2.0  # what was begun takes the device two seconds

    check = deadline(3.0, finish)

    check()
    with pytest.raises(OutOfTimeError):
        check()


def test_a_generator_waits_for_its_device_only_under_a_time_limit(model, monkeypatch):
    waits = []
    monkeypatch.setattr(Runtime, "synchronise", lambda _: waits.append(1))
    generator = ModelGenerator(model, cpu())

    generator.generate(annotated(), SETTINGS, seed=1)
    unlimited = len(waits)
    generator.generate(annotated(), replace(SETTINGS, timeout_s=100.0), seed=1)

    assert (unlimited, len(waits)) == (0, 4)  # one evaluation of one chunk a step


def test_the_weights_say_by_how_much_the_time_is_shifted(generator):
    own = generator.model.settings.diffusion.time_shift
    drawn = [
        generator.generate(annotated(), replace(SETTINGS, time_shift=shift), seed=1).log_likelihood
        for shift in (None, own, 0.9)
    ]

    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


@pytest.mark.parametrize(
    ("formula", "peaks"), [("CH4O", 4), ("C2H6", 4), ("C60H122", 4), ("C4H7NO2S", 0)]
)
def test_small_and_large_molecules_and_those_without_explained_peaks_are_drawn(
    generator, formula, peaks
):
    n = Formula.parse(formula).n_heavy

    drawn = generator.generate(annotated(formula, peaks), replace(SETTINGS, samples=2), seed=1)

    assert drawn.bond_class.shape == (2, n * (n - 1) // 2)


@pytest.mark.parametrize(("text", "charge"), [("C4H7NO2S", 0), ("[C5H14NO]+", 1)])
def test_the_condition_is_a_function_of_formula_and_fingerprint(text, charge):
    formula = Formula.parse(text)
    fingerprint = torch.rand(4096, generator=torch.Generator().manual_seed(1))

    known = formula_condition(formula, fingerprint, 160)

    assert known.atom_class.tolist() == [formula.atom_class.tolist()]
    assert known.atom_mask.all()
    assert known.formula.tolist() == [formula.array.tolist()]
    assert known.charge.tolist() == [charge]
    assert known.bit.shape == known.bit_log_prob.shape == (1, 160)
    torch.testing.assert_close(
        known.bit_log_prob[0].exp(), fingerprint.sort().values[-160:].flip(0)
    )


@pytest.mark.parametrize("samples", [40, 60, 100])
@pytest.mark.parametrize("n_pairs", [1, 190, 300, 435, 4950])
def test_chunks_follow_from_size_and_settings_and_fit_the_memory(samples, n_pairs):
    settings = SamplingSettings(samples=samples, max_memory_mib=64)

    on_cpu, on_cuda = (chunk_size(n_pairs, settings, torch.device(d)) for d in ("cpu", "cuda"))

    assert 1 <= on_cpu <= samples
    assert 1 <= on_cuda <= samples
    assert on_cuda == 1 or on_cuda * n_pairs * BYTES_PER_PAIR <= 64 * (1 << 20)
    # Two threads get as many of few chunks.
    assert on_cpu in (1, samples) or -(-samples // on_cpu) % 2 == 0


def test_more_memory_is_used_on_cuda_and_not_on_a_cpu():
    large = SamplingSettings(samples=10_000, max_memory_mib=8192)

    assert chunk_size(435, large, torch.device("cuda")) > 10 * chunk_size(435, large, CPU)


def test_a_loaded_model_says_what_it_is(tmp_path, model):
    path = tmp_path / "mine.safetensors"
    ranking = {"log_share": 0.7, "n_spectra": 5}
    save(path, Checkpoint(model.settings, dict(model.state_dict()), {"step": 9}, ranking))

    loaded = load_model(path, cpu())

    assert loaded.name == "mine.safetensors"
    assert loaded.sha256 == sha256(path)
    assert loaded.record == {"step": 9}
    assert loaded.ranking.log_share == 0.7
    assert loaded.ranking.n_spectra == 5
    assert sum(loaded.parameters.values()) == sum(p.numel() for p in model.parameters())
    drawn = loaded.generator.generate(annotated(), SETTINGS, seed=1)
    expected = ModelGenerator(model, cpu()).generate(annotated(), SETTINGS, seed=1)
    np.testing.assert_array_equal(drawn.bond_class, expected.bond_class)


def test_a_checkpoint_with_an_unknown_ranking_value_is_refused(tmp_path, model):
    path = tmp_path / "mine.safetensors"
    save(path, Checkpoint(model.settings, dict(model.state_dict()), {}, {"charm": 1.0}))

    with pytest.raises(WeightsError, match=r"charm.*duallgd calibrate"):
        load_model(path, cpu())


def test_the_encoder_too_runs_on_one_thread_so_that_digits_do_not_depend_on_threads(
    generator, monkeypatch
):
    seen = []
    encode = ModelGenerator.fingerprint

    def watched(self, annotated):
        seen.append(torch.get_num_threads())
        return encode(self, annotated)

    monkeypatch.setattr(ModelGenerator, "fingerprint", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        generator.generate(annotated(), SETTINGS, seed=1)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)

    assert (seen, after) == ([1], 2)


def test_layers_of_a_stack_are_counted_together():
    network = torch.nn.Module()
    network.layers = torch.nn.ModuleList([torch.nn.Linear(3, 2) for _ in range(4)])
    network.readout = torch.nn.Linear(2, 1, bias=False)

    assert parameter_counts(network) == {"layers": 4 * 8, "readout": 2}
    outer = torch.nn.Module()
    outer.inner = network
    assert parameter_counts(outer, depth=1) == {"inner": 4 * 8 + 2}


def test_a_schedule_that_does_not_fit_the_process_is_refused(generator):
    with pytest.raises(ConfigError, match="a schedule must start at 500, not 400"):
        generator.generate(annotated(), replace(SETTINGS, schedule="400,100,0"), seed=1)


def test_temperature_moves_the_draw(generator):
    hot = generator.generate(annotated(), replace(SETTINGS, temperature=3.0), seed=1)
    cold = generator.generate(annotated(), replace(SETTINGS, temperature=0.3), seed=1)

    entropy = [
        -(np.exp(one.bond_log_prob.astype(float)) * one.bond_log_prob).sum(-1).mean()
        for one in (hot, cold)
    ]
    assert entropy[0] > entropy[1]
