"""What a prediction run is asked for, and what it then is."""

import re
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings, require_range
from duallgd_cli.errors import FormulaError, UsageError, quote
from duallgd_cli.files import STANDARD_STREAM, require_input
from duallgd_cli.formulas import FormulaSettings, predicted_formulas
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.spectra.annotation import AnnotationSettings
from duallgd_cli.spectra.cleaning import CleaningSettings
from duallgd_cli.spectra.features import GroupBy, require_adduct
from duallgd_cli.spectra.formulas import (
    FormulaLimits,
    FormulaSource,
    from_field,
    from_text,
    table_source,
)
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.writers.formats import resolve_format
from duallgd_cli.writers.summaries import summary_paths

if TYPE_CHECKING:
    from duallgd_cli.chem.guide import Guide

ENDING: Final = ".journal.jsonl"  # of the name of a journal
PAGE: Final = "the page"
_SHARD: Final = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", re.ASCII)
_MOST_SHARDS: Final = 100_000
CERTAIN: Final = 0.7  # probability from which on an answer counts as certain
PREDICT: Final = "predict"  # in place of a formula: whatever the file says
# Samples and steps of each molecule, by one word.
PRESETS: Final = {
    "fast": {"samples": 30, "steps": 6},
    "default": {name: getattr(SamplingSettings(), name) for name in ("samples", "steps")},
    "thorough": {"samples": 300, "steps": 20},
}
_MOST_FORMULAS: Final = 20
# Each is a process of about 150 MB.
_MOST_WORKERS: Final = 256


@dataclass(frozen=True, slots=True)
class PredictSettings:
    """Everything that decides what is predicted; a journal of other settings is not continued.

    Attributes:
        seed: Of the noise; together with the spectrum's content.
        top_k: Candidates written per spectrum.
        certain: Probability from which on an answer counts as certain.
        group_by: ``run`` reads MS2 scans of a run that are of one ion as one feature, and spectra
            of other files as ``feature`` does: those that share feature id and precursor are one.
            ``none`` reads each alone.
        adduct: The adduct of every spectrum, whatever its file says; None takes each one's own.
        formula_column: Field that holds the formula; None looks for the usual names.
        formula: The formula of every spectrum; None takes each spectrum's own, and predicts that of
            a spectrum without one; ``predict`` predicts all.
        formula_candidates: Most predicted formulas that structures are drawn for, 1 to 20.
        formula_search: Which formulas are looked for where they are predicted.
        require: Parts, as SMARTS or names of the catalogue, that every candidate must have.
        forbid: Parts that none may have.
        features: How scans of a run become features.
        limits: What a formula must satisfy.
        sampling: How molecules are drawn.
        cleaning: Which peaks are kept.
        annotation: How peaks are explained.
    """

    seed: int = 0
    top_k: int = 10
    certain: float = CERTAIN
    group_by: GroupBy = "run"
    adduct: str | None = None
    formula_column: str | None = None
    formula: str | None = None
    formula_candidates: int = 5
    formula_search: FormulaSettings = field(default_factory=FormulaSettings)
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    features: FeatureSettings = field(default_factory=FeatureSettings)
    limits: FormulaLimits = field(default_factory=FormulaLimits)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    cleaning: CleaningSettings = field(default_factory=CleaningSettings)
    annotation: AnnotationSettings = field(default_factory=AnnotationSettings)

    def __post_init__(self) -> None:
        require_range(self, "top_k", least=1)
        require_range(self, "certain", above=0, most=1)
        require_range(self, "formula_candidates", least=1, most=_MOST_FORMULAS)
        require_adduct(self.adduct)

    @property
    def grouping(self) -> tuple[GroupBy, str | None, FeatureSettings]:
        """What `Inputs.features` is told."""
        return self.group_by, self.adduct, self.features

    def limits_of(self, max_heavy_atoms: int) -> FormulaLimits:
        """What a formula must satisfy where a model accepts molecules up to this size."""
        is_less = max_heavy_atoms < self.limits.max_heavy_atoms
        return replace(self.limits, max_heavy_atoms=max_heavy_atoms) if is_less else self.limits

    @property
    def guide(self) -> "Guide | None":
        """What is known of the molecules or None; UsageError names a text that cannot be read."""
        if self.sampling.core is None and not self.require and not self.forbid:
            return None
        from duallgd_cli.chem.guide import Guide  # rdkit loads only where molecules are made

        guide = Guide(self.sampling.core, self.require, self.forbid)
        guide.check()
        return guide


def formula_source(
    settings: PredictSettings, table: Path | None, max_heavy_atoms: int
) -> FormulaSource:
    """Where formulas come from: a table, one formula for all, or a field of each spectrum.

    Where these have none, it is predicted, for molecules that the model can draw; with the word
    ``predict`` for a formula, everywhere.

    Raises:
        UsageError: More than one is asked for, or the formula or the table is none.
        MissingInputError: There is no such table.
        UnreadableError: The table is empty or no text.
    """
    formula, column = settings.formula, settings.formula_column
    options = {"--formulas": table, "--formula": formula, "--formula-col": column}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one of them")
    limits = settings.limits_of(max_heavy_atoms)
    predicted = partial(
        predicted_formulas,
        settings=settings.formula_search,
        max_heavy_atoms=limits.max_heavy_atoms,
        most=settings.formula_candidates,
    )
    if table is not None:
        return table_source(str(table), limits, predicted)
    if formula == PREDICT:
        return predicted
    if formula is None:
        return partial(from_field, column=column, limits=limits, otherwise=predicted)
    try:
        Formula.parse(formula)
    except FormulaError as error:
        raise UsageError(f"--formula: {error}") from None
    return partial(from_text, text=formula, limits=limits)


