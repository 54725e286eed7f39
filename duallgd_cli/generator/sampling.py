"""How the samples of one hypothesis are drawn: steps, chunks, threads and time.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion import LastJump, SamplingTask, alpha_bar, parse_schedule
from duallgd_cli.model.settings import DiffusionSettings
from duallgd_cli.predict.generation import OutOfTimeError


def deadline(
    seconds: float | None, finish: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """A function that raises OutOfTimeError once these seconds, from now on, are over.

    Args:
        seconds: None are never over.
        finish: Waits for what the device was asked to do; without it a GPU's steps would all be
            begun before the clock has moved. Called before each look at the clock, if there is one.
    """
    if seconds is None:
        return lambda: None
    at = time.monotonic() + seconds

    def check() -> None:
        finish()
        if time.monotonic() > at:
            raise OutOfTimeError

    return check


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Products inside are summed in one order, whatever the number of threads: the same digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sampling_task(
    process: DiffusionSettings,
    settings: SamplingSettings,
    seed: int,
    n_pairs: int,
    device: torch.device,
    last_jump: LastJump = "argmax",
) -> SamplingTask:
    """All samples of one hypothesis as settings ask for them.

    Args:
        process: Of the network that denoises.
        settings: Schedule, steps, samples, temperature and timestep offset.
        seed: Of the noise.
        n_pairs: M.
        device: Where they are drawn.
        last_jump: How sampling ends.
    """
    schedule = process.schedule if settings.schedule is None else settings.schedule
    return SamplingTask(
        plan=parse_schedule(schedule, process.n_steps, settings.steps),
        marginal=torch.tensor(process.marginal, device=device),
        alpha_bar=alpha_bar(process.n_steps).to(device),
        seed=seed,
        samples=settings.samples,
        n_pairs=n_pairs,
        temperature=settings.temperature,
        timestep_offset=process.time_shift if settings.time_shift is None else settings.time_shift,
        last_jump=last_jump,
    )


def samples_at_once(
    n_pairs: int,
    settings: SamplingSettings,
    device: torch.device,
    pair_bytes: int,
    most_pairs_on_cpu: int = 8_192,
) -> int:
    """Samples drawn together: by the number of pairs, the settings and the kind of device alone.

    Args:
        n_pairs: M.
        settings: Samples and memory.
        device: Where they are drawn.
        pair_bytes: Working memory of one pair in a forward pass, all layers' live tensors together.
        most_pairs_on_cpu: Beyond these a CPU's caches are too small and candidates get slower.
    """
    pairs = settings.max_memory_mib * (1 << 20) // pair_bytes
    if device.type == "cpu":
        pairs = min(pairs, most_pairs_on_cpu)
    most = max(1, min(settings.samples, pairs // n_pairs))
    chunks = math.ceil(settings.samples / most)
    if device.type == "cpu" and chunks > 1:
        chunks += chunks % 2  # so that neither of two threads waits for the other's last one
    return math.ceil(settings.samples / chunks)  # chunks of like size take a like time
