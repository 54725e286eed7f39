"""Fitting the fragment model to measured spectra; molecules count alike, however many they have.

Letters: C fragments, H hydrogen shifts, K peaks.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity

from duallgd_cli.checkpoint.format import load_strictly
from duallgd_cli.data.fragmentation import (
    CARRIED,
    N_INPUTS,
    SHIFTS,
    Fragments,
    Ion,
    fragment_features,
    fragments,
    measured_intensity,
)
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.prepared import FOLDS, PreparedSpectra
from duallgd_cli.data.simulation import FragmentModel, Simulator, expected_intensity, fragment_loss
from duallgd_cli.errors import UnreadableError
from duallgd_cli.train.encoder import by_molecule
from duallgd_cli.train.settings import OptimiserSettings, TrainingSettings
from duallgd_cli.train.trainer import fit

_RATES: Final = OptimiserSettings(
    "adamw", 2e-3, warmup_share=0.3, final_share=0.0, weight_decay=0.02, beta2=0.999, clip=inf
)
_SPECTRA_PER_STEP: Final = 48
_VALIDATION_SPECTRA: Final = 500


class MeasuredSpectrum(NamedTuple):
    """One measured spectrum over the fragments of its molecule."""

    found: Fragments
    ion: Ion
    intensity: NDArray[np.float32]  # of each fragment and hydrogen shift, (C, H)
    weight: float  # share of the spectrum among those of its molecule

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Features (C, N_INPUTS) and intensities (C, H)."""
        features = fragment_features(self.found, self.ion)
        return torch.from_numpy(features), torch.from_numpy(self.intensity)


def fit_simulator(
    spectra: PreparedSpectra,
    steps: int = 7000,
    seed: int = 1,
    advance: Callable[[int], None] = lambda steps: None,
    *,
    width: int = 256,
) -> tuple[FragmentModel, dict[str, Any]]:
    """Fit a fragment model of some channels on fold train, and judge it on fold val.

    Returns:
        The model, and what to keep on record: sizes, seed and, if there is a fold val, the cosine
        similarity of expected and measured roots of intensity there.

    Raises:
        UnreadableError: Fold train holds no spectrum of an ion that can be simulated.
    """
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    train = list_measured(spectra, "train", generator)
    if not train:
        raise UnreadableError("the prepared spectra hold none of fold train that can be simulated")
    weight = np.array([spectrum.weight for spectrum in train])
    weight /= weight.sum()
    model = FragmentModel(N_INPUTS, len(SHIFTS), width)

    def batch_of(step: int) -> tuple[Tensor, Tensor]:
        drawn = np.random.default_rng((seed, step)).choice(len(train), _SPECTRA_PER_STEP, p=weight)
        features, intensity = zip(*(train[i].tensors for i in drawn), strict=True)
        return torch.cat(features), torch.cat(intensity)

    def loss(model: FragmentModel, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        per_peak = fragment_loss(model, *batch)
        return per_peak, torch.ones_like(per_peak)

    fit(model, batch_of, loss, TrainingSettings(seed=seed, steps=steps, optimiser=_RATES), advance)
    held_out, cosines = list_measured(spectra, "val", generator), []
    for row in generator.permutation(len(held_out))[:_VALIDATION_SPECTRA]:
        features, intensity = held_out[row].tensors
        alike = cosine_similarity(
            expected_intensity(model, features).flatten(), intensity.sqrt().flatten(), 0
        )
        cosines.append(float(alike))
    figures = {"cosine": float(np.mean(cosines))} if cosines else {}
    return model, {"spectra": len(train), "steps": steps, "seed": seed, "val": figures}


def simulator_of(tensors: dict[str, Tensor], spectra: PreparedSpectra) -> Simulator:
    """A simulator of the ions of fold train, molecules alike, by a fragment model's tensors."""
    model = FragmentModel(N_INPUTS, len(SHIFTS), len(tensors["hidden.0.bias"]))
    load_strictly(model, tensors)
    rows = simulated_rows(spectra, "train")
    columns = (spectra.adduct[rows], spectra.instrument[rows], spectra.energy_ev[rows])
    ions = [Ion(*ion) for ion in zip(*(column.tolist() for column in columns), strict=True)]
    molecule = spectra.molecule[rows]
    return Simulator(model, ions, 1 / np.bincount(molecule)[molecule])


def list_measured(
    spectra: PreparedSpectra, fold: str, generator: np.random.Generator
) -> list[MeasuredSpectrum]:
    """Spectra of a fold whose ion can be simulated and of which a fragment is a peak."""
    result: list[MeasuredSpectrum] = []
    for molecule, own in zip(*by_molecule(spectra, simulated_rows(spectra, fold)), strict=True):
        found = fragments(graph_of(spectra.molecules, int(molecule)), generator)
        kept = []
        for spectrum in own:
            ion, *_ = peaks = explained_peaks(spectra, spectrum)
            intensity = measured_intensity(found, *peaks)
            kept += [(ion, intensity)] if intensity.any() else []
        result += [MeasuredSpectrum(found, *measured, 1 / len(kept)) for measured in kept]
    return result


def simulated_rows(spectra: PreparedSpectra, fold: str) -> NDArray[np.int64]:
    """Spectra of a fold whose ion can be simulated, of molecules with bonds."""
    able = np.isin(spectra.adduct, list(CARRIED)) & (spectra.spectrum_fold == FOLDS.index(fold))
    return np.flatnonzero(able & (np.diff(spectra.molecules.bond_offset)[spectra.molecule] > 0))


def explained_peaks(
    spectra: PreparedSpectra, spectrum: int
) -> tuple[Ion, NDArray[np.int16], NDArray[np.float32]]:
    """Ion of a spectrum, and sub-formulas (K, N_ELEMENTS) and intensities (K,) of its peaks."""
    peaks = slice(*spectra.peak_offset[spectrum : spectrum + 2].tolist())
    bare = spectra.carrier[peaks] == 0  # peaks that kept a metal are of no interest here
    subformula, intensity = spectra.subformula[peaks][bare], spectra.intensity[peaks][bare]
    adduct, instrument = int(spectra.adduct[spectrum]), int(spectra.instrument[spectrum])
    ion = Ion(adduct, instrument, float(spectra.energy_ev[spectrum]))
    return ion, subformula.astype(np.int16), intensity.astype(np.float32)
