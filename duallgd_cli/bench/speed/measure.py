"""Time and peak memory of a piece of work on this machine."""

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

MIB: Final = 1 << 20
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_FORGET_PEAK: Final = "5"

CUDA_ALLOCATOR: Final = "peak of the CUDA allocator above what was allocated before"
PEAK_RSS: Final = "peak RSS above RSS before, fresh process, peak reset (VmHWM)"
CHILD_RSS: Final = "peak RSS above peak RSS before, fresh process (ru_maxrss)"


@dataclass(frozen=True, slots=True)
class Times:
    """Of some runs.

    Attributes:
        wall_s: By the clock.
        cpu_s: Of all threads of the process.
    """

    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]


def wait_for(device: torch.device) -> None:
    """Return when the device has done everything it was told."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def timed(run: Callable[[], object], repeats: int, limit_s: float, device: torch.device) -> Times:
    """Run repeatedly and take times.

    Args:
        run: The work.
        repeats: Runs, at most; one at least.
        limit_s: No further run once all runs together took so long.
        device: Waited for before the clock is read.
    """
    wall: list[float] = []
    cpu: list[float] = []
    while not wall or (len(wall) < repeats and sum(wall) < limit_s):
        wait_for(device)
        started, worked = time.perf_counter(), time.process_time()
        run()
        wait_for(device)
        cpu.append(time.process_time() - worked)
        wall.append(time.perf_counter() - started)
    return Times(tuple(wall), tuple(cpu))


def peak_memory(run: Callable[[], object], device: torch.device) -> tuple[float, str]:
    """Run once; the most memory it took above what was there before, in MiB, and how it was read.

    On a CPU the figure is meaningful in a process that has done little before.
    """
    gc.collect()
    if device.type != "cpu":
        return _allocator_peak(run, device), CUDA_ALLOCATOR
    _give_free_memory_back()
    if not _CLEAR.exists():
        return _child_peak(run), CHILD_RSS
    _CLEAR.write_text(_FORGET_PEAK, encoding="ascii")
    before = _status_mib("VmRSS")
    run()
    return max(0.0, _status_mib("VmHWM") - before), PEAK_RSS


def _allocator_peak(run: Callable[[], object], device: torch.device) -> float:
    wait_for(device)
    torch.accelerator.reset_peak_memory_stats(device)
    before = torch.accelerator.memory_allocated(device)
    run()
    wait_for(device)
    return (torch.accelerator.max_memory_allocated(device) - before) / MIB


def _child_peak(run: Callable[[], object]) -> float:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) * unit / MIB


def _status_mib(field: str) -> float:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _give_free_memory_back() -> None:
    """Return freed memory to the system, else the work hides in what loading left behind."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
