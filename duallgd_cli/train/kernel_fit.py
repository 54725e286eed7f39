"""What the spectra of known molecules hold, for `model.fragment_kernel`; nothing is trained."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.data.prepared import FOLDS, Molecules, PreparedSpectra
from duallgd_cli.model.encoder import FormulaTransformer, PeakBatch
from duallgd_cli.model.fragment_kernel import (
    N_PLACES,
    UNMIXED,
    FragmentKernel,
    fitted_mixing,
    places,
)
from duallgd_cli.train.encoder import true_bits, validation_spectra

# Of one molecule, by weight and rarity; more change little and make the file larger.
_KEPT: Final = 100
_AT_ONCE: Final = 250


def known_spectra(spectra: PreparedSpectra, known: Molecules) -> dict[str, Tensor]:
    """Fragments and losses of known molecules, each at its brightest in any spectrum of fold train.

    Returns:
        All that `FragmentKernel` takes but ``mixing``.
    """
    row_of = {key: row for row, key in enumerate(known.inchikey.tolist())}
    owner = np.array([row_of.get(key, -1) for key in spectra.molecules.inchikey.tolist()])
    owner = owner[spectra.molecule]
    chosen = np.flatnonzero((owner >= 0) & (spectra.spectrum_fold == FOLDS.index("train")))
    kept: list[Tensor] = []
    weights: list[Tensor] = []
    for part, peaks in _batches(spectra, chosen):
        place, weight = places(peaks)
        spectrum, column = weight.nonzero(as_tuple=True)
        key = spectrum * N_PLACES + place[spectrum, column]
        key, inverse = key.unique(return_inverse=True)
        weights.append(torch.zeros(len(key)).index_add(0, inverse, weight[spectrum, column]))
        molecule = torch.from_numpy(owner[part])[key // N_PLACES]
        kept.append(molecule * N_PLACES + key % N_PLACES)
    key, inverse = torch.cat(kept).unique(return_inverse=True)
    weight = torch.zeros(len(key)).scatter_reduce(0, inverse, torch.cat(weights), "amax")
    # Those of each molecule that weigh most and are rarest, by molecule and place.
    row, place, n_known = key // N_PLACES, key % N_PLACES, len(known)
    often = torch.bincount(place, minlength=N_PLACES)[place]
    telling = weight * torch.log((n_known + 1) / (often + 1)).sqrt()
    order = torch.argsort(-telling, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    start = torch.searchsorted(row[order], torch.arange(n_known))
    best = order[torch.arange(len(order)) - start[row[order]] < _KEPT].sort().values
    return {
        "n_places": torch.bincount(row[best], minlength=n_known).short(),
        "place": place[best].int(),
        "weight": weight[best],
    }


def fit_kernel(
    encoder: FormulaTransformer, spectra: PreparedSpectra, known: Molecules
) -> dict[str, Tensor]:
    """Arrays of a weights file for `FragmentKernel`, mixed with an encoder as suits fold val.

    The encoder is in evaluation mode, on the CPU; no spectra are read but of fold train and val.
    """
    tensors = known_spectra(spectra, known) | {"mixing": UNMIXED}
    chosen = validation_spectra(spectra)
    if not len(chosen):
        return tensors
    kernel = FragmentKernel.of(tensors, known.bit_offset, known.bits)
    logits, chance = [], []
    with torch.no_grad():
        for _, peaks in _batches(spectra, chosen):
            logits.append(encoder(peaks))
            chance.append(kernel.chance(peaks))
    truth = true_bits(spectra, chosen)
    return tensors | {"mixing": fitted_mixing(torch.cat(logits), torch.cat(chance), truth)}


def _batches(
    spectra: PreparedSpectra, chosen: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], PeakBatch]]:
    """Some spectra, a few hundred rows at a time, and their peaks."""
    for part in np.array_split(chosen, max(1, len(chosen) // _AT_ONCE)):
        yield part, prepared_batch(spectra, part)
