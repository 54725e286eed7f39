"""`duallgd evaluate` and `calibrate`: how good predictions are, and how far to trust them."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.errors import UsageError, counted
from duallgd_cli.evaluate import MASSSPECGYM
from duallgd_cli.files import claim, require_input

_ENOUGH: Final = 100  # spectra that probabilities are fitted to
EPILOG = options.examples("""
`duallgd evaluate --benchmark massspecgym`
`duallgd evaluate --benchmark labelled.tsv --fold test --spectra-per-molecule 1 --samples 100`
`duallgd evaluate --predictions out.csv --truth truth.tsv` (predict's output, or anybody's)
""")

CALIBRATE_EPILOG: Final = (
    "Example: `duallgd evaluate --benchmark massbank.tsv --fold val -o val/ "
    "--weights w.safetensors`, then `duallgd calibrate w.safetensors "
    "--run val/predictions.csv --truth val/truth.tsv "
    "-o duallgd.safetensors`"
)

_OPTIONS: Final[options.Options] = {
    "What is scored": {
        "benchmark": (Path, "massspecgym (its test fold, downloaded once from huggingface.co), or "
            "a table of labelled spectra in its layout (.tsv, .gz, .xz): identifier, smiles, "
            "formula, mzs, intensities, precursor_mz, adduct."),
        "predictions": (Path, "CSV or TSV of predictions, predict's output or anybody's: an "
            "identifier, smiles and, unless the rows are in order, rank."),
        "truth": (Path, "Table of the true structures (.tsv, .csv, .gz, .xz): identifier or "
            "feature_id, and smiles."),
        "fold": (str, "Fold to score, else all. val:A and val:B are its halves by molecule.",
            {"default": ""}),
        "spectra_per_molecule": (Literal["1", "all"], "1 (always the same one of each molecule) or "
            "all.", {"default": "all"}),
        "limit": (int, "So many spectra, always the same.", {"min": 1}),
        "formula": (str, "The word predict leaves the true formulas out and predicts them: the "
            "formula-predicted track."),
        "analogues": (list[Path], "Known molecules to start samples from, as predict's; may be "
            "repeated. Test molecules among them are treated like training molecules.",
            {"metavar": "FILE"}),
    },
    "Scoring": {
        "mces": (bool, "Compute MCES distances, the slow part.", {"default": True}),
        "seed": (int, "Random seed of sampling and of the bootstrap.", {"default": 0}),
    },
    "Training data": {
        "train_hashes": (Path, "List of the weights' training molecules, which are left out; by "
            "default the file .train.hashes beside the weights that predict, or made the "
            "predictions."),
        "train_data": (list[Path], "Table of training molecules (smiles, fold), for the similarity "
            "to the nearest one: groups by it, and the share above 0.7; may be repeated.",
            {"default": ()}),
    },
    "Machine": {
        "workers": (int, "Processes that predict and score; results do not depend on them. By "
            "default as many as the machine has cores and memory for.",
            {"min": 1, "metavar": "K"}),
    },
    "Settings and messages": {
        "out": (Path, "Folder of the report; by default the name of the benchmark or of the "
            "predictions with .evaluation.", {"short": "-o"}),
    },
}  # fmt: skip
_CALIBRATE_OPTIONS: Final[options.Options] = {
    options.ARGUMENTS: {"weights": (Path, "Weights that made the predictions.")},
    options.OPTIONS: {
        "run": (list[Path], "Output of a run, its journal beside it; repeat for other numbers of "
            "samples and steps, so that confidence holds for these too.", options.REQUIRED),
        "truth": (Path, "Table with columns identifier and inchikey, a row a spectrum.",
            options.REQUIRED),
        "output": (Path, "Weights file to write.", {"short": "-o", **options.REQUIRED}),
        "keep_ranking": (bool, "Leave the order of candidates; fit their probabilities alone."),
    },
}  # fmt: skip
# Options that a finished table has no use for.
_FOR_A_PREDICTION: Final = (
    "config", "set_", "formula", "analogues", "database", "database_share", "database_only",
    "preset", "resume", "samples", "steps", "exclude_known",
)  # fmt: skip


@options.takes(
    "benchmark predictions truth fold spectra_per_molecule limit mces train_hashes train_data "
    "workers seed formula analogues database database_share database_only exclude_known preset "
    "samples steps weights device precision threads resume out force quiet config set_",
    _OPTIONS,
)
def evaluate(
    context: typer.Context,
    *,
    analogues: list[Path] | None,
    database: list[str] | None,
    quiet: bool,
    **named: object,
) -> None:
    """Score predictions against the truth: accuracy, Tanimoto and MCES with intervals.

    With --benchmark alone the spectra are predicted first, from what a lab would have, by the
    weights at hand. With --predictions a table is scored as it is. Molecules that the weights were
    trained on are left out, and named.
    """
    display.configure_logging(quiet)
    benchmark = named["benchmark"]
    if benchmark is not None and str(benchmark).lower() != MASSSPECGYM:
        require_input(str(benchmark))  # before PyTorch is loaded
    from duallgd_cli.evaluate.run import evaluate as use_case
    from duallgd_cli.evaluate.settings import EvaluateSettings

    refused = next((name for name in _FOR_A_PREDICTION if context.params[name]), None)
    if named["predictions"] is not None and refused is not None:
        raise UsageError(
            f"--{refused.strip('_').replace('_', '-')} is for a prediction, and --predictions "
            "scores a finished one; give one of them"
        )
    settings_of = {each.name for each in fields(EvaluateSettings)}
    values = {name: value for name, value in context.params.items() if name in settings_of}
    values |= {"analogues": tuple(map(str, analogues or ())), "databases": tuple(database or ())}
    settings = EvaluateSettings(**values, prediction=options.prediction_of(context))
    with display.progress(quiet, None) as shown:
        results = use_case(settings, shown)
    rows = []
    for name, estimate in results["metrics"].items():  # of all spectra; groups are in the report
        form = ".1%" if "accuracy" in name else ".3f" if "tanimoto" in name else ".2f"
        mean, low, high = (format(estimate[end], form) for end in ("mean", "low", "high"))
        rows.append((name.replace("_", " "), f"{mean} ({low} to {high})"))
    n_spectra = counted(results["spectra"], "spectrum", "spectra")
    caption = f"{n_spectra} of {counted(results['molecules'], 'molecule')}"
    heads = ("metric", "mean (95 % interval)")
    display.show_table(results["title"], heads, rows, caption=caption)
    for sentence in _sentences(results):
        typer.echo(sentence)
    if not quiet:
        typer.echo(f"report in {settings.folder}", err=True)


def _sentences(results: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know of the numbers."""
    yield f"Track: {results['track']}."
    statuses = ", ".join(f"{count} {status}" for status, count in results["statuses"].items())
    yield f"Predictions: {statuses}; a spectrum without candidates counts as wrong."
    for name, work in results["mces_work"].items():
        yield (
            f"{name}: {counted(work['pairs'], 'pair')} solved, {work['timeouts']} of them hit the "
            f"limit of {results['scoring']['mces_limit_s']:g} s and count as the worst they may be."
        )
    if samples := results["prediction"].get("samples"):
        yield (
            f"Samples: {samples['drawn']} drawn, {samples['valid_share']:.1%} molecules as drawn "
            f"and {samples['repaired_share']:.1%} after repair, all of the formula; "
            f"{samples['distinct_per_spectrum']:.1f} distinct and "
            f"{samples['seconds_per_spectrum']:.2f} s a spectrum."
        )
    yield from results["remarks"]


