"""What an evaluation is asked for: the options of `duallgd evaluate` under their own names."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from duallgd_cli.errors import UsageError, quote
from duallgd_cli.predict.settings import PREDICT, PredictSettings, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """What is predicted and scored, how, and where the report goes.

    Attributes:
        benchmark: ``massspecgym``, ``nplib1`` or a table of labelled spectra.
        data_dir: Folder with the benchmark's files.
        predictions: Table of predictions to score as it is; None predicts the benchmark.
        truth: Table that says what the predicted spectra are.
        fold: Value of the column ``fold``; "" for the benchmark's own, or all of a plain table.
        spectra_per_molecule: ``1`` (always the same one) or ``all``.
        limit: At most so many spectra, always the same ones; None for all.
        out: Folder of the report; None names it after what is scored.
        top_k: Ranks to report, ascending.
        mces: Compute MCES distances: the slow part.
        mces_limit: Time limit of one pair, s.
        mces_cache: File of solved pairs, or None.
        formulas: Table of predicted formulas; None gives the true ones (another track).
        prediction: How spectra are predicted; its seed is the bootstrap's too.
        analogues: Files of known molecules that samples start from; see `sources.known.GuideFiles`.
        databases: Files of structures to choose from; see `sources.known.GuideFiles`.
        train_hashes: List of the weights' training molecules; None takes the one beside them.
        train_data: Tables of training molecules for similarities.
        allow_leakage: Score molecules that the weights have seen, and say so on the result.
        drop_leaked: Leave them out, and say so on the result.
        weights: File or name; None for those that come with duallgd.
        device: As `Runtime.resolve` takes it.
        precision: As `Runtime.resolve` takes it.
        threads: CPU threads; None for the physical cores at hand.
        workers: Processes that assemble molecules and that score; None chooses for both.
        resume: Continue an interrupted run; finished shards of it are joined.
        shard: Part of the spectra to predict; a part is not scored.
        force: Replace files of the folder that exist.
        config: File that settings came from, which is never written to; or None.
    """

    benchmark: str | None = None
    data_dir: Path | None = None
    predictions: Path | None = None
    truth: Path | None = None
    fold: str = ""
    spectra_per_molecule: Literal["1", "all"] = "all"
    limit: int | None = None
    out: Path | None = None
    top_k: tuple[int, ...] = (1, 10)
    mces: bool = True
    mces_limit: float = 30.0
    mces_cache: Path | None = None
    formulas: Path | None = None
    prediction: PredictSettings = field(default_factory=PredictSettings)
    analogues: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    train_hashes: Path | None = None
    train_data: Sequence[Path] = ()
    allow_leakage: bool = False
    drop_leaked: bool = False
    weights: str | None = None
    device: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    workers: int | None = None
    resume: bool = False
    shard: Shard = field(default_factory=Shard)
    force: bool = False
    config: Path | None = None

    def __post_init__(self) -> None:
        if self.allow_leakage and self.drop_leaked:
            raise UsageError("--allow-leakage and --drop-leaked exclude each other; give one")
        if self.prediction.formula not in (None, PREDICT):
            raise UsageError(f"--formula is {PREDICT}, not {quote(self.prediction.formula)}")

    @property
    def folder(self) -> Path:
        """Where the report goes."""
        name = self.predictions or Path(str(self.benchmark))
        return self.out or Path(f"{name.name}.evaluation")


def parse_ranks(text: str) -> tuple[int, ...]:
    """Read ``1,10``.

    Raises:
        UsageError: It is not a list of whole numbers from 1.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"--top-k {quote(text)} is not a list of whole numbers such as 1,10")
    return tuple(sorted({int(part) for part in parts}))
