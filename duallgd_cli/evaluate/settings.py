"""What an evaluation is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from duallgd_cli.errors import UsageError, quote
from duallgd_cli.predict.settings import PredictSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """What is predicted and scored, how, and where the report goes."""

    benchmark: Path | None = None  # a table of labelled spectra, or `evaluate.MASSSPECGYM`
    predictions: Path | None = None  # what is scored instead of being predicted
    truth: Path | None = None  # table of the true structures, where there is no benchmark
    fold: str = ""  # the fold to score, else all; see `tables.truths_of`
    spectra_per_molecule: Literal["1", "all"] = "all"
    limit: int | None = None  # so many spectra, always the same
    mces: bool = True  # whether MCES distances are computed
    # the weights' training molecules; None for the file beside the weights
    train_hashes: Path | None = None
    train_data: Sequence[Path] = ()  # tables of training molecules, for similarities
    workers: int | None = None  # processes that predict and score
    out: Path | None = None  # folder of the report; None names it after what is scored
    top_k: tuple[int, ...] = (1, 10)  # ranks to report, ascending
    # how spectra are predicted; its seed is the bootstrap's too
    prediction: PredictSettings = field(default_factory=PredictSettings)
    # files of known molecules that samples start from; see `sources.known.GuideFiles`
    analogues: tuple[str, ...] = ()
    # files of structures to choose from; see `sources.known.GuideFiles`
    databases: tuple[str, ...] = ()
    weights: str | None = None  # file or name; None for those that come with duallgd
    device: str = "auto"  # as `Runtime.resolve` takes it, like `precision` and `threads`
    precision: str = "auto"
    threads: int | None = None
    resume: bool = False  # continue an interrupted run
    force: bool = False  # replace files of the folder that exist
    config: Path | None = None  # file that settings came from, which is never written to; or None

    def __post_init__(self) -> None:
        if self.prediction.formula not in (None, "predict"):
            raise UsageError(f"--formula is predict, not {quote(self.prediction.formula)}")

    @property
    def folder(self) -> Path:
        """Where the report goes."""
        scored = self.predictions or self.benchmark or Path()
        return self.out or Path(f"{scored.name}.evaluation")
