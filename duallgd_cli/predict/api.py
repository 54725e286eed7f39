"""duallgd from Python: load a model once, predict as often as needed.

Example:
    >>> from duallgd_cli import load, predict_spectra, to_dataframe
    >>> model = load()
    >>> found = predict_spectra(model, "spectra.mgf", samples=50, seed=1)
    >>> found[0].candidates[0].smiles
    >>> to_dataframe(found).query("rank == 1")

`iter_predictions` gives each prediction as soon as it is there.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from duallgd_cli import config
from duallgd_cli.errors import UsageError
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.inputs import Inputs
from duallgd_cli.predict.output import predictions_of
from duallgd_cli.predict.pipeline import by_feature, results
from duallgd_cli.predict.prediction import Prediction
from duallgd_cli.predict.ranking import for_run
from duallgd_cli.predict.run import formula_source_of
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.predict.workers import Workers
from duallgd_cli.predict.writers import COLUMNS, NUMBERS, rows
from duallgd_cli.runtime import Runtime
from duallgd_cli.spectra.features import group
from duallgd_cli.spectra.reading import Unreadable
from duallgd_cli.spectra.reading.record import Record, build
from duallgd_cli.spectra.types import Feature, Source, Spectrum

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["PredictSettings", "iter_predictions", "load", "predict_spectra", "to_dataframe"]

_PEAKS: Final = ("mz", "intensity", "intensities")


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
    spectra: str | Path | Iterable[object],
    settings: PredictSettings | None = None,
    *,
    formulas: Path | None = None,
    workers: int = 1,
    **changes: object,
) -> list[Prediction]:
    """Predict structures for spectra, as the command line does but in memory.

    Args:
        model: From `load`.
        spectra: A file, or spectra: `matchms.Spectrum` objects, dictionaries with ``mz``,
            ``intensity`` and the fields of an MGF record (``precursor_mz``, ``formula``,
            ``adduct``, ``collision_energy`` ...), or what `duallgd_cli.spectra.reading.read` gives.
        settings: Seed, samples, steps, formula and so on; None for the defaults.
        formulas: Table of formulas by feature id, or None.
        workers: Processes that assemble molecules; does not change the result.
        changes: Settings by name, such as ``samples=20`` or ``formula="C8H10N4O2"``.

    Returns:
        One prediction for every MS2 spectrum, in the order given.

    Raises:
        UsageError: A setting is unknown, or settings exclude each other.
        MissingInputError: The file does not exist.
        UnreadableError: The file cannot be read.
    """
    found = list(
        iter_predictions(model, spectra, settings, formulas=formulas, workers=workers, **changes)
    )
    files = list(dict.fromkeys(prediction.source.file for prediction in found))
    return sorted(found, key=lambda one: (files.index(one.source.file), one.source.index))


def iter_predictions(
    model: LoadedModel,
    spectra: str | Path | Iterable[object],
    settings: PredictSettings | None = None,
    *,
    formulas: Path | None = None,
    workers: int = 1,
    **changes: object,
) -> Iterator[Prediction]:
    """The same as `predict_spectra`, each prediction as soon as it is there.

    Spectra that are read together come together, at the place of the first of them.
    """
    chosen = _changed(settings or PredictSettings(), changes)
    ranking = for_run(model.ranking, chosen)
    source = formula_source_of(chosen, formulas, model)
    with Workers(workers) as pool, _features(spectra, chosen) as features:
        drawn = results(enumerate(features), source, model.generator, chosen, pool)
        for case in by_feature(drawn):
            yield from predictions_of(case, ranking, chosen.top_k)


def to_dataframe(predictions: Iterable[Prediction]) -> "DataFrame":
    """A pandas table with the columns of the CSV output, numbers as numbers.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("a table needs pandas; pip install pandas") from None
    cells = [row for prediction in predictions for row in rows(prediction)]
    frame = pd.DataFrame(cells, columns=list(COLUMNS))
    for column in NUMBERS:
        frame[column] = pd.to_numeric(frame[column])
    return frame


def _changed(settings: PredictSettings, changes: Mapping[str, object]) -> PredictSettings:
    """Settings with some replaced; those of sampling go by their own names too."""
    values = config.dump(settings)
    for name, value in changes.items():
        inner = name not in values and name in values["sampling"]
        values = config.merge(values, config.nested(f"sampling.{name}" if inner else name, value))
    return config.parse(PredictSettings, values)


@contextmanager
def _features(
    spectra: str | Path | Iterable[object], settings: PredictSettings
) -> Iterator[Iterator[Feature | Unreadable]]:
    if isinstance(spectra, str | Path):
        with Inputs((str(spectra),)) as inputs:
            yield inputs.features(settings)
        return
    items = [_spectrum(one, place) for place, one in enumerate(spectra)]
    measured = [one for one in items if isinstance(one, Unreadable) or one.ms_level != 1]
    if len({one.source for one in measured}) < len(measured):
        # Spectra made by hand may all say the same place: here they are told apart by order.
        measured = [
            replace(one, source=Source(one.source.file, place))
            for place, one in enumerate(measured)
        ]
    yield group(measured, settings.group_by)


def _spectrum(item: object, place: int) -> Spectrum | Unreadable:
    """A spectrum of another library, or of plain values, as ours.

    Raises:
        UsageError: It is none.
    """
    if isinstance(item, Spectrum | Unreadable):
        return item
    if isinstance(item, Mapping):
        fields, mz = item, item.get("mz")
        intensity = item.get("intensity", item.get("intensities"))
    else:
        peaks = getattr(item, "peaks", None)
        fields = getattr(item, "metadata", {})
        mz, intensity = getattr(peaks, "mz", None), getattr(peaks, "intensities", None)
    if mz is None or intensity is None or len(mz) != len(intensity):
        raise UsageError(
            f"item {place} ({type(item).__name__}) is no spectrum; give matchms.Spectrum objects, "
            "or dictionaries with mz and intensity (of one length), precursor_mz and formula"
        )
    metadata = {
        str(name).lower(): str(value)
        for name, value in fields.items()
        if name not in _PEAKS and value is not None
    }
    record = Record(metadata, np.asarray(mz, np.float64), np.asarray(intensity, np.float64))
    return build(record, Source("memory", place), keep_structures=False)
