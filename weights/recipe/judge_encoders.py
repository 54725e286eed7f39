"""Encoders on single spectra of fold val, each alone and together with the first.

Cross entropy alone misleads: an encoder that is less sure of everything has a lower one and ranks
no better. So logits are scaled by the factor that suits each best before they are compared, and
differences come with a standard error over molecules. F fingerprint bits, S spectra.

    python weights/recipe/judge_encoders.py weights/duallgd.safetensors runs/wide/model.safetensors
      --data prepared/massbank
"""

from pathlib import Path
from typing import Annotated, Final

import numpy as np
import torch
import typer
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.checkpoint.format import load
from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.data.prepared import PreparedSpectra, load_spectra
from duallgd_cli.errors import DuallgdError, UnreadableError
from duallgd_cli.predict.loading import parts_of
from duallgd_cli.train.encoder import fingerprint_figures, true_bits, validation_spectra

_FACTORS: Final = (1.1, 1.05, 1.0, 0.975, 0.95, 0.925, 0.9, 0.875, 0.85, 0.8)
_AT_ONCE: Final = 100


@torch.inference_mode()
def logits_of(weights: Path, spectra: PreparedSpectra, rows: np.ndarray) -> Tensor:
    """What the encoder of a weights file and its known spectra say of spectra, (S, F)."""
    found = parts_of(load(weights), weights)
    model, kernel = found.network, found.kernel
    parts = [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]
    batches = [prepared_batch(spectra, part) for part in parts]
    logits = [model.encoder(batch) for batch in batches]
    if kernel is not None:
        logits = [kernel.mixed(z, batch) for z, batch in zip(logits, batches, strict=True)]
    return torch.cat(logits)


def entropy(logits: Tensor, truth: Tensor) -> Tensor:
    """Cross entropy of each spectrum, (S,)."""
    return binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(1)


def scaled(logits: Tensor, truth: Tensor) -> Tensor:
    """Logits times the factor under which their cross entropy is least."""
    return min(
        (logits * factor for factor in _FACTORS),
        key=lambda one: float(entropy(one, truth).mean()),
    )


def difference(one: Tensor, other: Tensor, molecule: np.ndarray) -> tuple[float, float]:
    """Mean of paired differences over molecules, and its standard error."""
    change = (one - other).numpy()
    means = np.array([change[molecule == m].mean() for m in np.unique(molecule)])
    spread = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else float("nan")
    return float(means.mean()), float(spread)


def main(
    weights: Annotated[list[Path], typer.Argument(help="Weights files; the first is the measure.")],
    data: Annotated[Path, typer.Option(help="Folder made by 'duallgd data spectra'.")],
) -> None:
    """Print cross entropy, scaled cross entropy and Tanimoto on up to 1,000 spectra of fold val."""
    spectra = load_spectra(data)
    rows = validation_spectra(spectra)
    if not len(rows):
        raise UnreadableError(f"{data} holds no spectrum of fold val")
    molecule = np.asarray(spectra.molecule[rows])
    truth = true_bits(spectra, rows)
    every = {str(path): logits_of(path, spectra, rows) for path in weights}
    first = next(iter(every.values()))
    said = every | {f"{name} and the first": (z + first) / 2 for name, z in every.items()}
    measure = entropy(scaled(first, truth), truth)
    typer.echo("encoder\tcross entropy\tscaled\tless the first\tstandard error\tTanimoto")
    for name, logits in said.items():
        best = entropy(scaled(logits, truth), truth)
        figures = fingerprint_figures(torch.sigmoid(logits), truth)
        change, error = difference(best, measure, molecule)
        typer.echo(
            f"{name}\t{figures['fp_bce']:.2f}\t{float(best.mean()):.2f}\t{change:+.2f}\t"
            f"{error:.2f}\t{figures['fp_tanimoto']:.4f}"
        )


if __name__ == "__main__":
    try:
        typer.run(main)
    except DuallgdError as error:
        raise SystemExit(f"error: {error}") from None
