"""The cosine noise schedule, and the decreasing steps at which the network is evaluated."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.errors import ConfigError, quote

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


@dataclass(frozen=True)
class JumpPlan:
    """tau_0 = T > tau_1 > ... > tau_J = 0.

    Attributes:
        timesteps: J + 1 steps, strictly decreasing from T to 0.
    """

    timesteps: tuple[int, ...]

    def __post_init__(self) -> None:
        pairs = zip(self.timesteps, self.timesteps[1:], strict=False)
        if len(self.timesteps) < 2 or self.timesteps[-1] != 0 or any(a <= b for a, b in pairs):
            raise ConfigError(
                f"a schedule must decrease strictly from the first step to 0, not {self.timesteps}"
            )

    @property
    def n_evaluations(self) -> int:
        """J, the number of network evaluations."""
        return len(self.timesteps) - 1

    def last_part(self, most: int) -> "JumpPlan | None":
        """The plan from its first step at or below `most` on; None if that is the end."""
        left = tuple(step for step in self.timesteps if step <= most)
        return JumpPlan(left) if len(left) > 1 else None

    def jumps(self) -> tuple[tuple[int, int], ...]:
        """Pairs (t, s) in the order they are taken."""
        return tuple(zip(self.timesteps, self.timesteps[1:], strict=False))


def evenly_spaced(n_steps: int, evaluations: int) -> JumpPlan:
    """J evaluations from T to 0, each step rounded to the nearest (half to even).

    Raises:
        ConfigError: More evaluations than steps, or none.
    """
    _require_possible(n_steps, evaluations)
    visited = [round(n_steps - i * n_steps / evaluations) for i in range(evaluations)]
    return JumpPlan(tuple(dict.fromkeys([n_steps, *visited[1:], 0])))


def quadratic(n_steps: int, evaluations: int) -> JumpPlan:
    """J evaluations from T to 0 at T (1 - j/J)^2, short jumps where little noise is left.

    There the last bonds are decided, which have to agree on valences: more samples are molecules as
    drawn than after even jumps. Never fewer steps are left than jumps, so J = T visits every step.

    Raises:
        ConfigError: More evaluations than steps, or none.
    """
    _require_possible(n_steps, evaluations)
    left = [evaluations - j for j in range(evaluations)]
    return JumpPlan((*(max(round(n_steps * (k / evaluations) ** 2), k) for k in left), 0))


def strided(n_steps: int, stride: int) -> JumpPlan:
    """T, T - k, T - 2k, ..., 0."""
    if not 1 <= stride <= n_steps:
        raise ConfigError(f"stride must be 1 to {n_steps}, not {stride}")
    return JumpPlan((*range(n_steps, 0, -stride), 0))


def parse_schedule(text: str, n_steps: int, evaluations: int) -> JumpPlan:
    """A plan from ``quadratic``, ``uniform``, ``full``, ``strideK`` or the steps themselves.

    Raises:
        ConfigError: Anything else, or a plan that does not start at T.
    """
    words = text.strip().lower()
    if words in _NAMED:
        return _NAMED[words](n_steps, evaluations)
    if words == "full":
        return strided(n_steps, 1)
    if words.startswith("stride") and words[6:].isdecimal():
        return strided(n_steps, int(words[6:]))
    try:
        plan = JumpPlan(tuple(int(step) for step in words.split(",")))
    except ValueError:
        raise ConfigError(
            f"schedule {quote(text)} is not quadratic, uniform, full, strideK or steps "
            "such as 500,200,50,0"
        ) from None
    if plan.timesteps[0] != n_steps:
        raise ConfigError(f"a schedule must start at {n_steps}, not {plan.timesteps[0]}")
    return plan


def _require_possible(n_steps: int, evaluations: int) -> None:
    if not 1 <= evaluations <= n_steps:
        raise ConfigError(f"steps must be 1 to {n_steps}, not {evaluations}")


_NAMED: Final = {"quadratic": quadratic, "uniform": evenly_spaced}
