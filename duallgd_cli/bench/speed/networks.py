"""The networks that the study measures: trained weights, or random ones of a seed."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

import torch
from torch import nn

from duallgd_cli.bench.speed.cells import RANDOM, Subject
from duallgd_cli.errors import UsageError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.reference.denoiser import ReferenceDenoiser, build
from duallgd_cli.reference.kernels import draw_projection
from duallgd_cli.reference.settings import ReferenceSettings

# Random states are wider than trained ones; logits of this share leave all bond classes possible.
_SHARE_OF_LOGITS: Final = 0.1


@dataclass(frozen=True, slots=True)
class About:
    """What stands beside every figure of a network.

    Attributes:
        name: Of its weights.
        parameters: Of everything that the weights hold.
        val_top1: Top-1 accuracy on validation spectra by the weights' own record, or None.
    """

    name: str
    parameters: int
    val_top1: float | None = None


@dataclass(frozen=True, eq=False)
class DefaultNetwork:
    """The default network with one kernel, encoder included, in evaluation mode."""

    model: DualLGD
    about: About


@dataclass(frozen=True, eq=False)
class ReferenceNetwork:
    """The reference's denoiser with one kernel, in evaluation mode."""

    model: ReferenceDenoiser
    settings: ReferenceSettings
    about: About


@lru_cache(maxsize=2)
def network_of(subject: Subject, kernel: str) -> DefaultNetwork | ReferenceNetwork:
    """The network with a kernel; kept, as many cells share it.

    Raises:
        UsageError: These weights cannot be run with this kernel.
        WeightsError: Missing or broken.
    """
    if subject.preset == "duallgd":
        return _default_network(subject, kernel)
    return _reference_network(subject, kernel)


def fill_at_random(module: nn.Module, readout: nn.Linear, seed: int) -> None:
    """Fill parameters so that activations keep their size, none is zero and no bond is certain.

    Args:
        module: Its parameters are overwritten.
        readout: The part of it that gives logits.
        seed: The same parameters for the same seed, whatever the kernel.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            for name, parameter in part.named_parameters(recurse=False):
                parameter.normal_(generator=generator)
                if isinstance(part, nn.LayerNorm) and name == "weight":
                    parameter.mul_(0.1).add_(1)
                else:
                    scale = 0.05 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5
                    parameter.mul_(scale)
        readout.weight.mul_(_SHARE_OF_LOGITS)


def _default_network(subject: Subject, kernel: str) -> DefaultNetwork:
    if subject.weights == RANDOM:
        settings = _with_kernel(ModelSettings(), kernel)
        model = DualLGD(settings).eval()
        fill_at_random(model, model.denoiser.readout, subject.seed)
        return DefaultNetwork(model, About(f"random, seed {subject.seed}", _count(model)))
    from duallgd_cli.checkpoint import format as weights_format
    from duallgd_cli.checkpoint.resolve import resolve_weights

    path = resolve_weights(subject.weights)
    checkpoint = weights_format.load(path)
    trained = "favor" if checkpoint.settings.denoiser.pair_features else "softmax"
    settings = _with_kernel(checkpoint.settings, kernel)
    features = {n: t for n, t in DualLGD(settings).state_dict().items() if n.endswith(".features")}
    tensors = checkpoint.tensors if kernel == trained else checkpoint.tensors | features
    model = replace(checkpoint, settings=settings, tensors=tensors).build()
    known = checkpoint.record.get("ranking_validation")
    top1 = known.get("top1") if isinstance(known, dict) and kernel == trained else None
    return DefaultNetwork(model, About(path.name, _count(model), top1))


def _with_kernel(settings: ModelSettings, kernel: str) -> ModelSettings:
    drawn = settings.denoiser.pair_features or ModelSettings().denoiser.pair_features
    features = drawn if kernel == "favor" else 0
    return replace(settings, denoiser=replace(settings.denoiser, pair_features=features))


def _reference_network(subject: Subject, kernel: str) -> ReferenceNetwork:
    name: Literal["positive", "softmax"] = "positive" if kernel == "favor" else "softmax"
    if subject.weights not in (None, RANDOM):
        return _converted_network(subject, name)
    settings = ReferenceSettings()
    settings = replace(settings, denoiser=replace(settings.denoiser, kernel=name))
    network = build(settings.denoiser).eval()
    fill_at_random(network, network.readout.outer, subject.seed)
    _draw_projections(network, subject.seed)
    about = About(f"random, seed {subject.seed}", _count(network))
    return ReferenceNetwork(network, settings, about)


def _converted_network(subject: Subject, kernel: str) -> ReferenceNetwork:
    from duallgd_cli.checkpoint.resolve import resolve_weights
    from duallgd_cli.reference import weights_file as reference

    path = resolve_weights(subject.weights)
    checkpoint = reference.load(path)
    if checkpoint.settings.denoiser.kernel != kernel:
        raise UsageError(
            f"weights {path.name} were trained with kernel {checkpoint.settings.denoiser.kernel}; "
            f"measure that one alone, or --weights {RANDOM}"
        )
    network = checkpoint.build_denoiser()
    count = sum(t.numel() for n, t in checkpoint.tensors.items() if not n.endswith("projection"))
    return ReferenceNetwork(network, checkpoint.settings, About(path.name, count))


def _draw_projections(network: ReferenceDenoiser, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in network.named_buffers():
        if name.endswith("projection"):
            n_features, width = buffer.shape
            buffer.copy_(draw_projection(n_features, width, generator))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
