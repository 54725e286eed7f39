"""The machine that figures were measured on, in words."""

import os
import platform
from pathlib import Path
from typing import Any, Final

import torch

from duallgd_cli import __version__
from duallgd_cli.runtime import Runtime, available_cores, device_name

_CPU_FACTS: Final = Path("/proc/cpuinfo")
# Instructions that decide how fast matrix products are.
_FLAGS: Final = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "asimd")


def describe(runtime: Runtime) -> dict[str, Any]:
    """Processor, cores, instructions, accelerator, versions and load."""
    facts = _cpu_facts()
    flags = facts.get("flags", facts.get("Features", "")).split()
    return {
        "cpu": facts.get("model name") or platform.processor() or platform.machine(),
        "cores": available_cores(),
        "threads": runtime.threads,
        "instructions": [flag for flag in _FLAGS if flag in flags],
        "accelerator": None if runtime.device.type == "cpu" else device_name(runtime.device),
        "system": f"{platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "duallgd": __version__,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cpu_facts() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo, where there is such a file."""
    try:
        text = _CPU_FACTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
