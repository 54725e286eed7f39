"""End-to-end throughput of prediction: spectra per second, and where the time goes.

Without a file, spectra are made from chemistry: formulas of one size, fragments at their m/z.
Nothing was measured and no structure stands behind them; only sizes and numbers of peaks are those
of real spectra.
Letters: S samples of a spectrum, J steps, N heavy atoms, M pairs.
"""

import importlib.util
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from duallgd_cli.bench import work
from duallgd_cli.bench.measure import made_formulas, peak_memory
from duallgd_cli.chem.adduct import BY_NAME, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.generator.network import ModelGenerator, formula_condition, load_model
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.runtime import ELSEWHERE, STAGES, Runtime, stage, watched
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature, Hypothesis, Source, Spectrum

if TYPE_CHECKING:
    from duallgd_cli.results import HypothesisResult

RESULTS, PROFILE = "results.json", "profile.txt"
_NEEDED_TO_ASSEMBLE: Final = "rdkit"
_PROFILED_ROWS: Final = 40
_ADDUCT: Final = BY_NAME["[M+H]+"]
_PEAKS: Final = 30


def measure_throughput(
    weights: str | None,
    runtime: Runtime,
    settings: PredictSettings,
    made: Sequence[Formula],
    inputs: tuple[str, ...] = (),
    workers: int = 1,
) -> tuple[dict[str, Any], LoadedModel]:
    """Load, warm up on one made spectrum, run the whole pipeline once, and count.

    Args:
        weights: File or name; None takes those that come with the package.
        runtime: Where to run.
        settings: Of the prediction.
        made: Formulas of spectra to make, of which the first warms up.
        inputs: Spectrum files; none for the spectra that are made.
        workers: Processes that predict.

    Returns:
        The figures as results.json holds them, and the model for a profile. Not part of the whole
        run's ``seconds`` are loading (``load_s``) and the first spectrum of a process
        (``warm_up_s``). ``steady_s`` is the time between the first and the last finished spectrum,
        a spectrum; None for one. ``assembled`` tells whether molecules were made: without rdkit
        only the network runs. ``memory_mib`` is the peak above what was there after warming up,
        other processes not counted. ``gflop`` is of a candidate-step, the mean over
        candidates; None where it cannot be counted.
    """
    clock = time.perf_counter()
    model = load_model(weights, runtime)
    load_s = time.perf_counter() - clock
    warm_up = partial(_draw_made, model, settings, made[:1], _Sizes())
    (warm_up_s,), _ = work.timed(warm_up, 1, 0.0, runtime)
    sizes = _Sizes()
    assembles = importlib.util.find_spec(_NEEDED_TO_ASSEMBLE) is not None
    run = partial(_predict, inputs, workers) if assembles else _draw_made
    once = partial(run, model, settings, made, sizes)
    whole = partial(work.timed, once, 1, 0.0, runtime)
    times: list[list[float]] = []
    with watched() as stage_seconds:
        memory_mib, memory_how = peak_memory(lambda: times.extend(whole()), runtime)
    (seconds,), spectra = times[0], sum(sizes.atoms.values())
    ceiling = work.measure_ceilings(runtime).flop_s[runtime.precision] / 1e9
    sampling = settings.sampling
    gflop = _mean_gflop(model, runtime, sizes.atoms)
    by_stage = _ordered(stage_seconds, seconds)
    share = None
    if gflop is not None and by_stage.get("sample"):
        done = gflop * spectra * sampling.samples * sampling.steps
        share = done / by_stage["sample"] / ceiling
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": work.describe(runtime),
        "runtime": str(runtime),
        "weights": model.name,
        "parameters": sum(model.parameters.values()),
        "val_top1": model.record.get("ranking_validation", {}).get("top1"),
        "samples": sampling.samples,
        "steps": sampling.steps,
        "workers": workers,
        "assembled": assembles,
        "spectra": spectra,
        "atoms": dict(sorted(sizes.atoms.items())),
        "seconds": seconds,
        "steady_s": sizes.steady_s,
        "load_s": load_s,
        "warm_up_s": warm_up_s,
        "stages_s": by_stage,
        "memory_mib": memory_mib,
        "memory_how": memory_how,
        "gflop": gflop,
        "ceiling_gflop_s": ceiling,
        "spectra_per_s": spectra / seconds,
        "candidates_per_s": spectra / seconds * sampling.samples,
        "share_of_ceiling": share,
    }
    return found, model


def profile(model: LoadedModel, settings: PredictSettings, made: Sequence[Formula]) -> str:
    """PyTorch's profile of the first made spectrum, as a table of its slowest operations."""
    from torch.profiler import profile, supported_activities

    with profile(activities=supported_activities()) as watched:
        _draw_made(model, settings, made[:1], _Sizes())
    on_device = any(event.device_time for event in watched.key_averages())
    by = "self_device_time_total" if on_device else "self_cpu_time_total"
    return str(watched.key_averages().table(sort_by=by, row_limit=_PROFILED_ROWS))


