"""MGF text and explained spectra for tests: m/z are masses of formulas, nothing was measured."""

from collections import Counter

import numpy as np
from pyteomics import mass

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, N_ELEMENTS, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature, Hypothesis, Source, Spectrum

ASPIRIN = ("C9H8O4", "C9H7O3 C7H5O2 C6H5O C7H7O3")
CAFFEINE = ("C8H10N4O2", "C6H8N3O C5H8N3 C4H7N2 C3H6N C2H4N")
ALANINE = ("C3H7NO2", "C2H6N C2H4N")
# Without isotopes the likeliest formula of each is another one.
CHLORINATED = ("C16H20ClN5O3", "C7H7O C6H5")
BROMINATED = ("C11H14BrN3O2", "C4H8N")
NICOTINE = ("C10H14N2", "C9H10N C8H8N C8H10N C5H8N C6H6N")


def made_spectrum(mz=(50.0,), intensity=None, index=0, file="made.mgf", **fields):
    """A spectrum of these peaks, all of intensity 1 if nothing else is said."""
    mz = np.asarray(mz, dtype=float)
    intensity = np.ones(mz.size) if intensity is None else np.asarray(intensity, dtype=float)
    fields = {"spectrum_id": f"made:{index}"} | fields
    return Spectrum(Source(file, index), mz=mz, intensity=intensity, **fields)


def ion_mz(atoms, charge=1, metal_da=0.0, ppm=0.0):
    """m/z, times its charges, of an ion of these atoms and metals, off by some ppm."""
    exact = Formula.parse(atoms).atoms_mass + metal_da - charge * ELECTRON_MASS_DA
    return exact * (1 + ppm * 1e-6)


def parsed(folder, content, name="a.txt", **options):
    """What is read of a file with this content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read(str(path), **options))


def fields_of(spectrum, names):
    """Fields of a spectrum, or of its record, by their names."""
    failure = spectrum.failure or Failure("", "")
    more = {"peaks": spectrum.mz.size, "status": failure.status, "failed": failure.message}
    values = {name: spectrum.metadata.get(name, "") for name in names}
    return {name: more.get(name, getattr(spectrum, name, values[name])) for name in names}


def block(molecule, adduct="[M+H]+", scale=1.0, **fields):
    """One MGF block; `fields` replace or add header lines, None leaves one out.

    `scale` changes the intensities, so that two spectra of a molecule differ in content.
    """
    formula, fragments = molecule
    ion = precursor_mz(Formula.parse(formula), parse_adduct(adduct))
    head = {"PEPMASS": f"{ion:.5f}", "ADDUCT": adduct, "FORMULA": formula, "MSLEVEL": "2"}
    peaks = sorted(
        (ion_mz(fragment), 100.0 * scale / (1 + place * scale))
        for place, fragment in enumerate(fragments.split())
    )
    return _block(head, fields, "\n".join(f"{mz:.5f} {height:.3f}" for mz, height in peaks))


def _block(head, fields, peaks):
    head |= {name.upper(): value for name, value in fields.items()}
    lines = [f"{name}={value}" for name, value in head.items() if value is not None]
    return "\n".join(["BEGIN IONS", *lines, peaks, "END IONS", ""])


def mgf(path, *blocks):
    """Write blocks to a file and return its name."""
    path.write_text("\n".join(blocks), encoding="utf-8")
    return str(path)


def ms1_peaks(formula, adduct="[M+H]+", scale=1e6, least=1e-4):
    """m/z and intensity of the isotopologues of an ion, by pyteomics; within 3 mDa merged."""
    ion = parse_adduct(adduct)
    atoms = Counter({symbol: n * ion.molecules for symbol, n in mass.Composition(formula).items()})
    atoms.update(dict(zip(SYMBOLS, ion.change, strict=True)))
    atoms.update(ion.metals)
    shares = mass.isotopologues(
        mass.Composition({symbol: n for symbol, n in atoms.items() if n}),
        overall_threshold=least,
        report_abundance=True,
    )
    lost_da = ion.charge * ELECTRON_MASS_DA
    each = sorted(
        ((mass.calculate_mass(composition=atoms) - lost_da) / abs(ion.charge), share * scale)
        for atoms, share in shares
    )
    mz, height = np.array(each).T
    starts = np.flatnonzero(np.diff(mz, prepend=0) >= 0.003)
    merged = np.add.reduceat(height, starts)
    return [*zip(np.add.reduceat(mz * height, starts) / merged, merged, strict=True)]


def ms1_lines(molecule, adduct="[M+H]+"):
    """The peaks of an ion and its isotopes, a line each."""
    return "\n".join(f"{mz:.5f} {height:.1f}" for mz, height in ms1_peaks(molecule[0], adduct))


def ms1_block(molecule, adduct="[M+H]+", **fields):
    """The MGF block of an ion and its isotopes, as mzmine exports them for SIRIUS."""
    ion = precursor_mz(Formula.parse(molecule[0]), parse_adduct(adduct))
    head = {"PEPMASS": f"{ion:.5f}", "SPECTYPE": "CORRELATED MS", "MSLEVEL": "1"}
    return _block(head, fields, ms1_lines(molecule, adduct))


def annotated(subformula, formula, adduct="[M+H]+", instrument="", **columns):
    """A spectrum that is explained by these sub-formulas, (K, N_ELEMENTS).

    `columns` are values of the rows; those that are not given say nothing.
    """
    k = len(subformula)
    ones = {name: np.ones(k) for name in ("intensity", "mz", "share")}
    ones |= {"ppm": np.zeros(k), "energy_ev": np.full(k, np.nan), "carrier": np.zeros(k)}
    values = {name: np.asarray(column, np.float32) for name, column in (ones | columns).items()}
    peaks = (values[name].astype(float) for name in ("mz", "intensity"))
    measured = made_spectrum(*peaks, instrument=instrument)
    return AnnotatedSpectrum(
        hypothesis=Hypothesis(Feature((measured,)), Formula.parse(formula), parse_adduct(adduct)),
        subformula=np.asarray(subformula, np.int16).reshape(k, N_ELEMENTS),
        n_peaks=k,
        n_explained=k,
        explained_intensity=1.0,
        **values | {"carrier": values["carrier"].astype(np.int8)},
    )
