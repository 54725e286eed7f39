"""Whether imitated predictions, which the denoiser learns from, are like an encoder's.

    python examples/studies/imitation.py prepared/measured prepared/structures

Folders are those of a recipe's run. Prints what the weights' encoder says of spectra of fold val
(one a molecule) beside what is imitated for as many structures of the same sizes: how far from the
truth, how sharp, how well calibrated, and which place the truth takes among the structures of its
formula by the fingerprint alone.
"""

from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from command import Molecules, run, show
from numpy.typing import NDArray
from rich.table import Table

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.imitation import Imitation, load_neighbours
from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.data.prepared import FOLDS, load_molecules, load_spectra
from duallgd_cli.data.prepared import Molecules as Prepared
from duallgd_cli.model.duallgd import MIN_PROBABILITY
from duallgd_cli.model.fragment_kernel import FragmentKernel
from duallgd_cli.train.encoder import fit_kernel

_LEAST = 1e-5
_BINS = (MIN_PROBABILITY, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_FEWEST_ISOMERS = 3
_MOST_ISOMERS = 200
Floats = NDArray[np.float64]


def main(
    spectra: Annotated[Path, typer.Argument(help="Folder of prepared spectra, with fold val.")],
    structures: Annotated[Path, typer.Argument(help="Folder of prepared structures.")],
    weights: Annotated[Path | None, typer.Option(help="Weights file, if not the shipped.")] = None,
    molecules: Molecules = 500,
) -> None:
    """Compare predictions for fold val with imitated ones."""
    known = load_molecules(structures)
    isomers = Isomers(known)
    predicted, truth, counts, sizes = predictions(spectra, resolve_weights(weights), molecules)
    columns = [figures(predicted, truth, isomers.of(counts, truth))]
    rows = of_sizes(known, sizes)
    alike = load_neighbours(structures, known, torch.device("cpu"))
    imitated = Imitation(known, alike, 0.0)(rows, np.random.default_rng(1)).double().numpy()
    truth = true_bits(known, rows)
    columns.append(figures(imitated, truth, isomers.of(known.atom_counts[rows], truth)))
    table = Table("", "predicted, fold val", "imitated", title="Fingerprints of the denoiser")
    for name, value in columns[0].items():
        table.add_row(name, value, columns[1].get(name, ""))
    show(table, f"{len(predicted)} molecules of fold val; as many imitated.")


def predictions(
    folder: Path, weights: Path, most: int
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.uint8], NDArray[np.int64]]:
    """Chances and true bits (B, F), atom counts and sizes of molecules of fold val."""
    spectra = load_spectra(folder)
    encoder = load(weights).build().eval().encoder
    known = spectra.molecules.take(np.flatnonzero(spectra.molecules.in_folds("train")))
    tensors = fit_kernel(encoder, spectra, known)
    kernel = FragmentKernel.of(tensors, known.bit_offset, known.bits)
    members = np.flatnonzero(spectra.spectrum_fold == FOLDS.index("val"))
    mixed = np.random.default_rng(1).permutation(members)
    _, first = np.unique(spectra.molecule[mixed], return_index=True)
    chosen = mixed[first][:most]
    chances = []
    with torch.inference_mode():
        for part in np.array_split(chosen, max(1, len(chosen) // 32)):
            peaks = prepared_batch(spectra, part)
            chances.append(torch.sigmoid(kernel.mixed(encoder(peaks), peaks)))
    rows = spectra.molecule[chosen]
    own = spectra.molecules
    truth = true_bits(own, rows)
    return torch.cat(chances).double().numpy(), truth, own.atom_counts[rows], own.n_heavy[rows]


def true_bits(known: Prepared, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
    """True bits of some molecules, (B, F)."""
    truth = np.zeros((len(rows), FINGERPRINT_BITS), bool)
    for number, row in enumerate(rows.tolist()):
        truth[number, known.fingerprint_bits(row)] = True
    return truth


def of_sizes(known: Prepared, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """One structure of fold train for each number of heavy atoms, or of the nearest size."""
    generator = np.random.default_rng(2)
    train = generator.permutation(np.flatnonzero(known.in_folds("train")))
    by_size = train[np.argsort(known.n_heavy[train], kind="stable")]
    ordered = known.n_heavy[by_size]
    low, high = (np.searchsorted(ordered, sizes, side) for side in ("left", "right"))
    place = low + np.floor(generator.random(len(sizes)) * np.maximum(high - low, 1)).astype(int)
    return by_size[np.minimum(place, len(by_size) - 1)]


class Isomers:
    """Structures of a collection by their formula."""

    def __init__(self, known: Prepared) -> None:
        self.known = known
        keys = self._keys(known.atom_counts)
        self.order = np.argsort(keys, kind="stable")
        self.sorted = keys[self.order]

    def of(
        self, counts: NDArray[np.uint8], truth: NDArray[np.bool_]
    ) -> list[list[NDArray[np.uint16]]]:
        """Bits of the structures of each formula whose fingerprint is not the true one."""
        keys = self._keys(counts)
        bounds = (np.searchsorted(self.sorted, keys, side) for side in ("left", "right"))
        found = []
        for low, high, own in zip(*bounds, truth, strict=True):
            bits = [self.known.fingerprint_bits(row) for row in self.order[low:high].tolist()]
            true = np.flatnonzero(own)
            found.append([other for other in bits if not np.array_equal(other, true)])
        return found

    @staticmethod
    def _keys(counts: NDArray[np.uint8]) -> NDArray[np.bytes_]:
        return np.ascontiguousarray(counts).view(f"S{counts.shape[1]}")[:, 0]


def figures(
    chance: Floats, truth: NDArray[np.bool_], isomers: list[list[NDArray[np.uint16]]]
) -> dict[str, str]:
    """What describes predictions (B, F), as texts by name."""
    common, size = (chance * truth).sum(1), chance.sum(1) + truth.sum(1)
    chance = chance.clip(_LEAST, 1 - _LEAST)
    entropy = -np.where(truth, np.log(chance), np.log1p(-chance)).sum(1)
    described = {
        "cross entropy": _quantiles(entropy, 0),
        "Tanimoto similarity to the truth": _quantiles(common / (size - common), 2),
        "bits kept": _quantiles((chance >= MIN_PROBABILITY).sum(1), 0),
        "chance of a true bit": _quantiles(chance[truth], 2),
    }
    for low, high in pairwise(_BINS):
        inside = (chance >= low) & (chance < high)
        share = f"{truth[inside].mean():.1%}" if inside.any() else "none so likely"
        described[f"true, of chances {low:g} to {high:g}"] = share
    logit = np.log(chance) - np.log1p(-chance)
    places = []
    for values, own, others in zip(logit, truth, isomers, strict=True):
        if len(others) >= _FEWEST_ISOMERS:
            scores = np.array([values[bits].sum() for bits in others[:_MOST_ISOMERS]])
            places.append(((scores >= values[own].sum()).sum(), len(scores)))
    if places:
        place, among = np.array(places).T
        for most in (1, 3, 10):
            described[f"truth among the first {most} of its formula"] = (
                f"{(place < most).mean():.1%}"
            )
        described["structures of the formula, median"] = f"{np.median(among):.0f}"
    return described


def _quantiles(values: NDArray[np.number], digits: int) -> str:
    """Tenth, median and ninetieth percentile."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    run(main)
