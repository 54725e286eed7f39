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
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from duallgd_cli.bench.work import MIB, Ceilings, count_work, floor_s, timed
from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.elements import HYDROGEN, INDEX, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.process import alpha_bar, corrupt
from duallgd_cli.errors import DuallgdError, WorkerDiedError
from duallgd_cli.generator.network import ModelGenerator, chunk_size, formula_condition
from duallgd_cli.model.duallgd import Condition, DualLGD
from duallgd_cli.model.layers import DualStreamLayer, Masks
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.model.rewritten import for_inference
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Processes, Runtime

KERNELS: Final = ("softmax", "favor")
PARTS: Final = ("attention", "forward", "loop")
PEAK_RSS: Final = "peak RSS above RSS before, fresh process, peak reset (VmHWM)"
CHILD_RSS: Final = "peak RSS above peak RSS before, fresh process (ru_maxrss)"
CUDA_ALLOCATOR: Final = "peak of the CUDA allocator above what was allocated before"
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_FORGET_PEAK: Final = "5"
# Libraries load their kernels in a first run of so many atoms, lest that count as the work's.
_WARM_UP_ATOMS: Final = 5
_MAX_NITROGENS: Final = 5
# A line of the table: values by the names of its columns.
Row = dict[str, Any]
# Does the work of a cell once, whose tensor is what paths are compared by; and the module whose
# parameters the work reads.
Job = tuple[Callable[[], Tensor], nn.Module]


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure.

    Attributes:
        runtime: Where it runs.
        part: ``attention`` (the attention layers of the bond stream alone), ``forward`` (one
            evaluation of the denoiser) or ``loop`` (the whole sampling loop).
        kernel: Of the attention over pairs, ``softmax`` or ``favor``.
        atoms: N.
        samples: Graphs of one evaluation in the first two parts, S in the loop.
        steps: J; 1 in the first two parts.
        plain: Module whose ``PlainDenoiser`` is measured instead of the network as shipped; for a
            study that compares the two.
        repeats: Timed runs, after one that warms up.
        limit_s: Seconds after which it is not repeated any more.
        seed: Seed of inputs and noise.
        weights: A weights file or name; None takes those that come with duallgd.
    """

    runtime: Runtime
    part: str = "loop"
    kernel: str = "favor"
    atoms: int = 30
    samples: int = 1
    steps: int = 1
    plain: str = ""
    repeats: int = 5
    limit_s: float = 20.0
    seed: int = 1
    weights: str | None = None

    @property
    def pairs(self) -> int:
        """M."""
        return self.atoms * (self.atoms - 1) // 2

    @property
    def sampling(self) -> SamplingSettings:
        """Steps and candidates of the loop."""
        return SamplingSettings(steps=self.steps, samples=self.samples)

    @property
    def generator(self) -> torch.Generator:
        """Where what is made for this cell comes from."""
        return torch.Generator().manual_seed(self.seed)

    @property
    def identity(self) -> Row:
        """Columns that say what was measured, on whatever path."""
        return {
            "weights": resolve_weights(self.weights).name,
            "part": self.part,
            "kernel": self.kernel,
            "device": str(self.runtime.device),
            "precision": self.runtime.precision,
            "threads": self.runtime.threads,
            **{name: getattr(self, name) for name in ("atoms", "pairs", "samples", "steps")},
        }


def read_cells(cells: Sequence[Cell], ceilings: Ceilings) -> list[tuple[Row, NDArray[np.float32]]]:
    """Measure cells one after the other, on a CPU in a fresh process: each as `measure_cell` does.

    Raises:
        DuallgdError: A cell cannot be measured, or the process ended early.
    """
    work, reason = partial(_measured, cells, ceilings), "its process was killed"
    try:
        if cells[0].runtime.device.type != "cpu":
            return work()
        with Processes(1) as process:
            return process.submit(work)()
    except WorkerDiedError:
        reason += ", perhaps for want of memory"
    except (MemoryError, RuntimeError) as error:  # as torch says that memory is used up
        reason = str(error).partition("\n")[0]
    where = f"{cells[0].kernel}, {cells[0].atoms} atoms"
    raise DuallgdError(f"measuring {where} failed: {reason}; try fewer atoms or samples")


def _measured(cells: Sequence[Cell], ceilings: Ceilings) -> list[tuple[Row, NDArray[np.float32]]]:
    device, threads = str(cells[0].runtime.device), cells[0].runtime.threads
    Runtime.resolve(device, threads=threads)  # a fresh process has threads and memory to set up
    return [measure_cell(cell, ceilings) for cell in cells]


def measure_cell(cell: Cell, ceilings: Ceilings) -> tuple[Row, NDArray[np.float32]]:
    """Measure a cell in this process.

    Args:
        cell: What to measure.
        ceilings: What the machine reaches, for the floor.

    Returns:
        Its line of the table, and the numbers by which paths are compared. Times are medians over
        ``repeats`` runs with interquartile ranges, in seconds; ``clock`` says which of them counts.
        ``memory_mib`` is the peak above what was there before, network and inputs included in that.
        ``gflop`` is of one candidate-step, ``floor_s`` the least time for all of the work, which
        took ``over_floor`` times as long. ``val_top1`` is top-1 accuracy on validation spectra by
        the weights' record, or None.
    """
    runtime = cell.runtime
    latest: dict[str, Tensor] = {}
    memory: list[tuple[float, str]] = []
    with torch.inference_mode():
        job_of(replace(cell, atoms=_WARM_UP_ATOMS, samples=1))[0]()
        once, _ = job_of(cell)

        def run() -> None:
            latest["result"] = once()

        measure = partial(timed, runtime=runtime)
        wall, cpu = measure(lambda: memory.append(peak_memory(run, runtime)), 1, 0.0)
        # Work that fills the limit by itself is not run again for warm memory, which hardly matters
        # to it; on a GPU the first run also compiles. The next run is the first to find its memory
        # warm, and counts only if there is no time for another.
        if runtime.device.type != "cpu" or wall[0] < cell.limit_s:
            wall, cpu = (s[1:] or s for s in measure(run, 1 + cell.repeats, cell.limit_s))
    part = "attention" if cell.part == "attention" else "forward"
    plainly = replace(runtime, compile=False)
    work = count_work(
        *job_of(replace(cell, runtime=plainly, part=part, plain="", samples=1, steps=1))
    )
    at_once = cell.samples
    if cell.part == "loop":
        at_once = chunk_size(cell.pairs, cell.sampling, runtime.device)
    floor = floor_s(work, cell.samples, cell.steps, at_once, ceilings, runtime.precision)
    clock = "cpu" if runtime.device.type == "cpu" and runtime.threads == 1 else "wall"
    row = cell.identity | network_of(cell.weights, cell.kernel)[1]
    row |= {"path": "plain" if cell.plain else "fast", "at_once": at_once, "repeats": len(wall)}
    for name, seconds in (("wall", wall), ("cpu", cpu)):
        low, middle, high = np.percentile(seconds, (25, 50, 75)).tolist()
        row |= {f"{name}_s": middle, f"{name}_iqr_s": high - low}
    row |= {"clock": clock, "memory_mib": memory[0][0], "memory_how": memory[0][1]}
    row |= {"gflop": work.flop / 1e9, "floor_s": floor, "over_floor": row[f"{clock}_s"] / floor}
    return row, latest["result"].to("cpu", torch.float32).numpy()


def peak_memory(run: Callable[[], object], runtime: Runtime) -> tuple[float, str]:
    """Run once; the most memory it took above what was there before, in MiB, and how it was read.

    On a CPU the figure is meaningful in a process that has done little before.
    """
    gc.collect()
    if runtime.device.type != "cpu":
        runtime.synchronise()
        torch.accelerator.reset_peak_memory_stats(runtime.device)
        before = torch.accelerator.memory_allocated(runtime.device)
        run()
        runtime.synchronise()
        peak = torch.accelerator.max_memory_allocated(runtime.device) - before
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


def job_of(cell: Cell) -> Job:
    """What is run at a cell."""
    runtime = replace(cell.runtime, compile=False) if cell.plain else cell.runtime
    model = for_inference(network_of(cell.weights, cell.kernel)[0], runtime)
    denoiser: nn.Module = model.denoiser
    if cell.plain:
        denoiser = importlib.import_module(cell.plain).PlainDenoiser(denoiser)
    if cell.part == "loop":
        drawing = nn.Module()  # a network as far as the loop looks at it
        drawing.settings = model.settings  # type: ignore[assignment]
        drawing.denoiser = denoiser
        generator = ModelGenerator(drawing, runtime)  # type: ignore[arg-type]
        known = condition_of(cell, model.settings).to(runtime.device)
        draw = partial(generator.draw_given, known, cell.sampling, cell.seed)
        return lambda: draw()[0].bond_class, denoiser
    make = _attention if cell.part == "attention" else _forward
    run, measured = make(cell, model.settings, denoiser)
    captured = cache(partial(runtime.capture, run))  # at the first run
    return lambda: captured()(), measured


def _attention(cell: Cell, settings: ModelSettings, denoiser: nn.Module) -> Job:
    """Self-attention of all layers' bond streams, one after the other."""
    device = cell.runtime.device
    layers = [part for part in denoiser.modules() if isinstance(part, DualStreamLayer)]
    parts = [layer.pair_attention for layer in layers]
    atoms = torch.ones(cell.samples, cell.atoms, dtype=torch.bool, device=device)
    masks = Masks.of(atoms, line_graph(cell.atoms, device))
    shape = cell.samples, cell.pairs, settings.denoiser.pair_width
    start = torch.randn(shape, generator=cell.generator).to(device)  # (B, M, E)

    def run() -> Tensor:
        pairs = start
        with cell.runtime.autocast():
            for part in parts:
                pairs = pairs + part(pairs, masks)
        return pairs

    return run, nn.ModuleList(parts)


