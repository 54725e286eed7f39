r"""The marginal process over bond classes, and drawing graphs with a trained denoiser.

A bond class is kept, or redrawn from the marginal:

.. math:: Q(\alpha) = \alpha I + (1 - \alpha) \mathbf{1} m^\top

The family is closed under products, so any stride is one matrix, and J evaluations of the network
visit as many steps. Random numbers are by counter (`numpy.random.Philox`): those of a sample follow
from the seed of its feature, the evaluation and its number alone.

Letters: B graphs, S samples of one hypothesis, c of them in a chunk, N heavy atoms, M = N (N - 1)
/ 2 pairs, C bond classes, F fingerprint bits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import ConfigError
from duallgd_cli.model.captured import CapturedDenoiser
from duallgd_cli.model.duallgd import Condition, Context, DualLGD, keep_bits
from duallgd_cli.model.rewritten import Rewritten
from duallgd_cli.model.tensors import Denoise, constants
from duallgd_cli.runtime import Runtime

_OFFSET: Final = 0.008
_MAX_BETA: Final = 0.9999
_CPU: Final = torch.device("cpu")


@lru_cache(maxsize=16)  # copied to a device once: a copy waits for a GPU
@torch.inference_mode(False)  # kept for training too, whichever asks first
def alpha_bar(n_steps: int, device: torch.device = _CPU) -> Tensor:
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
    return torch.exp(torch.cumsum(torch.log(kept), 0)).to(device)


def quadratic(n_steps: int, evaluations: int) -> tuple[int, ...]:
    """J evaluations from T to 0 at T (1 - j/J)^2, short jumps where little noise is left.

    There the last bonds are decided, which have to agree on valences: more samples are molecules as
    drawn than after even jumps. Never fewer steps are left than jumps, so J = T visits every step.

    Raises:
        ConfigError: More evaluations than steps, or none.
    """
    if not 1 <= evaluations <= n_steps:
        raise ConfigError(f"steps must be 1 to {n_steps}, not {evaluations}")
    left = [evaluations - j for j in range(evaluations)]
    return (*(max(round(n_steps * (k / evaluations) ** 2), k) for k in left), 0)


def corrupt(clean: Tensor, alpha: Tensor, marginal: Tensor, uniform: Tensor) -> Tensor:
    """Draw noisy bond classes q(e_t | e_0) by inverse CDF, int64 (B, M).

    Alpha is alpha_bar at each graph's step, (B,); uniform numbers are in [0, 1), (B, M).
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
# Evaluations whose mean is the likelihood of a sample.
_SCORED: Final = 5


