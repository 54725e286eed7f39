"""Jump sampling: from noise to clean bond graphs in J network evaluations.

Letters: S samples of one hypothesis, M pairs, C bond classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from duallgd_cli.diffusion import counter
from duallgd_cli.diffusion.jumps import JumpPlan
from duallgd_cli.diffusion.transition import corrupt, draw_classes, skipped_posterior

# A denoiser as the sampler sees it: noisy classes (c, M) and one step t to logits (c, M, C).
Denoise = Callable[[Tensor, int], Tensor]
# What the last jump makes of clean-bond log-probabilities (c, M, C) and of a way to draw classes
# (c, M) at step 0, which it may leave alone.
LastJump = Callable[[Tensor, Callable[[], Tensor]], Tensor]

_REMEMBERED: Final = 5
_CPU: Final = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Samples:
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
        return Samples(self.bond_class.cpu(), self.log_likelihood.cpu(), self.bond_log_prob.cpu())

    @staticmethod
    def join(parts: Sequence["Samples"]) -> "Samples":
        """Chunks one after the other."""
        return Samples(
            torch.cat([part.bond_class for part in parts]),
            torch.cat([part.log_likelihood for part in parts]),
            torch.cat([part.bond_log_prob for part in parts]),
        )


@dataclass(frozen=True)
class Noise:
    """Uniform numbers that depend on nothing but a seed and where they are used.

    Each evaluation has a stream of its own and each sample its place in it, so a sample's numbers
    do not depend on how samples are cut into chunks, on other spectra, or on the device.

    Attributes:
        seed: Non-negative, below 2^63.
        samples: S.
        n_pairs: M.
    """

    seed: int
    samples: int
    n_pairs: int

    def uniform(
        self, evaluation: int, rows: slice = slice(None), device: torch.device = _CPU
    ) -> Tensor:
        """Numbers in [0, 1) for the draw after so many evaluations.

        Args:
            evaluation: How many, from 0.
            rows: Which of the S samples.
            device: Where the numbers are computed; they are the same everywhere.

        Returns:
            float32 (c, M), one row for each sample.
        """
        start, stop, _ = rows.indices(self.samples)
        key = counter.stream_key(self.seed, evaluation)
        numbers = counter.uniform(key, start * self.n_pairs, stop * self.n_pairs, device)
        return numbers.view(stop - start, self.n_pairs)


def most_probable(log_prob: Tensor, draw: Callable[[], Tensor]) -> Tensor:
    """End with the mode of the clean-bond distribution."""
    del draw
    return log_prob.argmax(-1)


def drawn(log_prob: Tensor, draw: Callable[[], Tensor]) -> Tensor:
    """End with a draw, as at any other step; alpha_bar at 0 is just below one."""
    del log_prob
    return draw()


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """What is the same for all chunks of one hypothesis.

    Attributes:
        plan: Steps to visit.
        marginal: Bond-class frequencies, (C,), on the device to run on.
        alpha_bar: Cumulative signal share, (T + 1,), likewise.
        noise: Numbers for all S samples.
        temperature: Divides the clean-bond logits.
        time_shift: Share of the way to T by which the network is told a later step than it is at.
            It learnt on noised molecules, whose bonds agree; what it draws itself agrees less, and
            told of more noise it trusts that less ("exposure bias").
        last_jump: How the walk ends.
        start: Graphs to begin from, noised to the plan's first step, int64 (S, M); None for pure
            noise.
    """

    plan: JumpPlan
    marginal: Tensor
    alpha_bar: Tensor
    noise: Noise
    temperature: float = 1.0
    time_shift: float = 0.0
    last_jump: LastJump = most_probable
    start: Tensor | None = None

    def told(self, t: int) -> int:
        """The step that the network is told at step t."""
        return t + round(self.time_shift * (len(self.alpha_bar) - 1 - t))


@torch.inference_mode()
def sample(
    denoise: Denoise,
    task: SamplingTask,
    rows: slice,
    check: Callable[[], None] = lambda: None,
) -> Samples:
    """Draw a chunk of samples; the task's `last_jump` ends them.

    Args:
        denoise: The network, with its condition bound.
        task: Plan, process and noise.
        rows: Which of the S samples this chunk draws.
        check: Called before every evaluation; may raise to stop.

    Returns:
        The chunk's samples.
    """
    bond = _begun(task, rows)
    remembered: list[Tensor] = []
    for number, (t, s) in enumerate(task.plan.jumps(), 1):
        check()
        log_prob = torch.log_softmax(denoise(bond, task.told(t)).float() / task.temperature, -1)
        remembered = [*remembered[1 - _REMEMBERED :], log_prob]
        draw = partial(_draw, task, rows, log_prob, bond, (number, t, s))
        bond = draw() if s else task.last_jump(log_prob, draw)
    chosen = [p.gather(-1, bond[..., None]).sum((1, 2)) for p in remembered]
    return Samples(bond, torch.stack(chosen).mean(0), remembered[-1])


def _begun(task: SamplingTask, rows: slice) -> Tensor:
    """Classes at the first step of the plan, (c, M)."""
    uniform = task.noise.uniform(0, rows, task.marginal.device)
    if task.start is None:
        return draw_classes(task.marginal.expand(*uniform.shape, -1), uniform)
    share = task.alpha_bar[task.plan.timesteps[0]]
    return corrupt(task.start[rows], share.expand(len(uniform)), task.marginal, uniform)


def _draw(
    task: SamplingTask, rows: slice, log_prob: Tensor, bond: Tensor, jump: tuple[int, int, int]
) -> Tensor:
    """Classes at s (c, M), from those at t; `jump` is the evaluation's number, t and s."""
    number, t, s = jump
    marginal, share = task.marginal, task.alpha_bar
    posterior = skipped_posterior(log_prob.exp(), bond, share[s], share[t], marginal)
    return draw_classes(posterior, task.noise.uniform(number, rows, marginal.device))
