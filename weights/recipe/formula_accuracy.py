"""How good the ranking of formulas is: the tables of docs/formulas.md.

    python weights/recipe/formula_accuracy.py evaluate DATA RUNS     # prints the tables
    python weights/recipe/formula_accuracy.py unlabelled DATA RUNS   # spectra for duallgd predict

DATA holds massbank/massbank.tsv.xz, of which fold val is read, and extra/extra.tsv.xz.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from formula_spectra import Row, chosen, measured, measured_rows, rows
from formulas import all_of, example, run_stage

from duallgd_cli.chem.adduct import PERMANENT_CATION
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure
from duallgd_cli.evaluate.intervals import wilson
from duallgd_cli.formulas import known, model, scoring
from duallgd_cli.formulas.ranking import FormulaSettings
from duallgd_cli.spectra.features import CleaningSettings, clean
from duallgd_cli.spectra.types import Spectrum


class Judged(NamedTuple):
    """A ranked spectrum of known formula."""

    row: Row
    is_known: bool  # its formula is that of a known structure
    rank: int  # of the truth, from 0; huge where it is not a candidate
    stated: float  # probability of the first candidate
    seconds: float


def evaluate(data: Path, _: Path) -> None:
    """Print the accuracy on one spectrum of at least three peaks of each molecule of fold val."""
    spectra, rng = rows(data, "val"), np.random.default_rng(3)
    picked = [(r, measured(r, rng)) for m in sorted(spectra) for r in chosen(spectra[m], 1, 3)]
    for name, ppm, is_adduct_known in (
        ("5 ppm", 5.0, True),
        ("10 ppm", 10.0, True),
        ("5 ppm for Orbitraps, 10 ppm for QTOF", None, True),
        ("5 ppm for Orbitraps, 10 ppm for QTOF, adduct unknown", None, False),
    ):
        settings = FormulaSettings(precursor_ppm=ppm)
        print_track(name, [judged(r, s, is_adduct_known, settings) for r, s in picked if s])
    print_measured(data)


def write_unlabelled(data: Path, runs: Path, most: int = 60, largest: int = 30) -> None:
    """Write spectra of fold val with drawn errors and without formulas, for `duallgd predict`.

    RUNS/val.mgf holds one spectrum of each of some molecules with few heavy atoms, formulas.csv
    their formulas as ``--formulas`` takes them, truth.tsv their keys.
    """
    spectra, rng = rows(data, "val"), np.random.default_rng(3)
    drawn = [(r, measured(r, rng)) for m in sorted(spectra) for r in chosen(spectra[m], 1, 3)]
    random.Random(5).shuffle(drawn)
    small = [(r, s) for r, s in drawn if s is not None and r.formula[:-1].sum() <= largest][:most]
    blocks, formulas, truth = [], ["id,formula"], ["id\tinchikey"]
    for number, (row, spectrum) in enumerate(small):
        head = f"TITLE=v{number}\nPEPMASS={spectrum.precursor_mz:.6f}\nADDUCT={row.adduct.name}"
        head += f"\nSOURCE_INSTRUMENT={spectrum.instrument}"
        peaks = zip(spectrum.mz, spectrum.intensity, strict=True)
        body = "\n".join(f"{mz:.6f} {intensity:.6f}" for mz, intensity in peaks)
        blocks.append(f"BEGIN IONS\n{head}\n{body}\nEND IONS\n")
        charge = int(row.adduct is PERMANENT_CATION)
        formulas.append(f"v{number},{Formula(tuple(map(int, row.formula)), charge)}")
        truth.append(f"v{number}\t{row.molecule}")
    for name, lines in (("val.mgf", blocks), ("formulas.csv", formulas), ("truth.tsv", truth)):
        (runs / name).write_text("\n".join(lines) + "\n")


def print_measured(data: Path) -> None:
    """Print mass errors and accuracy on spectra whose precursor m/z was measured."""
    found, errors = [], []
    for row, mz in measured_rows(data):
        spectrum = clean(replace(row.spectrum, precursor_mz=mz), CleaningSettings())
        if isinstance(spectrum, Failure):
            continue
        errors.append((mz / _mz_of(row) - 1) * 1e6)
        found.append(judged(row, spectrum, True, FormulaSettings()))
    error = np.array(errors)
    spread = 1.4826 * np.median(np.abs(error - np.median(error)))
    print(f"\n### measured precursors: {error.size} spectra of maXis QTOF, 10 ppm\n")
    print(
        f"Error: median {np.median(error):.2f} ppm, median absolute {np.median(np.abs(error)):.2f},"
    )
    print(f"robust SD {spread:.2f}; above 5 ppm {(np.abs(error) > 5).mean():.3f},")
    print(f"above 10 ppm {(np.abs(error) > 10).mean():.3f}.")
    for label, part in (
        ("all", found),
        ("formula of a known structure", [one for one in found if one.is_known]),
    ):
        rank = np.array([one.rank for one in part])
        shares = ", ".join(f"{100 * (rank < k).mean():.1f}" for k in (1, 5, 10))
        print(f"{label}: {rank.size} spectra, top-1 / 5 / 10: {shares}")


def judged(
    row: Row, spectrum: Spectrum, is_adduct_known: bool, settings: FormulaSettings
) -> Judged:
    """Rank the formulas of a spectrum and look for the right one."""
    table, fitted = known.known_formulas(), model.formula_model()
    adducts = [row.adduct] if is_adduct_known else all_of(row.adduct)
    is_known = bool(table.counts(row.formula[None]).sum())
    found = example(row, spectrum, adducts, table, fitted, settings)
    if found is None:
        return Judged(row, is_known, 10**6, 0.0, 0.0)
    score = fitted.scorer(found.features)
    rank = int((score > score[found.truth]).sum()) if found.truth >= 0 else 10**6
    instrument = spectrum.instrument
    covered = scoring.coverage(settings.tolerance_ppm(instrument), instrument)
    stated = float(np.exp(scoring.log_probabilities(score, fitted, covered).max()))
    return Judged(row, is_known, rank, stated, found.seconds)


PARTS: Final[dict[str, Callable[[Judged], bool]]] = {
    "all": lambda _: True,
    "formula of a known structure": lambda j: j.is_known,
    "formula of no known structure": lambda j: not j.is_known,
    "Orbitrap": lambda j: j.row.spectrum.instrument == "orbitrap",
    "QTOF": lambda j: j.row.spectrum.instrument == "qtof",
    "positive": lambda j: j.row.adduct.polarity > 0,
    "negative": lambda j: j.row.adduct.polarity < 0,
    "[M+H]+ and [M-H]-": lambda j: j.row.adduct.name in ("[M+H]+", "[M-H]-"),
    "other adducts": lambda j: j.row.adduct.name not in ("[M+H]+", "[M-H]-"),
    "m/z below 300": lambda j: _mz_of(j.row) < 300,
    "m/z 300 to 500": lambda j: 300 <= _mz_of(j.row) < 500,
    "m/z from 500": lambda j: _mz_of(j.row) >= 500,
}


def _mz_of(row: Row) -> float:
    return row.spectrum.precursor_mz or 0.0


def print_track(name: str, found: Sequence[Judged]) -> None:
    """Accuracy by part, calibration and time."""
    print(f"\n### {name}\n\n| | molecules | top-1 (95 %) | top-5 | top-10 |\n|---|---|---|---|---|")
    for label, belongs in PARTS.items():
        rank = np.array([one.rank for one in found if belongs(one)])
        top1, top5, top10 = (100 * (rank < k).mean() for k in (1, 5, 10))
        low, high = (100 * end for end in wilson((rank < 1).mean(), rank.size))
        cells = (label, rank.size, f"{top1:.1f} ({low:.0f} to {high:.0f})", f"{top5:.1f}")
        print(f"| {' | '.join(map(str, cells))} | {top10:.1f} |")
    stated = np.array([one.stated for one in found])
    right = np.array([one.rank < 1 for one in found])
    print("\n| stated probability | molecules | mean stated | right |\n|---|---|---|---|")
    for low, high in pairwise([0, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0]):
        part = (stated >= low) & (stated < high)
        if part.any():
            print(f"| {low:g} to {high:g} | {part.sum()} |", end=" ")
            print(f"{stated[part].mean():.3f} | {right[part].mean():.3f} |")
    brier, constant = ((stated - right) ** 2).mean(), right.mean() * (1 - right.mean())
    print(f"\nBrier score {brier:.4f}; of a constant probability {constant:.4f}.")
    seconds = np.array([one.seconds for one in found])
    print(f"Seconds: mean {seconds.mean():.3f}, 95th percentile {np.quantile(seconds, 0.95):.3f}.")


STAGES: Final = {"evaluate": evaluate, "unlabelled": write_unlabelled}

if __name__ == "__main__":
    run_stage("Judge the ranking of formulas.", STAGES)
