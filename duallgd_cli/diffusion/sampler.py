"""Jump sampling: from noise to clean bond graphs in J network evaluations.

Random numbers are by counter, the i-th of a stream alike on every device: SplitMix64 (Steele, Lea
and Flood, 2014) in 64-bit integers, whose products wrap round. It is exact, so a CPU and a GPU get
the same numbers, and any part of a stream costs only itself.

Letters: S samples of one hypothesis, M pairs, C bond classes.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from duallgd_cli.diffusion.process import JumpPlan, corrupt, draw_classes, skipped_posterior

_WORD: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
# Shift, then multiply, twice; then shift once more.
_ROUNDS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT: Final = 31
_KEPT_BITS: Final = 24
# A denoiser as the sampler sees it: noisy classes (c, M), C added to those that are known, and one
# step t to logits (c, M, C).
Denoise = Callable[[Tensor, int], Tensor]
# How sampling ends: with the most probable class of each pair, or with a draw as at any other step,
# since alpha_bar at 0 is just below one.
LastJump = Literal["argmax", "draw"]

_IMPOSSIBLE: Final = 1e-20
# Evaluations whose mean is the likelihood of a sample.
_SCORED: Final = 5
_CPU: Final = torch.device("cpu")


def stream_key(seed: int, stream: int) -> int:
    """Where the stream with this number begins for a seed, 0 to 2^64 - 1."""
    return _mixed((_mixed(seed & _WORD) + (stream + 1) * _STEP) & _WORD)


def uniform(key: int, start: int, stop: int, device: torch.device) -> Tensor:
    """The numbers `start` to `stop` of a stream, in [0, 1) in steps of 2^-24, float32."""
    word = torch.arange(start + 1, stop + 1, device=device)
    word *= _signed(_STEP)
    word += _signed(key)
    shifted = torch.empty_like(word)
    for shift, factor in _ROUNDS:
        _fold(word, shift, shifted)
        word *= _signed(factor)
    _fold(word, _LAST_SHIFT, shifted)
    word >>= 64 - _KEPT_BITS
    word &= (1 << _KEPT_BITS) - 1
    return word.float().mul_(2.0**-_KEPT_BITS)


def _fold(word: Tensor, shift: int, shifted: Tensor) -> None:
    """Exclusive or of a word with itself moved right, in place; the sign bit is a bit like any."""
    torch.bitwise_right_shift(word, shift, out=shifted)
    shifted &= (1 << (64 - shift)) - 1
    word ^= shifted


def _mixed(word: int) -> int:
    for shift, factor in _ROUNDS:
        word = ((word ^ (word >> shift)) * factor) & _WORD
    return word ^ (word >> _LAST_SHIFT)


def _signed(word: int) -> int:
    """The signed number of the same 64 bits."""
    return word - (1 << 64) if word >> 63 else word


@dataclass(frozen=True, eq=False)
class Samples:
    """Clean graphs drawn for one hypothesis.

    Attributes:
        bond_class: int64 (c, M).
        log_likelihood: Mean over the last evaluations (five at most) of the summed
            log-probability that the network gives to the finished graph, but for bonds that are
            known, float32 (c,).
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

    Each evaluation has a stream of its own and each sample its part of it, so a sample's numbers do
    not depend on how samples are cut into chunks, on other spectra, or on the device.

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
        key = stream_key(self.seed, evaluation)
        numbers = uniform(key, start * self.n_pairs, stop * self.n_pairs, device)
        return numbers.view(stop - start, self.n_pairs)


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """What is the same for all chunks of one hypothesis.

    Attributes:
        plan: Steps to visit.
        marginal: Bond-class frequencies, (C,), on the device to run on.
        alpha_bar: Cumulative signal share, (T + 1,), on the device to run on.
        noise: Numbers for all S samples.
        temperature: Divides the clean-bond logits.
        timestep_offset: Share of the way to T that is added to the step which the network is given.
            It learnt on noised molecules, whose bonds agree; what it draws itself agrees less, and
            given a later step it trusts that less ("exposure bias").
        last_jump: How sampling ends.
        start: Graphs to begin from, noised to the plan's first step, int64 (S, M); None for pure
            noise.
        held: Bond classes that are known, -1 where they are free, int64 (S, M); None where all
            are. The network is given them at every step, as known.
    """

    plan: JumpPlan
    marginal: Tensor
    alpha_bar: Tensor
    noise: Noise
    temperature: float = 1.0
    timestep_offset: float = 0.0
    last_jump: LastJump = "argmax"
    start: Tensor | None = None
    held: Tensor | None = None

    def offset_step(self, t: int) -> int:
        """The step that the network is given at step t."""
        return t + round(self.timestep_offset * (len(self.alpha_bar) - 1 - t))


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
    held = None if task.held is None else task.held[rows]
    bond = _with_held(_first_classes(task, rows), held)
    recent: list[Tensor] = []
    for number, (t, s) in enumerate(task.plan.jumps(), 1):
        check()
        shown = bond if held is None else bond + len(task.marginal) * (held >= 0)
        logits = denoise(shown, task.offset_step(t)).float()
        log_prob = torch.log_softmax(logits / task.temperature, -1)
        recent = [*recent[1 - _SCORED :], log_prob]
        if s or task.last_jump == "draw":
            a_s, a_t = task.alpha_bar[s], task.alpha_bar[t]
            posterior = skipped_posterior(log_prob.exp(), bond, a_s, a_t, task.marginal)
            bond = draw_classes(posterior, task.noise.uniform(number, rows, bond.device))
        else:
            bond = log_prob.argmax(-1)
        bond = _with_held(bond, held)
    drawn = 1 if held is None else held < 0
    chosen = [(p.gather(-1, bond[..., None])[..., 0] * drawn).sum(1) for p in recent]
    log_prob = recent[-1]
    if held is not None:  # so that a repair leaves them alone
        certain = torch.log(one_hot(held.clamp_min(0), log_prob.shape[-1]) + _IMPOSSIBLE)
        log_prob = torch.where(held[..., None] < 0, log_prob, certain)
    return Samples(bond, torch.stack(chosen).mean(0), log_prob)


