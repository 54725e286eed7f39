"""Jump sampling: from pure noise to clean bond graphs in J network evaluations.

Letters: S samples of one hypothesis, M pairs, C bond classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from duallgd_cli.diffusion.jumps import JumpPlan
from duallgd_cli.diffusion.transition import draw_classes, skipped_posterior

# A denoiser as the sampler sees it: noisy classes (c, M) and one step t to logits (c, M, C).
Denoise = Callable[[Tensor, int], Tensor]

_REMEMBERED: Final = 5
_INT24: Final = 1 << 24


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

    Each evaluation has a generator of its own, so a sample's numbers do not depend on how samples
    are cut into chunks, on other spectra, or on the device.

    Attributes:
        seed: Non-negative, below 2^63.
        samples: S.
        n_pairs: M.
    """

    seed: int
    samples: int
    n_pairs: int

    def uniform(self, evaluation: int) -> Tensor:
        """Numbers in [0, 1) for the draw before evaluation `evaluation`, float32 (S, M)."""
        mixed = (self.seed ^ (0x9E3779B97F4A7C15 * (evaluation + 1))) & ((1 << 63) - 1)
        generator = torch.Generator().manual_seed(mixed)
        whole = torch.randint(_INT24, (self.samples, self.n_pairs), generator=generator)
        return whole.float() / _INT24


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """What is the same for all chunks of one hypothesis.

    Attributes:
        plan: Steps to visit.
        marginal: Bond-class frequencies, (C,), on the device to run on.
        alpha_bar: Cumulative signal share, (T + 1,), likewise.
        noise: Numbers for all S samples.
        temperature: Divides the clean-bond logits.
    """

    plan: JumpPlan
    marginal: Tensor
    alpha_bar: Tensor
    noise: Noise
    temperature: float = 1.0


@torch.inference_mode()
def sample(
    denoise: Denoise,
    task: SamplingTask,
    rows: slice,
    check: Callable[[], None] = lambda: None,
) -> Samples:
    """Draw a chunk of samples; the last jump takes the mode.

    Args:
        denoise: The network, with its condition bound.
        task: Plan, process and noise.
        rows: Which of the S samples this chunk draws.
        check: Called before every evaluation; may raise to stop.

    Returns:
        The chunk's samples.
    """
    marginal, alpha_bar = task.marginal, task.alpha_bar
    uniform = task.noise.uniform(0)[rows].to(marginal.device)
    bond = draw_classes(marginal.expand(*uniform.shape, -1), uniform)
    remembered: list[Tensor] = []
    for number, (t, s) in enumerate(task.plan.jumps(), 1):
        check()
        log_prob = torch.log_softmax(denoise(bond, t).float() / task.temperature, -1)
        remembered = [*remembered[1 - _REMEMBERED :], log_prob]
        if s == 0:
            bond = log_prob.argmax(-1)
            break
        posterior = skipped_posterior(log_prob.exp(), bond, alpha_bar[s], alpha_bar[t], marginal)
        bond = draw_classes(posterior, task.noise.uniform(number)[rows].to(marginal.device))
    chosen = [p.gather(-1, bond[..., None]).sum((1, 2)) for p in remembered]
    return Samples(bond, torch.stack(chosen).mean(0), remembered[-1])
