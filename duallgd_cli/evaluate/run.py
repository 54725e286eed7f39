"""The evaluate use case: predictions, ours or anybody's, scored against a benchmark or a table."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.accuracy import Assessment, Extra, assess
from duallgd_cli.evaluate.decomposition import decompose
from duallgd_cli.evaluate.model_card import write_model_card
from duallgd_cli.evaluate.overlap import Checked
from duallgd_cli.evaluate.plots import write_plots
from duallgd_cli.evaluate.protocol import stamped, tells_true_order
from duallgd_cli.evaluate.report import Provenance, results, write_results
from duallgd_cli.evaluate.scoring import Scorer, Scores, Summary
from duallgd_cli.evaluate.suites import finding, table
from duallgd_cli.evaluate.suites.suite import Suite
from duallgd_cli.evaluate.tables import (
    Predicted,
    Truth,
    choose,
    read_predictions,
    truths_of,
)
from duallgd_cli.files import sha256

SPECTRA_PER_MOLECULE: Final = ("1", "all")
NOT_STATED: Final = "not stated"
FORMULA_KNOWN: Final = "formula known"
FORMULA_PREDICTED: Final = "formula predicted"
Advance = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which spectra of a benchmark are scored.

    Attributes:
        fold: Value of the column ``fold``; "" for the benchmark's own, or all of a plain table.
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

    def truths(self, suite: Suite) -> list[Truth]:
        """The chosen spectra.

        Raises:
            UnreadableError: The benchmark cannot be read.
            UsageError: It has no such fold.
        """
        fold = self.fold or suite.fold
        found = truths_of(suite.rows(), fold, suite.title)
        return choose(found, self.spectra_per_molecule, self.limit)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRequest:
    """Predictions to score, and where the report goes.

    Attributes:
        predictions: CSV or TSV with a spectrum's identifier, ``smiles`` and possibly ``rank``.
        suite: Knows the truth.
        output: Folder for the report; made if absent.
        choice: Spectra to score.
        scorer: What to compute.
        track: Whether the formula was known to the predictions.
        seed: Of the bootstrap.
    """

    predictions: Path
    suite: Suite
    output: Path
    choice: Choice = Choice()
    scorer: Scorer = field(default_factory=Scorer)
    track: str = NOT_STATED
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


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of predictions beyond their table.

    Attributes:
        prediction: Settings, weights and samples, for results.json.
        extra: Numbers by spectrum.
        rivals: Predictions of others for the same spectra.
        oracle: Predictions from the true fingerprints, None if they were not made.
        checked: The spectra to score after the check for leakage; None scores the whole choice.
    """

    prediction: Mapping[str, Any] = field(default_factory=dict)
    extra: Extra = field(default_factory=Extra)
    rivals: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    oracle: Mapping[str, Predicted] | None = None
    checked: Checked | None = None


def score_predictions(
    request: ScoreRequest, known: Known | None = None, advance: Advance = no_progress
) -> Evaluated:
    """Score a table of predictions and write the report.

    Args:
        request: What to score.
        known: What is known of the predictions; None for a table of unknown origin.
        advance: Called with the number of spectra scored and of all.

    Raises:
        UsageError: The tables do not belong together, or the report cannot be written.
        MissingInputError: A table does not exist.
        UnreadableError: A table cannot be read.
    """
    known = known or Known()
    checked = known.checked or Checked(tuple(request.choice.truths(request.suite)))
    if tells_true_order(request.predictions):
        checked = stamped(checked)
    truths = checked.truths
    make_folder(request.output)
    assessment = assess(
        truths,
        read_predictions(request.predictions),
        request.scorer,
        replace(known.extra, nearest_training=checked.nearest),
        lambda done: advance(done, len(truths)),
        seed=request.seed,
    )
    found = results(assessment, request.scorer, _provenance(request, known, checked))
    found["rivals"] = _rivals(assessment, request, known)
    found["decomposition"] = _decomposition(assessment, request, known)
    files = write_results(request.output, assessment, found)
    files |= write_plots(request.output, found)
    if request.suite.submission and (request.choice.fold or request.suite.fold) == "test":
        files["model_card.yaml"] = write_model_card(request.output, found)
    return Evaluated(found, assessment, files)


def suite_of(benchmark: str | None, data_dir: Path | None, truth: Path | None) -> Suite:
    """What knows the truth: a benchmark by its name, or a table that says what spectra are.

    Raises:
        UsageError: None, or both, are given.
        MissingInputError: Its files are not there.
        UnreadableError: They are not what they should be.
    """
    if benchmark is not None and truth is None:
        return finding.find(benchmark, data_dir)
    if truth is not None and benchmark is None:
        return table.truth_only(truth)
    raise UsageError("give --benchmark, or --predictions with either --truth or --benchmark")


def data_record(suite: Suite, choice: Choice) -> dict[str, Any]:
    """What results.json says about the data."""
    return {
        "files": {path.name: sha256(path) for path in suite.files},
        "fold": choice.fold or suite.fold or "all",
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


def _provenance(request: ScoreRequest, known: Known, checked: Checked) -> Provenance:
    suite = request.suite
    return Provenance(
        title=suite.titled(request.choice.fold or suite.fold),
        track=request.track,
        data={
            **data_record(suite, request.choice),
            "left_out_as_trained_on": list(checked.left_out),
        },
        seed=request.seed,
        prediction={
            "file": request.predictions.name,
            "sha256": sha256(request.predictions),
            **known.prediction,
        },
        remarks=(*suite.remarks, *checked.remarks),
        published=suite.published,
    )


def _rivals(assessment: Assessment, request: ScoreRequest, known: Known) -> dict[str, Any]:
    """Metrics of each rival, and how far ours are from them spectrum by spectrum."""
    found = {}
    for name, predicted in known.rivals.items():
        # The reference's columns are for comparison with published numbers alone.
        scorer = replace(request.scorer, reference=False)
        theirs = assess(assessment.truths, predicted, scorer, seed=request.seed)
        found[name] = rival_record(assessment, theirs, request.seed)
    return found


def _decomposition(
    assessment: Assessment, request: ScoreRequest, known: Known
) -> dict[str, dict[str, float]]:
    """Shares of spectra from a perfect bond matrix down to the first candidate."""
    oracle = None
    if known.oracle is not None:
        scorer = replace(request.scorer, reference=False, mces=False)
        oracle = assess(assessment.truths, known.oracle, scorer, seed=request.seed).scores
    smiles = [truth.smiles for truth in assessment.truths]
    shares = decompose(smiles, assessment.scores, oracle, seed=request.seed)
    return {name: asdict(share) for name, share in shares.items()}


def rival_record(ours: Assessment, theirs: Assessment, seed: int) -> dict[str, Any]:
    """A rival's numbers and the paired differences (ours minus theirs) with clustered intervals.

    Of all spectra, and of each part of the test set.
    """
    apart = {
        part.name: _comparison(
            ours.scores.subset(part.keep), theirs.scores.subset(part.keep), part.summary, seed
        )
        for part in theirs.parts
    }
    return {**_comparison(ours.scores, theirs.scores, theirs.summary, seed), "parts": apart}


def _comparison(
    ours: Scores, theirs: Scores, summary: Mapping[str, Summary], seed: int
) -> dict[str, Any]:
    names = [name for name in theirs.columns if "@" in name]
    differences = ours.minus(theirs, names, seed)
    return {
        "metrics": {name: asdict(summary[name]) for name in names},
        "ours_minus_theirs": {name: asdict(found) for name, found in differences.items()},
    }
