"""What updates the parameters: AdamW or Muon, a one-cycle learning rate, an average of weights."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim._muon import _zeropower_via_newtonschulz

from duallgd_cli.train.settings import OptimiserSettings

_NARROW: Final = 16


def optimisers(module: nn.Module, settings: OptimiserSettings) -> tuple[torch.optim.Optimizer, ...]:
    """What updates the parameters, each of them once; weight decay is on matrices alone."""
    decayed = {
        f"{name}.weight".lstrip(".")
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear)
    }
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    rest = [(n, p) for n, p in named if n not in decayed]
    # An orthogonal step makes little sense where one side holds a handful of numbers.
    least = _NARROW if settings.matrices == "muon" else math.inf
    wide = [(n, p) for n, p in named if n in decayed and min(p.shape) >= least]
    narrow = [(n, p) for n, p in named if n in decayed and min(p.shape) < least]
    groups = ((narrow, settings.weight_decay), (rest, 0.0))
    adamw = AdamW(
        [{"params": named, "weight_decay": decay} for named, decay in groups if named],
        lr=settings.learning_rate,
        betas=(0.9, settings.beta2),
        fused=True,
    )
    if settings.matrices == "adamw":
        return (adamw,)
    muon = _Muon(
        wide,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adjust_lr_fn="match_rms_adamw",  # one learning rate does for both
    )
    return muon, adamw


class _Muon(torch.optim.Muon):
    """Muon that makes all matrices of a shape orthogonal in one batch on a GPU.

    One by one, the small matrices of a denoiser are some 4,000 kernels a step, and launching them
    takes longer than the network.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; on a CPU that of the class above."""
        if all(p.device.type == "cpu" for group in self.param_groups for p in group["params"]):
            return super().step(closure)  # type: ignore[no-any-return,no-untyped-call]
        for group in self.param_groups:
            self._step_by_shape(group)
        return None

    def _step_by_shape(self, group: dict[str, Any]) -> None:
        """One step of all matrices of a group."""
        parameters: list[Tensor] = []
        gradients: list[Tensor] = []
        momenta: list[Tensor] = []
        self._init_group(group, parameters, gradients, momenta)
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"])  # Nesterov's
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        orthogonal = partial(
            _zeropower_via_newtonschulz, ns_coefficients=group["ns_coefficients"],
            ns_steps=group["ns_steps"], eps=group["eps"],
        )  # fmt: skip
        by_shape: dict[torch.Size, list[int]] = {}
        for number, parameter in enumerate(parameters):
            by_shape.setdefault(parameter.shape, []).append(number)
        for shape, members in by_shape.items():
            stacked = torch.stack([updates[number] for number in members])
            steps = torch.vmap(orthogonal)(stacked)
            rate = 0.2 * math.sqrt(max(shape)) * group["lr"]  # match_rms_adamw
            own = [parameters[number] for number in members]
            torch._foreach_add_(own, list(steps.to(own[0].dtype).unbind()), alpha=-rate)


def learning_rate(step: int, steps: int, settings: OptimiserSettings) -> float:
    """One cycle: linear up, level for a while, cosine down to a share of the peak."""
    warmup = max(1, round(steps * settings.warmup_share))
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    level = warmup + round(steps * settings.hold_share)
    progress = min(1.0, max(0, step - level) / max(1, steps - level))
    low = settings.final_share
    return settings.learning_rate * (low + (1 - low) * (1 + math.cos(math.pi * progress)) / 2)


@torch.no_grad()
def update_average(averaged: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move the average towards the weights; the decay grows from 0 so that early steps count."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)