def _forward(cell: Cell, settings: ModelSettings, denoiser: nn.Module) -> Job:
    """One evaluation of the denoiser, its condition known, halfway from noise to molecule."""
    device, process = cell.runtime.device, settings.diffusion
    halfway = process.n_steps // 2
    low, high = torch.triu_indices(cell.atoms, cell.atoms, 1)
    chain = (high - low == 1).long().expand(cell.samples, -1)  # (B, M)
    share = alpha_bar(process.n_steps)[halfway].expand(cell.samples)
    uniform = torch.rand(chain.shape, generator=cell.generator)
    bonds = corrupt(chain, share, torch.tensor(process.marginal), uniform).to(device)
    t = torch.full((cell.samples,), halfway, device=device)
    with torch.no_grad(), cell.runtime.autocast():
        known = condition_of(cell, settings).to(device)
        context = denoiser.context(known).expand(cell.samples)  # type: ignore[operator]

    def run() -> Tensor:
        with cell.runtime.autocast():
            return denoiser(bonds, t, context)  # type: ignore[no-any-return]

    return run, denoiser


@lru_cache(maxsize=4)
def network_of(weights: str | None, kernel: str) -> tuple[DualLGD, dict[str, Any]]:
    """The default network with a kernel, encoder included, and what a row says of it.

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
