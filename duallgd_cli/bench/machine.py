"""The machine that is measured on: what it is, how fast it multiplies, how long a run takes."""

import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Measurement, Timer, timer

from duallgd_cli.model.tensors import linear
from duallgd_cli.runtime import Runtime, available_cores, device_name, versions

MIB: Final = 1 << 20
_CPU_FACTS: Final = Path("/proc/cpuinfo")
_CPU_EDGE, _DEVICE_EDGE = 1_024, 8_192
_MEMORY_EVENT: Final = "[memory]"


def clock_of(runtime: Runtime) -> str:
    """``cpu`` on one thread, whose time other processes do not move; else ``wall``."""
    return "cpu" if runtime.device.type == "cpu" and runtime.threads == 1 else "wall"


def timed(run: Callable[[], object], runtime: Runtime, seconds: float) -> Measurement:
    """Time a run after another, once at least, until so many seconds have passed."""
    clock = time.process_time if clock_of(runtime) == "cpu" else timer
    watch = Timer("run()", globals={"run": run}, timer=clock, num_threads=runtime.threads)
    return watch.blocked_autorange(min_run_time=seconds)


def peak_mib(run: Callable[[], object], runtime: Runtime) -> float:
    """Most memory of tensors above what was there before a run, in MiB."""
    if runtime.device.type != "cpu":
        runtime.synchronise()
        torch.accelerator.reset_peak_memory_stats(runtime.device)
        before = torch.accelerator.memory_allocated(runtime.device)
        run()
        runtime.synchronise()
        return (torch.accelerator.max_memory_allocated(runtime.device) - before) / MIB
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        run()
    held = most = 0
    recorded = watched.profiler.kineto_results.events()
    events = (event for event in recorded if event.name() == _MEMORY_EVENT)
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most / MIB


def describe(runtime: Runtime) -> dict[str, Any]:
    """The machine in words: processor, cores, instructions, accelerator, versions and load."""
    model = None
    if _CPU_FACTS.is_file():
        text = _CPU_FACTS.read_text(encoding="utf-8", errors="replace")
        model = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cores": available_cores(),
        "threads": runtime.threads,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "accelerator": None if runtime.device.type == "cpu" else device_name(runtime.device),
        "system": f"{platform.system()} {platform.machine()}",
        **versions(),
        # Processes that wanted a processor in the last minute, where somebody counts them.
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def ceiling_gflop_s(runtime: Runtime) -> float:
    """What the machine reaches now in matrix products of the runtime's precision, in GFLOP/s."""
    edge = _CPU_EDGE if runtime.device.type == "cpu" else _DEVICE_EDGE
    left = torch.rand(edge, edge, device=runtime.device, dtype=getattr(torch, runtime.precision))
    with torch.inference_mode():
        # On a CPU the network's linear maps may go through another library than torch.mm does.
        took = [
            min(timed(run, runtime, 0.2).times)
            for run in (lambda: torch.mm(left, left), lambda: linear(left, left))
        ]
    return 2 * edge**3 / min(took) / 1e9
