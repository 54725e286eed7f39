"""`duallgd calibrate`: fit ranking and confidence on predictions of known truth."""

from pathlib import Path
from typing import Annotated, Final

import typer

EPILOG: Final = (
    "Example: `duallgd evaluate --benchmark massbank.tsv --fold val -o val/ "
    "--weights w.safetensors`, then `duallgd calibrate w.safetensors "
    "--run val/predictions.csv --truth val/truth.tsv "
    "-o duallgd.safetensors`"
)


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
) -> None:
    """Fit how candidates are scored, and what their scores mean as probabilities.

    Use a fold that was not trained on and will not be reported. What fewer samples are worth is
    learnt from parts of those drawn. Figures printed are cross-validated by molecule.
    """
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
