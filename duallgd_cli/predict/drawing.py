"""Drawing all samples of one hypothesis with a denoiser, in chunks, in time and in memory."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.jumps import parse_schedule
from duallgd_cli.diffusion.sampler import (
    Denoise,
    LastJump,
    Noise,
    Samples,
    SamplingTask,
    sample,
)
from duallgd_cli.diffusion.schedule import alpha_bar
from duallgd_cli.model.settings import DiffusionSettings
from duallgd_cli.predict.generation import OutOfTimeError

if TYPE_CHECKING:
    from duallgd_cli.reference.settings import ReferenceSettings


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
    process: "DiffusionSettings | ReferenceSettings",
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
        noise=Noise(seed, settings.samples, n_pairs),
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
