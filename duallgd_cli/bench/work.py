"""How much there is to do, what the machine can do, and so the time that nothing can beat.

Counted is what the fast path calls: multiplications and additions of matrix products, exponentials
(softmax, GELU and their kind), and bytes of parameters. A floor takes the larger of the time for
arithmetic at the machine's measured rates and of the time to read the parameters.
"""

import math
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from duallgd_cli.model.tensors import linear
from duallgd_cli.runtime import Runtime, available_cores, device_name, versions

MIB: Final = 1 << 20
_CPU_FACTS: Final = Path("/proc/cpuinfo")

_aten: Final = torch.ops.aten
_FUSED_ON_CPU: Final = _aten._scaled_dot_product_flash_attention_for_cpu
_ONEDNN_LINEAR: Final = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_FUSED: Final = (
    _FUSED_ON_CPU,
    _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_efficient_attention,
    _aten._scaled_dot_product_cudnn_attention,
)
_EXPONENTIALS: Final = (
    _aten.exp, _aten.exp_, _aten.exp2_, _aten._softmax, _aten._log_softmax, _aten.sigmoid,
    _aten.sigmoid_, _aten.gelu, _aten.tanh, _aten.sin, _aten.cos, _aten.log1p, _aten.elu,
)  # fmt: skip
_TRIES: Final = 4
_CPU_EDGE, _DEVICE_EDGE = 1_024, 8_192
_CPU_COPY, _DEVICE_COPY = 1 << 26, 1 << 28  # float32 numbers, beyond any cache
_CPU_CACHED, _DEVICE_MANY = 1 << 15, 1 << 27


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of one candidate-step, counted where they are called.

    Attributes:
        flop: Of matrix products, a multiplication and an addition being two.
        exponentials: Elements of softmax, exp, sigmoid, GELU and the like.
        parameter_bytes: Of the parameters of the part, which an evaluation reads once at least.
    """

    flop: float
    exponentials: float
    parameter_bytes: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a machine reaches with as many threads as the study uses.

    Attributes:
        flop_s: Matrix products per second by precision, in FLOP.
        exponentials_s: Of float32 numbers.
        bytes_s: Read and written, in a copy.
        arithmetic_overlaps: Whether exponentials run beside products, as on a GPU.
    """

    flop_s: Mapping[str, float]
    exponentials_s: float
    bytes_s: float
    arithmetic_overlaps: bool


def count_work(run: Callable[[], object], measured: nn.Module) -> Work:
    """Count what one run does.

    Args:
        run: An evaluation for one graph.
        measured: Its parameters are what must be read.
    """
    unknown = {_FUSED_ON_CPU: _attention_flop, _ONEDNN_LINEAR: _linear_flop}
    products = FlopCounterMode(display=False, custom_mapping=unknown)
    others = _Exponentials()
    # Not in inference mode, where composite operations do not come apart.
    with torch.no_grad(), products, others:
        run()
    return Work(
        flop=float(products.get_total_flops()),
        exponentials=others.total,
        parameter_bytes=float(sum(p.numel() * p.element_size() for p in measured.parameters())),
    )


def floor_s(
    work: Work, samples: int, steps: int, at_once: int, rates: Ceilings, precision: str
) -> float:
    """Seconds that so much work takes at least.

    Args:
        work: Of one candidate-step.
        samples: Candidates.
        steps: Evaluations one after the other.
        at_once: Candidates for which the parameters are read together.
        rates: Of the machine.
        precision: Of the network.
    """
    products = work.flop / rates.flop_s[precision]
    exponentials = work.exponentials / rates.exponentials_s
    overlap = rates.arithmetic_overlaps
    arithmetic = max(products, exponentials) if overlap else products + exponentials
    memory = steps * math.ceil(samples / at_once) * work.parameter_bytes / rates.bytes_s
    return max(samples * steps * arithmetic, memory)


