"""Growth of time and memory with the number of atoms: every size, kernel and part of the network.

Weights are trained ones, inputs are made: a formula in about the proportions of natural products,
and from a seed unlikely bits and noisy bonds. The floor is the time of the matrix products at the
rate that the machine reached in the same run.

Letters: B graphs, N heavy atoms, M = N (N - 1) / 2 pairs, E channels of a pair, S candidates, J
steps.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from duallgd_cli.bench.machine import ceiling_gflop_s, clock_of, describe, peak_mib, timed
from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.elements import HYDROGEN, INDEX, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler, alpha_bar, corrupt, formula_condition
from duallgd_cli.errors import DuallgdError, UsageError, quote
from duallgd_cli.files import write_atomically
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.layers import DualStreamLayer, Masks, line_graph
from duallgd_cli.model.rewritten import for_inference
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime

KERNELS: Final = ("softmax", "favor")
PARTS: Final = ("attention", "forward", "loop")
RESULTS: Final = "results.json"
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?", re.ASCII)
_STRIDE: Final = "10"
_FEWEST, _MOST = 2, 400
_MAX_NITROGENS: Final = 5
# A line of the table: values by the names of its columns.
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure."""

    runtime: Runtime
    # ``attention`` (the attention layers of the bond stream alone), ``forward`` (one evaluation of
    # the denoiser) or ``loop`` (the whole sampling loop)
    part: str = "loop"
    kernel: str = "favor"  # of the attention over pairs, ``softmax`` or ``favor``
    atoms: int = 30
    samples: int = 1  # S of the loop, and its J ``steps``; the other parts evaluate one graph once
    steps: int = 1
    seconds: float = 1.0  # time it for as long, and once at least
    seed: int = 1  # of inputs and noise
    weights: str | None = None

    @property
    def generator(self) -> torch.Generator:
        """Where the inputs come from."""
        return torch.Generator().manual_seed(self.seed)


def parse_atoms(text: str) -> tuple[int, ...]:
    """Numbers of atoms, ascending and each once, from a text.

    That is ``10..100`` (every tenth), ``10..100:5``, ``30``, or several of them with commas; for
    anything else or a number out of range there is a UsageError.
    """
    numbers: set[int] = set()
    for word in text.replace(" ", "").split(","):
        matched = _RANGE.fullmatch(f"{word}..{word}" if word.isdecimal() else word)
        first, last, stride = map(int, matched.groups(_STRIDE)) if matched else (0, 0, 0)
        if first > last or stride < 1:
            raise UsageError(
                f"atoms {quote(text)} are not of the form 10..100, 10..100:5 or 30,60,100"
            )
        numbers.update(range(first, min(last, _MOST + 1) + 1, stride))
    wrong = [n for n in numbers if not _FEWEST <= n <= _MOST]
    if wrong:
        raise UsageError(f"numbers of atoms must be {_FEWEST} to {_MOST}, not {min(wrong)}")
    return tuple(sorted(numbers))


def cells_of(cell: Cell, atoms: Sequence[int], kernels: Sequence[str]) -> list[Cell]:
    """Every size, kernel and part, small sizes first; what else they have in common is the cell."""
    once = replace(cell, samples=1, steps=1)
    return [
        replace(cell if part == "loop" else once, part=part, kernel=kernel, atoms=n)
        for n in atoms
        for kernel in kernels
        for part in PARTS
    ]


