"""duallgd from Python: load a model once, predict as often as needed.

Example:
    >>> from duallgd_cli import load, predict_spectra
    >>> model = load()
    >>> for prediction in predict_spectra(model, "spectra.mgf"):
    ...     for candidate in prediction.candidates:
    ...         print(prediction.spectrum_id, candidate.rank, candidate.smiles)
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.inputs import Inputs
from duallgd_cli.predict.pipeline import start, tasks_of
from duallgd_cli.predict.predict import formula_source_of
from duallgd_cli.predict.prediction import Case, Prediction
from duallgd_cli.predict.presenting import predictions_of
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.predict.workers import Workers
from duallgd_cli.runtime import Runtime
from duallgd_cli.spectra.features import group
from duallgd_cli.spectra.reading import Unreadable
from duallgd_cli.spectra.types import Feature, Source, Spectrum


def load(
    weights: str | Path | None = None, *, device: str = "auto", runtime: Runtime | None = None
) -> LoadedModel:
    """Load a model; do it once and predict many times.

    Args:
        weights: File or registered name; None takes the weights that come with the package.
        device: ``auto``, ``cpu`` or ``cuda``; not used if `runtime` is given.
        runtime: Device, precision and threads together, as the command line resolves them.

    Raises:
        UsageError: There is no such device.
        WeightsError: The weights are missing, broken or do not fit.
    """
    from duallgd_cli.predict.generate import load_model

    return load_model(weights, runtime or Runtime.resolve(device=device))


def predict_spectra(
    model: LoadedModel,
    spectra: str | Path | Iterable[Spectrum],
    settings: PredictSettings | None = None,
    *,
    formulas: Path | None = None,
    workers: int = 1,
) -> list[Prediction]:
    """Predict structures for spectra, as the command line does but in memory.

    Args:
        model: From `load`.
        spectra: A file, or spectra as `duallgd_cli.spectra.reading.read` gives them.
        settings: Seed, samples, steps, formula and so on; None for the defaults.
        formulas: Table of formulas by feature id, or None.
        workers: Processes that assemble molecules; does not change the result.

    Returns:
        One prediction for every MS2 spectrum, in the order given.

    Raises:
        UsageError: Settings that exclude each other.
        MissingInputError: The file does not exist.
        UnreadableError: The file cannot be read.
    """
    chosen = settings or PredictSettings()
    request = PredictRequest(inputs=("-",), output="-", settings=chosen, formulas=formulas)
    source = formula_source_of(request, model)
    items = _items(spectra, chosen)
    cases = []
    with Workers(workers) as pool:
        for number, item in enumerate(items):
            tasks = list(tasks_of(number, item, source, chosen))
            outcomes = tuple(start(task, model.generator, chosen, pool)() for task in tasks)
            cases.append(replace(tasks[0].case, outcomes=outcomes))
    return _in_order(cases, model, chosen.top_k)


def _items(
    spectra: str | Path | Iterable[Spectrum], settings: PredictSettings
) -> list[Feature | Unreadable]:
    if isinstance(spectra, str | Path):
        with Inputs((str(spectra),)) as inputs:
            return list(inputs.features(settings))
    measured = [spectrum for spectrum in spectra if spectrum.ms_level != 1]
    if len({spectrum.source for spectrum in measured}) < len(measured):
        # Spectra made by hand may all say the same place: here they are told apart by order.
        measured = [
            replace(spectrum, source=Source(spectrum.source.file, place))
            for place, spectrum in enumerate(measured)
        ]
    return list(group(measured, settings.group_by))


def _in_order(cases: list[Case], model: LoadedModel, top_k: int) -> list[Prediction]:
    """Predictions by file, as files first appear, and place in it."""
    found = [
        prediction for case in cases for prediction in predictions_of(case, model.ranking, top_k)
    ]
    files = list(dict.fromkeys(prediction.source.file for prediction in found))
    return sorted(found, key=lambda one: (files.index(one.source.file), one.source.index))
