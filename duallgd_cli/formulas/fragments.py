"""What the peaks of a spectrum say of many formulas at once.

Every fragment formula that any candidate could give is looked up once for each peak; which
candidate holds which fragment is then one comparison of a whole table.

Letters: K candidates, P peaks, F fragment formulas found for peaks, M pairs of a candidate and a
fragment that it holds.
"""

import itertools
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import Adduct
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, INDEX, MASSES_DA, N_ELEMENTS
from duallgd_cli.spectra.annotation import LEAST_EXCESS, AnnotationSettings, excess, index_ranges
from duallgd_cli.spectra.formula_candidates import RARER, codes
from duallgd_cli.spectra.types import Spectrum

MOST_PEAKS: Final = 40
_TOGETHER: Final = 16
_SETTINGS: Final = AnnotationSettings()
_MASSES: Final = np.array(MASSES_DA)
_CHNO: Final = [INDEX["C"], HYDROGEN, INDEX["N"], INDEX["O"]]
_HETERO: Final = [i for i in range(N_ELEMENTS) if i not in (0, HYDROGEN)]
# Bits of C, H, N and O counts in one number, each with a spare bit that shows a borrow.
_PLACES: Final = np.array([0, 9, 18, 25], dtype=np.int64)
_SPARE: Final = np.int64((1 << 8) | (1 << 17) | (1 << 24) | (1 << 31))


class Peaks(NamedTuple):
    """Peaks of a feature, arrays of shape (P,).

    Attributes:
        mz: Ascending.
        intensity: The strongest is 1.
        tolerance_da: Largest error of an explanation.
    """

    mz: NDArray[np.float64]
    intensity: NDArray[np.float64]
    tolerance_da: NDArray[np.float64]


class Explanations(NamedTuple):
    """Pairs of a candidate and a fragment it holds; arrays of shape (M,), by candidate, then peak.

    Attributes:
        candidate: Row of the candidate, ascending.
        peak: Index of the peak, ascending within a candidate.
        fragment: Atoms of the fragment, int16 (M, N_ELEMENTS).
        loss: Atoms of the ion that it lacks, int16 (M, N_ELEMENTS).
        error: Mass error relative to the tolerance, -1 to 1.
        even: Whether its excess is even without unpaired electrons: a metal carries the charge, or
            there are two charges.
    """

    candidate: NDArray[np.int64]
    peak: NDArray[np.int64]
    fragment: NDArray[np.int16]
    loss: NDArray[np.int16]
    error: NDArray[np.float64]
    even: NDArray[np.bool_]


def peaks_of(spectra: tuple[Spectrum, ...], precursor_mz: float, most: int = MOST_PEAKS) -> Peaks:
    """The strongest peaks of cleaned spectra up to the precursor, equal ones of several merged."""
    mz = np.concatenate([s.mz for s in spectra])
    intensity = np.concatenate([s.intensity for s in spectra])
    tolerance_ppm = max(_SETTINGS.tolerance_ppm(s.instrument) for s in spectra)
    order = np.argsort(mz, kind="stable")
    mz, intensity = mz[order], intensity[order]
    tolerance_da = np.maximum(mz, _SETTINGS.floor_mz) * tolerance_ppm * 1e-6
    below = mz <= precursor_mz + tolerance_da
    mz, intensity, tolerance_da = mz[below], intensity[below], tolerance_da[below]
    if len(spectra) > 1 and mz.size:
        start = np.flatnonzero(np.diff(mz, prepend=-1.0) > tolerance_da)
        weight = np.add.reduceat(intensity, start)
        mz = np.add.reduceat(mz * intensity, start) / weight
        intensity, tolerance_da = np.maximum.reduceat(intensity, start), tolerance_da[start]
    strongest = np.sort(np.argsort(-intensity, kind="stable")[:most])
    mz, intensity = mz[strongest], intensity[strongest]
    return Peaks(mz, intensity / intensity.max(initial=1e-12), tolerance_da[strongest])


