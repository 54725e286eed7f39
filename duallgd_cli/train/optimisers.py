"""What updates the parameters: AdamW or Muon, a one-cycle learning rate, an average of weights."""

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import AdamW

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
    """Muon that makes all matrices of a shape orthogonal in one batch.

    One by one, the small matrices of a denoiser are some 4,000 kernels a step on a GPU, and
    launching them takes longer than the network.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step."""
        del closure
        for group in self.param_groups:
            self._step_by_shape(group)

    def _step_by_shape(self, group: dict[str, Any]) -> None:
        """One step of all matrices of a group."""
        parameters: list[Tensor] = []
        gradients: list[Tensor] = []
        momenta: list[Tensor] = []
        self._init_group(group, parameters, gradients, momenta)
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"])  # Nesterov's
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        by_shape: dict[torch.Size, list[int]] = {}
        for number, parameter in enumerate(parameters):
            by_shape.setdefault(parameter.shape, []).append(number)
        for shape, members in by_shape.items():
            stacked = torch.stack([updates[number] for number in members])
            steps = orthogonal(stacked, group["ns_coefficients"], group["ns_steps"], group["eps"])
            rate = 0.2 * math.sqrt(max(shape)) * group["lr"]  # match_rms_adamw
            own = [parameters[number] for number in members]
            torch._foreach_add_(own, list(steps.to(own[0].dtype).unbind()), alpha=-rate)


def orthogonal(
    matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Matrices (B, m, n), the singular values of each brought near 1 by Newton-Schulz iterations.

    As in Muon (Jordan et al., 2024), where a polynomial of the fifth degree is applied `steps`
    times. In bfloat16 on a GPU; many processors only imitate that, twenty times as slowly.
    """
    a, b, c = coefficients
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x.bfloat16() if x.is_cuda else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(eps)  # no singular value above 1
    for _ in range(steps):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if is_tall else x


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
