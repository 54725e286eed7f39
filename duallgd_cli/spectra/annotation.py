"""Explain the peaks of a feature by sub-formulas of its ion, never enumerated as a whole.

The elements of the ion are divided into two groups; a sub-formula is one part (counts of atoms) of
each. The parts of the smaller table are subtracted from each wanted mass, and two binary searches
in the larger one give the matches: work and memory grow with the smaller table. What a fragment
keeps beside that, metals, charges and whole molecules of a multimer, says the adduct.

Letters: W wanted masses, K matches and rows (explanations), C ways a fragment may carry the charge,
P parts of a table in `SubformulaTable` and `Matches`, else peaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import parent_formula
from duallgd_cli.chem.elements import (
    ELECTRON_MASS_DA,
    HYDROGEN,
    INDEX,
    LOWEST_VALENCES,
    MASSES_DA,
    N_ELEMENTS,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import require, require_range
from duallgd_cli.spectra.types import AnnotatedSpectrum, Hypothesis

# Twice what one atom adds to rings plus double bonds.
_EXCESS: Final = tuple(valence - 2 for valence in LOWEST_VALENCES)
# Log-odds against a match being the true fragment, per heteroatom it holds and per hetero element
# its neutral loss holds. Fitted on Orbitrap peaks of the MassBank training fold: matches within
# 3 ppm against matches 30 to 60 ppm away.
_HETEROATOM_COST: Final = 0.45
_LOST_ELEMENT_COST: Final = 0.45
LEAST_EXCESS: Final = -3  # that of a saturated closed-shell cation, such as ammonium
_CARBON_AND_HYDROGEN: Final = (INDEX["C"], HYDROGEN)
_HETERO: Final = slice(INDEX["C"] + 1, HYDROGEN)
_LARGEST_TABLE: Final = 1 << 15  # 8-byte masses that stay in the second-level cache of one core
_CHUNK: Final = 64  # peaks that are explained at once
_PPM: Final = 1e-6
# Without its metal a fragment of a metal adduct is a neutral molecule, so its unsaturation is >= 0.
_LEAST_EXCESS_BESIDE_METAL: Final = -2
# In the same log-odds, fitted the same way: an unpaired electron, and a mass error as large as the
# tolerance.
_RADICAL_COST: Final = 1.2
_ERROR_COST: Final = 4.0


class Matches(NamedTuple):
    """Sub-formulas found for wanted masses."""

    owner: NDArray[np.int64]  # index of the wanted mass, ascending, int64 (K,)
    error_da: NDArray[np.float64]  # wanted mass minus the sub-formula's mass, float64 (K,)
    excess: NDArray[np.int16]  # twice (unsaturation minus one), int16 (K,)
    counts: NDArray[np.int16]  # atoms, int16 (K, N_ELEMENTS)


class Parts(NamedTuple):
    """Atoms of some elements, ready to be put together with those of others."""

    counts: NDArray[np.int16]  # (P, N_ELEMENTS)
    mass: NDArray[np.float64]  # Da, (P,)
    excess: NDArray[np.int16]  # twice (unsaturation minus one), (P,)

    def extended(self, element: int, count: int, heaviest_da: float) -> "Parts":
        """Add 0 to `count` atoms of an element, as far as the mass allows."""
        number = np.arange(count + 1)
        mass = np.add.outer(self.mass, number * MASSES_DA[element]).ravel()
        part, n = np.divmod(kept := np.flatnonzero(mass <= heaviest_da), number.size)
        counts = self.counts[part]
        counts[:, element] = n
        more = (_EXCESS[element] * n).astype(np.int16)
        return Parts(counts, mass[kept], self.excess[part] + more)

    def by_mass(self, kept: NDArray[np.bool_] | slice = slice(None)) -> "Parts":
        """Some of them, or all, by ascending mass."""
        places = np.arange(self.mass.size)[kept]
        places = places[np.argsort(self.mass[places], kind="stable")]
        return Parts._make(column[places] for column in self)


NOTHING: Final = Parts(np.zeros((1, N_ELEMENTS), np.int16), np.zeros(1), np.zeros(1, np.int16))


def find(
    small: Parts, large: Parts, mass: NDArray[np.float64], tolerance_da: NDArray[np.float64]
) -> Matches:
    """What a part of each of two tables by ascending mass makes of wanted masses (W,) in Da.

    Left out is what has an unsaturation below -0.5.
    """
    reach = large.mass[-1] if large.mass.size else 0.0
    wanted, first = index_ranges(
        np.searchsorted(small.mass, mass - tolerance_da - reach, "left"),
        np.searchsorted(small.mass, mass + tolerance_da, "right"),
    )
    rest = mass[wanted] - small.mass[first]
    margin = tolerance_da[wanted]
    pair, second = index_ranges(
        np.searchsorted(large.mass, rest - margin, "left"),
        np.searchsorted(large.mass, rest + margin, "right"),
    )
    of_sum = small.excess[first[pair]] + large.excess[second]
    possible = np.flatnonzero(of_sum >= LEAST_EXCESS)
    pair, second = pair[possible], second[possible]
    return Matches(
        wanted[pair],
        rest[pair] - large.mass[second],
        of_sum[possible],
        small.counts[first[pair]] + large.counts[second],
    )


class SubformulaTable:
    """All sub-formulas of one ion (N_ELEMENTS counts) up to a mass, ready to be looked up."""

    def __init__(self, counts: Sequence[int], heaviest_da: float) -> None:
        first = second = NOTHING
        for element in _CARBON_AND_HYDROGEN:
            first = first.extended(element, counts[element], heaviest_da)
        others = [e for e in range(N_ELEMENTS) if counts[e] and e not in _CARBON_AND_HYDROGEN]
        for element in sorted(others, key=lambda e: counts[e]):
            if second.mass.size * (counts[element] + 1) <= _LARGEST_TABLE:
                second = second.extended(element, counts[element], heaviest_da)
            else:
                first = first.extended(element, counts[element], heaviest_da)
        pruned = (_prune(first, second), _prune(second, first))
        self._small, self._large = sorted(pruned, key=lambda parts: parts.mass.size)

    def find(self, mass: NDArray[np.float64], tolerance_da: NDArray[np.float64]) -> Matches:
        """Sub-formulas of wanted masses (W,) in Da, of an unsaturation of at least -0.5."""
        return find(self._small, self._large, mass, tolerance_da)


def excess(counts: NDArray[Any]) -> NDArray[Any]:
    """Twice (unsaturation minus one) of atoms (K, N_ELEMENTS), shape (K,)."""
    return np.asarray(counts @ np.array(_EXCESS))


def _prune(parts: Parts, partners: Parts) -> Parts:
    """Leave out parts that no partner can bring to a possible unsaturation; sort by mass."""
    best = partners.excess.max(initial=LEAST_EXCESS)
    return parts.by_mass(parts.excess + best >= LEAST_EXCESS)


def index_ranges(
    start: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Owner and value of every integer in the half-open ranges, owners ascending."""
    length = np.maximum(stop - start, 0)
    owner = np.repeat(np.arange(length.size), length)
    first = np.repeat(np.cumsum(length) - length - start, length)
    return owner, np.arange(owner.size) - first


