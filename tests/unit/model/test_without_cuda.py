"""What would make the host wait for a GPU, seen on a machine that has none.

Tensors lie on the meta device: it takes the paths of a GPU, refuses products with tensors of the
CPU, and holds no values, so whatever asks for one fails.
"""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from duallgd_cli.diffusion.sampler import Sampler, SamplingTask, alpha_bar, sample
from duallgd_cli.model.layers import line_graph
from duallgd_cli.model.tensors import constants, map_tensors, same_head
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.decoder import DecoderStage
from duallgd_cli.train.encoder import EncoderStage
from duallgd_cli.train.optimisers import optimisers, update_average
from duallgd_cli.train.settings import OptimiserSettings, TrainingData, TrainingSettings
from tests.made_graphs import condition, made_molecules, small_settings, stirred
from tests.made_prepared import made_spectra
from tests.made_training import small_model

META = torch.device("meta")


class _Moved(TorchDispatchMode):
    """Notes operations whose results lie elsewhere than their inputs."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        inputs, outputs = (
            {leaf.device.type for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)}
            for values in ((args, kwargs), result)
        )
        if inputs and outputs and inputs != outputs:
            self.moved.append(str(func))
        return result


@contextmanager
def nothing_waits():
    with _Moved() as seen:
        yield
    assert not seen.moved


def there(batch):
    return map_tensors(batch, lambda tensor: tensor.to(META))


@pytest.fixture(autouse=True)
def no_autocast(monkeypatch):
    """The meta device has none."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)


@torch.inference_mode()
@pytest.mark.parametrize("given", [False, True], ids=["from noise", "from graphs"])
def test_an_evaluation_waits_for_nothing(given, monkeypatch):
    """Numbers are drawn on the CPU and sent; nothing comes back."""
    numbers = torch.zeros(20, 78, device=META)
    monkeypatch.setattr(SamplingTask, "uniform", lambda *_: numbers)
    network = stirred(small_settings(layers=1)).to(META)
    sampler = Sampler(network, Runtime(META, None, False, 1))
    context = network.denoiser.context(there(condition(["C9H8O4"])))
    process = there((torch.full((5,), 0.2), alpha_bar(500)))
    task = SamplingTask((500, 200, 0), *process, 3, 20, 78, start=numbers.long() if given else None)

    sample(sampler.denoiser(context, 20), task, slice(0, 20))  # fills the tables
    with nothing_waits():
        drawn = sample(sampler.denoiser(context, 20), task, slice(0, 20))

    assert (drawn.bond_class.device, drawn.bond_class.shape) == (META, (20, 78))


def test_what_captured_graphs_know_by_address_is_never_dropped():
    for function in (line_graph, same_head, constants):
        assert function.cache_parameters()["maxsize"] is None


@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_loss_and_gradients_wait_for_nothing_and_are_in_the_precision_of_the_weights(
    tmp_path, name
):
    settings = TrainingSettings(data=TrainingData(spectra_per_batch=3))
    if name == "decoder":
        stage = DecoderStage(made_molecules(40), settings)
    else:
        stage = EncoderStage(made_spectra(tmp_path / "spectra"), None, settings)
    network = small_model().to(META)
    batch = there(stage.collate(next(iter(stage.plan(0))), 0))

    stage.loss(network, batch)  # fills the tables
    with nothing_waits():
        summed, count = stage.loss(network, batch)
        (summed / count).backward()

    part = network.denoiser if name == "decoder" else network.encoder
    assert all(p.grad.is_meta and p.grad.dtype == torch.float32 for p in part.parameters())


def test_an_optimiser_step_waits_for_nothing():
    """Of AdamW's, which is one operation, the GPU tests know."""
    network, average = small_model().to(META), small_model().to(META)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    muon, _ = optimisers(network, OptimiserSettings(matrices="muon"))

    with nothing_waits():
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        muon.step()
        update_average(average, network, 0.9, 5)

    assert norm.device == META
