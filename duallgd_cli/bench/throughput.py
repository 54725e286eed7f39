"""End-to-end throughput of prediction: spectra per second, and where the time goes.

Letters: S samples of a spectrum, J steps, N heavy atoms, M pairs.
"""

import csv
import importlib.util
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from duallgd_cli.bench import made
from duallgd_cli.bench.speed import floors, machine, measure
from duallgd_cli.predict import stages
from duallgd_cli.predict.generate import ModelGenerator, formula_condition, load_model
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.runtime import Runtime

if TYPE_CHECKING:
    from duallgd_cli.predict.prediction import Case

RESULTS: Final = "results.json"
STAGES: Final = "stages.csv"
PROFILE: Final = "profile.txt"
_NEEDED_TO_ASSEMBLE: Final = "rdkit"
_PROFILED_ROWS: Final = 40


@dataclass(frozen=True, slots=True)
class ThroughputRequest:
    """What is to be measured.

    Attributes:
        inputs: Spectrum files; none for spectra made from chemistry.
        atoms: Heavy atoms of made spectra, and of the spectrum to warm up on.
        spectra: How many to make.
        settings: Of the prediction.
        workers: Processes that assemble molecules.
    """

    inputs: tuple[str, ...] = ()
    atoms: int = 30
    spectra: int = 10
    settings: PredictSettings = field(default_factory=PredictSettings)
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Throughput:
    """What was found.

    Attributes:
        machine: In words.
        runtime: Device, precision, threads.
        weights: Their name.
        parameters: Of the whole network.
        val_top1: Top-1 accuracy on validation spectra by the weights' own record, or None.
        samples: S.
        steps: J.
        workers: Assembling processes.
        assembled: Whether molecules were made; without rdkit only the network runs.
        spectra: Predicted.
        atoms: How many spectra there were of each N.
        seconds: Of the whole run, loading and warm-up apart.
        steady_s: Between the first and the last finished spectrum, per spectrum; None for one.
        load_s: Loading the weights.
        warm_up_s: The first spectrum of a process: libraries, kernels, recordings.
        stages_s: Seconds by stage, as this process spent or waited for them.
        memory_mib: Peak above what was there after warming up, assembling processes not counted.
        memory_how: How that was read.
        gflop: Of a candidate-step, mean over candidates; None where it cannot be counted.
        ceiling_gflop_s: Matrix products per second that the machine reaches, in GFLOP.
    """

    machine: Mapping[str, Any]
    runtime: str
    weights: str
    parameters: int
    val_top1: float | None
    samples: int
    steps: int
    workers: int
    assembled: bool
    spectra: int
    atoms: Mapping[int, int]
    seconds: float
    steady_s: float | None
    load_s: float
    warm_up_s: float
    stages_s: Mapping[str, float]
    memory_mib: float
    memory_how: str
    gflop: float | None
    ceiling_gflop_s: float

    @property
    def spectra_s(self) -> float:
        """Spectra per second, start of the assembling processes included."""
        return self.spectra / self.seconds

    @property
    def candidates_s(self) -> float:
        """Samples drawn per second."""
        return self.spectra_s * self.samples

    @property
    def share_of_ceiling(self) -> float | None:
        """Matrix products of the network over what the machine reaches, while it samples."""
        sampling = self.stages_s.get(stages.SAMPLE, 0.0)
        if self.gflop is None or not sampling:
            return None
        done = self.gflop * self.spectra * self.samples * self.steps
        return done / sampling / self.ceiling_gflop_s


def measure_throughput(
    weights: str | None, runtime: Runtime, request: ThroughputRequest
) -> tuple[Throughput, LoadedModel]:
    """Load, warm up on one made spectrum, run the whole pipeline once, and count.

    Args:
        weights: File or name; None takes those that come with the package.
        runtime: Where to run.
        request: What.

    Returns:
        The figures, and the model for a profile.
    """
    clock = time.perf_counter()
    model = load_model(weights, runtime)
    load_s = time.perf_counter() - clock
    warm_up_s = _timed(lambda: _draw_made(model, replace(request, spectra=1), _Sizes()))
    sizes = _Sizes()
    assembles = importlib.util.find_spec(_NEEDED_TO_ASSEMBLE) is not None
    run = _predict if assembles else _draw_made
    times: list[float] = []
    with stages.watched() as seconds:
        memory_mib, memory_how = measure.peak_memory(
            lambda: times.append(_timed(lambda: run(model, request, sizes))), runtime.device
        )
    precision = "float32" if runtime.autocast is None else "bfloat16"
    ceilings = floors.measure_ceilings(runtime.device, (precision,))
    accuracy = model.record.get("ranking_validation", {}).get("top1")
    found = Throughput(
        machine=machine.describe(runtime),
        runtime=str(runtime),
        weights=model.name,
        parameters=sum(model.parameters.values()),
        val_top1=accuracy,
        samples=request.settings.sampling.samples,
        steps=request.settings.sampling.steps,
        workers=request.workers,
        assembled=assembles,
        spectra=sum(sizes.atoms.values()),
        atoms=dict(sorted(sizes.atoms.items())),
        seconds=times[0],
        steady_s=sizes.steady_s,
        load_s=load_s,
        warm_up_s=warm_up_s,
        stages_s=_ordered(seconds, times[0]),
        memory_mib=memory_mib,
        memory_how=memory_how,
        gflop=_mean_gflop(model, runtime, sizes.atoms),
        ceiling_gflop_s=ceilings.flop_s[precision] / 1e9,
    )
    return found, model


