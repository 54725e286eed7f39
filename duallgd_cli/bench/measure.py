"""One thing measured: its time, its peak of memory, its operations; on a CPU in a fresh process.

What is measured: the attention over pairs, one evaluation, the whole loop of the network. Its
weights are trained ones, its inputs are made: a formula in about the proportions of natural
products, and from a seed unlikely bits and noisy bonds.

Letters: B graphs, N heavy atoms, M = N (N - 1) / 2 pairs, E channels of a pair, S candidates, J
steps.
"""

import ctypes
import gc
import importlib
import math
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from duallgd_cli.bench.growth import KERNELS
from duallgd_cli.bench.work import MIB, Work, count_work, timed, wait_for
from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.elements import HYDROGEN, INDEX, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion import alpha_bar, corrupt
from duallgd_cli.errors import DuallgdError
from duallgd_cli.generator.network import ModelGenerator, chunk_size, formula_condition
from duallgd_cli.generator.rewritten import for_inference
from duallgd_cli.model.duallgd import Condition, DualLGD
from duallgd_cli.model.layers import DualStreamLayer, Masks
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime, leave_to_parent

PEAK_RSS: Final = "peak RSS above RSS before, fresh process, peak reset (VmHWM)"
CHILD_RSS: Final = "peak RSS above peak RSS before, fresh process (ru_maxrss)"
CUDA_ALLOCATOR: Final = "peak of the CUDA allocator above what was allocated before"
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_FORGET_PEAK: Final = "5"
# Libraries load their kernels in a first run of so many atoms, lest that count as the work's.
_WARM_UP_ATOMS: Final = 5
_LEAST_S: Final = 1e-9
_MAX_NITROGENS: Final = 5
R = TypeVar("R")
# Does the work of a cell once, whose tensor is what paths are compared by; and the module whose
# parameters the work reads.
Job = tuple[Callable[[], Tensor], nn.Module]


