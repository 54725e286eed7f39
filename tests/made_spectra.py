"""MGF text for tests, made from chemistry: m/z are masses of formulas, nothing was measured."""

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA
from duallgd_cli.chem.formula import Formula

ASPIRIN = ("C9H8O4", "C9H7O3 C7H5O2 C6H5O C7H7O3")
CAFFEINE = ("C8H10N4O2", "C6H8N3O C5H8N3 C4H7N2 C3H6N C2H4N")
ALANINE = ("C3H7NO2", "C2H6N C2H4N")
NICOTINE = ("C10H14N2", "C9H10N C8H8N C8H10N C5H8N C6H6N")


def block(molecule, adduct="[M+H]+", scale=1.0, **fields):
    """One MGF block; `fields` replace or add header lines, None leaves one out.

    `scale` changes the intensities, so that two spectra of a molecule differ in content.
    """
    formula, fragments = molecule
    ion = precursor_mz(Formula.parse(formula), parse_adduct(adduct))
    head = {"PEPMASS": f"{ion:.5f}", "ADDUCT": adduct, "FORMULA": formula, "MSLEVEL": "2"}
    head |= {name.upper(): value for name, value in fields.items()}
    peaks = [
        (Formula.parse(fragment).atoms_mass - ELECTRON_MASS_DA, 100.0 * scale / (1 + place * scale))
        for place, fragment in enumerate(fragments.split())
    ]
    lines = [f"{name}={value}" for name, value in head.items() if value is not None]
    lines += [f"{mz:.5f} {intensity:.3f}" for mz, intensity in sorted(peaks)]
    return "\n".join(["BEGIN IONS", *lines, "END IONS", ""])


def mgf(path, *blocks):
    """Write blocks to a file and return its name."""
    path.write_text("\n".join(blocks), encoding="utf-8")
    return str(path)