class _Sizes:
    """Notes the size of every finished spectrum, and when the first and the last were finished."""

    def __init__(self) -> None:
        self.atoms: Counter[int] = Counter()
        self._finished: list[float] = []

    def __call__(self, stage: str, n_spectra: int, result: "HypothesisResult | None") -> None:
        """Note the spectra of a feature that was drawn; further hypotheses of it have none."""
        if result is not None and result.sampled and n_spectra:
            self.note(result.n_heavy, n_spectra)

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


def _predict(
    inputs: tuple[str, ...],
    workers: int,
    model: LoadedModel,
    settings: PredictSettings,
    made: Sequence[Formula],
    sizes: _Sizes,
) -> None:
    """The predict use case into a folder that is thrown away."""
    from duallgd_cli.predict.run import predict

    with tempfile.TemporaryDirectory(prefix="duallgd-") as name:
        if not inputs:
            path = Path(name) / "made.mgf"
            path.write_text(made_mgf(made, settings.seed), encoding="utf-8")
            inputs = (str(path),)
        output = str(Path(name) / "out.csv")
        predict(PredictRequest(inputs, output, settings=settings, workers=workers), model, sizes)


def _draw_made(
    model: LoadedModel, settings: PredictSettings, made: Sequence[Formula], sizes: _Sizes
) -> None:
    """The network alone, on made spectra."""
    for number, spectrum in enumerate(made_spectra(made, settings.seed)):
        with stage("sample"):
            model.generator.generate(spectrum, settings.sampling, seed=number)
        sizes.note(made[number].n_heavy)


def _mean_gflop(model: LoadedModel, runtime: Runtime, atoms: Mapping[int, int]) -> float | None:
    """Matrix products of one evaluation for one candidate, in GFLOP."""
    generator, device = model.generator, runtime.device
    if not isinstance(generator, ModelGenerator) or not atoms:
        return None
    settings, denoiser = generator.model.settings, generator.model.denoiser
    bits = torch.linspace(0, 1, settings.encoder.fingerprint_bits)
    total = 0.0
    for n, count in atoms.items():
        known = formula_condition(made_formulas(n, 1)[0], bits, settings.memory_bits).to(device)
        bonds = torch.zeros(1, n * (n - 1) // 2, dtype=torch.long, device=device)
        with torch.no_grad(), runtime.autocast():
            evaluate = generator.denoiser_of(denoiser.context(known), 1)
            counted = work.count_work(partial(evaluate, bonds, 1), denoiser)
        total += count * counted.flop / 1e9
    return total / sum(atoms.values())


def _ordered(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Stages in the order a spectrum passes them; what is not in any stage stands last."""
    names = [*STAGES, ELSEWHERE]
    found = {name: seconds[name] for name in names if name in seconds}
    inside = sum(taken for name, taken in found.items() if name != ELSEWHERE)
    return {**found, "other": max(0.0, whole - inside)}


def made_spectra(made: Sequence[Formula], seed: int) -> list[AnnotatedSpectrum]:
    """Spectra of formulas, peaks at random parts of the ion, as the network reads them."""
    found = []
    for number, formula in enumerate(made):
        rng = np.random.default_rng(seed + number)
        shares = rng.random((_PEAKS, N_ELEMENTS))
        parts = {tuple(int(n) for n in np.floor(formula.array * share)) for share in shares}
        masses = [Formula(part).atoms_mass for part in parts if sum(part[:-1])]
        mz = np.sort(np.array(masses)) - ELECTRON_MASS_DA
        intensity = rng.random(len(mz)) + 0.01
        source = Source("made.mgf", number)
        spectrum = Spectrum(source, f"made {number}", mz, intensity, precursor_mz(formula, _ADDUCT))
        hypothesis = Hypothesis(Feature((spectrum,)), formula, _ADDUCT)
        found.append(annotate(hypothesis, AnnotationSettings()))
    return found


def made_mgf(made: Sequence[Formula], seed: int) -> str:
    """The same spectra as the text of an MGF file."""
    text = ""
    for formula, one in zip(made, made_spectra(made, seed), strict=True):
        (spectrum,) = one.hypothesis.feature.spectra
        peaks = zip(spectrum.mz, spectrum.intensity, strict=True)
        text += f"BEGIN IONS\nTITLE={spectrum.spectrum_id}\nPEPMASS={spectrum.precursor_mz:.5f}\n"
        text += f"ADDUCT={_ADDUCT.name}\nFORMULA={formula}\nMSLEVEL=2\n"
        text += "".join(f"{mz:.5f} {intensity:.3f}\n" for mz, intensity in peaks) + "END IONS\n\n"
    return text