def profile(model: LoadedModel, request: ThroughputRequest) -> str:
    """PyTorch's profile of one made spectrum, as a table of its slowest operations."""
    from torch.profiler import profile, supported_activities

    one = replace(request, spectra=1)
    with profile(activities=supported_activities()) as watched:
        _draw_made(model, one, _Sizes())
    on_device = any(event.device_time for event in watched.key_averages())
    by = "self_device_time_total" if on_device else "self_cpu_time_total"
    return str(watched.key_averages().table(sort_by=by, row_limit=_PROFILED_ROWS))


def write_throughput(found: Throughput, folder: Path) -> None:
    """Write results.json and the table of stages."""
    folder.mkdir(parents=True, exist_ok=True)
    derived = {
        "spectra_per_s": found.spectra_s,
        "candidates_per_s": found.candidates_s,
        "share_of_ceiling": found.share_of_ceiling,
    }
    contents = {"date": datetime.now(UTC).date().isoformat(), **asdict(found), **derived}
    (folder / RESULTS).write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    with (folder / STAGES).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["stage", "seconds", "share", "ms_per_spectrum"])
        for name, seconds in found.stages_s.items():
            per_spectrum = 1000 * seconds / max(1, found.spectra)
            row = (f"{seconds:.4f}", f"{seconds / found.seconds:.4f}", f"{per_spectrum:.2f}")
            table.writerow([name, *row])


class _Sizes:
    """Notes the size of every finished spectrum, and when the first and the last were finished."""

    def __init__(self) -> None:
        self.atoms: Counter[int] = Counter()
        self._finished: list[float] = []

    def started(self, description: str) -> None:
        """Stages are timed elsewhere."""

    def skipped(self, n_spectra: int) -> None:
        """Nothing is resumed."""

    def finished(self, case: "Case", n_spectra: int) -> None:
        """Note the spectra of a case that was drawn."""
        drawn = [outcome.n_heavy for outcome in case.outcomes if outcome.tallies.sampled]
        if drawn:
            self.note(drawn[0], n_spectra)

    def note(self, n_atoms: int, n_spectra: int = 1) -> None:
        """Note spectra of N atoms that are finished now."""
        self.atoms[n_atoms] += n_spectra
        self._finished.append(time.perf_counter())

    @property
    def steady_s(self) -> float | None:
        """Seconds per spectrum between the first and the last, or None."""
        if len(self._finished) < 2:
            return None
        return (self._finished[-1] - self._finished[0]) / (len(self._finished) - 1)


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _predict(model: LoadedModel, request: ThroughputRequest, sizes: _Sizes) -> None:
    """The predict use case into a folder that is thrown away."""
    from duallgd_cli.predict.run import predict

    with tempfile.TemporaryDirectory(prefix="duallgd-") as name:
        folder = Path(name)
        inputs = request.inputs or (_made_file(folder, request),)
        output = str(folder / "out.csv")
        predict(
            PredictRequest(inputs, output, settings=request.settings, workers=request.workers),
            model,
            sizes,
        )


def _made_file(folder: Path, request: ThroughputRequest) -> str:
    path = folder / "made.mgf"
    made_formulas = made.formulas(request.atoms, request.spectra)
    path.write_text(made.mgf(made_formulas, request.settings.seed), encoding="utf-8")
    return str(path)


def _draw_made(model: LoadedModel, request: ThroughputRequest, sizes: _Sizes) -> None:
    """The network alone, on made spectra."""
    formulas = made.formulas(request.atoms, request.spectra)
    for number, spectrum in enumerate(made.annotated(formulas, request.settings.seed)):
        with stages.stage(stages.SAMPLE):
            model.generator.generate(spectrum, request.settings.sampling, seed=number)
        sizes.note(request.atoms)


def _mean_gflop(model: LoadedModel, runtime: Runtime, atoms: Mapping[int, int]) -> float | None:
    generator = model.generator
    if not isinstance(generator, ModelGenerator) or not atoms:
        return None
    counted = {n: _gflop(generator, runtime, n) for n in atoms}
    return sum(counted[n] * times for n, times in atoms.items()) / sum(atoms.values())


def _gflop(generator: ModelGenerator, runtime: Runtime, n_atoms: int) -> float:
    """Matrix products of one evaluation for one candidate of N atoms, in GFLOP."""
    model, device = generator.model, runtime.device
    formula = made.formulas(n_atoms, 1)[0]
    bits = torch.linspace(0, 1, model.settings.encoder.fingerprint_bits)
    known = formula_condition(formula, bits, model.settings.memory_bits).to(device)
    bonds = torch.zeros(1, n_atoms * (n_atoms - 1) // 2, dtype=torch.long, device=device)
    steps = torch.full((1,), model.settings.diffusion.n_steps, device=device)
    with torch.no_grad(), runtime.lower_precision():
        context = model.denoiser.context(known)
        work = floors.count_work(
            lambda: model.denoiser(bonds, steps, context), model.denoiser, graphs=1
        )
    return work.flop / 1e9


def _ordered(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Stages in the order a spectrum passes them; what is not in any stage stands last."""
    names: Sequence[str] = [*stages.STAGES, stages.ELSEWHERE]
    found = {name: seconds[name] for name in names if name in seconds}
    inside = sum(taken for name, taken in found.items() if name != stages.ELSEWHERE)
    return {**found, "other": max(0.0, whole - inside)}
