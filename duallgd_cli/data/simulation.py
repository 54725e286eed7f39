"""Simulated spectra: what a fragment model expects of a structure, drawn at random.

Measured spectra of a few thousand molecules cannot teach an encoder what fragments mean for all the
structures without one. A fragment model fitted on the measured ones can: it says how likely each
fragment is a peak at this energy, and how intense. K peaks.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME, PERMANENT_CATION, parent_formula
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, MASSES_DA, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.fragmentation import (
    CARRIED,
    N_INPUTS,
    SHIFTS,
    Fragments,
    Ion,
    fragment_features,
    fragments,
    same_heavy_atoms,
)
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.peaks import most_intense
from duallgd_cli.data.prepared import (
    Molecules,
    in_blocks,
    load_molecules,
    read_manifest,
    spectrum_arrays,
    spectrum_row,
    write_blocks,
)
from duallgd_cli.errors import UnreadableError
from duallgd_cli.runtime import available_cores, in_order
from duallgd_cli.spectra.annotation import LEAST_EXCESS, AnnotationSettings, annotate, excess
from duallgd_cli.spectra.types import (
    INSTRUMENTS,
    AnnotatedSpectrum,
    Feature,
    Hypothesis,
    Source,
    Spectrum,
)

# Standard deviation of log intensities about their mean, as measured on fold train.
LOG_INTENSITY_SPREAD: Final = 1.6
_RARE: Final = -5.0
_DROPOUT: Final = 0.1
_LEAST_INTENSITY: Final = 1e-3


class FragmentModel(nn.Module):
    """Chances and intensities of fragments, X of them with H hydrogen shifts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(N_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.dropout = nn.Dropout(_DROPOUT)
        self.presence = nn.Linear(width, len(SHIFTS))
        self.intensity = nn.Linear(width, len(SHIFTS))
        nn.init.zeros_(self.presence.weight)
        nn.init.constant_(self.presence.bias, _RARE)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Log-odds of a peak and the mean of its log intensity, both (X, H), of (X, N_INPUTS)."""
        hidden = self.dropout(self.hidden(features))
        return self.presence(hidden), self.intensity(hidden)


def fragment_loss(model: FragmentModel, features: Tensor, intensity: Tensor) -> Tensor:
    """Cross entropy of presence and Gaussian loss of log intensities, per peak that is there.

    Features are (X, N_INPUTS), measured intensities (X, H), 0 where there is no peak.
    """
    presence, mean = model(features)
    there = (intensity > 0).float()
    entropy = nn.functional.binary_cross_entropy_with_logits(presence, there, reduction="sum")
    residual = (mean - intensity.clamp_min(_LEAST_INTENSITY).log()) / LOG_INTENSITY_SPREAD
    loss: Tensor = (entropy + 0.5 * (residual.square() * there).sum()) / there.sum().clamp_min(1)
    return loss


@torch.inference_mode()
def expected_intensity(model: FragmentModel, features: Tensor) -> Tensor:
    """Square root of intensity times the chance of a peak, (X, H), for comparisons."""
    presence, mean = model(features)
    return torch.sigmoid(presence) * torch.exp(mean.clamp_max(0) / 2)


_ANNOTATION: Final = AnnotationSettings()  # as `data spectra` and `predict` explain by default
_PROTONATED: Final = BY_NAME["[M+H]+"].index
_CATION: Final = PERMANENT_CATION.index
# Of one spectrum's chances together: some spectra are recorded down to their faintest peaks. The
# logarithm of how many peaks were annotated varies by 1.2 on fold train, by 0.6 without this.
_CHANCE_SPREAD: Final = 1.1
_FAINTEST: Final = -7.0
# Spread of a whole spectrum's mass error and of each of its peaks, ppm, by instrument as in
# `INSTRUMENTS`, with heavy tails; near those of fold train, which has none of an unknown one.
_CALIBRATION_PPM: Final = (2.0, 0.5, 4.0)
_PEAK_PPM: Final = (1.5, 0.4, 3.0)
_TAIL: Final = 4  # degrees of freedom of a t distribution
_OF_TOLERANCE: Final = 0.99  # no error is larger: such a peak would not be explained
# Peaks that no cut of up to three bonds gives, a fragment less up to three small molecules: of 3
# peaks of fold train one in seven, of 30 two in five, of 80 six in ten. On Orbitraps they have the
# mass errors of the others, and as seldom an unpaired electron, so they are no noise.
_UNREACHABLE_SHARE: Final = (0.2, 0.035, 1.8)  # of the others: at least, more for each, at most
_UNREACHABLE_LOG_INTENSITY: Final = (-3.4, 1.6)
_LOST: Final = ("H2O", "CO", "NH3", "CHN", "C2H2", "C2H4", "CH2O", "CO2", "H2", "C2H2O", "CH4")
_LOST_AT_MOST: Final = 3
_MERGED_SHARE, _MERGED_MOST = 0.35, 4
_TRIES: Final = 4  # for each, as most of what is drawn can be cut out too
_LOST_COUNTS: Final = np.array([Formula.parse(text).counts for text in _LOST], np.float32)


class Simulator:
    """Draws spectra that structures might give, of ions by their weights."""

    def __init__(self, model: FragmentModel, ions: list[Ion], weight: NDArray[np.float64]) -> None:
        self.model = model.eval()
        self.ions = ions
        self.share_up_to = np.cumsum(weight) / np.sum(weight)
        self._alike: dict[tuple[int, int], list[Ion]] = {}
        for ion in ions:
            self._alike.setdefault((ion.adduct, ion.instrument), []).append(ion)

    def annotated(
        self, molecules: Molecules, molecule: int, generator: np.random.Generator
    ) -> AnnotatedSpectrum:
        """A spectrum that a prepared molecule might give, its peaks explained like measured ones.

        One in three is of several spectra of one ion, as features often are.
        """
        found = fragments(graph_of(molecules, molecule), generator)
        formula = molecules.formula(molecule)
        first = self.ions[int(np.searchsorted(self.share_up_to, generator.random(), side="right"))]
        drawn = [first]
        if generator.random() < _MERGED_SHARE:  # a few more energies that such ions had
            alike = self._alike[first.adduct, first.instrument]
            more = generator.integers(0, len(alike), generator.integers(1, _MERGED_MOST))
            drawn += [alike[i] for i in more]
        ions = [_ion_of(molecules, molecule, ion) for ion in drawn]
        feature = Feature(tuple(self._spectrum(found, formula, ion, generator) for ion in ions))
        return annotate(Hypothesis(feature, formula, ADDUCTS[ions[0].adduct]), _ANNOTATION)

    def _spectrum(
        self, found: Fragments, formula: Formula, ion: Ion, generator: np.random.Generator
    ) -> Spectrum:
        """One spectrum of these fragments."""
        with torch.inference_mode():
            presence, mean = self.model(torch.from_numpy(fragment_features(found, ion)))
        chance = torch.sigmoid(presence).numpy() * np.exp(generator.normal(0, _CHANCE_SPREAD))
        row, column = np.nonzero(generator.random(chance.shape) < chance)
        counts = found.counts[row].copy()
        counts[:, HYDROGEN] += CARRIED[ion.adduct] + SHIFTS[0] + column
        wobble = generator.normal(0, LOG_INTENSITY_SPREAD, len(row))
        unreachable, faint = _unreachable(counts, found, generator)
        counts = np.concatenate([counts, unreachable])
        log_intensity = np.concatenate([mean.numpy()[row, column] + wobble, faint])
        return _recorded(counts, log_intensity, formula, ion, generator)


def _ion_of(molecules: Molecules, molecule: int, drawn: Ion) -> Ion:
    r"""The ion drawn, or one that the molecule can be; a permanent cation is detected as M\+."""
    if molecules.charge[molecule] > 0:
        return replace(drawn, adduct=_CATION)
    bare = int(molecules.atom_counts[molecule, HYDROGEN]) + CARRIED[drawn.adduct] < 0
    return replace(drawn, adduct=_PROTONATED) if bare or drawn.adduct == _CATION else drawn


def _unreachable(
    counts: NDArray[np.float32], found: Fragments, generator: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Counts and log intensities of peaks that no cut gives, made from those that are seen."""
    least, more, most = _UNREACHABLE_SHARE
    n = int(generator.poisson(len(counts) * min(least + more * len(counts), most)))
    tries = n * _TRIES
    drawn = counts[generator.integers(0, len(counts), tries)] if n else counts[:0]
    lost = _LOST_COUNTS[generator.integers(0, len(_LOST), (tries, _LOST_AT_MOST))]
    how_many = generator.integers(1, _LOST_AT_MOST + 1, (tries, 1))
    lost *= (np.arange(_LOST_AT_MOST) < how_many)[..., None]
    drawn = drawn - lost.sum(1)
    able = (drawn >= 0).all(1) & ~same_heavy_atoms(drawn, found.counts)
    unreachable = drawn[able][:n]
    return unreachable, generator.normal(*_UNREACHABLE_LOG_INTENSITY, len(unreachable))


def _recorded(
    counts: NDArray[np.float32],
    log_intensity: NDArray[np.float64],
    formula: Formula,
    ion: Ion,
    generator: np.random.Generator,
) -> Spectrum:
    """A spectrum of these peaks, each m/z once; the ion itself where nothing else is left."""
    parent = parent_formula(formula, ADDUCTS[ion.adduct]).array
    possible = (counts >= 0).all(1) & (counts <= parent).all(1) & counts[:, :N_HEAVY].any(1)
    possible &= excess(counts) >= LEAST_EXCESS  # no ion holds more hydrogens
    counts, log_intensity = counts[possible], log_intensity[possible]
    if not len(counts):
        counts, log_intensity = parent[None].astype(np.float32), np.zeros(1)
    brightest = np.argsort(-log_intensity, kind="stable")
    _, first = np.unique(counts[brightest], axis=0, return_index=True)
    kept = brightest[first]
    exact = counts[kept] @ np.array(MASSES_DA) - ADDUCTS[ion.adduct].charge * ELECTRON_MASS_DA
    # One error of the whole spectrum and one of each peak, within the tolerance.
    most = _OF_TOLERANCE * _ANNOTATION.tolerance_ppm(INSTRUMENTS[ion.instrument])
    of_all = _CALIBRATION_PPM[ion.instrument] * generator.standard_t(_TAIL)
    of_each = _PEAK_PPM[ion.instrument] * generator.standard_t(_TAIL, len(exact))
    ppm = np.clip(of_all + of_each, -most, most)
    mz = exact + ppm * np.maximum(exact, _ANNOTATION.floor_mz) / 1e6
    order = np.argsort(mz, kind="stable")
    relative = np.clip(log_intensity[kept] - log_intensity[kept].max(), _FAINTEST, 0)
    return Spectrum(
        Source("simulated", 0),
        "simulated",
        mz[order],
        np.exp(relative)[order],
        collision_energy_ev=None if np.isnan(ion.energy_ev) else ion.energy_ev,
        instrument=INSTRUMENTS[ion.instrument],
    )


def prepare_simulated(
    structures: Path,
    simulator: Simulator,
    out: Path,
    record: dict[str, object],
    *,
    limit: int | None = None,
    max_atoms: int = 50,
    seed: int = 1,
    advance: Callable[[int], None] = lambda spectra: None,
) -> dict[str, object]:
    """Simulate one spectrum each for structures of fold train, and return the manifest.

    So many structures are chosen at random as the limit says, None for all, of at most so many
    atoms. No more of them than a block are in memory. A spectrum depends on the seed and on its
    structure's row. The record, of the fragment model, is kept in the manifest.
    """
    molecules, source = load_molecules(structures), read_manifest(structures)
    able = molecules.in_folds("train") & (molecules.n_heavy <= max_atoms)
    rows = np.flatnonzero(able & (np.diff(molecules.bond_offset) > 0))
    if limit is not None and limit < len(rows):
        rows = np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
    if not len(rows):
        raise UnreadableError(f"{structures} holds no structure of fold train with a bond")

    def drawn() -> Iterator[dict[str, Any]]:
        # As bytes: torch's own way to other processes needs shared memory.
        draw = partial(_draw, structures, pickle.dumps(simulator), seed)
        for spectrum in in_order(draw, rows.tolist(), available_cores()):
            advance(1)
            yield spectrum

    def blocks() -> Iterator[dict[str, NDArray[Any]]]:
        done = 0
        for block in in_blocks(drawn()):
            own = np.arange(done, done + len(block))
            yield molecules.take(rows[own]).arrays() | spectrum_arrays(block, own)
            done += len(block)

    about: dict[str, object] = {
        "kind": "spectra",
        "source": {"simulated": source.get("source"), "model": record},
        "molecules": len(rows),
        "spectra": len(rows),
        "settings": {"limit": limit, "max_atoms": max_atoms, "seed": seed},
        "holdout_keys": source.get("holdout_keys", 0),
        "holdout_removed": source.get("holdout_removed", 0),
    }
    return write_blocks(out, blocks(), lambda: about)


@lru_cache(maxsize=1)
def _loaded(structures: Path, simulator: bytes) -> tuple[Molecules, Simulator]:
    """What a process draws with; once for all that it draws."""
    if parent_process() is not None:
        torch.set_num_threads(1)
    return load_molecules(structures), pickle.loads(simulator)  # from our parent


def _draw(structures: Path, simulator: bytes, seed: int, row: int) -> dict[str, Any]:
    molecules, own = _loaded(structures, simulator)
    found = own.annotated(molecules, row, np.random.default_rng((seed, row)))
    return spectrum_row(found, "train", most_intense(found.intensity))