@dataclass(frozen=True, slots=True)
class AnnotationSettings:
    """How peaks are explained.

    On the MassBank training fold, and against the background of chance matches, 5 ppm hold nearly
    every true explanation of an Orbitrap peak above m/z 100, and 20 ppm nineteen in twenty of a
    time-of-flight peak; further down the error in Da stops shrinking, hence `floor_mz`.

    Attributes:
        ppm: Largest mass error in ppm where the instrument is unknown.
        orbitrap_ppm: The same for Orbitrap and other Fourier-transform instruments.
        qtof_ppm: The same for time-of-flight instruments.
        floor_mz: Below this m/z the tolerance is that at this m/z, in Da.
        candidates: Explanations kept for one peak.
        max_rows: Explanations kept for one feature; its most intense peaks come first.
    """

    ppm: float = 10.0
    orbitrap_ppm: float = 7.0
    qtof_ppm: float = 20.0
    floor_mz: float = 100.0
    candidates: int = 3
    max_rows: int = 128

    def __post_init__(self) -> None:
        require_range(self, "ppm", "orbitrap_ppm", "qtof_ppm", above=0, most=100)
        require(self.floor_mz >= 0, f"floor_mz must be 0 or more, not {self.floor_mz}")
        require(
            1 <= self.candidates <= self.max_rows,
            f"candidates must be 1 to max_rows ({self.max_rows}), not {self.candidates}",
        )

    def tolerance_ppm(self, instrument: str) -> float:
        """Tolerance for ``orbitrap``, ``qtof`` or an unknown instrument."""
        return {"orbitrap": self.orbitrap_ppm, "qtof": self.qtof_ppm}.get(instrument, self.ppm)

    def tolerance_da(self, mz: NDArray[np.float64], instrument: str) -> NDArray[np.float64]:
        """The same at some m/z."""
        return np.maximum(mz, self.floor_mz) * self.tolerance_ppm(instrument) * _PPM


