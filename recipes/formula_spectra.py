"""Labelled spectra and structures from which the ranking of formulas is fitted and judged.

Library spectra have theoretical precursors, so errors are drawn: normal, 1.5 ppm for Orbitrap and
3 ppm for QTOF instruments, half of the variance shared by all peaks of a spectrum.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from duallgd_cli.chem.elements import MASSES_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.formulas import scoring
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.types import Source, Spectrum
from duallgd_cli.tables import table_rows

SHARED: Final = 0.5  # of the variance of the mass error that all peaks of a spectrum have
_MASSES: Final = np.array(MASSES_DA)
_GROUPS: Final = {"unpd": 0, "massspecgym": 1}


class Row(NamedTuple):
    """A library spectrum with its molecule."""

    spectrum: Spectrum
    formula: NDArray[np.int16]
    adduct: Adduct
    molecule: str
    smiles: str


def rows(data: Path, fold: str) -> dict[str, list[Row]]:
    """Spectra of a fold by molecule."""
    found: dict[str, list[Row]] = defaultdict(list)
    for record in table_rows(data / "massbank/massbank.tsv.xz"):
        if record["fold"] == fold:
            found[record["inchikey"]].append(row_of(record))
    return found


def row_of(record: dict[str, str]) -> Row:
    """A library spectrum from a row of its table."""
    adduct, formula = parse_adduct(record["adduct"]), Formula.parse(record["formula"]).array
    assert isinstance(adduct, Adduct)
    mz, intensity = (np.array(record[k].split(","), dtype=float) for k in ("mzs", "intensities"))
    spectrum = Spectrum(
        Source("massbank", 0),
        record["identifier"],
        mz,
        intensity,
        float(formula @ _MASSES + adduct.mass_shift),
        polarity=adduct.polarity,
        instrument={"Orbitrap": "orbitrap", "QTOF": "qtof"}[record["instrument_type"]],
    )
    return Row(spectrum, formula, adduct, record["inchikey"], record["smiles"])


def structures(data: Path) -> Iterator[tuple[str, int]]:
    """SMILES and group of each known structure."""
    for record in table_rows(data / "structures/structures.tsv.xz"):
        yield record["smiles"], _GROUPS.get(record["source"], 2)


def measured(
    row: Row, rng: np.random.Generator, sd_ppm: Mapping[str, float] = scoring.PRECURSOR_SD_PPM
) -> Spectrum | None:
    """The spectrum as an instrument with mass errors gives it, cleaned."""
    sd = sd_ppm[row.spectrum.instrument] * 1e-6
    shared = rng.normal(0, sd * np.sqrt(SHARED))
    own = rng.normal(0, sd * np.sqrt(1 - SHARED))
    theoretical = row.spectrum.precursor_mz or 0.0
    noisy = replace(
        row.spectrum,
        mz=row.spectrum.mz * (1 + shared),
        precursor_mz=theoretical * (1 + shared + own),
    )
    cleaned = clean(noisy, CleaningSettings())
    return cleaned if cleaned.failure is None else None


def chosen(spectra: Sequence[Row], most: int, least_peaks: int = 1) -> list[Row]:
    """Some spectra of a molecule, of different instruments or adducts."""
    shuffled = list(spectra)
    random.Random(spectra[0].molecule).shuffle(shuffled)
    distinct = {
        (row.spectrum.instrument, row.adduct.name): row
        for row in reversed(shuffled)
        if row.spectrum.mz.size >= least_peaks
    }
    return list(reversed(distinct.values()))[:most]


def measured_rows(data: Path) -> Iterator[tuple[Row, float]]:
    """One spectrum of each molecule and adduct of the CBIO standards, with its measured m/z."""
    seen = set()
    for record in table_rows(data / "extra/extra.tsv.xz"):
        key = record["inchikey"], record["adduct"]
        if "inhouse-mass-spectral-library" in record["source"] and key not in seen:
            seen.add(key)
            yield row_of(record), float(record["precursor_mz"])
