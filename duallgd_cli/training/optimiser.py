"""AdamW, its learning rate, and the moving average of the weights."""

import math

import torch
from torch import Tensor, nn

from duallgd_cli.training.settings import OptimiserSettings


def adamw(module: nn.Module, settings: OptimiserSettings) -> torch.optim.AdamW:
    """AdamW with weight decay on the matrices of linear layers alone."""
    decayed = {
        f"{name}.weight" for name, part in module.named_modules() if isinstance(part, nn.Linear)
    }
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in named if n in decayed], "weight_decay": settings.weight_decay},
        {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(0.9, settings.beta2), fused=True
    )


def learning_rate(step: int, steps: int, settings: OptimiserSettings) -> float:
    """One cycle: linear up, cosine down to a share of the peak."""
    warmup = max(1, round(steps * settings.warmup_share))
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    low = settings.final_share
    return settings.learning_rate * (low + (1 - low) * (1 + math.cos(math.pi * progress)) / 2)


@torch.no_grad()
def update_average(average: dict[str, Tensor], module: nn.Module, decay: float, step: int) -> None:
    """Move the average towards the weights; the decay grows from 0 so that early steps count."""
    decay = min(decay, (1 + step) / (10 + step))
    pairs = [(average[name], p.detach()) for name, p in module.named_parameters()]
    torch._foreach_lerp_([a for a, _ in pairs], [p for _, p in pairs], 1 - decay)