def run_study(
    cells: Sequence[Cell], output: Path | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure everything, and say each cell that is done; `output` then holds what there is."""
    runtime, rows = cells[0].runtime, list[Row]()
    ceiling = ceiling_gflop_s(runtime)
    study: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {**describe(runtime), "gflop_s": ceiling},
    }
    for number, cell in enumerate(cells, 1):
        name = f"{cell.part}, {cell.kernel}, {cell.atoms} atoms"
        network, about = network_of(cell.weights, cell.kernel, runtime)
        try:
            rows.append(measure_cell(cell, network, about, ceiling))
        except (MemoryError, RuntimeError) as error:  # as torch says that memory is used up
            reason = str(error).partition("\n")[0]
            raise DuallgdError(
                f"measuring {name} failed: {reason}; try fewer atoms or samples"
            ) from None
        study |= {"rows": rows, "exponents": growth(rows)}
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            write_atomically(output / RESULTS, [json.dumps(study, indent=1) + "\n"])
        say(f"{number} of {len(cells)}: {name} done")
    return study


def measure_cell(cell: Cell, network: DualLGD, about: Row, ceiling: float) -> Row:
    """Measure a cell.

    Returns:
        Its line of the table. ``time_s`` is a median with the interquartile range ``iqr_s``;
        ``clock`` says of what. ``memory_mib`` is the peak of tensors above network and inputs,
        ``gflop`` of one candidate-step, ``floor_s`` the least time of all its matrix products,
        which took ``over_floor`` times as long.
    """
    runtime, part = cell.runtime, "attention" if cell.part == "attention" else "forward"
    plain = replace(runtime, compile=False)
    with torch.inference_mode():
        # The peak of a loop is that of a step, so two of them show it; a captured graph has its
        # memory beforehand.
        brief = job_of(replace(cell, steps=min(2, cell.steps), runtime=plain), network)
        brief()
        memory = peak_mib(brief, runtime)
        time = timed(job_of(cell, network), runtime, cell.seconds)
    flop = count_flop(job_of(replace(cell, part=part, samples=1, runtime=plain), network))
    floor = flop * cell.samples * cell.steps / ceiling / 1e9
    return {
        **about,
        **{name: getattr(cell, name) for name in ("part", "kernel", "atoms", "samples", "steps")},
        **{"device": str(runtime.device), "precision": runtime.precision},
        **{"threads": runtime.threads, "clock": clock_of(runtime)},
        **{"time_s": time.median, "iqr_s": time.iqr, "memory_mib": memory},
        **{"gflop": flop / 1e9, "floor_s": floor, "over_floor": time.median / floor},
    }


def count_flop(run: Callable[[], object]) -> float:
    """Operations of the matrix products of one run, a multiplication and an addition being two."""
    # With gradients and by plain products, none of which the counter takes for something else.
    counter = FlopCounterMode(display=False)
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        run()
    return float(counter.get_total_flops())


def job_of(cell: Cell, network: DualLGD) -> Callable[[], Tensor]:
    """What is run at a cell; its tensor is what two networks are compared by."""
    runtime, settings, denoiser = cell.runtime, network.settings, network.denoiser
    device, process = runtime.device, settings.diffusion
    bits = torch.rand(settings.encoder.fingerprint_bits, generator=cell.generator).pow(8)
    formula = made_formulas(cell.atoms, 1)[0]
    if cell.part == "loop":
        sampling = SamplingSettings(steps=cell.steps, samples=cell.samples)
        sampler, n_pairs = Sampler(network, runtime), math.comb(cell.atoms, 2)
        task = sampler.task(sampling, cell.seed, cell.samples, n_pairs)

        def drawn() -> Tensor:
            samples, _ = sampler.draw(sampler.context(formula, bits), [task], sampling)
            return samples.bond_class

        return drawn
    if cell.part == "attention":  # of all layers' bond streams, one after the other
        layers = [m.pair_attention for m in denoiser.modules() if isinstance(m, DualStreamLayer)]
        present = torch.ones(cell.samples, cell.atoms, dtype=torch.bool, device=device)
        masks = Masks.of(present, line_graph(cell.atoms, device))
        shape = cell.samples, math.comb(cell.atoms, 2), settings.denoiser.pair_width
        start = torch.randn(shape, generator=cell.generator).to(device)  # (B, M, E)

        def run() -> Tensor:
            pairs = start
            with runtime.autocast():
                for layer in layers:
                    pairs = pairs + layer(pairs, masks)
            return pairs
    else:  # halfway from noise to a chain
        halfway = process.n_steps // 2
        low, high = torch.triu_indices(cell.atoms, cell.atoms, 1)
        chain = (high - low == 1).long().expand(cell.samples, -1)  # (B, M)
        share = alpha_bar(process.n_steps)[halfway].expand(cell.samples)
        uniform = torch.rand(chain.shape, generator=cell.generator)
        bonds = corrupt(chain, share, torch.tensor(process.marginal), uniform).to(device)
        t = torch.full((cell.samples,), halfway, device=device)
        condition = formula_condition(formula, bits, settings.memory_bits).to(device)
        with torch.no_grad(), runtime.autocast():
            context = denoiser.context(condition).expand(cell.samples)

        def run() -> Tensor:
            with runtime.autocast():
                return denoiser(bonds, t, context)  # type: ignore[no-any-return]

    captured = cache(partial(runtime.capture, run))  # at the first run
    return lambda: captured()()


@lru_cache(maxsize=2)
def network_of(weights: str | None, kernel: str, runtime: Runtime) -> tuple[DualLGD, Row]:
    """The network with a kernel where it runs, and columns that say which it is.

    Its ``val_top1`` is top-1 accuracy on validation spectra by the weights' record; None for the
    kernel that the weights were not trained with.
    """
    path = resolve_weights(weights)
    checkpoint = load(path)
    settings, tensors = checkpoint.settings, checkpoint.tensors
    is_trained = bool(settings.denoiser.pair_features) == (kernel == "favor")
    if not is_trained:
        drawn = ModelSettings().denoiser.pair_features if kernel == "favor" else 0
        settings = replace(settings, denoiser=replace(settings.denoiser, pair_features=drawn))
        fresh = DualLGD(settings).state_dict()
        tensors = tensors | {n: t for n, t in fresh.items() if n.endswith(".features")}
    network = replace(checkpoint, settings=settings, tensors=tensors).build()
    record = checkpoint.record.get("ranking_validation")
    top1 = record.get("top1") if isinstance(record, dict) and is_trained else None
    count = sum(parameter.numel() for parameter in network.parameters())
    about = {"weights": path.name, "parameters": count, "val_top1": top1}
    return for_inference(network, runtime), about


def made_formulas(n_atoms: int, count: int) -> list[Formula]:
    """Formulas of C, H, N and O with so many heavy atoms, as different as that allows."""
    made = []
    for number in range(count):
        nitrogens = number % min(_MAX_NITROGENS, max(1, n_atoms - 1))
        oxygens = (n_atoms // 6 + number // _MAX_NITROGENS) % max(1, n_atoms - nitrogens)
        counts = [0] * N_ELEMENTS
        counts[INDEX["C"]] = n_atoms - nitrogens - oxygens
        counts[INDEX["N"]], counts[INDEX["O"]] = nitrogens, oxygens
        counts[HYDROGEN] = n_atoms + (n_atoms + nitrogens) % 2  # even-electron
        made.append(Formula(tuple(counts)))
    return made


def growth(rows: Sequence[Row]) -> list[Row]:
    """How time and memory grow with N: for each part and kernel as from `fit_exponent`."""
    exponents = []
    for part, kernel in dict.fromkeys((row["part"], row["kernel"]) for row in rows):
        own = [row for row in rows if (row["part"], row["kernel"]) == (part, kernel)]
        fits = {
            name: fit_exponent([row["atoms"] for row in own], [row[column] for row in own])
            for name, column in (("time", "time_s"), ("memory", "memory_mib"))
        }
        exponents.append({"part": part, "kernel": kernel, **fits})
    return exponents


def fit_exponent(x: Sequence[float], y: Sequence[float]) -> dict[str, float | None] | None:
    """The b of y = a x^b by least squares on logarithms.

    Returns:
        ``value`` and its ``standard_error`` (None for two points, which a line always fits); None
        where fewer than two different x have a y above zero.
    """
    kept = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True) if a > 0 and b > 0]
    if len({a for a, _ in kept}) < 2:
        return None
    log_x, log_y = np.array(kept).T
    if len(kept) == 2:
        return {"value": float(np.polyfit(log_x, log_y, 1)[0]), "standard_error": None}
    slopes, covariance = np.polyfit(log_x, log_y, 1, cov=True)
    return {"value": float(slopes[0]), "standard_error": math.sqrt(covariance[0, 0])}
