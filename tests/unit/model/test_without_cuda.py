"""What a CUDA device would be asked to do, seen on a machine that has none."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.peaks import PeakRows, peak_batch
from duallgd_cli.generator.network import ModelGenerator
from duallgd_cli.generator.rewritten import for_inference
from duallgd_cli.model.attention import same_head
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.model.tensors import constants, map_tensors
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.decoder import DecoderStage
from duallgd_cli.train.settings import TrainingSettings
from tests.fake_cuda import CUDA, fake_cuda
from tests.made_graphs import made_molecules, small_settings, stirred

COPY = torch.ops.aten._to_copy.default
PRECISIONS = [None, torch.bfloat16]


@pytest.fixture(params=PRECISIONS, ids=["float32", "bfloat16"])
def runtime(request):
    return Runtime(CUDA, request.param, False, 1)


def sampled(monkeypatch, runtime, steps):
    """Operations of drawing with a network that lies on the device already."""
    network = stirred(small_settings())
    with fake_cuda(monkeypatch) as operations:
        generator = ModelGenerator(for_inference(network, runtime), runtime)
        operations.counts.clear()
        operations.moved.clear()
        settings = SamplingSettings(steps=steps, samples=20)
        got, notes = generator.draw(Formula.parse("C9H8O4"), torch.rand(4096), settings, seed=3)
    assert (got.bond_class.device.type, got.bond_class.shape, notes) == ("cpu", (20, 78), ())
    return operations


@pytest.mark.slow
def test_an_evaluation_waits_for_nothing_and_casts_little(monkeypatch, runtime):
    two, three = (sampled(monkeypatch, runtime, steps) for steps in (2, 3))

    # What is moved is the condition and the samples; values that the host asks for would fail.
    assert two.moved == three.moved
    casts = three.counts[COPY] - two.counts[COPY]
    assert casts <= (22 if runtime.autocast_dtype is None else 90)
    assert three.counts.total() - two.counts.total() <= 1400


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


@torch.no_grad()
def test_the_loss_is_computed_where_the_batch_lies(monkeypatch, runtime):
    stage = DecoderStage(made_molecules(40), TrainingSettings())
    network, batch = stirred(small_settings()), stage.collate(next(stage.plan(0)), 0)

    with fake_cuda(monkeypatch) as operations, runtime.autocast():
        network = network.to(CUDA)
        batch = map_tensors(batch, lambda tensor: tensor.to(CUDA))
        stage.loss(network, batch)  # fills the tables
        operations.moved.clear()
        summed, count = stage.loss(network, batch)

    assert (summed.device, summed.dtype, count.device) == (CUDA, torch.float32, CUDA)
    assert not operations.moved
