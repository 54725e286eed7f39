"""Spectra made from chemistry, to measure speed with: formulas of one size, fragments at their m/z.

Nothing was measured and no structure stands behind them; only sizes and numbers of peaks are those
of real spectra.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from duallgd_cli.chem.adduct import BY_NAME, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, INDEX, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature, Hypothesis, Source, Spectrum

_ADDUCT: Final = BY_NAME["[M+H]+"]
_PEAKS: Final = 30
_MAX_NITROGENS: Final = 5


def formulas(n_atoms: int, count: int) -> list[Formula]:
    """Formulas of C, H, N and O with so many heavy atoms, as different as that allows."""
    found = []
    for number in range(count):
        nitrogens = number % min(_MAX_NITROGENS, max(1, n_atoms - 1))
        oxygens = (n_atoms // 6 + number // _MAX_NITROGENS) % max(1, n_atoms - nitrogens)
        counts = [0] * N_ELEMENTS
        counts[INDEX["C"]] = n_atoms - nitrogens - oxygens
        counts[INDEX["N"]], counts[INDEX["O"]] = nitrogens, oxygens
        counts[HYDROGEN] = n_atoms + (n_atoms + nitrogens) % 2  # even-electron
        found.append(Formula(tuple(counts)))
    return found


def mgf(made: Sequence[Formula], seed: int) -> str:
    """Spectra of these formulas as the text of an MGF file."""
    blocks = []
    for number, formula in enumerate(made):
        mz, intensity = _peaks(formula, seed + number)
        lines = ["BEGIN IONS", f"TITLE=made {number}", f"PEPMASS={_precursor(formula):.5f}"]
        lines += [f"ADDUCT={_ADDUCT.name}", f"FORMULA={formula}", "MSLEVEL=2"]
        lines += [f"{m:.5f} {i:.3f}" for m, i in zip(mz, intensity, strict=True)]
        blocks.append("\n".join([*lines, "END IONS", ""]))
    return "\n".join(blocks)


def annotated(made: Sequence[Formula], seed: int) -> list[AnnotatedSpectrum]:
    """The same spectra with their peaks explained, as the network reads them."""
    found = []
    for number, formula in enumerate(made):
        mz, intensity = _peaks(formula, seed + number)
        source = Source("made.mgf", number)
        spectrum = Spectrum(source, f"made {number}", mz, intensity, _precursor(formula))
        hypothesis = Hypothesis(Feature((spectrum,)), formula, _ADDUCT)
        found.append(annotate(hypothesis, AnnotationSettings()))
    return found


def _precursor(formula: Formula) -> float:
    return precursor_mz(formula, _ADDUCT)


def _peaks(formula: Formula, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """m/z (P,) ascending and intensity (P,) of random parts of the ion."""
    rng = np.random.default_rng(seed)
    parts = {tuple(np.floor(formula.array * share)) for share in rng.random((_PEAKS, N_ELEMENTS))}
    masses = [Formula(tuple(int(n) for n in part)).atoms_mass for part in parts if sum(part[:-1])]
    mz = np.sort(np.array(masses)) - ELECTRON_MASS_DA
    return mz, rng.random(len(mz)) + 0.01
