r"""The marginal process over bond classes, and jump sampling in J network evaluations.

A bond class is kept, or redrawn from the marginal:

.. math:: Q(\alpha) = \alpha I + (1 - \alpha) \mathbf{1} m^\top

The family is closed under products, so any stride is one matrix. It knows neither networks nor
molecules.

Random numbers are by counter (`numpy.random.Philox`): those of a sample follow from the seed of its
feature, the evaluation and its number alone, and any part of a stream costs only itself.

Letters: B graphs, S samples of one hypothesis, M pairs, C bond classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.errors import ConfigError, quote
from duallgd_cli.model.tensors import Denoise

_OFFSET: Final = 0.008
_MAX_BETA: Final = 0.9999


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # kept for training too, whichever asks first
def alpha_bar(n_steps: int) -> Tensor:
    """Cumulative signal share at every step.

    The cosine runs over n_steps + 2 points including both ends, as in the released system, so
    alpha_bar at step 0 is slightly below one.

    Returns:
        float32 (T + 1,), decreasing; index = step.
    """
    points = np.linspace(0, n_steps + 2, n_steps + 2)
    share = np.cos(0.5 * np.pi * (points / (n_steps + 2) + _OFFSET) / (1 + _OFFSET)) ** 2
    beta = torch.from_numpy(1 - share[1:] / share[:-1])
    kept = 1 - beta.float().clamp(0, _MAX_BETA)
    # In float32 and through logarithms, as released: the last bit matters between steps 2 and 1.
    return torch.exp(torch.cumsum(torch.log(kept), 0))


def evenly_spaced(n_steps: int, evaluations: int) -> tuple[int, ...]:
    """J evaluations from T to 0, each step rounded to the nearest (half to even)."""
    visited = [round(n_steps - i * n_steps / evaluations) for i in range(evaluations)]
    return tuple(dict.fromkeys([n_steps, *visited[1:], 0]))


def quadratic(n_steps: int, evaluations: int) -> tuple[int, ...]:
    """J evaluations from T to 0 at T (1 - j/J)^2, short jumps where little noise is left.

    There the last bonds are decided, which have to agree on valences: more samples are molecules as
    drawn than after even jumps. Never fewer steps are left than jumps, so J = T visits every step.
    """
    left = [evaluations - j for j in range(evaluations)]
    return (*(max(round(n_steps * (k / evaluations) ** 2), k) for k in left), 0)


_NAMED: Final = {"quadratic": quadratic, "uniform": evenly_spaced}


def parse_schedule(text: str, n_steps: int, evaluations: int) -> tuple[int, ...]:
    """The steps to visit: tau_0 = T > tau_1 > ... > tau_J = 0.

    Args:
        text: ``quadratic`` or ``uniform``.
        n_steps: T.
        evaluations: J.

    Raises:
        ConfigError: Another name, or more evaluations than steps.
    """
    if text not in _NAMED:
        raise ConfigError(f"schedule {quote(text)} is not quadratic or uniform")
    if not 1 <= evaluations <= n_steps:
        raise ConfigError(f"steps must be 1 to {n_steps}, not {evaluations}")
    return _NAMED[text](n_steps, evaluations)


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


_WORDS: Final = 4  # that the generator makes of one count
_KEPT_BITS: Final = 24
# How sampling ends: with the most probable class of each pair, or with a draw as at any other step,
# since alpha_bar at 0 is just below one.
LastJump = Literal["argmax", "draw"]

# Evaluations whose mean is the likelihood of a sample.
_SCORED: Final = 5


class Samples(NamedTuple):
    """Clean graphs drawn for one hypothesis.

    Attributes:
        bond_class: int64 (c, M).
        log_likelihood: Mean over the last evaluations (five at most) of the summed
            log-probability that the network gives to the finished graph, float32 (c,).
        bond_log_prob: Clean-bond log-probabilities of the last evaluation, float32 (c, M, C).
    """

    bond_class: Tensor
    log_likelihood: Tensor
    bond_log_prob: Tensor

    def cpu(self) -> "Samples":
        """The same on the CPU."""
        return Samples(*(tensor.cpu() for tensor in self))

    @staticmethod
    def join(parts: Sequence["Samples"]) -> "Samples":
        """Chunks one after the other."""
        return Samples(*map(torch.cat, zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """What is the same for all chunks of one hypothesis.

    Attributes:
        plan: Steps to visit, from T or a later one strictly down to 0.
        marginal: Bond-class frequencies, (C,), on the device to run on.
        alpha_bar: Cumulative signal share, (T + 1,), on the device to run on.
        seed: Of the noise, non-negative, below 2^63.
        samples: S.
        n_pairs: M.
        temperature: Divides the clean-bond logits.
        timestep_offset: Share of the way to T that is added to the step which the network is given.
            It learnt on noised molecules, whose bonds agree; what it draws itself agrees less, and
            given a later step it trusts that less ("exposure bias").
        last_jump: How sampling ends.
        start: Graphs to begin from, noised to the plan's first step, int64 (S, M); None for pure
            noise.
    """

    plan: tuple[int, ...]
    marginal: Tensor
    alpha_bar: Tensor
    seed: int
    samples: int
    n_pairs: int
    temperature: float = 1.0
    timestep_offset: float = 0.0
    last_jump: LastJump = "argmax"
    start: Tensor | None = None

    def uniform(self, evaluation: int, rows: slice) -> Tensor:
        """Numbers in [0, 1) for the draw after so many evaluations of some rows, float32 (c, M).

        Each evaluation has a stream of its own and each sample its part of it, so a sample's
        numbers do not depend on how samples are cut into chunks, on other spectra, or on the
        device.
        """
        start, stop, _ = rows.indices(self.samples)
        counts = -(-self.n_pairs // _WORDS)  # of a sample
        stream = np.random.Philox(key=np.array([self.seed, evaluation], np.uint64))
        stream.advance(start * counts)
        words = stream.random_raw((stop - start) * counts * _WORDS) >> np.uint64(64 - _KEPT_BITS)
        kept = words.reshape(-1, counts * _WORDS)[:, : self.n_pairs].astype(np.float32)
        numbers = torch.from_numpy(kept * np.float32(2.0**-_KEPT_BITS))
        return numbers.to(self.marginal.device, non_blocking=True)


@torch.inference_mode()
def sample(
    denoise: Denoise,
    task: SamplingTask,
    rows: slice,
    check: Callable[[], None] = lambda: None,
) -> Samples:
    """Draw a chunk of samples."""
    uniform = task.uniform(0, rows)
    if task.start is None:
        bond = draw_classes(task.marginal.expand(*uniform.shape, -1), uniform)
    else:
        share = task.alpha_bar[task.plan[0]].expand(len(uniform))
        bond = corrupt(task.start[rows], share, task.marginal, uniform)
    recent: list[Tensor] = []
    for number, (t, s) in enumerate(pairwise(task.plan), 1):
        check()
        offset = round(task.timestep_offset * (len(task.alpha_bar) - 1 - t))
        logits = denoise(bond, t + offset).float()
        log_prob = torch.log_softmax(logits / task.temperature, -1)
        recent = [*recent[1 - _SCORED :], log_prob]
        if s or task.last_jump == "draw":
            a_s, a_t = task.alpha_bar[s], task.alpha_bar[t]
            posterior = skipped_posterior(log_prob.exp(), bond, a_s, a_t, task.marginal)
            bond = draw_classes(posterior, task.uniform(number, rows))
        else:
            bond = log_prob.argmax(-1)
    chosen = [log_prob.gather(-1, bond[..., None])[..., 0].sum(1) for log_prob in recent]
    return Samples(bond, torch.stack(chosen).mean(0), recent[-1])