def explain(peaks: Peaks, formulas: NDArray[np.int16], adduct: Adduct) -> Explanations:
    """All fragments that candidates hold and whose mass is that of a peak.

    Args:
        peaks: Measured.
        formulas: Of the molecules, (K, N_ELEMENTS); each has what the adduct takes away.
        adduct: Of all of them.
    """
    # Of a multimer the fragments of one molecule: the others differ between candidates.
    carriers = [carrier for carrier in adduct.carriers if not carrier.molecules]
    ions = np.maximum(formulas.astype(np.int16) + np.array(adduct.change, dtype=np.int16), 0)
    charges = np.array([carrier.charge for carrier in carriers])
    to_atoms = charges * ELECTRON_MASS_DA - np.array([one.metal_mass_da for one in carriers])
    wanted = (np.multiply.outer(peaks.mz, np.abs(charges)) + to_atoms).ravel()
    tolerance = np.multiply.outer(peaks.tolerance_da, np.abs(charges)).ravel()
    owner, fragment, error = _fragments(wanted, tolerance, ions)
    peak, kept = np.divmod(owner, len(carriers))
    candidate, row = _held(ions, fragment)
    loss = ions[candidate] - fragment[row]
    even = (np.array([one.protons for one in carriers]) % 2 == 0)[kept[row]]
    # A loss of everything is none; a fragment beside a metal is a neutral molecule.
    possible = (fragment[row].sum(axis=1) > 0) & ~(even & (excess(fragment[row]) < -2))
    pair = np.flatnonzero(possible)
    pick = row[pair]
    return Explanations(
        candidate[pair], peak[pick], fragment[pick], loss[pair], error[pick], even[pair]
    )


def _fragments(
    wanted: NDArray[np.float64], tolerance: NDArray[np.float64], ions: NDArray[np.int16]
) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.float64]]:
    """Formulas of wanted masses within any of the ions: owner, atoms and relative error."""
    rarer, nitrogen, oxygen = _parts(ions)
    sizes = (nitrogen + 1, oxygen + 1)
    parts = np.add.outer(
        rarer @ _MASSES[RARER],
        np.add.outer(np.arange(sizes[0]) * _MASSES[1], np.arange(sizes[1]) * _MASSES[2]).ravel(),
    ).ravel()
    order = np.argsort(parts, kind="stable")
    mass = parts[order]
    carbon, hydrogen = _carbon_and_hydrogen(ions, wanted.max(initial=0.0) + 1.0, sizes[0])
    hydrocarbon = carbon * _MASSES[0] + hydrogen * _MASSES[HYDROGEN]
    rest = np.subtract.outer(wanted, hydrocarbon)
    asked = np.flatnonzero((rest > -1.0).ravel())
    rest, half = rest.ravel()[asked], np.repeat(tolerance, carbon.size)[asked]
    pair, row = index_ranges(
        np.searchsorted(mass, rest - half, "left"), np.searchsorted(mass, rest + half, "right")
    )
    error = (rest[pair] - mass[row]) / half[pair]
    owner, ch = np.divmod(asked[pair], carbon.size)
    part, n_oxygen = np.divmod(order[row], sizes[1])
    combination, n_nitrogen = np.divmod(part, sizes[0])
    atoms = np.zeros((owner.size, N_ELEMENTS), dtype=np.int16)
    atoms[:, 0], atoms[:, HYDROGEN] = carbon[ch], hydrogen[ch]
    atoms[:, 1], atoms[:, 2] = n_nitrogen, n_oxygen
    atoms[:, RARER] = rarer[combination]
    kept = np.flatnonzero(excess(atoms.astype(np.int32)) >= LEAST_EXCESS)
    return owner[kept], atoms[kept], error[kept]


def _parts(ions: NDArray[np.int16]) -> tuple[NDArray[np.int64], int, int]:
    """Every part of the candidates' rarer elements, and the largest numbers of N and O."""
    whole = np.unique(ions[:, RARER], axis=0)
    parts = {
        part
        for combination in whole.tolist()
        for part in itertools.product(*(range(n + 1) for n in combination))
    }
    return np.array(sorted(parts)), int(ions[:, 1].max()), int(ions[:, 2].max())


