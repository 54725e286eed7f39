r"""The marginal process: its cosine schedule, its transitions, and the steps of a jumping sampler.

A bond class is kept, or redrawn from the marginal:

.. math:: Q(\alpha) = \alpha I + (1 - \alpha) \mathbf{1} m^\top

The family is closed under products, so any stride is one matrix. Letters: B graphs, M pairs,
C bond classes.
"""

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


def transition_matrix(alpha: Tensor, marginal: Tensor) -> Tensor:
    """Q(alpha), rows = from, columns = to.

    Args:
        alpha: Share of signal kept, any shape.
        marginal: Bond-class frequencies, (C,).

    Returns:
        The shape of alpha followed by (C, C); rows sum to 1.
    """
    alpha = alpha[..., None, None]
    eye = torch.eye(marginal.numel(), dtype=marginal.dtype, device=marginal.device)
    return alpha * eye + (1 - alpha) * marginal


def corrupt(clean: Tensor, alpha: Tensor, marginal: Tensor, uniform: Tensor) -> Tensor:
    """Draw noisy bond classes q(e_t | e_0) by inverse CDF.

    Args:
        clean: Clean classes, int64 (B, M).
        alpha: alpha_bar at each graph's step, (B,).
        marginal: (C,).
        uniform: Uniform numbers in [0, 1), (B, M).

    Returns:
        int64 (B, M).
    """
    keep = uniform < alpha[:, None]
    # What is left of the uniform number, stretched to [0, 1), draws the new class.
    rest = ((uniform - alpha[:, None]) / (1 - alpha[:, None]).clamp_min(1e-12)).clamp(0, 1)
    return torch.where(keep, clean, draw_classes(marginal.expand(*clean.shape, -1), rest))


def draw_classes(probability: Tensor, uniform: Tensor) -> Tensor:
    """Classes by inverse CDF, (..., C) and (...) to int64 (...)."""
    threshold = probability.cumsum(-1)[..., :-1]
    return (uniform.unsqueeze(-1) >= threshold).sum(-1)


def skipped_posterior(
    clean: Tensor, bond_t: Tensor, alpha_bar_s: Tensor, alpha_bar_t: Tensor, marginal: Tensor
) -> Tensor:
    r"""Distribution of the bond class at s, given the one at t > s (equations 10 and 11).

    .. math:: p(e_s \mid e_t) = \sum_{e_0} \hat p(e_0)\,
        \frac{q(e_t \mid e_s)\, q(e_s \mid e_0)}{q(e_t \mid e_0)}

    Exact for any stride t - s; the only approximation is ``clean``. Because
    q(e_s | e_0) = a_s [e_s = e_0] + (1 - a_s) m(e_s), the sum over e_0 needs no (C, C) matrix:
    it is q(e_t | e_s) (a_s w(e_s) + (1 - a_s) m(e_s) sum(w)) with w = clean / q(e_t | e_0).

    Args:
        clean: Predicted clean-bond probabilities, (B, M, C).
        bond_t: Bond classes at t, int64 (B, M).
        alpha_bar_s: Cumulative signal share at s, scalar or (B,), at least alpha_bar_t.
        alpha_bar_t: Cumulative signal share at t, scalar or (B,).
        marginal: Bond-class frequencies, (C,), all above 0.

    Returns:
        Probabilities, (B, M, C), each row summing to 1.
    """
    a_s = alpha_bar_s.reshape(-1, 1, 1)
    a_t = alpha_bar_t.reshape(-1, 1, 1)
    a_ts = (a_t / a_s.clamp_min(1e-12)).clamp(0, 1)
    here = torch.nn.functional.one_hot(bond_t, marginal.numel()).to(clean.dtype)
    noise_t = marginal[bond_t].unsqueeze(-1)  # (B, M, 1)
    weight = clean / (a_t * here + (1 - a_t) * noise_t)
    forward = a_ts * here + (1 - a_ts) * noise_t  # q(e_t | e_s) for every e_s
    mixed = forward * (a_s * weight + (1 - a_s) * marginal * weight.sum(-1, keepdim=True))
    return mixed / mixed.sum(-1, keepdim=True)
