"""duallgd from Python: load a model once, predict as often as needed.

Example:
    >>> from duallgd_cli import load
    >>> model = load()
    >>> found = model.predict("spectra.mgf", samples=50, seed=1)
    >>> for prediction in found:  # each as soon as it is there
    ...     print(prediction.candidates[0].smiles)
    >>> found.to_dataframe().query("rank == 1")
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from difflib import get_close_matches
from html import escape
from itertools import count, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from duallgd_cli import __version__, config
from duallgd_cli.errors import UsageError, clip
from duallgd_cli.files import require_input
from duallgd_cli.predict.own import with_own
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.run import table_identity
from duallgd_cli.predict.settings import PredictSettings, formula_source, preset_of
from duallgd_cli.ranking.one_list import predictions_of
from duallgd_cli.results import Candidate, Prediction
from duallgd_cli.runtime import Runtime, versions
from duallgd_cli.scores import Score
from duallgd_cli.sources import CandidateSource
from duallgd_cli.sources.known import GuideFiles, Knowledge
from duallgd_cli.spectra.features import GroupBy, Inputs, group
from duallgd_cli.spectra.reading import spectrum_files
from duallgd_cli.spectra.reading.record import Record, build
from duallgd_cli.spectra.types import Source, Spectrum
from duallgd_cli.writers.formats import COLUMNS, NUMBERS, rows

if TYPE_CHECKING:
    from pandas import DataFrame

    from duallgd_cli.predict.model import LoadedModel

__all__ = [
    "GuideFiles",
    "PredictSettings",
    "Predictions",
    "load",
    "predict_spectra",
    "to_dataframe",
]

# Files, or spectra of any kind.
Spectra: TypeAlias = str | Path | Iterable[object]
_PEAKS: Final = ("mz", "intensity", "intensities")
_WIDTH, _HEIGHT = 220, 180  # of a drawing, pixels
_MOST: Final = 20  # spectra shown; a notebook is no place for thousands


def load(
    weights: str | Path | None = None,
    *,
    device: str = "auto",
    runtime: Runtime | None = None,
    sources: Sequence[CandidateSource] = (),
    scores: Sequence[Score] = (),
) -> "LoadedModel":
    """Load a model; do it once and predict many times.

    Args:
        weights: File or registered name; None takes the weights that come with the package.
        device: ``auto``, ``cpu`` or ``cuda``; not used if `runtime` is given.
        runtime: Device, precision and threads together, as the command line resolves them.
        sources: Of your own, beside those of the weights: see `sources.CandidateSource`.
        scores: Likewise, see `scores.Score`.

    Raises:
        UsageError: There is no such device, or a source or score is none.
        WeightsError: The weights are missing, broken or do not fit.
    """
    from duallgd_cli.predict.model import load_model  # PyTorch, which tables do without

    model = load_model(weights, runtime or Runtime.resolve(device=device))
    return with_own(model, sources, scores)


def predict_spectra(
    model: "LoadedModel",
    spectra: Spectra,
    settings: PredictSettings | None = None,
    *,
    formulas: str | Path | None = None,
    workers: int = 1,
    **changes: object,
) -> list[Prediction]:
    """All that `predictions` gives, in the order in which the spectra were given."""
    coming = list(predictions(model, spectra, settings, formulas, workers, changes))
    files = list(dict.fromkeys(prediction.source.file for prediction in coming))
    return sorted(coming, key=lambda one: (files.index(one.source.file), one.source.index))


def predictions(
    model: "LoadedModel",
    spectra: Spectra,
    settings: PredictSettings | None = None,
    formulas: str | Path | None = None,
    workers: int = 1,
    changes: Mapping[str, object] = MappingProxyType({}),
) -> "Predictions":
    """Predict structures for spectra, as the command line does but in memory.

    Args:
        model: From `load`.
        spectra: A file; several files; or spectra: `matchms.Spectrum` objects, dictionaries with
            ``mz``, ``intensity`` and the fields of an MGF record (``precursor_mz``, ``formula``,
            ``adduct``, ``collision_energy`` ...), or what `duallgd_cli.spectra.reading.read` gives.
        settings: Seed, samples, steps, formula and so on; None for the defaults.
        formulas: Table of formulas by feature id, or None.
        workers: Processes that predict; does not change the result.
        changes: Settings by name, such as ``samples=20`` or ``formula="C8H10N4O2"``; and ``guide``,
            files that say what is known: ``guide=GuideFiles(analogues=("mine.smi",))``; and
            ``preset``: ``fast``, ``default`` or ``thorough``, over the settings and below changes.

    Returns:
        One prediction for every MS2 spectrum, computed as they are asked for.

    Raises:
        UsageError: A setting is unknown, or settings exclude each other.
        MissingInputError: A file does not exist.
        UnreadableError: A file cannot be read.
    """
    chosen, guide = _chosen(settings or PredictSettings(), dict(changes))
    knowledge = None if guide is None else Knowledge.read(chosen.guide, guide)
    ranking = model.ranking_for(chosen, guide)
    formulas = None if formulas is None else Path(formulas)  # a name will do
    source = formula_source(chosen, formulas, model.max_heavy_atoms)
    given = _given(spectra)
    record = {
        "duallgd": __version__,
        "versions": versions(),
        "weights": model.identity(ranking),
        "settings": config.dump(chosen) | table_identity(formulas, guide),
    }

    def computed() -> Iterator[Prediction]:
        with ExitStack() as opened:
            if isinstance(given, tuple):
                features = opened.enter_context(Inputs(given)).features(*chosen.grouping)
            else:  # what is given one by one is answered one by one, however it was measured
                by: GroupBy = "none" if chosen.group_by == "none" else "feature"
                features = group(given, by, chosen.adduct)
            numbered = enumerate(features)
            for together in results(
                numbered, model, chosen, workers, source=source, knowledge=knowledge
            ):
                candidates, top10 = ranking.rank(together)
                yield from predictions_of(together, candidates, top10, chosen.top_k, chosen.certain)

    return Predictions(computed(), record)


def _chosen(
    settings: PredictSettings, changes: dict[str, object]
) -> tuple[PredictSettings, GuideFiles | None]:
    """The settings with changes by name, and the files that stand among these."""
    guide = changes.pop("guide", None)
    if not isinstance(guide, GuideFiles | None):
        raise UsageError("guide must be GuideFiles, such as GuideFiles(analogues=('mine.smi',))")
    values = config.dump(settings)
    keywords = ["preset", "guide", *values, *values["sampling"]]
    for name in changes:
        if name.partition(".")[0] not in keywords:
            close = get_close_matches(name, keywords, n=1)
            hint = f"did you mean {close[0]}?" if close else "duallgd config lists all settings"
            raise UsageError(f"unknown setting {clip(name)}; {hint}")
    for name, value in {**preset_of(changes.pop("preset", None)), **changes}.items():
        inner = name not in values and name in values["sampling"]
        path = f"sampling.{name}" if inner else name  # these go by their own names too
        values = config.merge(values, config.nested(path, value))
    return config.parse(PredictSettings, values), guide


class Predictions:
    """Predictions that are computed as they are asked for, and kept.

    A loop gets each as soon as it is there, spectra that are read together at the position of the
    first of them. ``len``, an index, a table or a picture computes the rest.

    Attributes:
        record: What was run with what, as in the run record beside an output.
    """

    def __init__(self, coming: Iterator[Prediction], record: Mapping[str, Any]) -> None:
        self.record = record
        self._coming = coming
        self._known: list[Prediction] = []

    def __iter__(self) -> Iterator[Prediction]:
        """Each prediction, computed now unless it is known."""
        for position in count():
            if position == len(self._known):
                self._known.extend(islice(self._coming, 1))
            if position == len(self._known):
                return
            yield self._known[position]

    def __len__(self) -> int:
        """MS2 spectra of the input."""
        return len(self._all())

    def __getitem__(self, position: int) -> Prediction:
        """The prediction of the spectrum at this position."""
        return self._all()[position]

    def to_dataframe(self) -> "DataFrame":
        """A pandas table with the columns of the CSV output; see `to_dataframe`."""
        return to_dataframe(self)

    def draw(self, candidates: int = 3) -> "Html":
        """The first candidates of each spectrum as pictures, for a notebook or a file of HTML."""
        pieces, everything = [], self._all()
        for one in everything[:_MOST]:
            mz = "" if one.precursor_mz is None else f"m/z {one.precursor_mz:.4f}"
            why = "" if one.candidates else f"{one.status}: {one.message}"
            words = filter(None, (one.spectrum_id, mz, one.formula, one.adduct, why))
            pieces.append(f"<p>{' · '.join(map(escape, words))}</p>")
            if one.candidates:
                pieces.append(_drawn(one.candidates[:candidates]))
        if len(everything) > _MOST:
            pieces.append(f"<p>and {len(everything) - _MOST} more spectra</p>")
        return Html("\n".join(pieces))

    def _repr_html_(self) -> str:
        """What a notebook shows of them."""
        return self.draw()

    def _all(self) -> list[Prediction]:
        self._known.extend(self._coming)
        return self._known


def to_dataframe(predictions: Iterable[Prediction]) -> "DataFrame":
    """A pandas table with the columns of the CSV output, numbers as numbers.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("a table needs pandas; pip install 'duallgd[notebook]'") from None
    cells = [row for prediction in predictions for row in rows(prediction)]
    frame = pd.DataFrame(cells, columns=list(COLUMNS))
    for column in NUMBERS:
        frame[column] = pd.to_numeric(frame[column])
    return frame


