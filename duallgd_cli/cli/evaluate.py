"""`duallgd evaluate` and `calibrate`: how good predictions are, and how far to trust them."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from duallgd_cli.cli import options
from duallgd_cli.errors import UsageError
from duallgd_cli.files import claim, require_input

EPILOG = """
**Examples**

- `duallgd evaluate --benchmark massspecgym` (downloads the data once, from huggingface.co)

- `duallgd evaluate --benchmark nplib1 --data-dir canopus/`

- `duallgd evaluate --benchmark massbank.tsv --fold test --spectra-per-molecule 1 --samples 100`

- `for n in 1 5 20; do duallgd evaluate --benchmark massbank.tsv --steps $n -o steps-$n; done`

- `duallgd evaluate --predictions out.csv --truth truth.tsv` (predict's output, or anybody's)

With --shard 2/8 a run predicts its part. When all are done, the same command with --resume instead
of --shard joins and scores them.
"""

CALIBRATE_EPILOG: Final = (
    "Example: `duallgd evaluate --benchmark massbank.tsv --fold val -o val/ "
    "--weights w.safetensors`, then `duallgd calibrate w.safetensors "
    "--run val/predictions.csv --truth val/truth.tsv "
    "-o duallgd.safetensors`"
)

_COUNTS: Final = frozenset({"candidates", "valid", "formula_exact", "distinct"})
# Piped output has no width of its own; tables then take what they need.
_WIDTH_WITHOUT_TERMINAL: Final = 120
_what, _scoring, _leakage = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("What is scored", "Scoring", "Training data")
)
# Options that a finished table has no use for, beside those of sampling.
_FOR_A_PREDICTION: Final = (
    "config", "set_", "formula", "formulas", "analogues", "database", "database_share",
    "database_only", "resume", "shard",
)  # fmt: skip


def evaluate(
    context: typer.Context,
    benchmark: Annotated[
        str | None,
        _what(
            help="massspecgym, nplib1, or a table of labelled spectra in the MassSpecGym layout "
            "(.tsv, .gz, .xz): identifier, smiles, formula, mzs, intensities, precursor_mz and "
            "adduct."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, _what(help="Folder with the benchmark's files, where they are not downloaded.")
    ] = None,
    predictions: Annotated[
        Path | None,
        _what(
            help="CSV or TSV of predictions, predict's output or anybody's: an identifier, smiles "
            "and, unless the rows are in order, rank."
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        _what(help="Table in the MassSpecGym layout (.tsv, .gz, .xz): identifier and smiles."),
    ] = None,
    fold: Annotated[
        str,
        _what(
            help="Fold to score, or half of it (val:A, val:B); else test, or all of a plain table."
        ),
    ] = "",
    spectra_per_molecule: Annotated[
        Literal["1", "all"], _what(help="1 (always the same one of each molecule) or all.")
    ] = "all",
    limit: Annotated[
        int | None, _what(min=1, help="Score so many spectra, always the same.")
    ] = None,
    top_k: Annotated[str, _scoring(help="Ranks to report, such as 1,10.")] = "1,10",
    mces: Annotated[bool, _scoring(help="Compute MCES distances, the slow part.")] = True,
    mces_limit: Annotated[
        float,
        _scoring(
            metavar="SECONDS",
            help="Wall time for one pair; a pair out of time counts as the worst it may be.",
        ),
    ] = 30.0,
    mces_cache: Annotated[
        Path | None, _scoring(help="File of solved pairs; by default ~/.cache/duallgd/mces.sqlite.")
    ] = None,
    seed: Annotated[int, _scoring(help="Random seed of sampling and of the bootstrap.")] = 0,
    formula: Annotated[
        str | None,
        _what(
            help="The word predict leaves the true formulas out and predicts them: the "
            "formula-predicted track."
        ),
    ] = None,
    formulas: Annotated[
        Path | None,
        _what(
            help="Table of predicted formulas by identifier: the formula-predicted track. Without "
            "it the true formulas are given: the formula-known track."
        ),
    ] = None,
    analogues: Annotated[
        list[Path] | None,
        _what(
            metavar="FILE",
            help="Known molecules to start samples from, as predict's; may be repeated. Test "
            "molecules among them are treated like training molecules.",
        ),
    ] = None,
    database: options.Database = None,
    database_share: options.DatabaseShare = None,
    database_only: options.DatabaseOnly = False,
    exclude_known: options.ExcludeKnown = None,
    samples: options.Samples = None,
    steps: options.Steps = None,
    schedule: options.Schedule = None,
    time_shift: options.TimeShift = None,
    temperature: options.Temperature = None,
    train_hashes: Annotated[
        Path | None,
        _leakage(
            help="List of the weights' training molecules; by default the file .train.hashes "
            "beside the weights that predict, or made the predictions."
        ),
    ] = None,
    train_data: Annotated[
        list[Path] | None,
        _leakage(
            help="Table of training molecules (smiles, fold), for the similarity to the nearest "
            "one: groups by it, and the share above 0.7; may be repeated."
        ),
    ] = None,
    allow_leakage: Annotated[
        bool,
        _leakage(
            "--allow-leakage",
            help="Score molecules that the weights were trained on, and say so on the result.",
        ),
    ] = False,
    drop_leaked: Annotated[
        bool,
        _leakage(
            "--drop-leaked",
            help="Leave out molecules that the weights were trained on; the result names them.",
        ),
    ] = False,
    weights: options.Weights = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    max_memory: options.MaxMemory = None,
    workers: Annotated[
        int | None,
        options.machine(
            min=1,
            metavar="K",
            help="Processes that predict, and that score; they "
            "change no result. By default as predict's, and to score the physical cores at hand.",
        ),
    ] = None,
    timeout_per_spectrum: options.TimeoutPerSpectrum = None,
    resume: options.Resume = False,
    shard: options.Shard = None,
    out: Annotated[
        Path | None,
        options.messages(
            "--out",
            "-o",
            help="Folder of the report; by default the name of the benchmark or of the "
            "predictions with .evaluation.",
        ),
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    config: options.Config = None,
    set_: options.Assignments = None,
) -> None:
    """Score predictions against the truth: accuracy, Tanimoto and MCES with intervals.

    With --benchmark alone the spectra are predicted first, from what a lab would have, by the
    weights at hand. With --predictions a table is scored as it is.
    """
    from duallgd_cli.cli import display
    from duallgd_cli.evaluate import settings as parsing
    from duallgd_cli.evaluate.run import evaluate as use_case
    from duallgd_cli.predict.settings import PredictSettings, Shard
    from duallgd_cli.runtime import cache_folder

    display.configure_logging(quiet)
    given = {
        **{"seed": seed, "formula": formula, **options.sampling_of(context)},
        **options.database_share(database, database_share, database_only),
    }
    if predictions is not None:
        refused = options.given_of(context, _FOR_A_PREDICTION)
        if refused is not None:
            raise UsageError(
                f"{refused} is for a prediction, and --predictions scores a finished one; "
                "give one of them"
            )
    # Options of the settings' names, read by typer (the context's may be text); others below.
    named = {field.name for field in fields(parsing.EvaluateSettings)}
    values = {name: value for name, value in locals().items() if name in named}
    values |= {
        "mces_cache": mces_cache or cache_folder() / "mces.sqlite",
        "top_k": parsing.parse_ranks(top_k),
        "prediction": options.settings_of(PredictSettings, config, given, set_ or ()),
        "analogues": tuple(map(str, analogues or ())),
        "databases": tuple(database or ()),
        "train_data": tuple(train_data or ()),
        "shard": Shard.parse(shard) if shard else Shard(),
    }
    settings = parsing.EvaluateSettings(**values)
    with display.progress(quiet, None) as shown:
        found = use_case(settings, shown)
    if found is None:
        typer.echo(
            f"shard {shard} is predicted; when all are, the same command with "
            "--resume instead of --shard joins and scores them",
            err=True,
        )
        return
    _show(found)
    if not quiet:
        typer.echo(f"report in {settings.folder}", err=True)


def _show(results: Mapping[str, Any]) -> None:
    """Print metrics of all spectra and of each part, and remarks; groups are in the report.

    Metrics of one kind that are identical share a line.
    """
    from duallgd_cli.cli.display import results_console, table

    console = results_console(_WIDTH_WITHOUT_TERMINAL)
    track = "track not stated" if results["track"] == "not stated" else results["track"]
    for part in (results, *results["parts"]):
        alike: dict[tuple[str, str], list[str]] = {}
        for name, estimate in part["metrics"].items():
            kind = name.removeprefix("oracle_").partition("@")[0]
            same = "count" if kind in _COUNTS else kind, _with_interval(name, estimate)
            alike.setdefault(same, []).append(name.replace("_", " "))
        rows = ([" = ".join(names), cell] for (_, cell), names in alike.items())
        shown = table(f"{part['title']}, {track}", ["metric", "mean (95 % interval)"], rows)
        shown.caption = f"{part['spectra']} spectra of {part['molecules']} molecules"
        console.print(shown)
    if groups := results.get("formula_accuracy"):
        names = list(groups[0]["estimates"])
        rows = (
            [f"{group['by']}: {group['label']}", str(group["spectra"])]
            + [_with_interval(name, group["estimates"][name]) for name in names]
            for group in groups
        )
        title = f"The true formula among the predicted ones, {track}"
        console.print(table(title, ["group", "n", *names], rows))
    for sentence in _sentences(results):
        console.print(sentence)


def _sentences(results: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know of the numbers."""
    yield f"Track: {results['track']}."
    statuses = ", ".join(f"{count} {status}" for status, count in results["statuses"].items())
    yield f"Predictions: {statuses}; a spectrum without candidates counts as wrong."
    for name, work in results["mces_work"].items():
        yield (
            f"{name}: {work['pairs']} pairs solved, {work['timeouts']} of them hit the limit of "
            f"{results['scoring']['mces_limit_s']:g} s and count as the worst they may be."
        )
    shares = results["candidates"]
    yield (
        f"Candidates: {shares['total']:.0f}, of them {100 * shares['valid_share']:.1f}% valid, "
        f"{100 * shares['formula_exact_share']:.1f}% of the true formula, "
        f"{100 * shares['distinct_share']:.1f}% distinct."
    )
    if samples := results["prediction"].get("samples"):
        yield (
            f"Samples: {samples['drawn']} drawn, {100 * samples['valid_share']:.1f}% molecules as "
            f"drawn and {100 * samples['repaired_share']:.1f}% after repair, all of the formula; "
            f"{samples['distinct_per_spectrum']:.1f} distinct and "
            f"{samples['seconds_per_spectrum']:.2f} s a spectrum."
        )
    yield from results["remarks"]


