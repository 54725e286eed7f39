"""The cosine noise schedule: how much of the clean graph is left after t steps."""

from functools import lru_cache
from typing import Final

import numpy as np
import torch
from torch import Tensor

_OFFSET: Final = 0.008
_MAX_BETA: Final = 0.9999


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # kept for training too, whichever asks first
def alpha_bar(n_steps: int) -> Tensor:
    """Cumulative signal share at every step.

    The cosine runs over n_steps + 2 points including both ends, as in the released system, so
    alpha_bar at step 0 is slightly below one.

    Args:
        n_steps: T.

    Returns:
        float32 (T + 1,), decreasing; index = step.
    """
    points = np.linspace(0, n_steps + 2, n_steps + 2)
    share = np.cos(0.5 * np.pi * (points / (n_steps + 2) + _OFFSET) / (1 + _OFFSET)) ** 2
    beta = torch.from_numpy(1 - share[1:] / share[:-1])
    kept = 1 - beta.float().clamp(0, _MAX_BETA)
    # In float32 and through logarithms, as released: the last bit matters between steps 2 and 1.
    return torch.exp(torch.cumsum(torch.log(kept), 0))