class Samples(NamedTuple):
    """Clean graphs drawn for one hypothesis."""

    bond_class: Tensor  # int64 (c, M)
    # Mean over the last evaluations of the summed log-probability that the network gives to the
    # finished graph, float32 (c,).
    log_likelihood: Tensor
    bond_log_prob: Tensor  # of clean bonds, by the last evaluation, float32 (c, M, C)

    def cpu(self) -> "Samples":
        """The same on the CPU."""
        return Samples(*(tensor.cpu() for tensor in self))

    @staticmethod
    def join(parts: Sequence["Samples"]) -> "Samples":
        """Chunks one after the other."""
        return Samples(*map(torch.cat, zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """What is the same for all chunks of one hypothesis."""

    plan: tuple[int, ...]  # steps to visit, from T or a later one strictly down to 0
    marginal: Tensor  # bond-class frequencies, (C,), on the device to run on
    alpha_bar: Tensor  # cumulative signal share, (T + 1,), likewise
    seed: int  # of the noise, non-negative, below 2^63
    samples: int  # S
    n_pairs: int  # M
    # Share of the way to T that is added to the step which the network is given. It learnt on
    # noised molecules, whose bonds agree; what it draws itself agrees less, and given a later step
    # it trusts that less ("exposure bias").
    timestep_offset: float = 0.0
    # With the most probable class of each pair, or with a draw as at any other step, since
    # alpha_bar at 0 is just below one.
    last_jump: Literal["argmax", "draw"] = "argmax"
    # Graphs to begin from, noised to the plan's first step, int64 (S, M); None for pure noise.
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
        log_prob = torch.log_softmax(logits, -1)
        recent = [*recent[1 - _SCORED :], log_prob]
        if s or task.last_jump == "draw":
            a_s, a_t = task.alpha_bar[s], task.alpha_bar[t]
            posterior = skipped_posterior(log_prob.exp(), bond, a_s, a_t, task.marginal)
            bond = draw_classes(posterior, task.uniform(number, rows))
        else:
            bond = log_prob.argmax(-1)
    chosen = [log_prob.gather(-1, bond[..., None])[..., 0].sum(1) for log_prob in recent]
    return Samples(bond, torch.stack(chosen).mean(0), recent[-1])


# Working memory of one atom pair in a forward pass, all layers' live tensors together.
BYTES_PER_PAIR: Final = 8_192
_MOST_PAIRS_ON_CPU: Final = 16_384  # beyond these its caches are too small


class Sampler:
    """Draws bond matrices with a network, in chunks that fit the memory.

    The network is on the runtime's device, in evaluation mode; on a CPU its denoiser may come
    rewritten besides, which is faster.
    """

    def __init__(
        self, model: DualLGD, runtime: Runtime, rewritten: Rewritten | None = None
    ) -> None:
        self.model, self.runtime, self.rewritten = model, runtime, rewritten
        self._captured = CapturedDenoiser(model.denoiser, runtime)

    def task(
        self, settings: SamplingSettings, seed: int, samples: int, n_pairs: int
    ) -> SamplingTask:
        """What to draw from pure noise: S samples of M pairs."""
        process, device = self.model.settings.diffusion, self.runtime.device
        return SamplingTask(
            plan=quadratic(process.n_steps, settings.steps),
            marginal=constants(process.marginal, device),
            alpha_bar=alpha_bar(process.n_steps, device),
            seed=seed,
            samples=samples,
            n_pairs=n_pairs,
            timestep_offset=process.time_shift,
        )

    @torch.inference_mode()
    def context(self, formula: Formula, fingerprint: Tensor) -> Context:
        """What the denoiser is told of a spectrum: its formula and predicted fingerprint (F,)."""
        condition = formula_condition(formula, fingerprint, self.model.settings.memory_bits)
        with on_one_thread(), self.runtime.autocast():
            return self.model.denoiser.context(condition.to(self.runtime.device))

    @torch.inference_mode()
    def draw(
        self,
        context: Context,
        tasks: Sequence[SamplingTask],
        settings: SamplingSettings,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[Samples, list[str]]:
        """Draw the samples of tasks, one task after the other; they come back on the CPU.

        When CUDA runs out of memory the chunk is halved, and the notes for the run record say so.
        ``check`` is called before every evaluation and may raise to stop.
        """
        parts: list[Samples] = []
        notes: list[str] = []
        for task in tasks:
            done, chunk = 0, chunk_size(task.n_pairs, task.samples, settings, self.runtime.device)
            while done < task.samples:
                rows = slice(done, min(done + chunk, task.samples))
                try:
                    with on_one_thread():
                        denoise = self.denoiser(context, rows.stop - rows.start)
                        drawn = sample(denoise, task, rows, check)
                except RuntimeError as error:
                    if chunk == 1 or not is_out_of_memory(error):
                        raise
                    chunk //= 2
                    notes.append(f"out of device memory: samples per chunk halved to {chunk}")
                    continue
                parts.append(drawn.cpu())
                done = rows.stop
        return Samples.join(parts), notes

    def denoiser(self, context: Context, samples: int) -> Denoise:
        """The denoiser of so many samples of a spectrum, as this device evaluates it fastest."""
        if self.rewritten is not None:
            return self.rewritten.bound(context, samples)
        if self.runtime.captures:
            return self._captured.bound(context, samples)
        repeated = context.expand(samples)

        def denoise(bond_class: Tensor, t: int) -> Tensor:
            steps = torch.full((samples,), t, device=bond_class.device)
            with self.runtime.autocast():
                return self.model.denoiser(bond_class, steps, repeated)  # type: ignore[no-any-return]

        return denoise


def formula_condition(formula: Formula, fingerprint: Tensor, memory_bits: int) -> Condition:
    """What the denoiser is told: a function of the formula and the predicted fingerprint alone."""
    bit, log_prob = keep_bits(fingerprint[None], memory_bits)
    atom_class = torch.from_numpy(formula.atom_class)[None]
    return Condition(
        atom_class=atom_class,
        atom_mask=torch.ones_like(atom_class, dtype=torch.bool),
        formula=torch.from_numpy(formula.array.astype(np.float32))[None],
        charge=torch.tensor([float(formula.charge)]),
        bit=bit,
        bit_log_prob=log_prob,
    )


def chunk_size(n_pairs: int, samples: int, settings: SamplingSettings, device: torch.device) -> int:
    """Samples drawn together: by the numbers of pairs and samples and the kind of device alone."""
    pairs = settings.max_memory_mib * (1 << 20) // BYTES_PER_PAIR
    if device.type == "cpu":
        pairs = min(pairs, _MOST_PAIRS_ON_CPU)
    most = max(1, min(samples, pairs // n_pairs))
    return math.ceil(samples / math.ceil(samples / most))  # chunks of like size


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Products inside are summed in one order, whatever the number of threads: the same digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it arose from, says that device memory was used up.

    While a CUDA graph is captured that surfaces as a RuntimeError of the capture, which arose while
    the first was dealt with.
    """
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
