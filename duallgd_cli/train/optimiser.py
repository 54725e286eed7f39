"""AdamW or Muon, their learning rate, and the moving average of the weights.

Muon: K. Jordan and others, 2024, kellerjordan.github.io/posts/muon.
"""

import math
from typing import Final

import torch
from torch import nn
from torch.optim import AdamW

from duallgd_cli.train.settings import OptimiserSettings

_NARROW: Final = 16

Optimisers = tuple[torch.optim.Optimizer, ...]


def optimisers(module: nn.Module, settings: OptimiserSettings) -> Optimisers:
    """What updates the parameters, each of them once; weight decay is on matrices alone."""
    decayed = {
        f"{name}.weight" for name, part in module.named_modules() if isinstance(part, nn.Linear)
    }
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    matrices = [(n, p) for n, p in named if n in decayed]
    rest = [(n, p) for n, p in named if n not in decayed]
    if settings.matrices == "adamw":
        return (_adamw(settings, (matrices, settings.weight_decay), (rest, 0.0)),)
    # An orthogonal step makes little sense where one side holds a handful of numbers.
    narrow = [(n, p) for n, p in matrices if min(p.shape) < _NARROW]
    wide = [(n, p) for n, p in matrices if min(p.shape) >= _NARROW]
    muon = torch.optim.Muon(
        wide,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adjust_lr_fn="match_rms_adamw",  # one learning rate does for both
    )
    return muon, _adamw(settings, (narrow, settings.weight_decay), (rest, 0.0))


def _adamw(
    settings: OptimiserSettings, *groups: tuple[list[tuple[str, nn.Parameter]], float]
) -> AdamW:
    chosen = [{"params": parameters, "weight_decay": decay} for parameters, decay in groups]
    return AdamW(chosen, lr=settings.learning_rate, betas=(0.9, settings.beta2), fused=True)


def learning_rate(step: int, steps: int, settings: OptimiserSettings) -> float:
    """One cycle: linear up, cosine down to a share of the peak."""
    warmup = max(1, round(steps * settings.warmup_share))
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    low = settings.final_share
    return settings.learning_rate * (low + (1 - low) * (1 + math.cos(math.pi * progress)) / 2)


@torch.no_grad()
def update_average(averaged: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move the average towards the weights; the decay grows from 0 so that early steps count."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)
