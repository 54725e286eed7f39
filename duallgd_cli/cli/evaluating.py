"""What `duallgd evaluate` does with its options."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from duallgd_cli.errors import UsageError, WeightsError

if TYPE_CHECKING:
    from duallgd_cli.bench.benchmark import BenchmarkRequest
    from duallgd_cli.bench.evaluate import Choice, Evaluated
    from duallgd_cli.bench.overlap import Training
    from duallgd_cli.evaluation.scoring import Scorer

logger = logging.getLogger(__name__)

_HASHES: Final = ".train.hashes"
_WORTH_TELLING: Final = 50


@dataclass(frozen=True, slots=True)
class Task:
    """What is scored, how, and where the report goes; as the options of the same names."""

    benchmark: str | None
    data_dir: Path | None
    predictions: Path | None
    truth: Path | None
    fold: str
    spectra_per_molecule: str
    limit: int | None
    out: Path | None
    scorer: "Scorer"
    seed: int
    quiet: bool
    json_log: bool

    def choice(self) -> "Choice":
        """Which of its spectra."""
        from duallgd_cli.bench.evaluate import Choice

        return Choice(self.fold, self.spectra_per_molecule, self.limit)

    def folder(self) -> Path:
        """Where the report goes."""
        name = self.predictions or Path(str(self.benchmark))
        return self.out or Path(f"{name.name}.evaluation")


@dataclass(frozen=True, slots=True)
class Predicting:
    """How the spectra are predicted; as the options of the same names."""

    given: Mapping[str, object]
    assignments: tuple[str, ...]
    sweep: str | None
    formulas: Path | None
    weights: str | None
    device: str
    train_hashes: Path | None
    train_data: Path | None
    allow_leakage: bool
    rivals: bool
    decompose: bool
    resume: bool
    shard: str | None


def score(task: Task) -> None:
    """Score a table of predictions.

    Raises:
        UsageError: Options are missing or exclude each other, or the tables do not fit.
    """
    from duallgd_cli.bench.evaluate import ScoreRequest, score_predictions, suite_of

    request = ScoreRequest(
        predictions=Path(str(task.predictions)),
        suite=suite_of(task.benchmark, task.data_dir, task.truth),
        output=task.folder(),
        choice=task.choice(),
        scorer=task.scorer,
        seed=task.seed,
    )
    _show(score_predictions(request, advance=_tell), task)


def predict_and_score(task: Task, how: Predicting) -> None:
    """Predict a benchmark, then score.

    Raises:
        UsageError: Options are missing or exclude each other.
    """
    from duallgd_cli.bench.benchmark import run_benchmark
    from duallgd_cli.bench.sweep import Sweep, run_sweep
    from duallgd_cli.cli import display
    from duallgd_cli.inference import api

    if task.benchmark is None:
        raise UsageError("nothing to predict; give --benchmark, or --predictions with --truth")
    request = _request(task, how)
    sweep = Sweep.parse(how.sweep) if how.sweep is not None else None
    model = api.load(how.weights, device=how.device)
    with display.progress(task.quiet, task.json_log, None) as shown:
        if sweep is not None:
            evaluated = run_sweep(request, sweep, model, shown, _tell)
        else:
            found = run_benchmark(request, model, shown, _tell)
            if found is None:
                output = task.folder() / "predictions.csv"
                typer.echo(
                    f"shard {how.shard} is predicted; when all are, join them with "
                    f"duallgd merge {output} -o {output}, then give --predictions {output}",
                    err=True,
                )
                return
            evaluated = found
    _show(evaluated, task)


def ranks(text: str) -> tuple[int, ...]:
    """Read ``1,10``.

    Raises:
        UsageError: It is not a list of whole numbers from 1.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"--top-k {text!r} is not a list of whole numbers such as 1,10")
    return tuple(sorted({int(part) for part in parts}))


def default_cache() -> Path:
    """Where solved MCES pairs are kept unless another file is named."""
    return Path.home() / ".cache" / "duallgd" / "mces.sqlite"


def _request(task: Task, how: Predicting) -> "BenchmarkRequest":
    from duallgd_cli.bench.benchmark import BenchmarkRequest
    from duallgd_cli.bench.evaluate import suite_of
    from duallgd_cli.cli.options import settings_of
    from duallgd_cli.inference.settings import PredictSettings, Shard

    return BenchmarkRequest(
        suite=suite_of(task.benchmark, task.data_dir, task.truth),
        output=task.folder(),
        choice=task.choice(),
        scorer=task.scorer,
        settings=settings_of(PredictSettings, None, how.given, how.assignments),
        formulas=how.formulas,
        training=_training(how),
        with_rivals=how.rivals,
        with_oracle=how.decompose,
        shard=Shard.parse(how.shard) if how.shard else Shard(),
        resume=how.resume,
    )


def _training(how: Predicting) -> "Training":
    from duallgd_cli.bench.overlap import Training
    from duallgd_cli.evaluation.leakage import TrainingHashes

    path = how.train_hashes or _beside(how.weights)
    hashes = TrainingHashes.read(path) if path is not None else None
    return Training(hashes, how.train_data, how.allow_leakage)


def _beside(weights: str | None) -> Path | None:
    """The list of training molecules that came with the weights, if there is one."""
    from duallgd_cli.checkpoint.resolve import resolve_weights

    try:
        path = resolve_weights(weights).with_suffix(_HASHES)
    except WeightsError:
        return None  # loading them is about to say so
    return path if path.is_file() else None


def _tell(done: int, total: int) -> None:
    """Say now and then how many spectra are scored; MCES can take minutes."""
    tenth = max(1, total // 10)
    if total >= _WORTH_TELLING and done % tenth == 0:
        logger.info("%d of %d spectra scored", done, total)


def _show(evaluated: "Evaluated", task: Task) -> None:
    from duallgd_cli.cli import scoreboard

    scoreboard.show(evaluated.results)
    if not task.quiet:
        typer.echo(f"report in {task.folder()}", err=True)
