"""What a CUDA device would be asked to do, seen on a machine that has none."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.peaks import PeakRows, from_prepared, peak_batch
from duallgd_cli.generator.network import ModelGenerator, formula_condition
from duallgd_cli.generator.rewritten import for_inference
from duallgd_cli.generator.sampling import sampling_task
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.model.tensors import constants, map_tensors, same_head
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.decoder import DecoderStage, JointStage
from duallgd_cli.train.encoder import EncoderStage
from duallgd_cli.train.known_spectra import kernel_beside
from duallgd_cli.train.loop import optimisers, update_average
from duallgd_cli.train.settings import OptimiserSettings, TrainingData, TrainingSettings
from tests.fake_cuda import CUDA, Operations, fake_cuda
from tests.made_graphs import made_molecules, small_settings, stirred
from tests.made_prepared import made_spectra
from tests.made_training import small_model

COPY = torch.ops.aten._to_copy.default
PRECISIONS = [None, torch.bfloat16]


@pytest.fixture(params=PRECISIONS, ids=["float32", "bfloat16"])
def runtime(request):
    return Runtime(CUDA, request.param, False, 1)


def sampled(monkeypatch, runtime, steps, way):
    """Operations of drawing with a network that lies on the device already.

    Args:
        monkeypatch: Of the test.
        runtime: Of the device.
        steps: Evaluations.
        way: ``plain``, ``captured`` (a graph that is replayed) or ``held`` (from known molecules,
            with known bonds).
    """
    network, fingerprint = stirred(small_settings()), torch.rand(4096)
    # A graph replays what ran while it was captured; without a device it is run again.
    monkeypatch.setattr(Runtime, "capture", lambda runtime, run: run)
    with fake_cuda(monkeypatch) as operations:
        runtime = replace(runtime, compile=way == "captured")
        generator = ModelGenerator(for_inference(network, runtime), runtime)
        settings = SamplingSettings(steps=steps, samples=20)
        known = formula_condition(
            Formula.parse("C9H8O4"), fingerprint, network.settings.memory_bits
        )
        task = sampling_task(network.settings.diffusion, settings, 3, 78, CUDA)
        if way == "held":
            start = torch.zeros(20, 78, dtype=torch.long).to(CUDA)
            task = replace(task, start=start, held=start - 1)
        operations.counts.clear()
        operations.moved.clear()
        got, notes = generator.draw_given(known, settings, 3, [task])
    assert (got.bond_class.device.type, got.bond_class.shape, notes) == ("cpu", (20, 78), ())
    return operations


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "captured", "held"])
def test_an_evaluation_waits_for_nothing_and_casts_little(monkeypatch, runtime, way):
    two, three = (sampled(monkeypatch, runtime, steps, way) for steps in (2, 3))

    # What is moved is the condition and the samples; values that the host asks for would fail.
    assert two.moved == three.moved
    casts = three.counts[COPY] - two.counts[COPY]
    assert casts <= (22 if runtime.autocast_dtype is None else 90)
    kernels = three.kernels - two.kernels
    assert kernels <= (520 if runtime.autocast_dtype is None else 580)


def test_what_captured_graphs_know_by_address_is_never_dropped():
    kept = (line_graph, same_head, constants)

    assert [function.cache_parameters()["maxsize"] for function in kept] == [None, None, None]


@torch.no_grad()
def test_the_encoder_runs_where_its_peaks_lie(monkeypatch, runtime):
    numbers, carrier = np.ones((4, 5), np.float32), np.zeros(4, np.int64)
    atoms = np.ones(13, np.float32)
    spectrum = PeakRows(np.ones((4, 13), np.float32), numbers, carrier, atoms, 0, 1)
    network, peaks = stirred(small_settings()), peak_batch([spectrum, spectrum])

    with fake_cuda(monkeypatch) as operations, runtime.autocast():
        encoder = for_inference(network, runtime).encoder
        peaks = peaks.to(CUDA)
        operations.moved.clear()
        logits = encoder(peaks)

    assert (logits.device, logits.shape[0]) == (CUDA, 2)
    assert len(operations.moved) <= 1  # a table of thresholds, once


def test_known_spectra_are_compared_where_the_peaks_lie(monkeypatch, tmp_path):
    spectra = made_spectra(tmp_path / "spectra")
    kernel = kernel_beside(stirred(small_settings()).encoder, spectra)
    peaks = peak_batch([from_prepared(spectra, [row]) for row in range(3)])

    with fake_cuda(monkeypatch) as operations:
        kernel, peaks, logits = kernel.to(CUDA), peaks.to(CUDA), torch.zeros(3, 4096).to(CUDA)
        operations.moved.clear()
        mixed = kernel.mixed(logits, peaks)

    assert (mixed.device, mixed.shape) == (CUDA, (3, 4096))
    assert len(operations.moved) <= 2  # what tells fragments and losses apart


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """What is trained, by name."""
    settings = TrainingSettings(data=TrainingData(spectra_per_batch=3))
    spectra = made_spectra(tmp_path_factory.mktemp("made") / "spectra")
    molecules = made_molecules(40)
    return {
        "decoder": DecoderStage(molecules, settings),
        "encoder": EncoderStage(spectra, None, settings),
        "joint": JointStage(spectra, (molecules,), None, settings),
    }


def batch_of(stage):
    return stage.collate(next(iter(stage.plan(0))), 0)


@pytest.mark.parametrize("name", ["decoder", "encoder", "joint"])
@torch.no_grad()
def test_the_loss_is_computed_where_the_batch_lies(monkeypatch, runtime, stages, name):
    stage, network = stages[name], stirred(small_settings())
    batch = batch_of(stage)

    with fake_cuda(monkeypatch) as operations, runtime.autocast():
        network = network.to(CUDA)
        batch = map_tensors(batch, lambda tensor: tensor.to(CUDA))
        stage.loss(network, batch)  # fills the tables
        operations.moved.clear()
        summed, count = stage.loss(network, batch)

    assert (summed.device, summed.dtype, count.device) == (CUDA, torch.float32, CUDA)
    assert not operations.moved


@pytest.mark.parametrize("name", ["decoder", "encoder", "joint"])
def test_gradients_come_without_values_in_the_precision_of_the_weights(monkeypatch, stages, name):
    """On the meta device, which autograd knows though it holds nothing; it has no autocast."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    stage, network = stages[name], small_model().to("meta")

    with Operations() as operations:
        batch = map_tensors(batch_of(stage), lambda tensor: tensor.to("meta"))
        stage.loss(network, batch)  # fills the tables
        operations.moved.clear()
        summed, count = stage.loss(network, batch)
        (summed / count).backward()

    part = {"decoder": network.denoiser, "encoder": network.encoder, "joint": network}[name]
    gradients = [parameter.grad for parameter in part.parameters()]
    assert all(grad.is_meta and grad.dtype == torch.float32 for grad in gradients)
    assert not operations.moved


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_an_optimiser_step_waits_for_nothing(monkeypatch, matrices):
    network, average = small_model(), small_model()

    with fake_cuda(monkeypatch) as operations:
        network, average = network.to(CUDA), average.to(CUDA)
        for parameter in network.parameters():
            parameter.requires_grad_(True)
            parameter.grad = torch.ones_like(parameter)
        updating = optimisers(network, OptimiserSettings(matrices=matrices))
        operations.moved.clear()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimiser in updating:
            optimiser.step()
        update_average(average, network, 0.9, 5)

    assert norm.device == CUDA
    assert all(tensor.device == CUDA for tensor in average.parameters())
    assert not operations.moved
