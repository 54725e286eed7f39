"""duallgd from Python: load a model once, predict as often as needed.

With sources and scores of one's own, which packages may name, too: as classes in the entry points
``duallgd.sources`` and ``duallgd.scores``. What goes wrong inside one is a sentence in the row of
the spectrum, and the rest of the row stands.

Example:
    >>> from duallgd_cli import load
    >>> model = load()
    >>> found = model.predict("spectra.mgf", samples=50, seed=1)
    >>> for prediction in found:  # each as soon as it is there
    ...     print(prediction.candidates[0].smiles)
    >>> found.to_dataframe().query("rank == 1")
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from html import escape
from itertools import count, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli import __version__, config
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.errors import (
    FormulaError,
    MoleculeError,
    OutOfTimeError,
    UsageError,
    clip,
    counted,
)
from duallgd_cli.files import require_input
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.run import table_identity
from duallgd_cli.predict.settings import PredictSettings, formula_source, preset_of
from duallgd_cli.ranking.one_list import predictions_of
from duallgd_cli.ranking.ranking import FEATURES
from duallgd_cli.results import Prediction
from duallgd_cli.runtime import Runtime, versions
from duallgd_cli.scores import Molecule, Score
from duallgd_cli.sources import CandidateSource, Proposal, Query
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

# One or several of files, or of spectra of any kind.
Spectra: TypeAlias = str | Path | Mapping[str, Any] | Spectrum | Iterable[object]
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
    **named: Any,  # noqa: ANN401 - as `LoadedModel.predict` takes them
) -> list[Prediction]:
    """All that `LoadedModel.predict` gives, in the order in which the spectra were given."""
    coming = list(model.predict(spectra, settings, **named))
    files = list(dict.fromkeys(one.source.file for one in coming))
    return sorted(coming, key=lambda one: (files.index(one.source.file), one.source.index))


def predictions(
    model: "LoadedModel",
    spectra: Spectra,
    settings: PredictSettings | None = None,
    formulas: str | Path | None = None,
    workers: int = 1,
    changes: Mapping[str, object] = MappingProxyType({}),
) -> "Predictions":
    """Predict structures for spectra, as the command line does: one prediction for each, as asked.

    Args:
        model: From `load`.
        spectra: A file, several files, a spectrum or several: `matchms.Spectrum` objects,
            dictionaries with ``mz``, ``intensity`` and the fields of an MGF record
            (``precursor_mz``, ``formula``, ``adduct``, ``collision_energy`` ...), or what
            `duallgd_cli.spectra.reading.read` gives.
        settings: Seed, samples, steps, formula and so on; None for the defaults.
        formulas: Table of formulas by feature id, or None.
        workers: Processes that predict; does not change the result.
        changes: Settings by name, such as ``samples=20``; ``guide``, files that say what is known,
            such as ``GuideFiles(analogues=("mine.smi",))``; and ``preset``: ``fast``, ``default``
            or ``thorough``, over the settings and below changes.

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
            given_all = (enumerate(features), model, chosen, workers)
            for feature in results(*given_all, source=source, knowledge=knowledge):
                candidates, top10 = ranking.rank(feature.hypotheses)
                yield from predictions_of(feature, candidates, top10, chosen.top_k, chosen.certain)

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
    first of them. ``len``, an index, a table or a picture computes the rest. After a Ctrl-C or an
    error a loop still gives those that are known, and then a `UsageError`.

    Attributes:
        record: What was run with what, as in the run record beside an output.
    """

    def __init__(self, coming: Iterator[Prediction], record: Mapping[str, Any]) -> None:
        self.record = record
        self._coming = coming
        self._known: list[Prediction] = []
        self._is_broken = False

    def __iter__(self) -> Iterator[Prediction]:
        """Each prediction, computed now unless it is known."""
        for position in count():
            if position == len(self._known):
                self._compute(1)
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
        from rdkit.Chem.Draw import rdMolDraw2D

        pieces, everything = [], self._all()
        for one in everything[:_MOST]:
            mz = "" if one.precursor_mz is None else f"m/z {one.precursor_mz:.4f}"
            why = "" if one.candidates else f"{one.status}: {one.message}"
            words = filter(None, (one.spectrum_id, mz, one.formula, one.adduct, why))
            pieces.append(f"<p>{' · '.join(map(escape, words))}</p>")
            if shown := one.candidates[:candidates]:
                canvas = rdMolDraw2D.MolDraw2DSVG(_WIDTH * len(shown), _HEIGHT, _WIDTH, _HEIGHT)
                canvas.DrawMolecules(
                    [Chem.MolFromSmiles(each.smiles) for each in shown],
                    legends=[f"{each.rank}: {each.confidence:.2g}" for each in shown],
                )
                canvas.FinishDrawing()
                pieces.append(canvas.GetDrawingText().partition("?>")[2])
        if len(everything) > _MOST:
            pieces.append(f"<p>and {len(everything) - _MOST} more spectra</p>")
        return Html("\n".join(pieces))

    def _repr_html_(self) -> str:
        """What a notebook shows of them."""
        return self.draw()

    def _all(self) -> list[Prediction]:
        self._compute()
        return self._known

    def _compute(self, most: int | None = None) -> None:
        """Compute what is not yet known; what broke off once is never taken for the whole."""
        if self._is_broken:
            n_known = counted(len(self._known), "prediction")
            raise UsageError(f"computing broke off after {n_known}; predict again")
        try:
            self._known.extend(islice(self._coming, most))
        except BaseException:
            self._is_broken = True
            raise


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
    """Names of files, or spectra as ours; of either one may stand alone."""
    is_one = isinstance(spectra, str | Path | Mapping | Spectrum) or hasattr(spectra, "peaks")
    items = [spectra] if is_one or not isinstance(spectra, Iterable) else list(spectra)
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


@contextmanager
def _telling(query: Query, what: str) -> Iterator[None]:
    """Whatever foreign code raises inside is a remark that begins with these words."""
    try:
        yield
    except (OutOfTimeError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001
        query.remarks.append(f"{what}: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class OwnSource:
    """A source of the user's, whose faults are said and cost nothing else.

    Its ``propose(query, n, seed)`` gives molecules as SMILES or for RDKit, or proposals.
    """

    source: Any
    name: str

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """What the source gives, at most n; a molecule of another formula is no candidate."""
        with _telling(query, f"source {self.name} failed"):
            for item in islice(self.source.propose(query, n, seed), n):
                proposal = item if isinstance(item, Proposal) else Proposal(self.name, item)
                mol: Any = proposal.mol
                try:
                    mol = parse_smiles(mol) if isinstance(mol, str) else mol
                    is_of = isinstance(mol, Chem.Mol) and formula_of(mol) == query.formula
                    why = "" if is_of else "another formula"
                except (MoleculeError, FormulaError):
                    mol = None
                if not isinstance(mol, Chem.Mol):
                    mol, why = None, "not a molecule"
                why = proposal.rejection or why
                yield proposal._replace(source=self.name, mol=mol, rejection=why)


@dataclass(frozen=True, slots=True)
class OwnScore:
    """A score of the user's, whose faults are said; it then counts for no molecule."""

    score: Any
    name: str

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> NDArray[np.float64]:
        """Score molecules, (C,); 0 for all where something is wrong."""
        with _telling(query, f"score {self.name} failed and does not count"):
            values = np.asarray(self.score(query, molecules), np.float64)
            if values.shape == (len(molecules),) and np.isfinite(values).all():
                query.remarks.append(f"scored by {self.name} too: confidence is not calibrated")
                return values
            number = counted(len(molecules), "molecule")
            query.remarks.append(
                f"score {self.name} does not count: it must give one finite number for each of "
                f"{number}"
            )
        return np.zeros(len(molecules))