TOLERANCE: Final = AnnotationSettings()


# Explanations of peaks; those of one peak stand together, cheapest first.
_ROW: Final = np.dtype(
    [
        ("peak", np.int64),
        ("subformula", np.int16, N_ELEMENTS),
        ("error_da", np.float64),
        ("carrier", np.int8),
    ]
)


def annotate(
    hypothesis: Hypothesis, settings: AnnotationSettings = AnnotationSettings()
) -> AnnotatedSpectrum:
    """Explain the cleaned peaks of a feature by sub-formulas of the hypothesised ion.

    A peak keeps its few best explanations; what lies at the ion's own m/z is the whole ion and
    nothing else. Once `max_rows` rows are reached, fainter peaks are not looked at. Rows stand by
    spectrum, then ascending m/z, then cost.

    Raises:
        FormulaError: The adduct takes away atoms that the formula does not have.
    """
    spectra = hypothesis.feature.spectra
    sizes = [one.mz.size for one in spectra]
    columns = {
        "mz": np.concatenate([one.mz for one in spectra]),
        "intensity": np.concatenate([one.intensity for one in spectra]),
        # None becomes NaN
        "energy_ev": np.repeat([one.collision_energy_ev for one in spectra], sizes).astype(float),
        "tolerance_da": np.concatenate(
            [
                np.maximum(settings.tolerance_da(one.mz, one.instrument), one.peak_rounding_da)
                for one in spectra
            ]
        ),
        "spectrum": np.repeat(np.arange(len(spectra)), sizes),
    }
    dtype = [(name, column.dtype) for name, column in columns.items()]
    peaks: NDArray[np.void] = np.rec.fromarrays(columns.values(), dtype)
    peaks = peaks[np.argsort(-columns["intensity"], kind="stable")]
    ion = _Ion(hypothesis)
    rows = np.empty(0, _ROW)
    for start in range(0, peaks.size, _CHUNK):
        rows = np.concatenate([rows, ion.explain(peaks, start, settings.candidates)])
        if rows.size > settings.max_rows:
            break
    looked_at = peaks.size
    if rows.size > settings.max_rows:  # the most intense peaks whose rows are so many
        looked_at = int(np.sort(rows["peak"])[settings.max_rows])
    return _annotated(hypothesis, peaks, rows, looked_at)