def _carbon_and_hydrogen(
    ions: NDArray[np.int16], heaviest_da: float, n_nitrogen: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    n_carbon, n_hydrogen = int(ions[:, 0].max()), int(ions[:, HYDROGEN].max())
    carbon, hydrogen = np.divmod(np.arange((n_carbon + 1) * (n_hydrogen + 1)), n_hydrogen + 1)
    mass = carbon * _MASSES[0] + hydrogen * _MASSES[HYDROGEN]
    # Each trivalent or tetravalent atom beside carbon leaves room for more hydrogen.
    extra = n_nitrogen + int(ions[:, [INDEX["P"], INDEX["Si"], INDEX["B"]]].sum(axis=1).max()) * 2
    kept = (mass <= heaviest_da) & (hydrogen <= 2 * carbon + 3 + extra)
    return carbon[kept], hydrogen[kept]


def _held(
    ions: NDArray[np.int16], fragments: NDArray[np.int16]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every pair of an ion (K,) and a fragment (F,) whose atoms it holds, by ion.

    Some ions at a time: a table of all may have ten million cells.
    """
    big = (ions[:, _CHNO].astype(np.int64) << _PLACES).sum(axis=1) | _SPARE
    small = (fragments[:, _CHNO].astype(np.int64) << _PLACES).sum(axis=1)
    of_ion, ion = np.unique(ions[:, RARER], axis=0, return_inverse=True)
    of_fragment, fragment = np.unique(fragments[:, RARER], axis=0, return_inverse=True)
    room = np.all(of_ion[:, None, :] >= of_fragment, axis=2)
    pairs = []
    for start in range(0, len(ions), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        held = ((big[part, None] - small) & _SPARE) == _SPARE
        held &= room[ion.ravel()[part]][:, fragment.ravel()]
        pairs.append(np.add(np.nonzero(held), [[start], [0]]))
    candidate, row = np.concatenate(pairs, axis=1)
    return candidate, row


def explanation_features(found: Explanations, peaks: Peaks, charge: int) -> NDArray[np.float32]:
    """What tells a true explanation from one by chance, shape (M, columns)."""
    fragment, loss = found.fragment.astype(np.float32), found.loss.astype(np.float32)
    rdbe, lost_rdbe = excess(fragment)[:, None] / 2 + 1, excess(loss)[:, None] / 2 + 1
    radical = np.mod(excess(found.fragment) + (~found.even), 2)[:, None]
    hetero = fragment[:, _HETERO].sum(axis=1, keepdims=True)
    lost = loss[:, _HETERO].sum(axis=1, keepdims=True)
    kinds = (fragment[:, _HETERO] > 0).sum(axis=1, keepdims=True)
    lost_kinds = (loss[:, _HETERO] > 0).sum(axis=1, keepdims=True)
    carbon, lost_carbon = fragment[:, [0]], loss[:, [0]]
    error = found.error[:, None]
    size = fragment[:, :-1].sum(axis=1, keepdims=True)
    lost_size = loss[:, :-1].sum(axis=1, keepdims=True)
    columns = [
        np.minimum(fragment, 10) / 5,
        np.minimum(loss, 10) / 5,
        np.abs(error),
        error**2,
        radical,
        np.minimum(rdbe, 0),
        np.minimum(lost_rdbe, 0) / 3,
        rdbe / 10,
        np.maximum(hetero - carbon, 0) / 3,
        np.maximum(lost - lost_carbon, 0) / 3,
        kinds / 3,
        lost_kinds / 3,
        carbon == 0,
        (lost_carbon == 0) & (lost > 0),
        loss.sum(axis=1, keepdims=True) == 0,
        size / 20,
        lost_size / 20,
        np.full((len(fragment), 1), charge < 0),
        np.log(peaks.intensity[found.peak])[:, None] / 4,
    ]
    table = np.empty((len(fragment), sum(column.shape[1] for column in columns)), np.float32)
    return np.concatenate(columns, axis=1, out=table, casting="same_kind")


def loss_codes(found: Explanations) -> NDArray[np.int64]:
    """Codes of the losses, shape (M,)."""
    return codes(found.loss)


def fragment_codes(found: Explanations) -> NDArray[np.int64]:
    """Codes of the fragments, shape (M,)."""
    return codes(found.fragment)


def keep_best(found: Explanations, score: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Rows of the best explanation of each peak by each candidate, in order."""
    group = found.candidate * np.int64(1 << 20) + found.peak
    order = np.lexsort((-score, group))
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    return order[first]