@options.takes("weights run truth output keep_ranking force", _CALIBRATE_OPTIONS)
def calibrate(
    *,
    weights: Path,
    run: list[Path],
    truth: Path,
    output: Path,
    keep_ranking: bool,
    force: bool,
) -> None:
    """Fit how candidates are scored, and what their scores mean as probabilities.

    Use a fold that was not trained on and will not be reported, and runs of as many and as few
    samples as will be asked for. Figures printed are cross-validated by molecule.
    """
    from duallgd_cli.predict.run import files_of_runs

    require_input(str(truth))
    read = [weights, truth, *files_of_runs(run)]
    claim({"the new weights": output}, read, force=force, makes_folders=True)
    from duallgd_cli.evaluate.calibrate import fit_weights_file

    ranking, held = fit_weights_file(weights, run, truth, output, keep_ranking=keep_ranking)
    n_spectra = counted(ranking.n_spectra, "spectrum", "spectra")
    if ranking.n_spectra < _ENOUGH:
        few = f"warning: {n_spectra} are too few for probabilities that mean something; "
        typer.echo(f"{few}{_ENOUGH} are enough", err=True)
    typer.echo(f"{n_spectra}, {held}", err=True)
    brier = f"Brier score {held.first.brier:.4f} (constant rate {held.first.base_brier:.4f})"
    typer.echo(
        f"first candidate: {brier}, calibration error {held.first.expected_error:.4f}", err=True
    )