class _Ion(SubformulaTable):
    """The atoms of an ion, and which of its fragments have a given m/z."""

    def __init__(self, hypothesis: Hypothesis) -> None:
        adduct = hypothesis.adduct
        molecule = hypothesis.formula
        self.atoms = parent_formula(molecule, adduct)
        # A fragment of a multimer is one of a single molecule, with or without whole other ones.
        single = np.array(molecule.counts) + np.array(adduct.change)
        single = Formula(tuple(np.maximum(single, 0).tolist()))
        super().__init__(single.counts, single.atoms_mass)
        self.hetero = single.array[_HETERO]
        # By what a fragment keeps, arrays of shape (C,).
        kept, _, metal, charge, protons = map(np.array, zip(*adduct.carriers, strict=True))
        self.kept, self.charges, self.protons = kept, np.abs(charge), protons
        self.has_metal = metal > 0
        self.whole = np.outer(kept, molecule.array).astype(np.int16)
        # A whole molecule with no more than what the adduct adds is a fragment of one molecule.
        self.added_da = float(np.maximum(adduct.change, 0) @ np.array(MASSES_DA)) + 1e-6
        # What to add to an m/z, times the charges, for the mass of the fragment's other atoms.
        self.to_atoms = charge * ELECTRON_MASS_DA - metal - kept * molecule.atoms_mass
        in_all = self.atoms.atoms_mass - (charge[-1] * ELECTRON_MASS_DA - metal[-1])
        self.mz = in_all / self.charges[-1]

    def explain(self, peaks: NDArray[np.void], start: int, candidates: int) -> NDArray[np.void]:
        """The rows of a few peaks from number `start` on, at most `candidates` of each.

        Cheaper are a small mass error, paired electrons and a plain composition.
        """
        peak = np.arange(start, min(start + _CHUNK, peaks.size))
        mz, tolerance_da = peaks["mz"][peak], peaks["tolerance_da"][peak]
        whole = np.abs(mz - self.mz) <= tolerance_da
        part = np.flatnonzero(~whole)
        wanted = (np.multiply.outer(mz[part], self.charges) + self.to_atoms).ravel()
        tolerance = np.multiply.outer(tolerance_da[part], self.charges).ravel()
        matches = self.find(wanted, tolerance)
        owner, carrier = np.divmod(matches.owner, self.charges.size)
        # Closed shells have an even excess before they are protonated or deprotonated.
        protons = self.protons[carrier]
        radical = (matches.excess + protons) % 2 == 1
        hetero = matches.counts[:, _HETERO]
        lost = (hetero < self.hetero).sum(axis=1)
        error = np.abs(matches.error_da) / tolerance[matches.owner]
        cost = _ERROR_COST * error + _RADICAL_COST * radical
        cost += _HETEROATOM_COST * hetero.sum(axis=1) + _LOST_ELEMENT_COST * lost
        least_excess = _LEAST_EXCESS_BESIDE_METAL - protons
        cost[self.has_metal[carrier] & (matches.excess < least_excess)] = np.inf
        part_da = wanted[matches.owner] - matches.error_da
        cost[(self.kept[carrier] > 0) & (part_da <= self.added_da)] = np.inf
        # Of each owner the few cheapest that are possible, the cheapest first; owners ascend.
        order = np.lexsort((cost, owner))
        place = np.arange(owner.size) - np.searchsorted(owner, owner)
        chosen = order[(place < candidates) & np.isfinite(cost[order])]
        kept = carrier[chosen]
        columns = (
            peak[part][owner[chosen]],
            matches.counts[chosen] + self.whole[kept],
            matches.error_da[chosen] / self.charges[kept],
            kept,
        )
        ions = np.empty(int(whole.sum()), _ROW)
        ions["peak"], ions["subformula"] = peak[whole], self.atoms.array
        ions["error_da"], ions["carrier"] = mz[whole] - self.mz, self.charges.size - 1
        return np.concatenate([np.rec.fromarrays(columns, _ROW), ions])


def _annotated(
    hypothesis: Hypothesis, peaks: NDArray[np.void], rows: NDArray[np.void], looked_at: int
) -> AnnotatedSpectrum:
    """Order the rows of the peaks looked at and count what they explain."""
    rows = rows[rows["peak"] < looked_at]
    own = peaks[rows["peak"]]
    # Stable, so that the explanations of a peak stay in the order of their cost.
    order = np.lexsort((own["mz"], own["spectrum"]))
    rows, own = rows[order], own[order]
    explained, n_rows = np.unique(rows["peak"], return_counts=True)
    share = np.zeros(peaks.size)
    share[explained] = 1.0 / n_rows
    intensity, error_da = np.ascontiguousarray(peaks["intensity"]), rows["error_da"]
    total = float(intensity[:looked_at].sum())
    return AnnotatedSpectrum(
        hypothesis=hypothesis,
        subformula=np.ascontiguousarray(rows["subformula"]),
        intensity=own["intensity"].astype(np.float32),
        ppm=(error_da / (own["mz"] - error_da) / _PPM).astype(np.float32),
        mz=own["mz"].astype(np.float32),
        share=share[rows["peak"]].astype(np.float32),
        carrier=np.ascontiguousarray(rows["carrier"]),
        energy_ev=own["energy_ev"].astype(np.float32),
        n_peaks=looked_at,
        n_explained=explained.size,
        explained_intensity=float(intensity[explained].sum()) / total if total else 0.0,
    )