def with_own(
    model: "LoadedModel", sources: Sequence[CandidateSource] = (), scores: Sequence[Score] = ()
) -> "LoadedModel":
    """A model with the user's sources and scores, those of installed packages included.

    Raises:
        UsageError: One has no name, the name of another, or cannot be called.
    """
    taken = {each.name for each in model.sources}
    own_sources = [OwnSource(*one) for one in _named("source", sources, "propose", taken)]
    taken = {each.name for each in model.scores} | set(FEATURES)
    own_scores = [OwnScore(*one) for one in _named("score", scores, "__call__", taken)]
    return model.added(own_sources, own_scores) if own_sources or own_scores else model


def _named(
    kind: str, given: Sequence[object], verb: str, taken: set[str]
) -> Iterator[tuple[Any, str]]:
    """Sources or scores of installed packages and those given, each with a name not yet taken."""
    from importlib.metadata import entry_points  # takes a while, and loads the network's modules

    installed = list[object]()
    for point in entry_points(group=f"duallgd.{kind}s"):
        try:
            installed.append(point.load()())
        except Exception as error:  # noqa: BLE001  whatever foreign code raises
            raise UsageError(
                f"{point.value}, which a package names in duallgd.{kind}s, cannot be loaded "
                f"({type(error).__name__}: {error}); mend or uninstall it"
            ) from None
    for own in (*installed, *given):
        name = getattr(own, "name", None)
        if not isinstance(name, str) or not name.isidentifier() or not hasattr(own, verb):
            raise UsageError(
                f"{type(own).__name__} is no {kind}: it needs a name of letters and a {verb}"
            )
        if name in taken:
            raise UsageError(f"there are two {kind}s of the name {name}; rename one")
        taken.add(name)
        yield own, name