@dataclass(frozen=True, slots=True)
class Study:
    """What is measured, where and how.

    Attributes:
        atoms: Every N.
        kernels: Of the attention over pairs: ``softmax``, ``favor``.
        paths: ``fast``, the network as shipped, and what a study compares with it.
        samples: Candidates of the loop.
        steps: Of the loop.
        batch: Graphs of one evaluation in the other parts.
        sweeps: Whether growth with candidates and steps is measured too.
        repeats: Timed runs of a cell, after one that warms up.
        limit_s: Seconds after which a cell is not repeated any more.
        seed: Seed of inputs and noise.
        weights: A weights file or name; None takes those that come with duallgd.
        maker: Module whose ``PlainDenoiser`` other paths than ``fast`` measure.
        device: As `runtime.Runtime` takes it, like the next two.
        precision: ``float32`` or ``bfloat16``.
        threads: CPU threads.
    """

    atoms: tuple[int, ...] = ()
    kernels: tuple[str, ...] = KERNELS
    paths: tuple[str, ...] = ("fast",)
    samples: int = 1
    steps: int = 10
    batch: int = 1
    sweeps: bool = True
    repeats: int = 5
    limit_s: float = 20.0
    seed: int = 1
    weights: str | None = None
    maker: str = ""
    device: str = "cpu"
    precision: str = "float32"
    threads: int = 1

    def on(self, device: str, precision: str, threads: int | None) -> "Study":
        """The same on a machine as `runtime.Runtime` resolves it.

        Raises:
            UsageError: The device is not there, or a word is unknown.
        """
        runtime = Runtime.resolve(device, precision, threads=threads)
        lower = "float32" if runtime.autocast_dtype is None else "bfloat16"
        device, threads = str(runtime.device), runtime.threads
        return replace(self, device=device, precision=lower, threads=threads)

    @property
    def runtime(self) -> Runtime:
        """That machine."""
        return Runtime.resolve(self.device, self.precision, threads=self.threads)


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure.

    Attributes:
        study: What it is part of.
        sweep: What is varied where it stands: ``atoms``, ``candidates`` or ``steps``.
        part: ``attention`` (the attention layers of the bond stream alone), ``forward`` (one
            evaluation of the denoiser) or ``loop`` (the whole sampling loop).
        kernel: Of the attention over pairs, ``softmax`` or ``favor``.
        path: ``fast`` as shipped; a study may have others to compare with it.
        atoms: N.
        samples: Graphs of one evaluation in the first two parts, S in the loop.
        steps: J; 1 in the first two parts.
    """

    study: Study
    part: str
    kernel: str
    path: str
    atoms: int
    samples: int = 1
    steps: int = 1
    sweep: str = "atoms"

    @property
    def pairs(self) -> int:
        """M."""
        return self.atoms * (self.atoms - 1) // 2

    @property
    def sampling(self) -> SamplingSettings:
        """Steps and candidates of the loop."""
        return SamplingSettings(steps=self.steps, samples=self.samples)

    @property
    def at_once(self) -> int:
        """Candidates in one evaluation of the network."""
        if self.part != "loop":
            return self.samples
        return chunk_size(self.pairs, self.sampling, torch.device(self.study.device))

    @property
    def generator(self) -> torch.Generator:
        """Where what is made for this cell comes from."""
        return torch.Generator().manual_seed(self.study.seed)

    @property
    def evaluation(self) -> "Cell":
        """One evaluation for one graph, whose operations are counted; a loop is made of such."""
        part = "attention" if self.part == "attention" else "forward"
        return Cell(self.study, part, self.kernel, "fast", self.atoms)


@dataclass(frozen=True, eq=False)
class Reading:
    """What was read at one cell.

    Attributes:
        wall_s: Seconds of each timed run by the clock.
        cpu_s: CPU seconds of each, over all threads.
        memory_mib: Peak above what was there before, network and inputs included in that.
        memory_how: How it was read.
        about: Name of the ``weights``, ``parameters`` of the network, spectrum encoder included,
            and ``val_top1``, top-1 accuracy on validation spectra by the weights' record, or None.
        work: Of one candidate-step on the fast path, or None.
        result: The numbers by which paths are compared, float32.
    """

    wall_s: Sequence[float]
    cpu_s: Sequence[float]
    memory_mib: float
    memory_how: str
    about: dict[str, Any]
    work: Work | None
    result: NDArray[np.float32]


def read_cells(cells: Sequence[Cell]) -> list[Reading]:
    """Measure cells of one study one after the other: on a CPU, in a fresh process.

    Raises:
        DuallgdError: A cell cannot be measured, or the process ended early.
    """
    return _measured(cells) if cells[0].study.device != "cpu" else _apart(_measured, cells)


def count_ahead(cells: Sequence[Cell]) -> list[Work]:
    """Operations of evaluations for one graph, counted without computing any.

    Raises:
        DuallgdError: A network asks for values, which are not there.
    """
    return _apart(_counted, cells)


def _measured(cells: Sequence[Cell]) -> list[Reading]:
    return [measure_cell(cell) for cell in cells]


def _counted(cells: Sequence[Cell]) -> list[Work]:
    """Tables that functions keep are without values afterwards: for a process that ends then."""
    runtime = Runtime.resolve("cpu", cells[0].study.precision, threads=1)
    jobs = [job_of(cell, runtime) for cell in cells]
    with FakeTensorMode(allow_non_fake_inputs=True):
        return [count_work(*job) for job in jobs]


def _apart(work: Callable[[Sequence[Cell]], list[R]], cells: Sequence[Cell]) -> list[R]:
    """What a fresh process says of cells.

    Raises:
        DuallgdError: It failed, or ended early.
    """
    context = multiprocessing.get_context("spawn")
    answers, answering = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(work, cells, answering))
    child.start()
    answering.close()
    try:
        answer = answers.recv()
    except EOFError:
        child.join()
        killed = child.exitcode == -signal.SIGKILL
        ending = "was killed, perhaps for want of memory" if killed else "ended early"
        answer = _failure(cells[0], f"its process {ending}")
    finally:
        child.kill()  # where it is done already, that changes nothing
        child.join()
    if isinstance(answer, DuallgdError):
        raise answer
    return answer  # type: ignore[no-any-return]


def _answer(
    work: Callable[[Sequence[Cell]], list[R]], cells: Sequence[Cell], answering: Connection
) -> None:
    """Send what the work makes of cells, or the error that explains why there is nothing."""
    leave_to_parent()
    try:
        answering.send(work(cells))
    except DuallgdError as error:
        answering.send(error)
    except (MemoryError, RuntimeError) as error:  # as torch says that memory is used up
        answering.send(_failure(cells[0], str(error).partition("\n")[0]))


def _failure(cell: Cell, reason: str) -> DuallgdError:
    where = f"{cell.kernel}, {cell.atoms} atoms"
    return DuallgdError(f"measuring {where} failed: {reason}; try fewer atoms or samples")


def measure_cell(cell: Cell) -> Reading:
    """Measure a cell in this process."""
    study, runtime = cell.study, cell.study.runtime
    latest: dict[str, Tensor] = {}
    with torch.inference_mode():
        job_of(replace(cell, atoms=_WARM_UP_ATOMS, samples=1), runtime)[0]()
        once, _ = job_of(cell, runtime)

        def run() -> None:
            latest["result"] = once()

        memory: list[tuple[float, str]] = []
        device = runtime.device
        wall, cpu = timed(lambda: memory.append(peak_memory(run, device)), 1, 0.0, device)
        # Work that fills the limit by itself is not run again for warm memory, which hardly matters
        # to it; on a GPU the first run also compiles.
        if device.type != "cpu" or wall[0] < study.limit_s:
            wall, cpu = timed(run, 1, 0.0, device)
            if wall[0] * 2 < study.limit_s:
                # That run was the first to find its memory warm; with time left it only warms up.
                wall, cpu = timed(run, study.repeats, study.limit_s, device)
    work = None
    if cell.path == "fast":
        work = count_work(*job_of(cell.evaluation, replace(runtime, compile=False)))
    result = latest["result"].to("cpu", torch.float32).numpy()
    return Reading(wall, cpu, *memory[0], network_of(study.weights, cell.kernel)[1], work, result)


def expected_runs(seconds: float, study: Study) -> float:
    """How often `measure_cell` does work that takes so long: for memory, to warm up, timed."""
    if seconds >= study.limit_s:
        return 1.0
    if 2 * seconds >= study.limit_s:
        return 2.0
    return 2.0 + min(study.repeats, math.ceil(study.limit_s / max(seconds, _LEAST_S)))


def peak_memory(run: Callable[[], object], device: torch.device) -> tuple[float, str]:
    """Run once; the most memory it took above what was there before, in MiB, and how it was read.

    On a CPU the figure is meaningful in a process that has done little before.
    """
    gc.collect()
    if device.type != "cpu":
        wait_for(device)
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        run()
        wait_for(device)
        peak = torch.accelerator.max_memory_allocated(device) - before
        return peak / MIB, CUDA_ALLOCATOR
    with suppress(OSError, AttributeError):  # freed memory goes back, else the work hides in it
        ctypes.CDLL(None).malloc_trim(0)
    if not _CLEAR.exists():
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return (after - before) * unit / MIB, CHILD_RSS
    _CLEAR.write_text(_FORGET_PEAK, encoding="ascii")
    resident = _status_mib("VmRSS")
    run()
    return max(0.0, _status_mib("VmHWM") - resident), PEAK_RSS


def _status_mib(field: str) -> float:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), 0.0)


def job_of(cell: Cell, runtime: Runtime) -> Job:
    """What is run at a cell."""
    if cell.path != "fast":
        runtime = replace(runtime, compile=False)
    model = for_inference(network_of(cell.study.weights, cell.kernel)[0], runtime)
    denoiser: nn.Module = model.denoiser
    if cell.path != "fast":
        denoiser = importlib.import_module(cell.study.maker).PlainDenoiser(denoiser)
    if cell.part == "loop":
        drawing = nn.Module()  # a network as far as the loop looks at it
        drawing.settings = model.settings  # type: ignore[assignment]
        drawing.denoiser = denoiser
        generator = ModelGenerator(drawing, runtime)  # type: ignore[arg-type]
        known = condition_of(cell, model.settings).to(runtime.device)
        draw = partial(generator.draw_given, known, cell.sampling, cell.study.seed)
        return lambda: draw()[0].bond_class, denoiser
    make = _attention if cell.part == "attention" else _forward
    run, measured = make(cell, runtime, model.settings, denoiser)
    captured = cache(partial(runtime.capture, run))  # at the first run
    return lambda: captured()(), measured


def _attention(cell: Cell, runtime: Runtime, settings: ModelSettings, denoiser: nn.Module) -> Job:
    """Self-attention of all layers' bond streams, one after the other."""
    layers = [part for part in denoiser.modules() if isinstance(part, DualStreamLayer)]
    parts = [layer.pair_attention for layer in layers]
    atoms = torch.ones(cell.samples, cell.atoms, dtype=torch.bool, device=runtime.device)
    masks = Masks.of(atoms, line_graph(cell.atoms, runtime.device))
    shape = cell.samples, cell.pairs, settings.denoiser.pair_width
    start = torch.randn(shape, generator=cell.generator).to(runtime.device)  # (B, M, E)

    def run() -> Tensor:
        pairs = start
        with runtime.autocast():
            for part in parts:
                pairs = pairs + part(pairs, masks)
        return pairs

    return run, nn.ModuleList(parts)


