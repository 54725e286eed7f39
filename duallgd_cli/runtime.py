"""Device, precision, compilation, threads, ranks and the environment: decided here, nowhere else.

This module must not import torch when it is imported: the command line calls `prepare_environment`
first, and OpenMP reads its settings when torch is loaded. Nor what loads the socket module, as
`multiprocessing` and `importlib.metadata` do: ``duallgd --help`` needs nothing of the network.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from duallgd_cli import __version__
from duallgd_cli.errors import UsageError, WorkerDiedError, quote
from duallgd_cli.files import memory_bytes

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_LIBRARIES: Final = ("torch", "numpy", "rdkit", "lxml")
_CHOICES: Final = {"precision": ("auto", "float32", "bfloat16"), "compile": ("auto", "on", "off")}

_ENVIRONMENT: Final = {
    # Idle OpenMP threads sleep instead of spinning: with one of two cores busy elsewhere, spinning
    # barriers made a 10-atom forward pass 100 times slower.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    # numpy's own products are small: its threads would only take cores from those that draw.
    "OPENBLAS_NUM_THREADS": "1",
    # Kernels that oneDNN and PyTorch's layer over it keep, by shape: by default 1,024 each, and so
    # some 25 to 45 MiB for each number of atoms. With fewer a spectrum makes its own anew.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "96",
    "LRU_CACHE_CAPACITY": "96",
    "KINETO_LOG_LEVEL": "99",  # a silent profiler
}

# glibc's M_MMAP_THRESHOLD (its largest allowed value), M_TRIM_THRESHOLD and M_TOP_PAD, in bytes.
_MALLOC_OPTIONS: Final = ((-3, 1 << 25), (-1, (1 << 31) - 1), (-2, 1 << 26))

_MOST_THREADS: Final = 1024  # some tens of thousands leave no memory to load libraries into

_MOST_ON_A_GPU: Final = 16  # processes: about so many keep it busy
# Bytes of the machine's memory and of a GPU's that there must be for each process; it takes less.
_OF_MEMORY: Final = 3 << 30
_OF_A_GPU: Final = 2 << 30

_AHEAD: Final = 4  # chunks of items for each process that are under way
_AGAIN: Final = "free some memory, or take fewer --workers or $OMP_NUM_THREADS, and run it again"

# Lets libraries choose their kernels and allocate before a CUDA graph is captured.
_WARM_UP_CALLS: Final = 2

_SIBLINGS: Final = "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
_CGROUP_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Runtime:
    """Where and how the network runs, resolved once per command."""

    device: torch.device  # the torch device that holds the network
    # lower precision of the network's matrix products; None for float32 alone
    autocast_dtype: torch.dtype | None
    compile: bool  # whether CUDA graphs are captured; see `capture`
    threads: int  # CPU threads of one operation
    rank: int = 0  # this process among `world_size`, from 0
    world_size: int = 1  # number of cooperating processes

    @classmethod
    def resolve(
        cls,
        device: str = "auto",
        precision: str = "auto",
        compile: str = "auto",
        threads: int | None = None,
    ) -> Runtime:
        """Decide from what was asked for and what the machine has, and set torch's threads.

        Devices are ``auto`` (CUDA where there is one), ``cpu``, ``cuda``, ``cuda:1`` and ``mps``.
        What is ``auto`` takes bfloat16 on CUDA that has it, and compiles on CUDA only.

        Raises:
            UsageError: A value is unknown, or the device is not there.
        """
        import torch

        for name, value in (("precision", precision), ("compile", compile)):
            if value not in _CHOICES[name]:
                choices = ", ".join(_CHOICES[name])
                raise UsageError(f"{name} must be one of {choices}, not {quote(value)}")
        if threads is not None and not 1 <= threads <= _MOST_THREADS:
            raise UsageError(f"threads must be 1 to {_MOST_THREADS}, not {threads}")
        # As torchrun sets them; 0, 0, 0 for a single process.
        texts = [os.environ.get(name, "") for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
        rank, local_rank, world_size = (int(text) if text.isdigit() else 0 for text in texts)
        chosen = _device(device, local_rank)
        on_cuda = chosen.type == "cuda"
        has_bfloat16 = on_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
        lower = precision == "bfloat16" or (precision == "auto" and has_bfloat16)
        runtime = cls(
            device=chosen,
            autocast_dtype=torch.bfloat16 if lower else None,
            compile=compile == "on" or (compile == "auto" and on_cuda),
            threads=threads or default_threads(),
            rank=rank,
            world_size=max(1, world_size),
        )
        torch.set_num_threads(runtime.threads)
        # glibc keeps freed memory: else every large temporary is mapped and page-faulted anew.
        with contextlib.suppress(OSError, AttributeError):  # other C libraries have no mallopt
            mallopt = ctypes.CDLL(None).mallopt
            for option, size in _MALLOC_OPTIONS:
                mallopt(option, size)
        _log.info("%s", runtime)
        if lower and not _multiplies_bfloat16(chosen):
            _log.warning(
                "this processor has no arithmetic in bfloat16, which takes it several times as "
                "long; leave --precision out"
            )
        return runtime

    @property
    def precision(self) -> str:
        """Precision of the network's matrix products, ``float32`` or ``bfloat16``."""
        return "float32" if self.autocast_dtype is None else "bfloat16"

    @property
    def default_workers(self) -> int:
        """Processes if nobody says: one a thread, as memory lets them."""
        most = min(self.threads, memory_bytes() // _OF_MEMORY)
        if self.device.type == "cuda":
            import torch

            free, _ = torch.cuda.mem_get_info(self.device)
            most = min(most, free // _OF_A_GPU, _MOST_ON_A_GPU)
        return max(1, most)

    def graph_pool(self) -> torch.cuda._POOL_HANDLE | None:
        """Working memory for captured graphs to share; None where `captures` is false."""
        import torch

        return torch.cuda.graph_pool_handle() if self.captures else None

    @property
    def captures(self) -> bool:
        """Whether `capture` makes a CUDA graph."""
        return self.compile and self.device.type == "cuda"

    def capture(
        self, function: Callable[[], torch.Tensor], pool: torch.cuda._POOL_HANDLE | None = None
    ) -> Callable[[], torch.Tensor]:
        """The function as one launch of a CUDA graph, or as it is where `captures` is false.

        A network's hundreds of small kernels then cost one call of the host. The function reads
        and writes the same tensors at each call, takes no decision by their values and moves
        nothing to the host; its result is overwritten by the next call. Of graphs that share the
        working memory of a pool only one may run at a time.
        """
        if not self.captures:
            return function
        import torch

        with torch.cuda.device(self.device):
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(_WARM_UP_CALLS):
                    function()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                result = function()

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay

    def synchronise(self) -> None:
        """Wait until the device has done all that it was asked to do; a CPU always has."""
        import torch

        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def autocast(self) -> torch.autocast:
        """Context in which matrix products run in `autocast_dtype`; does nothing in float32."""
        import torch

        enabled = self.autocast_dtype is not None
        return torch.autocast(self.device.type, dtype=self.autocast_dtype, enabled=enabled)

    def __str__(self) -> str:
        """One line for logs and run records."""
        words = [f"device {self.device}", f"precision {self.precision}", f"threads {self.threads}"]
        words.append(f"compile {'on' if self.compile else 'off'}")
        if self.world_size > 1:
            words.append(f"rank {self.rank} of {self.world_size}")
        return ", ".join(words)


def versions() -> dict[str, str]:
    """Version of duallgd, of Python and of the libraries that results depend on."""
    return {
        "duallgd": __version__,
        "python": platform.python_version(),
        **{library: version_of(library) or "absent" for library in _LIBRARIES},
    }


def commit() -> str:
    """The commit of a clone; "" of an installed package."""
    import subprocess

    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return ""
    return done.stdout.strip()


def version_of(library: str) -> str | None:
    """Version of a library, None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return None


def leave_to_parent() -> None:
    """Leave Ctrl-C to the process that started this one, and end when that ends, killed included.

    For processes of `multiprocessing`: nobody else is left to take what they make. A process that
    has no such parent stays as it is.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None:
        return

    def end() -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # it was kept from a process that was still starting
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=end, daemon=True).start()


@contextlib.contextmanager
def _signals_after() -> Iterator[None]:
    """Ctrl-C or SIGTERM inside waits for the end; processes that are started inside hear neither.

    Those that still load libraries would print where they were, and a semaphore that was made but
    not yet noted would be reported as leaked.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # By the last of them `stoppable` hands the others on.
    kept = {signal.SIGINT, signal.SIGTERM, signal.SIGURG}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, kept)
    try:
        resource_tracker.ensure_running()  # which lets Ctrl-C and SIGTERM through again
        signal.pthread_sigmask(signal.SIG_BLOCK, kept)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_order(
    work: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    at_a_time: int = 500,
    go_on: str = _AGAIN,
) -> Iterator[R]:
    """What work on each item gives, in their order, from processes that share what takes minutes.

    Work is a function of a module, so that other processes find it. Of the items, of which each
    process takes some at a time, not much more is read than is under way; what one would take at
    once is done here. An error, here or in whoever takes the results, ends the processes at once.

    Raises:
        WorkerDiedError: A process was ended from outside; `go_on` ends the sentence.
    """
    remaining = iter(items)
    first = list(islice(remaining, at_a_time)) if workers > 1 else []
    if len(first) < at_a_time:
        yield from map(work, chain(first, remaining))
        return
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    remaining, waiting = chain(first, remaining), deque[Future[list[R]]]()
    with _signals_after():  # forking a process that holds threads of torch can hang it
        pool = ProcessPoolExecutor(workers, get_context("spawn"), leave_to_parent)
    try:
        while some := list(islice(remaining, at_a_time)):
            with _signals_after():
                waiting.append(pool.submit(_each, work, some))
            if len(waiting) > _AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BaseException as error:
        # Nobody waits for work that is dropped; Python 3.14 has a way for it.
        for process in dict(pool._processes or {}).values():
            process.kill()
        if not isinstance(error, BrokenProcessPool):
            raise
        raise WorkerDiedError(
            f"a process was ended from outside, probably for want of memory; {go_on}"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _each(work: Callable[[T], R], items: list[T]) -> list[R]:
    return [work(item) for item in items]


def prepare_environment() -> None:
    """Make idle CPU threads sleep, caches small and the profiler silent; what the user set is kept.

    Has its effect only before torch is imported, so the command line calls it first of all.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def default_threads() -> int:
    """CPU threads to use when nobody says: $OMP_NUM_THREADS, else the cores at hand."""
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return int(text) if text.isdigit() and int(text) > 0 else available_cores()


def available_cores() -> int:
    """Physical cores that this process may use: its affinity mask within its container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
    else:  # macOS and Windows have no affinity mask
        cpus = set(range(os.cpu_count() or 1))
    cores = set[str]()
    for cpu in cpus:
        try:
            cores.add(Path(_SIBLINGS.format(cpu=cpu)).read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    try:
        limit, period = _CGROUP_QUOTA.read_text(encoding="ascii").split()
        return max(1, min(len(cores), int(limit) // int(period)))
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return max(1, len(cores))


def device_name(device: torch.device) -> str:
    """What the maker calls a CUDA device; the kind of any other device."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def cache_folder() -> Path:
    """Where what can be made again is kept: $DUALLGD_CACHE, or ``~/.cache/duallgd``."""
    return Path(os.environ.get("DUALLGD_CACHE") or Path.home() / ".cache" / "duallgd")


def databases_folder() -> Path:
    """Where databases lie: $DUALLGD_DATABASES, or ``~/.local/share/duallgd/databases``."""
    given = os.environ.get("DUALLGD_DATABASES")
    return Path(given or Path.home() / ".local" / "share" / "duallgd" / "databases")


def weights_from_environment() -> str | None:
    """$DUALLGD_WEIGHTS: a weights file or a folder of them, or None."""
    return os.environ.get("DUALLGD_WEIGHTS") or None


def shows_tracebacks() -> bool:
    """$DUALLGD_TRACEBACK: whether errors that nobody expected keep their tracebacks."""
    return bool(os.environ.get("DUALLGD_TRACEBACK"))


def _multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has arithmetic in bfloat16, or nothing is known of it."""
    import torch

    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    return device.type != "cpu" or bool(supported())


def _device(text: str, local_rank: int) -> torch.device:
    import torch

    if text == "auto":
        text = "cuda" if torch.cuda.is_available() else "cpu"
    if text.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise UsageError(f"device {quote(text)} is unknown; use auto, cpu, cuda, cuda:0 or mps")
    try:
        device = torch.device(text)
    except RuntimeError:
        raise UsageError(f"device {quote(text)} is not of the form cuda:0") from None
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError("device mps was asked for, but this machine has none; use --device cpu")
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = local_rank if device.index is None else device.index
    if index >= count:
        raise UsageError(
            f"device cuda:{index} was asked for, but PyTorch sees {count} CUDA devices; "
            f"use --device cpu or install a CUDA build of PyTorch"
        )
    return torch.device("cuda", index)
