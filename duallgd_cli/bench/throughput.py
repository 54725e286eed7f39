"""End-to-end throughput of prediction: spectra per second.

Without a file, spectra are made from chemistry: formulas of one size, fragments at their m/z. No
structure stands behind them; only sizes and numbers of peaks are those of real spectra.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from duallgd_cli.bench.machine import describe, peak_mib
from duallgd_cli.chem.adduct import BY_NAME, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import InterruptedRunError
from duallgd_cli.predict.model import LoadedModel, load_model
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.results import HypothesisResult
from duallgd_cli.runtime import Runtime

RESULTS, PROFILE = "results.json", "profile.txt"
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
    """Load, warm up on one made spectrum, run the whole of predict once, and count.

    Spectra of the formulas in `made` are predicted, if there are no files of spectra as `inputs`.

    Returns:
        The figures as results.json holds them, and the model for a profile. Not part of the run's
        ``seconds`` are loading (``load_s``) and the first spectrum of a process (``warm_up_s``).
        ``memory_mib`` is the peak of tensors while the first made spectrum is predicted.
    """
    started = time.perf_counter()
    model = load_model(weights, runtime)
    loaded = time.perf_counter()
    _predict(model, settings, made[:1])
    warm = time.perf_counter()
    memory = peak_mib(lambda: _predict(model, settings, made[:1]), runtime)
    begun = time.perf_counter()
    atoms = _predict(model, settings, made, inputs, workers)
    seconds, spectra, sampling = time.perf_counter() - begun, atoms.total(), settings.sampling
    figures = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(runtime),
        "runtime": str(runtime),
        "weights": model.name,
        "parameters": sum(model.parameters.values()),
        "val_top1": model.record.get("ranking_validation", {}).get("top1"),
        "samples": sampling.samples,
        "steps": sampling.steps,
        "workers": workers,
        "spectra": spectra,
        "atoms": dict(sorted(atoms.items())),
        "seconds": seconds,
        "load_s": loaded - started,
        "warm_up_s": warm - loaded,
        "memory_mib": memory,
        "spectra_per_s": spectra / seconds,
        "candidates_per_s": spectra / seconds * sampling.samples,
    }
    return figures, model


def profile(model: LoadedModel, settings: PredictSettings, made: Sequence[Formula]) -> str:
    """PyTorch's profile of the first made spectrum, as a table of its slowest operations."""
    from torch.profiler import profile, supported_activities

    with profile(activities=supported_activities()) as watched:
        _predict(model, settings, made[:1])
    averages = watched.key_averages()
    on_device = any(event.device_time for event in averages)
    by = "self_device_time_total" if on_device else "self_cpu_time_total"
    return str(averages.table(sort_by=by, row_limit=_PROFILED_ROWS))


def _predict(
    model: LoadedModel,
    settings: PredictSettings,
    made: Sequence[Formula],
    inputs: tuple[str, ...] = (),
    workers: int = 1,
) -> Counter[int]:
    """Predict into a folder that is thrown away; returns the spectra drawn by their heavy atoms."""
    atoms = Counter[int]()

    def note(stage: str, n_spectra: int, result: HypothesisResult | None) -> None:
        """Count the spectra of a feature; further hypotheses of it have none."""
        if result is not None and result.sampled and n_spectra:
            atoms[result.n_heavy] += n_spectra

    with tempfile.TemporaryDirectory(prefix="duallgd-") as name:
        if not inputs:
            path = Path(name) / "made.mgf"
            path.write_text(made_mgf(made, settings.seed), encoding="utf-8")
            inputs = (str(path),)
        output = str(Path(name) / "out.csv")
        request = PredictRequest(inputs, output, settings=settings, workers=workers)
        try:
            predict(request, model, note)
        except InterruptedRunError:  # which names the journal that goes with the folder
            raise InterruptedRunError("stopped; nothing of a measurement is kept") from None
    return atoms


def made_mgf(made: Sequence[Formula], seed: int) -> str:
    """Spectra of formulas as the text of an MGF file, peaks at random parts of the ion."""
    text = ""
    for number, formula in enumerate(made):
        rng = np.random.default_rng(seed + number)
        shares = rng.random((_PEAKS, N_ELEMENTS))
        parts = {tuple(int(n) for n in np.floor(formula.array * share)) for share in shares}
        masses = sorted(Formula(part).atoms_mass for part in parts if sum(part[:-1]))
        text += f"BEGIN IONS\nTITLE=made {number}\nPEPMASS={precursor_mz(formula, _ADDUCT):.5f}\n"
        text += f"ADDUCT={_ADDUCT.name}\nFORMULA={formula}\nMSLEVEL=2\n"
        text += "".join(
            f"{mass - ELECTRON_MASS_DA:.5f} {rng.random() + 0.01:.3f}\n" for mass in masses
        )
        text += "END IONS\n\n"
    return text
