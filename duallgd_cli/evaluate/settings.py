"""What an evaluation is asked for; `duallgd evaluate` makes its own options of these fields."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from duallgd_cli.errors import UsageError, quote

if TYPE_CHECKING:
    from duallgd_cli.predict.settings import PredictSettings

MASSSPECGYM: Final = "massspecgym"  # the benchmark that is downloaded by its name
# Options are described where the settings are: annotations are what `typer.Option` is given.
_scored, _scoring, _leakage, _machine = (
    partial(dict[str, object], rich_help_panel=panel)
    for panel in ("What is scored", "Scoring", "Training data", "Machine")
)


def _prediction() -> "PredictSettings":
    from duallgd_cli.predict.settings import PredictSettings  # not for the help of a command

    return PredictSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """What is predicted and scored, how, and where the report goes."""

    benchmark: Annotated[
        Path | None,
        _scored(
            help="massspecgym (its test fold, downloaded once from huggingface.co), or a table of "
            "labelled spectra in its layout (.tsv, .gz, .xz): identifier, smiles, formula, mzs, "
            "intensities, precursor_mz, adduct."
        ),
    ] = None
    predictions: Annotated[
        Path | None,
        _scored(
            help="CSV or TSV of predictions, predict's output or anybody's: an identifier, smiles "
            "and, unless the rows are in order, rank."
        ),
    ] = None
    truth: Annotated[
        Path | None,
        _scored(
            help="Table of the true structures (.tsv, .csv, .gz, .xz): identifier or feature_id, "
            "and smiles."
        ),
    ] = None
    fold: Annotated[
        str, _scored(help="Fold to score, else all. val:A and val:B are its halves by molecule.")
    ] = ""
    spectra_per_molecule: Annotated[
        Literal["1", "all"], _scored(help="1 (always the same one of each molecule) or all.")
    ] = "all"
    limit: Annotated[int | None, _scored(help="So many spectra, always the same.", min=1)] = None
    mces: Annotated[bool, _scoring(help="Compute MCES distances, the slow part.")] = True
    train_hashes: Annotated[
        Path | None,
        _leakage(
            help="List of the weights' training molecules, which are left out; by default the file "
            ".train.hashes beside the weights that predict, or made the predictions."
        ),
    ] = None
    train_data: Annotated[
        Sequence[Path],
        _leakage(
            help="Table of training molecules (smiles, fold), for the similarity to the nearest "
            "one: groups by it, and the share above 0.7; may be repeated."
        ),
    ] = ()
    workers: Annotated[
        int | None,
        _machine(
            help="Processes that predict and score; results do not depend on them. By default as "
            "many as the machine has cores and memory for.",
            min=1,
            metavar="K",
        ),
    ] = None
    out: Path | None = None  # folder of the report; None names it after what is scored
    top_k: tuple[int, ...] = (1, 10)  # ranks to report, ascending
    # how spectra are predicted; its seed is the bootstrap's too
    prediction: "PredictSettings" = field(default_factory=_prediction)
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