def _given(spectra: Spectra) -> tuple[str, ...] | list[Spectrum]:
    """Names of files, or spectra as ours."""
    items = [spectra] if isinstance(spectra, str | Path) else list(spectra)
    if items and all(isinstance(one, str | Path) for one in items):
        names = spectrum_files(map(str, items))
        for name in names:
            require_input(name)
        return names
    made = [_spectrum(one, index) for index, one in enumerate(items)]
    if len({one.source for one in made}) < len(made):
        # Spectra made by hand may all name the same index: here they are told apart by order.
        made = [replace(one, source=Source(one.source.file, n)) for n, one in enumerate(made)]
    return made


def _spectrum(item: object, index: int) -> Spectrum:
    """A spectrum of another library, or of plain values, as ours."""
    if isinstance(item, Spectrum):
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
            f"item {index} ({type(item).__name__}) is no spectrum; give matchms.Spectrum objects, "
            "or dictionaries with mz and intensity (of one length), precursor_mz and formula"
        )
    metadata = {
        str(name).lower(): str(value)
        for name, value in fields.items()
        if name not in _PEAKS and value is not None
    }
    record = Record(metadata, np.asarray(mz, np.float64), np.asarray(intensity, np.float64))
    return build(record, Source("memory", index), keep_structures=False)


class Html(str):
    """A piece of HTML that a notebook shows as such."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def _drawn(candidates: Sequence[Candidate]) -> str:
    """One SVG with the candidates side by side."""
    from rdkit import Chem  # its drawing code loads only here
    from rdkit.Chem.Draw import rdMolDraw2D

    canvas = rdMolDraw2D.MolDraw2DSVG(_WIDTH * len(candidates), _HEIGHT, _WIDTH, _HEIGHT)
    canvas.DrawMolecules(
        [Chem.MolFromSmiles(one.smiles) for one in candidates],
        legends=[f"{one.rank}: {one.confidence:.2g}" for one in candidates],
    )
    canvas.FinishDrawing()
    return str(canvas.GetDrawingText()).partition("?>")[2]