def preset_of(name: object) -> dict[str, int]:
    """Settings of sampling that a preset stands for, by name; {} for None."""
    if name is None:
        return {}
    if not isinstance(name, str) or name not in PRESETS:
        raise UsageError(f"preset must be one of {', '.join(PRESETS)}, not {quote(name)}")
    return PRESETS[name]


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several runs that share an input, from 1; features go to shards in turn."""

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count <= _MOST_SHARDS:
            raise UsageError(
                f"shard {self} does not exist; shards are 1/n to n/n, with n at most {_MOST_SHARDS}"
            )

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read ``2/8``; UsageError if it is not of that form or the number exceeds the count."""
        match = _SHARD.fullmatch(text)
        if match is None:
            raise UsageError(
                f"shard {quote(text)} is not of the form 2/8, with at most {_MOST_SHARDS} shards"
            )
        return cls(int(match[1]), int(match[2]))

    def holds(self, feature: int) -> bool:
        """Whether the feature with this 0-based number belongs to the shard."""
        return feature % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True, slots=True)
class PredictRequest:
    """A run of the predict use case: settings, and where things are."""

    inputs: tuple[str, ...]  # spectrum files as the user named them; ``-`` is standard input
    output: str  # file to write, or ``-`` for standard output
    format: str = ""  # csv, tsv, jsonl, sdf or mztab; empty decides by the output's ending
    formulas: Path | None = None  # table of formulas by feature id, or None
    features: Path | None = None  # table of features, which comes back with the answers, or None
    guide: GuideFiles | None = None  # files that say what is known of the molecules, or None
    settings: PredictSettings = field(default_factory=PredictSettings)  # what decides the result
    shard: Shard = field(default_factory=Shard)  # the part of the features to predict
    resume: bool = False  # continue an interrupted run of the same settings
    journal: Path | None = None  # where finished spectra are kept; None puts it beside the output
    workers: int = 1  # processes that predict; does not change results
    parts: bool = False  # say what structures contain, beside the output and in JSON lines
    summaries: tuple[str, ...] = ()  # tables for other programs, beside the output
    names: Path | None = None  # table of names and classes, which outputs then have; see `Names`
    page: Path | None = None  # of HTML, which whoever asks for the run makes of it
    force: bool = False  # replace files that exist
    reads: tuple[Path, ...] = ()  # what else the command reads, such as weights: never replaced

    def __post_init__(self) -> None:
        twice = [name for name in self.inputs if self.inputs.count(name) > 1]
        if twice:
            raise UsageError(f"input {min(twice)} is named twice; name each file once")
        others = {"--parts": self.parts, "--summary": self.summaries, "--report": self.page}
        for option, given in (others | {"--names": self.names}).items():
            if given and self.shard.count > 1:
                raise UsageError(f"{option} needs a whole run; join it with duallgd merge first")
        for option, given in (others | {"--features": self.features}).items():
            if given and self.output == STANDARD_STREAM:
                raise UsageError(f"{option} needs an output file to lie beside; name one with -o")
        if self.journal_path() is None and (self.resume or self.shard.count > 1):
            raise UsageError(
                "--resume and --shard with standard output need --journal FILE to keep results"
            )
        require_range(self, "workers", least=1, most=_MOST_WORKERS)

    def journal_path(self) -> Path | None:
        """Where the journal lies, such as ``out.csv.journal.jsonl``; None if the run keeps none."""
        if self.journal is None and self.output == STANDARD_STREAM:
            return None
        return self.journal or Path(f"{self.run_name}{ENDING}")

    @property
    def run_name(self) -> Path:
        """What the files beside the output are named after, those of each shard of its own."""
        number, count = self.shard.number, self.shard.count
        return Path(f"{Path(self.output)}" + f".shard-{number}-of-{count}" * (count > 1))

    def beside(self, what: str) -> Path:
        """A table beside the output, such as ``out.parts.csv``."""
        output = Path(self.output)
        return output.with_name(f"{output.stem}.{what}.csv")

    def files_written(self) -> dict[str, str | Path]:
        """All that the run writes but its journal; UsageError for an unknown format or summary."""
        resolve_format(self.output, self.format)
        is_whole, is_file = self.shard.count == 1, self.output != STANDARD_STREAM
        comes_back = is_whole and self.features is not None
        summaries = summary_paths(self.summaries, Path(self.output)) if self.summaries else {}
        places: dict[str, str | Path | None] = {
            "the output": self.output if is_whole else None,
            "the run record": record_path(self.run_name) if is_file else None,
            "the table of parts": self.beside("parts") if self.parts else None,
            "the table of features": self.beside("features") if comes_back else None,
            PAGE: self.page,
            **{f"the table for {name}": path for name, path in summaries.items()},
        }
        return {kind: place for kind, place in places.items() if place is not None}

    def tables_read(self) -> list[Path]:
        """The tables of the request."""
        return [one for one in (self.formulas, self.features, self.names) if one is not None]

    def files_read(self) -> list[str | Path]:
        """All that the run reads; all of it must be there."""
        for name in self.inputs:
            if name != STANDARD_STREAM:
                require_input(name)
        known = () if self.guide is None else self.guide.places()
        places = (place for _, _, place in known)
        return [*self.inputs, *places, *self.tables_read(), *self.reads]


def record_path(output: Path) -> Path:
    """Where the record of a run lies: ``out.csv.run.json``."""
    return output.with_name(f"{output.name}.run.json")
