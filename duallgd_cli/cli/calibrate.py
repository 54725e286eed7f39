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
    run: Annotated[Path, typer.Option(help="Output of the run, its journal beside it.")],
    truth: Annotated[Path, typer.Option(help="Table with a column inchikey, a row a spectrum.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Weights file to write.")],
) -> None:
    """Fit how candidates are scored, and what their scores mean as probabilities.

    Use a fold that was not trained on and will not be reported. Figures printed are
    cross-validated by molecule.
    """
    from duallgd_cli.predict.fitting import fit_weights_file

    fitted = fit_weights_file(weights, run, truth, output)
    held = fitted.validation
    typer.echo(
        f"{fitted.n_spectra} spectra, cross-validated: "
        f"top-1 {held.top1:.3f}, top-10 {held.top10:.3f}",
        err=True,
    )
    parts = ("each candidate", "first candidate", "first ten")
    for name, part in zip(parts, (held.candidates, held.first, held.first_ten), strict=True):
        typer.echo(
            f"{name}: Brier score {part.brier:.4f} (constant rate {part.base_brier:.4f}), "
            f"calibration error {part.calibration_error:.4f}",
            err=True,
        )
