"""How good the ranking of formulas is: the tables of docs/formulas.md.

    python recipes/formula_accuracy.py evaluate DATA RUNS     # prints the tables
    python recipes/formula_accuracy.py isotopes DATA RUNS     # the same with drawn patterns
    python recipes/formula_accuracy.py unlabelled DATA RUNS   # spectra for duallgd predict
    python recipes/formula_accuracy.py structures DATA RUNS   # what it made of them

DATA holds massbank/massbank.tsv.xz, of which fold val is read, and extra/extra.tsv.xz. RUNS/given
is an output of duallgd evaluate on fold val, formulas given; the last two need it.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from formula_spectra import Row, chosen, measured, measured_rows, row_of, rows
from formulas import all_of, example, run_stage
from numpy.typing import NDArray

from duallgd_cli.chem.elements import INDEX
from duallgd_cli.evaluate.intervals import wilson
from duallgd_cli.formulas import FormulaSettings, composition, scoring
from duallgd_cli.formulas.peaks import isotope_ratios
from duallgd_cli.formulas.scoring import PRECURSOR_SD_PPM
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.types import ISOTOPES, IsotopePattern, Spectrum
from duallgd_cli.tables import table_rows


class Judged(NamedTuple):
    """A ranked spectrum of known formula."""

    row: Row
    is_known: bool  # its formula is that of a known structure
    rank: int  # of the truth, from 0; huge where it is not a candidate
    stated: float  # probability of the first candidate
    seconds: float


def evaluate(data: Path, _: Path) -> None:
    """Print the accuracy on one spectrum of at least three peaks of each molecule of fold val."""
    spectra = rows(data, "val")
    picked = [row for m in sorted(spectra) for row in chosen(spectra[m], 1, 3)]
    drawn, as_measured = (
        [measured(row, rng, sd) for row in picked]
        for sd, rng in ((sd, np.random.default_rng(3)) for sd in (PRECURSOR_SD_PPM, MEASURED_SD))
    )
    for name, ppm, is_adduct_known, taken in (
        ("5 ppm", 5.0, True, drawn),
        ("10 ppm", 10.0, True, drawn),
        ("5 ppm for Orbitraps, 10 ppm for QTOF", None, True, drawn),
        ("5 ppm for Orbitraps, 10 ppm for QTOF, adduct unknown", None, False, drawn),
        ("5 ppm, errors of QTOF instruments as measured", 5.0, True, as_measured),
        ("10 ppm, errors of QTOF instruments as measured", 10.0, True, as_measured),
    ):
        settings, both = FormulaSettings(precursor_ppm=ppm), zip(picked, taken, strict=True)
        print_track(name, [judged(r, s, is_adduct_known, settings) for r, s in both if s])
    print_measured(data)


# Of a QTOF the robust standard deviation that `print_measured` finds; of Orbitraps as drawn.
MEASURED_SD: Final = {**PRECURSOR_SD_PPM, "qtof": 1.9}


def evaluate_isotopes(data: Path, _: Path) -> None:
    """Print the accuracy with MS1 patterns of a stated noise beside that without."""
    spectra, settings = rows(data, "val"), FormulaSettings()
    for name, relative, disturbed in _NOISE:
        rng, of_pattern = np.random.default_rng(3), np.random.default_rng(4)
        found = []
        for molecule in sorted(spectra):
            for row in chosen(spectra[molecule], 1, 3):
                spectrum = measured(row, rng)
                if spectrum is not None and relative is not None:
                    pattern = drawn_pattern(row, relative, disturbed, of_pattern)
                    spectrum = replace(spectrum, isotopes=pattern)
                if spectrum is not None:
                    found.append(judged(row, spectrum, True, settings))
        print_track(name, found)


# Standard deviation relative to each ratio, and how many patterns hold another ion.
_NOISE: Final = (
    ("no MS1", None, 0.0),
    ("errors of 10 %", 0.1, 0.0),
    ("errors of 20 %, another ion in one of five", 0.2, 0.2),
    ("errors of 5 %", 0.05, 0.0),
)


def drawn_pattern(
    row: Row, relative: float, disturbed: float, rng: np.random.Generator
) -> IsotopePattern:
    """A pattern with errors: relative ones, and 1 % of the monoisotopic ion for every isotope.

    What falls below 1 % is not seen. Another ion adds 5 to 50 % to one of M+1 and M+2.
    """
    ratios = isotope_ratios(row.formula[None], row.adduct)[0]
    ratios = ratios * rng.normal(1, relative, ratios.size) + rng.normal(0, 0.01, ratios.size)
    place, height = rng.integers(ISOTOPES.index(1), ISOTOPES.index(2) + 1), rng.uniform(0.05, 0.5)
    if rng.random() < disturbed:
        ratios[place] += height
    return IsotopePattern((1.0, *np.where(ratios < 0.01, 0.0, ratios)), 0.01)


def write_unlabelled(_: Path, runs: Path, most: int = 130) -> None:
    """Write RUNS/val.tsv: some spectra of RUNS/given with drawn errors and without formulas."""
    labels, spectra = _records(runs / "given/truth.tsv"), _records(runs / "given/spectra.tsv")
    picked = set(random.Random(31).sample(sorted(spectra), most))
    rng = np.random.default_rng(31)
    columns = [name for name in next(iter(spectra.values())) if name != "formula"]
    lines = ["\t".join(columns)]
    for name, record in spectra.items():
        drawn = measured(row_of(labels[name] | record), rng)
        if name in picked and drawn is not None:
            changed = record | {
                "mzs": ",".join(f"{mz:.5f}" for mz in drawn.mz),
                "intensities": ",".join(f"{height:.5g}" for height in drawn.intensity),
                "precursor_mz": f"{drawn.precursor_mz:.5f}",
            }
            lines.append("\t".join(changed[column] for column in columns))
    (runs / "val.tsv").write_text("\n".join(lines) + "\n")


def _records(path: Path) -> dict[str, dict[str, str]]:
    """Rows of a table by their identifier."""
    return {row["identifier"]: row for row in table_rows(path)}


def print_structures(_: Path, runs: Path) -> None:
    """Print how good the structures of RUNS/given.csv and RUNS/predicted*.csv are.

    Only molecules count that all of these hold.
    """
    labels = _records(runs / "given/truth.tsv")
    tables = {path.stem: _candidates(path) for path in sorted(runs.glob("predicted*.csv"))}
    for predicted in tables.values():  # the same molecules with their formulas
        given = _candidates(runs / "given.csv")
        common = sorted(predicted.keys() & given.keys())
        tables_of = {"given": given} | {n: t for n, t in tables.items() if t is predicted}
        for name, found in tables_of.items():
            keys = [labels[one]["inchikey"][:14] for one in common]
            ranks = [
                next((i for i, row in enumerate(found[one]) if row["inchikey14"] == key), 10**6)
                for one, key in zip(common, keys, strict=True)
            ]
            formulas = [found[one][0]["formula"] == labels[one]["formula"] for one in common]
            _print_quality(name, np.array(ranks), [found[one] for one in common], formulas)


def _candidates(path: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of a table of structures by spectrum, best first."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in table_rows(path):
        found.setdefault(row["spectrum_id"], []).append(row)
    return found


def _print_quality(
    name: str,
    rank: NDArray[np.int64],
    found: Sequence[Sequence[dict[str, str]]],
    formulas: Sequence[bool],
) -> None:
    n = [int((rank < most).sum()) for most in (1, 10, 10**5)]
    print(f"\n### {name}: {rank.size} molecules, formula of the first right {sum(formulas)}\n")
    print(f"top-1 / 10 / any: {n[0]} / {n[1]} / {n[2]}")
    stated = np.array([[float(row[0][k] or 0) for k in _STATED] for row in found])
    for column, right, label in zip(stated.T, (rank < 1, rank < 10), _STATED, strict=True):
        print(f"\n| {label} | molecules | mean stated | right |\n|---|---|---|---|")
        for low, high in pairwise([0, 0.02, 0.1, 0.3, 0.6, 1.01]):
            part = (column >= low) & (column < high)
            if part.any():
                print(f"| {low:g} to {min(high, 1):g} | {part.sum()} |", end=" ")
                print(f"{column[part].mean():.3f} | {right[part].mean():.3f} |")
        brier, constant = ((column - right) ** 2).mean(), right.mean() * (1 - right.mean())
        print(f"\nMean stated {column.mean():.3f}, right {right.mean():.3f}, Brier score", end=" ")
        print(f"{brier:.4f}; of a constant {constant:.4f}.")


_STATED: Final = ("confidence", "confidence_top10")


def print_measured(data: Path) -> None:
    """Print mass errors and accuracy on spectra whose precursor m/z was measured."""
    found, errors = [], []
    for row, mz in measured_rows(data):
        spectrum = clean(replace(row.spectrum, precursor_mz=mz), CleaningSettings())
        if spectrum.failure is not None:
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
    table, fitted = composition.known_formulas(), scoring.formula_model()
    adducts = [row.adduct] if is_adduct_known else all_of(row.adduct)
    is_known = bool(table.counts(row.formula[None]).sum())
    found = example(row, spectrum, adducts, table, fitted, settings)
    if found is None:
        return Judged(row, is_known, 10**6, 0.0, 0.0)
    score, instrument = fitted.scorer(found.features), spectrum.instrument
    covered = scoring.coverage(settings.tolerance_ppm(instrument), instrument)
    log_probability = scoring.log_probabilities(score, fitted, covered, found.isotopes)
    is_better = log_probability > log_probability[found.truth]
    rank = int(is_better.sum()) if found.truth >= 0 else 10**6
    return Judged(row, is_known, rank, float(np.exp(log_probability.max())), found.seconds)


_CL_BR: Final = [INDEX["Cl"], INDEX["Br"]]
PARTS: Final[dict[str, Callable[[Judged], bool]]] = {
    "all": lambda _: True,
    "formula of a known structure": lambda j: j.is_known,
    "formula of no known structure": lambda j: not j.is_known,
    "Orbitrap": lambda j: j.row.spectrum.instrument == "orbitrap",
    "QTOF": lambda j: j.row.spectrum.instrument == "qtof",
    "positive": lambda j: j.row.adduct.polarity > 0,
    "negative": lambda j: j.row.adduct.polarity < 0,
    "[M+H]+ and [M-H]-": lambda j: j.row.adduct.name in ("[M+H]+", "[M-H]-"),
    "Cl or Br": lambda j: j.row.formula[_CL_BR].any(),
    "S, neither Cl nor Br": lambda j: j.row.formula[INDEX["S"]] and not j.row.formula[_CL_BR].any(),
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


STAGES: Final = {
    "evaluate": evaluate,
    "isotopes": evaluate_isotopes,
    "unlabelled": write_unlabelled,
    "structures": print_structures,
}

if __name__ == "__main__":
    run_stage("Judge the ranking of formulas.", STAGES)