def describe(runtime: Runtime) -> dict[str, Any]:
    """The machine in words: processor, cores, instructions, accelerator, versions and load."""
    known = None
    if _CPU_FACTS.is_file():
        text = _CPU_FACTS.read_text(encoding="utf-8", errors="replace")
        known = re.search(r"^model name\s*:\s*(.+)", text, re.MULTILINE)
    return {
        "cpu": known[1] if known else platform.processor() or platform.machine(),
        "cores": available_cores(),
        "threads": runtime.threads,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "accelerator": None if runtime.device.type == "cpu" else device_name(runtime.device),
        "system": f"{platform.system()} {platform.machine()}",
        **versions(),
        # Processes that wanted a processor in the last minute, where somebody counts them.
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def measure_ceilings(runtime: Runtime) -> Ceilings:
    """Find out what the machine reaches now in float32 and in the runtime's precision."""
    device, on_cpu = runtime.device, runtime.device.type == "cpu"
    numbers = torch.rand(_CPU_COPY if on_cpu else _DEVICE_COPY, device=device)
    target = torch.empty_like(numbers)
    few = torch.rand(_CPU_CACHED if on_cpu else _DEVICE_MANY, device=device)
    out = torch.empty_like(few)
    rounds = 200 if on_cpu else 1
    exponentials = _best(lambda: [torch.exp(few, out=out) for _ in range(rounds)], runtime)
    precisions = sorted({"float32", runtime.precision})
    return Ceilings(
        flop_s={name: _products(getattr(torch, name), runtime) for name in precisions},
        exponentials_s=rounds * few.numel() / exponentials,
        bytes_s=2 * numbers.nbytes / _best(lambda: target.copy_(numbers), runtime),
        arithmetic_overlaps=not on_cpu,
    )


def _products(dtype: torch.dtype, runtime: Runtime) -> float:
    edge = _CPU_EDGE if runtime.device.type == "cpu" else _DEVICE_EDGE
    left = torch.rand(edge, edge, device=runtime.device, dtype=dtype)
    out = torch.empty_like(left)
    took = _best(lambda: torch.mm(left, left, out=out), runtime)
    # On a CPU the network's linear maps may go through another library than torch.mm does.
    return 2 * edge**3 / min(took, _best(lambda: linear(left, left), runtime))


def _best(run: Callable[[], object], runtime: Runtime) -> float:
    """Shortest of some runs; on one thread in CPU time, which other processes do not move."""
    with torch.inference_mode():
        run()
        wall, cpu = timed(run, _TRIES, math.inf, runtime)
    return min(cpu if runtime.device.type == "cpu" and runtime.threads == 1 else wall)


def timed(
    run: Callable[[], object], repeats: int, limit_s: float, runtime: Runtime
) -> tuple[list[float], list[float]]:
    """Run repeatedly; seconds of each run by the clock, and CPU seconds over all threads.

    Args:
        run: The work.
        repeats: Runs, at most; one at least.
        limit_s: No further run once all runs together took so long.
        runtime: Whose device is waited for before the clock is read.
    """
    wall: list[float] = []
    cpu: list[float] = []
    while not wall or (len(wall) < repeats and sum(wall) < limit_s):
        runtime.synchronise()
        started, worked = time.perf_counter(), time.process_time()
        run()
        runtime.synchronise()
        cpu.append(time.process_time() - worked)
        wall.append(time.perf_counter() - started)
    return wall, cpu


class _Exponentials(TorchDispatchMode):
    """Adds up the exponentials of all operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0.0

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call the operation and count it."""
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet in _EXPONENTIALS:
            self.total += out.numel()
        elif packet in _FUSED:
            query, key = args[0], args[1]
            self.total += query.numel() // query.shape[-1] * key.shape[-2]
        return out


def _attention_flop(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: object, **__: object
) -> int:
    """Two products of matrices for each head: queries with keys, weights with values."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _linear_flop(x: Sequence[int], *_: object, out_shape: Sequence[int], **__: object) -> int:
    """A multiplication and an addition for each weight and row."""
    return 2 * math.prod(x) * out_shape[-1]
