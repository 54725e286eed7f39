"""What `duallgd evaluate` does with its options."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from duallgd_cli.errors import UsageError, WeightsError

if TYPE_CHECKING:
    from duallgd_cli.evaluate.benchmark import BenchmarkRequest
    from duallgd_cli.evaluate.leakage import TrainingHashes
    from duallgd_cli.evaluate.overlap import Training
    from duallgd_cli.evaluate.protocol import Protocol
    from duallgd_cli.evaluate.run import Choice, Evaluated
    from duallgd_cli.evaluate.scoring import Scorer

logger = logging.getLogger(__name__)

_HASHES: Final = ".train.hashes"
_OURS: Final = "the weights"
_WORTH_TELLING: Final = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the training data; as the options of the same names."""

    weights: str | None
    hashes: Path | None
    data: tuple[Path, ...]
    allow: bool
    drop: bool

    def training(self, rivals: Mapping[str, str], *, ours: bool) -> "Training":
        """The lists of training molecules at hand.

        Args:
            rivals: Other weights by name.
            ours: Whether the weights, given or shipped, are what is scored.
        """
        from duallgd_cli.evaluate.overlap import Training

        lists = {}
        if ours or self.hashes is not None or self.weights is not None:
            lists[_OURS] = _read(self.hashes or _beside(self.weights))
        lists |= {f"the rival {name}": _read(_beside(path)) for name, path in rivals.items()}
        return Training(lists, self.data, allow_leakage=self.allow, drop_leaked=self.drop)


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
    seen: Seen
    quiet: bool
    json_log: bool

    def choice(self) -> "Choice":
        """Which of its spectra."""
        from duallgd_cli.evaluate.run import Choice

        return Choice(self.fold, self.spectra_per_molecule, self.limit)

    def folder(self) -> Path:
        """Where the report goes."""
        name = self.predictions or Path(str(self.benchmark))
        return self.out or Path(f"{name.name}.evaluation")


@dataclass(frozen=True, slots=True)
class Predicting:
    """How the spectra are predicted; as the options of the same names."""

    config: Path | None
    given: Mapping[str, object]
    assignments: tuple[str, ...]
    sweep: str | None
    formulas: Path | None
    weights: str | None
    device: str
    precision: str
    threads: int | None
    workers: int | None
    rivals: bool
    rival: tuple[str, ...]
    decompose: bool
    resume: bool
    shard: str | None
    protocol: "Protocol"

    def refuse(self) -> None:
        """Refuse what only a prediction could do.

        Raises:
            UsageError: Something of it is asked for.
        """
        asked = {
            "--config": self.config,
            "--set": self.assignments,
            "--sweep": self.sweep,
            "--formulas": self.formulas,
            "--rival": self.rival,
            "--decompose": self.decompose,
            "--atom-order": self.protocol.tells_order,
            "--resume": self.resume,
            "--shard": self.shard,
            **{f"--{_option(name)}": value for name, value in self.given.items()},
        }
        given = [name for name, value in asked.items() if value]
        if given:
            raise UsageError(
                f"{given[0]} is for a prediction, and --predictions scores a finished one; "
                "give one of them"
            )


def score(task: Task, how: Predicting) -> None:
    """Score a table of predictions; of our own the journal beside it says more than the table.

    Raises:
        UsageError: Options are missing or exclude each other, or the tables do not fit.
    """
    from duallgd_cli.evaluate.predicted import known_of
    from duallgd_cli.evaluate.protocol import RELEASED_ELEMENTS, with_elements
    from duallgd_cli.evaluate.run import ScoreRequest, score_predictions, suite_of

    how.refuse()
    request = ScoreRequest(
        predictions=Path(str(task.predictions)),
        suite=suite_of(task.benchmark, task.data_dir, task.truth),
        output=task.folder(),
        choice=task.choice(),
        scorer=task.scorer,
        seed=task.seed,
    )
    known = known_of(request, task.seen.training({}, ours=False))
    if how.protocol.is_reference and known.checked is not None:
        known = replace(known, checked=with_elements(known.checked, RELEASED_ELEMENTS))
    _show(score_predictions(request, known, _tell), task)


def predict_and_score(task: Task, how: Predicting) -> None:
    """Predict a benchmark, then score.

    Raises:
        UsageError: Options are missing or exclude each other.
    """
    from duallgd_cli.cli import display
    from duallgd_cli.evaluate.benchmark import run_benchmark
    from duallgd_cli.evaluate.sweep import Sweep, run_sweep
    from duallgd_cli.predict import api
    from duallgd_cli.predict.workers import default_count
    from duallgd_cli.runtime import Runtime

    if task.benchmark is None:
        raise UsageError("nothing to predict; give --benchmark, or --predictions with --truth")
    rivals = _named(how.rival)
    request = _request(task, how, rivals)
    sweep = Sweep.parse(how.sweep) if how.sweep is not None else None
    runtime = Runtime.resolve(how.device, how.precision, threads=how.threads)
    model = api.load(how.weights, runtime=runtime)
    others = {name: api.load(path, runtime=runtime) for name, path in rivals.items()}
    workers = default_count(runtime) if how.workers is None else how.workers
    request = replace(request, rivals=others, workers=workers)
    with display.progress(task.quiet, task.json_log, None) as shown:
        if sweep is not None:
            evaluated = run_sweep(request, sweep, model, shown, _tell)
        else:
            found = run_benchmark(request, model, shown, _tell)
            if found is None:
                typer.echo(
                    f"shard {how.shard} is predicted; when all are, the same command with "
                    "--resume instead of --shard joins and scores them",
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


def _request(task: Task, how: Predicting, rivals: Mapping[str, str]) -> "BenchmarkRequest":
    from duallgd_cli.cli.options import settings_of
    from duallgd_cli.evaluate.benchmark import BenchmarkRequest
    from duallgd_cli.evaluate.run import suite_of
    from duallgd_cli.predict.settings import PredictSettings, Shard

    given = {"seed": task.seed, **how.given}
    return BenchmarkRequest(
        suite=suite_of(task.benchmark, task.data_dir, task.truth),
        output=task.folder(),
        choice=task.choice(),
        scorer=task.scorer,
        settings=settings_of(PredictSettings, how.config, given, how.assignments),
        formulas=how.formulas,
        training=task.seen.training(rivals, ours=True),
        with_rivals=how.rivals,
        with_oracle=how.decompose,
        shard=Shard.parse(how.shard) if how.shard else Shard(),
        resume=how.resume,
        protocol=how.protocol,
    )


def _named(texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=WEIGHTS`` of --rival.

    Raises:
        UsageError: One is not of that form, or two have one name.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, path = (part.strip() for part in text.partition("="))
        if not name or not path or name in found:
            raise UsageError(f"--rival {text!r} is not a new name with weights, NAME=WEIGHTS")
        found[name] = path
    return found


def _option(setting: str) -> str:
    """The option behind a setting: ``sampling.max_memory_mib`` is --max-memory."""
    name = setting.rpartition(".")[2]
    name = {"max_memory_mib": "max_memory", "timeout_s": "timeout_per_spectrum"}.get(name, name)
    return name.replace("_", "-")


def _read(path: Path | None) -> "TrainingHashes | None":
    from duallgd_cli.evaluate.leakage import TrainingHashes

    return TrainingHashes.read(path) if path is not None else None


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