def _forward(cell: Cell, runtime: Runtime, settings: ModelSettings, denoiser: nn.Module) -> Job:
    """One evaluation of the denoiser, its condition known, halfway from noise to molecule."""
    device, process = runtime.device, settings.diffusion
    halfway = process.n_steps // 2
    low, high = torch.triu_indices(cell.atoms, cell.atoms, 1)
    chain = (high - low == 1).long().expand(cell.samples, -1)  # (B, M)
    share = alpha_bar(process.n_steps)[halfway].expand(cell.samples)
    uniform = torch.rand(chain.shape, generator=cell.generator)
    bonds = corrupt(chain, share, torch.tensor(process.marginal), uniform).to(device)
    t = torch.full((cell.samples,), halfway, device=device)
    with torch.no_grad(), runtime.autocast():
        known = condition_of(cell, settings).to(device)
        context = denoiser.context(known).expand(cell.samples)  # type: ignore[operator]

    def run() -> Tensor:
        with runtime.autocast():
            return denoiser(bonds, t, context)  # type: ignore[no-any-return]

    return run, denoiser


@lru_cache(maxsize=4)
def network_of(weights: str | None, kernel: str) -> tuple[DualLGD, dict[str, Any]]:
    """The default network with a kernel, encoder included, and what `Reading.about` says of it.

    Many cells share it.

    Raises:
        WeightsError: Missing or broken.
    """
    path = resolve_weights(weights)
    checkpoint = load(path)
    denoiser, tensors = checkpoint.settings.denoiser, checkpoint.tensors
    is_trained = bool(denoiser.pair_features) == (kernel == "favor")
    settings = checkpoint.settings
    if not is_trained:
        drawn = ModelSettings().denoiser.pair_features if kernel == "favor" else 0
        settings = replace(settings, denoiser=replace(denoiser, pair_features=drawn))
        fresh = DualLGD(settings).state_dict()
        tensors = tensors | {n: t for n, t in fresh.items() if n.endswith(".features")}
    model = replace(checkpoint, settings=settings, tensors=tensors).build()
    known = checkpoint.record.get("ranking_validation")
    top1 = known.get("top1") if isinstance(known, dict) and is_trained else None
    count = sum(parameter.numel() for parameter in model.parameters())
    return model, {"weights": path.name, "parameters": count, "val_top1": top1}


def made_formulas(n_atoms: int, count: int) -> list[Formula]:
    """Formulas of C, H, N and O with so many heavy atoms, as different as that allows."""
    found = []
    for number in range(count):
        nitrogens = number % min(_MAX_NITROGENS, max(1, n_atoms - 1))
        oxygens = (n_atoms // 6 + number // _MAX_NITROGENS) % max(1, n_atoms - nitrogens)
        counts = [0] * N_ELEMENTS
        counts[INDEX["C"]] = n_atoms - nitrogens - oxygens
        counts[INDEX["N"]], counts[INDEX["O"]] = nitrogens, oxygens
        counts[HYDROGEN] = n_atoms + (n_atoms + nitrogens) % 2  # even-electron
        found.append(Formula(tuple(counts)))
    return found


def condition_of(cell: Cell, settings: ModelSettings) -> Condition:
    """What the network is told: a formula, and bits most of which are unlikely."""
    bits = torch.rand(settings.encoder.fingerprint_bits, generator=cell.generator).pow(8)
    return formula_condition(made_formulas(cell.atoms, 1)[0], bits, settings.memory_bits)