def _with_held(bond: Tensor, held: Tensor | None) -> Tensor:
    """The classes (c, M) with those that are known in place."""
    return bond if held is None else torch.where(held < 0, bond, held)


def _first_classes(task: SamplingTask, rows: slice) -> Tensor:
    """Classes at the first step of the plan, (c, M)."""
    uniform = task.noise.uniform(0, rows, task.marginal.device)
    if task.start is None:
        return draw_classes(task.marginal.expand(*uniform.shape, -1), uniform)
    share = task.alpha_bar[task.plan.timesteps[0]]
    return corrupt(task.start[rows], share.expand(len(uniform)), task.marginal, uniform)


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


def draw_in_chunks(
    denoiser_of: Callable[[int], Denoise],
    tasks: Sequence[SamplingTask],
    chunk_of: Callable[[int], int],
    check: Callable[[], None],
    at_once: int = 1,
) -> tuple[Samples, tuple[str, ...]]:
    """Draw the samples of tasks, one task after the other; they come back on the CPU.

    When CUDA runs out of memory the chunk is halved, and the notes say so.

    Args:
        denoiser_of: A denoiser for so many samples.
        tasks: What to draw, at least one.
        chunk_of: Samples drawn together, of so many.
        check: Called before every evaluation; may raise to stop.
        at_once: Chunks drawn side by side, each on a CPU thread of its own.

    Returns:
        The samples, and notes for the run record.
    """
    parts: list[Samples] = []
    notes: list[str] = []
    for task in tasks:
        done, samples = 0, task.noise.samples
        chunk = chunk_of(samples)
        if at_once > 1:
            parts += _side_by_side(denoiser_of, task, chunk, check, at_once)
            continue
        while done < samples:
            rows = slice(done, min(done + chunk, samples))
            try:
                drawn = sample(denoiser_of(rows.stop - rows.start), task, rows, check)
            except RuntimeError as error:
                if chunk == 1 or not is_out_of_memory(error):
                    raise
                chunk //= 2
                notes.append(f"out of device memory: samples per chunk halved to {chunk}")
                continue
            parts.append(drawn.cpu())
            done = rows.stop
    return Samples.join(parts), tuple(notes)


def _side_by_side(
    denoiser_of: Callable[[int], Denoise],
    task: SamplingTask,
    chunk: int,
    check: Callable[[], None],
    at_once: int,
) -> list[Samples]:
    """Each chunk on one thread: cores then wait for each other once a spectrum, not once a product.

    Two threads on one product took longer than one; on two chunks they take half the time.
    """
    stopped = threading.Event()

    def check_all() -> None:
        if stopped.is_set():
            raise CancelledError
        check()

    def draw_alone(start: int) -> Samples:
        torch.set_num_threads(1)  # holds for the products of this Python thread
        rows = slice(start, min(start + chunk, task.noise.samples))
        with torch.inference_mode():
            return sample(denoiser_of(rows.stop - start), task, rows, check_all)

    with ThreadPoolExecutor(at_once, "draw") as pool:
        drawn = [pool.submit(draw_alone, n) for n in range(0, task.noise.samples, chunk)]
        try:
            return [part.result() for part in drawn]
        finally:  # after an error or Ctrl-C the other chunks stop at their next evaluation
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
