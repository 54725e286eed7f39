"""Simulated spectra: what a fragment model expects of a structure, drawn at random.

Measured spectra of a few thousand molecules cannot teach an encoder what fragments mean for the
hundreds of thousands of structures without a spectrum. A fragment model fitted on the measured
ones can: it says how likely each fragment is a peak at this energy, and how intense.
K peaks.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME, PERMANENT_CATION
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, MASSES_DA, N_HEAVY
from duallgd_cli.data.fragment_rows import CARRIED, SHIFTS, Ion, fragment_features
from duallgd_cli.data.fragmentation import Fragments, fragments, graph_of
from duallgd_cli.data.peaks import MAX_ROWS, PeakRows
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.model.fragment_model import LOG_INTENSITY_SPREAD, FragmentModel

_PROTONATED: Final = BY_NAME["[M+H]+"].index
_CATION: Final = PERMANENT_CATION.index
# Of one spectrum's chances together: some spectra are recorded down to their faintest peaks. The
# logarithm of how many peaks were annotated varies by 1.2 on fold train, by 0.6 without this.
_CHANCE_SPREAD: Final = 1.1
# Of intensities, which vary less than measured ones about their mean: some of that spread is what
# the model does not know.
_INTENSITY_SHARE: Final = 0.8
_PPM_SPREAD: Final = 2.5
# Peaks that no simple fragment explains: a fragment less a few atoms, faint.
_STRANGE_PEAKS: Final = 1.5
_STRANGE_LOG_INTENSITY: Final = (-3.0, 1.0)
_FAINTEST: Final = -7.0


def ion_mz(counts: NDArray[np.float32], charge: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """m/z of ions of one charge, (K,), from their atoms, (K, N_ELEMENTS), and charge, 1 or -1."""
    mz: NDArray[np.float64] = counts @ np.asarray(MASSES_DA) - charge * ELECTRON_MASS_DA
    return mz


class Simulator:
    """Draws spectra that structures might give.

    Args:
        model: Fitted.
        ions: Ions and energies to draw from, one for each measured spectrum.
        weight: Of each.
    """

    def __init__(self, model: FragmentModel, ions: list[Ion], weight: NDArray[np.float64]) -> None:
        self.model = model.eval()
        self.ions = ions
        self.share_up_to = np.cumsum(weight) / np.sum(weight)  # summed once, not for each spectrum

    def spectrum(
        self, molecules: Molecules, molecule: int, generator: np.random.Generator
    ) -> PeakRows:
        """A spectrum that the molecule might give, the most intense `MAX_ROWS` peaks.

        Args:
            molecules: Prepared molecules.
            molecule: Row.
            generator: Source of randomness.
        """
        place = np.searchsorted(self.share_up_to, generator.random(), side="right")
        drawn = self.ions[int(place)]
        ion = _ion_of(molecules, molecule, drawn)
        found = fragments(graph_of(molecules, molecule), generator)
        with torch.inference_mode():
            presence, mean = self.model(torch.from_numpy(fragment_features(found, ion)))
        chance = torch.sigmoid(presence).numpy() * np.exp(generator.normal(0, _CHANCE_SPREAD))
        row, column = np.nonzero(generator.random(chance.shape) < chance)
        counts = found.counts[row].copy()
        counts[:, HYDROGEN] += CARRIED[ion.adduct] + SHIFTS[0] + column
        spread = LOG_INTENSITY_SPREAD * _INTENSITY_SHARE
        log_intensity = mean.numpy()[row, column] + generator.normal(0, spread, len(row))
        strange, faint = _strange(found, generator)
        return _as_rows(
            np.concatenate([counts, strange]),
            np.concatenate([log_intensity, faint]),
            molecules.atom_counts[molecule].astype(np.float32),
            ion,
            generator,
        )


def _ion_of(molecules: Molecules, molecule: int, drawn: Ion) -> Ion:
    """The ion drawn, or one that the molecule can be; a permanent cation flies as it is."""
    if molecules.charge[molecule] > 0:
        return replace(drawn, adduct=_CATION)
    bare = int(molecules.atom_counts[molecule, HYDROGEN]) + CARRIED[drawn.adduct] < 0
    return replace(drawn, adduct=_PROTONATED) if bare or drawn.adduct == _CATION else drawn


def _strange(
    found: Fragments, generator: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Counts and log intensities of peaks that are no fragment."""
    n = int(generator.poisson(_STRANGE_PEAKS))
    counts = found.counts[generator.integers(0, len(found.counts), n)].copy()
    counts[:, 0] -= generator.integers(0, 3, n)
    counts[:, 2] -= generator.integers(0, 2, n)
    counts[:, HYDROGEN] += generator.integers(-3, 2, n)
    return counts, generator.normal(*_STRANGE_LOG_INTENSITY, n)


def _as_rows(
    counts: NDArray[np.float32],
    log_intensity: NDArray[np.float64],
    neutral: NDArray[np.float32],
    ion: Ion,
    generator: np.random.Generator,
) -> PeakRows:
    """Peaks with intensities, masses and mass errors; the ion itself where nothing else is left."""
    adduct = ADDUCTS[ion.adduct]
    parent = neutral + np.asarray(adduct.change, np.float32)
    possible = (counts >= 0).all(1) & (counts <= parent).all(1) & counts[:, :N_HEAVY].any(1)
    counts, log_intensity = counts[possible], log_intensity[possible]
    if not len(counts):
        counts, log_intensity = parent[None], np.zeros(1)
    brightest = np.argsort(-log_intensity, kind="stable")
    _, first = np.unique(counts[brightest], axis=0, return_index=True)
    kept = brightest[np.sort(first)[:MAX_ROWS]]
    counts, log_intensity = counts[kept], log_intensity[kept]
    k = len(kept)
    numbers = np.ones((k, 5), np.float32)
    relative = np.clip(log_intensity - log_intensity.max(), _FAINTEST, 0)
    numbers[:, 0] = np.exp(relative)
    numbers[:, 1] = generator.normal(0, _PPM_SPREAD, k)
    numbers[:, 2] = ion_mz(counts, adduct.charge)
    numbers[:, 4] = ion.energy_ev
    return PeakRows(counts, numbers, np.zeros(k, np.int64), parent, ion.adduct, ion.instrument)