def _with_interval(name: str, estimate: Mapping[str, float]) -> str:
    factor, digits = (1, 3 if "tanimoto" in name else 2)
    unit = ""
    if "accuracy" in name:
        factor, digits, unit = 100, 1, "%"
    mean, low, high = (
        f"{factor * estimate[end]:.{digits}f}{unit}" for end in ("mean", "low", "high")
    )
    return f"{mean} ({low} to {high})"


def calibrate(
    weights: Annotated[Path, typer.Argument(help="Weights that made the predictions.")],
    run: Annotated[
        list[Path],
        typer.Option(
            help="Output of a run, its journal beside it; repeat for other numbers of samples and "
            "steps, so that confidence holds for these too."
        ),
    ],
    truth: Annotated[
        Path, typer.Option(help="Table with columns identifier and inchikey, a row a spectrum.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Weights file to write.")],
    keep_ranking: Annotated[
        bool,
        typer.Option(
            "--keep-ranking", help="Leave the order of candidates; fit their probabilities alone."
        ),
    ] = False,
    force: options.Force = False,
) -> None:
    """Fit how candidates are scored, and what their scores mean as probabilities.

    Use a fold that was not trained on and will not be reported, and runs of as many and as few
    samples as will be asked for. Figures printed are cross-validated by molecule.
    """
    from duallgd_cli.predict.run import files_of_runs

    require_input(str(truth))
    read = [("an input, the weights", weights), ("an input, the truth", truth)]
    claim(
        {"the new weights": output}, [*read, *files_of_runs(run)], force=force, makes_folders=True
    )
    from duallgd_cli.evaluate.fitting import fit_weights_file

    ranking, held = fit_weights_file(weights, run, truth, output, keep_ranking=keep_ranking)
    typer.echo(
        f"{ranking.n_spectra} spectra, cross-validated: "
        f"top-1 {held.top1:.3f}, top-10 {held.top10:.3f}",
        err=True,
    )
    parts = ("each candidate", "first candidate", "first ten")
    for name, part in zip(parts, (held.candidates, held.first, held.first_ten), strict=True):
        typer.echo(
            f"{name}: Brier score {part.brier:.4f} (constant rate {part.base_brier:.4f}), "
            f"calibration error {part.expected_error:.4f}",
            err=True,
        )
    for number, part in held.by_samples.items():
        right = sum(one.count * one.observed.mean for one in part.bins) / max(1, part.count)
        stated = sum(one.count * one.stated for one in part.bins) / max(1, part.count)
        typer.echo(
            f"{number:>5} samples: first candidate right {right:.3f}, stated {stated:.3f}, "
            f"calibration error {part.expected_error:.4f} ({part.count} draws)",
            err=True,
        )
