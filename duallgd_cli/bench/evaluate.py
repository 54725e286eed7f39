"""The evaluate use case for predictions that exist: score a table against the truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from duallgd_cli.bench.accuracy import Assessment, assess
from duallgd_cli.bench.report import Provenance, results, sha256, write_results
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluation.scoring import Scorer
from duallgd_cli.evaluation.tables import choose, read_predictions, read_truth

SPECTRA_PER_MOLECULE: Final = ("1", "all")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which spectra of a table are scored.

    Attributes:
        fold: Value of the column ``fold``; "" for all.
        spectra_per_molecule: ``1`` (always the same one) or ``all``.
        limit: At most so many spectra, always the same ones; None for all.
    """

    fold: str = ""
    spectra_per_molecule: str = "all"
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.spectra_per_molecule not in SPECTRA_PER_MOLECULE:
            raise UsageError(
                f"--spectra-per-molecule is 1 or all, not {self.spectra_per_molecule!r}"
            )


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Predictions to score, and where the report goes.

    Attributes:
        predictions: CSV or TSV with a spectrum's identifier, ``smiles`` and possibly ``rank``.
        truth: Table in the MassSpecGym layout.
        output: Folder for the report; made if absent.
        choice: Spectra of the truth to score.
        scorer: What to compute.
        seed: Of the bootstrap.
    """

    predictions: Path
    truth: Path
    output: Path
    choice: Choice = Choice()
    scorer: Scorer = field(default_factory=Scorer)
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """A finished evaluation.

    Attributes:
        results: What results.json holds.
        assessment: Behind it.
        files: Written, by name.
    """

    results: Mapping[str, Any]
    assessment: Assessment
    files: Mapping[str, Path]


def score_predictions(
    request: ScoreRequest, advance: Callable[[int, int], None] = lambda done, total: None
) -> Evaluated:
    """Score a table of predictions, ours or a rival's, and write the report.

    Args:
        request: What to score.
        advance: Called with the number of spectra scored and of all.

    Raises:
        UsageError: The tables do not belong together, or the report cannot be written.
        MissingInputError: A table does not exist.
        UnreadableError: A table cannot be read.
    """
    truths = choose(
        read_truth(request.truth, request.choice.fold),
        request.choice.spectra_per_molecule,
        request.choice.limit,
    )
    predicted = read_predictions(request.predictions)
    make_folder(request.output)
    assessment = assess(
        truths,
        predicted,
        request.scorer,
        advance=lambda done: advance(done, len(truths)),
        seed=request.seed,
    )
    provenance = Provenance(
        title=f"{request.predictions.name} against {request.truth.name}",
        track="not stated",
        data=data_record(request.truth, request.choice),
        prediction={
            "file": request.predictions.name,
            "sha256": sha256(request.predictions),
        },
    )
    found = results(assessment, request.scorer, provenance)
    return Evaluated(found, assessment, write_results(request.output, assessment, found))


def data_record(truth: Path, choice: Choice) -> dict[str, Any]:
    """What results.json says about the truth."""
    return {
        "file": truth.name,
        "sha256": sha256(truth),
        "fold": choice.fold or "all",
        "spectra_per_molecule": choice.spectra_per_molecule,
        "limit": choice.limit,
    }


def make_folder(path: Path) -> None:
    """Make the folder of a report.

    Raises:
        UsageError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {path} cannot be made: {error.strerror}") from None
