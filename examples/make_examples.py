"""Make the example spectra from chemistry: fragment formulas written by hand, m/z from masses.

Nothing here was measured. The fragments are the well-known ones of each molecule, the intensities
are plausible, and a seeded error of about 2 ppm stands in for an instrument. Run

    python examples/make_examples.py

to write ``spectra.mgf``, ``spectra.mzML``, ``formulas.csv`` and ``structures.csv`` beside this
file, and the spectra of ``duallgd selftest`` into the package. The output is the same on every
machine.
"""

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import ELECTRON_MASS_DA, METALS
from duallgd_cli.chem.formula import Formula

HERE = Path(__file__).resolve().parent
SELFTEST = HERE.parent / "duallgd_cli" / "predict" / "selftest.mgf"
PPM_ERROR = 2.0
CHEMICAL_NOISE = 3


@dataclass(frozen=True)
class Made:
    """One spectrum to make.

    Attributes:
        molecule: Its everyday name, for this file alone.
        formula: Of the molecule, as a user would give it; of the cation for [M]+.
        adduct: How it was ionised.
        energy_ev: Collision energy, eV.
        peaks: Fragment ion and intensity relative to the base peak, in percent, by turns; the
            precursor ion comes first.
    """

    molecule: str
    formula: str
    adduct: str
    energy_ev: int
    peaks: str

    @property
    def precursor(self) -> str:
        """Formula of the precursor ion, ``+Na`` at the end for a sodium adduct."""
        return self.peaks.split()[0]


# Fields of a spectrum in the order of `Made`.
TABLE = """
caffeine | C8H10N4O2 | [M+H]+ | 20 | C8H11N4O2+ 100 C6H8N3O+ 62 C5H8N3+ 9 C4H7N2+ 2 C3H5N2+ 2
caffeine | C8H10N4O2 | [M+H]+ | 45 | C8H11N4O2+ 11 C6H8N3O+ 100 C5H8N3+ 48 C4H7N2+ 22 C3H5N2+ 18
    C3H6N+ 12 C2H4N+ 27
tryptophan | C11H12N2O2 | [M+H]+ | 20 | C11H13N2O2+ 14 C11H10NO2+ 100 C9H8NO+ 71 C11H8NO+ 9
    C10H11N2+ 13 C9H10N+ 24 C10H10N+ 19 C9H8N+ 15 C8H8N+ 33 C9H7+ 12 C7H7+ 3
quercetin | C15H10O7 | [M-H]- | 35 | C15H9O7- 72 C14H9O6- 11 C14H9O5- 4 C13H9O5- 8 C8H3O5- 43
    C7H3O4- 100 C7H5O2- 27 C6H3O2- 24 C7HO3- 3 C4HO- 5
ibuprofen | C13H18O2 | [M-H]- | 15 | C13H17O2- 36 C12H17- 100 C12H15- 3
atropine | C17H23NO3 | [M+H]+ | 35 | C17H24NO3+ 38 C17H22NO2+ 2 C16H22NO2+ 6 C8H14N+ 100 C7H9+ 33
    C5H7+ 11 C6H9+ 4 C8H7+ 5 C6H7+ 3 C8H9O+ 2
paracetamol | C8H9NO2 | [M+H]+ | 25 | C8H10NO2+ 44 C6H8NO+ 100 C6H5O+ 9 C5H5+ 17 C8H8NO+ 3 C5H8N+ 2
    C2H3O+ 7
sulfamethoxazole | C10H11N3O3S | [M+H]+ | 30 | C10H12N3O3S+ 21 C6H6NO2S+ 100 C6H6NO+ 72 C6H6N+ 69
    C4H7N2O+ 28 C5H5+ 24 C10H10N3O+ 11
citric acid | C6H8O7 | [M-H]- | 15 | C6H7O7- 18 C6H5O6- 6 C5H5O4- 9 C5H3O3- 100 C3H3O3- 52
    C4H5O2- 39 C4H3O- 5
acetylcholine | C7H16NO2+ | [M]+ | 15 | C7H16NO2+ 32 C4H7O2+ 100 C3H10N+ 24 C2H3O+ 20
sucrose | C12H22O11 | [M+Na]+ | 35 | C12H22O11+Na 100 C6H12O6+Na 61 C6H10O5+Na 49
diclofenac | C14H11Cl2NO2 | [M-H]- | 15 | C14H10Cl2NO2- 29 C13H10Cl2N- 100 C13H9ClN- 27
"""


def read_table(text: str) -> Iterator[Made]:
    """Spectra of a table; an indented line goes on with the one above."""
    for line in text.strip().replace("\n ", "").splitlines():
        molecule, formula, adduct, energy_ev, peaks = (cell.strip() for cell in line.split("|"))
        yield Made(molecule, formula, adduct, int(energy_ev), peaks)


SPECTRA = tuple(read_table(TABLE))

# Features of spectra.mgf that carry no formula; formulas.csv supplies it. Sulfamethoxazole gets
# two, as a formula tool would report them: with a score, the better one first.
WITHOUT_FORMULA = ("sulfamethoxazole", "citric acid")
FORMULA_TABLE = (
    ("sulfamethoxazole", "C10H11N3O3S", 0.93),
    ("sulfamethoxazole", "C12H12ClNO3", 0.07),
    ("citric acid", "C6H8O7", 1.0),
)
# Each of these must become a row that says why there are no candidates.
SELFTEST_REFUSED = """
BEGIN IONS
TITLE=no formula
PEPMASS=152.07060
ADDUCT=[M+H]+
110.0600 1000
END IONS

BEGIN IONS
TITLE=formula of another mass
PEPMASS=152.07060
ADDUCT=[M+H]+
FORMULA=C8H10N4O2
110.0600 1000
END IONS

BEGIN IONS
TITLE=radical
PEPMASS=152.07060
ADDUCT=[M]+.
FORMULA=C8H9NO2
110.0600 1000
END IONS

BEGIN IONS
TITLE=platinum
PEPMASS=300.95000
ADDUCT=[M+H]+
FORMULA=H6Cl2N2Pt
110.0600 1000
END IONS
"""
STRUCTURES = {
    "caffeine": "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "tryptophan": "NC(Cc1c[nH]c2ccccc12)C(=O)O",
    "quercetin": "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12",
    "ibuprofen": "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "atropine": "CN1C2CCC1CC(OC(=O)C(CO)c1ccccc1)C2",
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
    "sulfamethoxazole": "Cc1cc(NS(=O)(=O)c2ccc(N)cc2)no1",
    "citric acid": "O=C(O)CC(O)(CC(=O)O)C(=O)O",
    "acetylcholine": "CC(=O)OCC[N+](C)(C)C",
    "sucrose": "OCC1OC(OC2(CO)OC(CO)C(O)C2O)C(O)C(O)C1O",
    "diclofenac": "O=C(O)Cc1ccccc1Nc1c(Cl)cccc1Cl",
}
# A small database for the demo: the molecules without two of them, and isomers as they are known.
NOT_IN_DATABASE = ("atropine", "sulfamethoxazole")
ISOMERS = {
    "isocaffeine": "Cn1cnc2c(=O)n(C)c(=O)n(C)c12",
    "isotryptophan": "NC(Cc1cc2ccccc2[nH]1)C(=O)O",
    "morin": "O=c1c(O)c(-c2ccc(O)cc2O)oc2cc(O)cc(O)c12",
    "herbacetin": "O=c1c(O)c(-c2ccc(O)cc2)oc2c(O)c(O)cc(O)c12",
    "tricetin": "O=c1cc(-c2cc(O)c(O)c(O)c2)oc2cc(O)cc(O)c12",
    "2-(4-butylphenyl)propanoic acid": "CCCCc1ccc(C(C)C(=O)O)cc1",
    "littorine": "CN1C2CCC1CC(OC(=O)C(O)Cc1ccccc1)C2",
    "metacetamol": "CC(=O)Nc1cccc(O)c1",
    "methyl anthranilate": "COC(=O)c1ccccc1N",
    "N-(3-methylisoxazol-5-yl)sulfanilamide": "Cc1cc(NS(=O)(=O)c2ccc(N)cc2)on1",
    "isocitric acid": "O=C(O)CC(C(=O)O)C(O)C(=O)O",
    "maltose": "OCC1OC(OC2C(O)C(O)C(O)OC2CO)C(O)C(O)C1O",
    "trehalose": "OCC1OC(OC2OC(CO)C(O)C(O)C2O)C(O)C(O)C1O",
    "meclofenamic acid": "O=C(O)c1ccccc1Nc1c(Cl)ccc(C)c1Cl",
}
SELFTEST_MOLECULES = ("caffeine", "ibuprofen", "paracetamol", "acetylcholine")


def ion_mz(ion: str) -> float:
    """The m/z of a singly charged ion such as ``C6H8N3O+`` or ``C6H12O6+Na``."""
    if ion.endswith("+Na"):
        return Formula.parse(ion[:-3]).atoms_mass + METALS["Na"][0] - ELECTRON_MASS_DA
    return Formula.parse(ion).mass


def peaks_of(made: Made) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Peaks with a little mass error and a few small unexplained ones, (P,) m/z and intensity."""
    rng = np.random.default_rng(zlib.crc32(f"{made.molecule} {made.energy_ev}".encode()))
    words = made.peaks.split()
    mz = np.array([ion_mz(ion) for ion in words[::2]])
    mz *= 1 + rng.normal(0, PPM_ERROR, len(mz)) * 1e-6
    noise = rng.uniform(50, ion_mz(made.precursor), CHEMICAL_NOISE)
    height = np.concatenate([np.array(words[1::2], float), rng.uniform(0.2, 0.9, CHEMICAL_NOISE)])
    mz = np.concatenate([mz, noise])
    order = np.argsort(mz)
    return mz[order], height[order] * 1e4


def feature_ids(spectra: Sequence[Made]) -> dict[str, int]:
    """A number per molecule, in order of appearance, as a feature table would have it."""
    return {name: 1 + i for i, name in enumerate(dict.fromkeys(s.molecule for s in spectra))}


def mgf(spectra: Sequence[Made], without_formula: Sequence[str] = ()) -> str:
    """The spectra as MGF, without a word on what they are."""
    ids = feature_ids(spectra)
    blocks = []
    for scan, made in enumerate(spectra, start=1):
        sign = "-" if made.adduct.endswith("-") else "+"
        lines = [
            "BEGIN IONS",
            f"FEATURE_ID={ids[made.molecule]}",
            f"SCANS={scan}",
            f"PEPMASS={ion_mz(made.precursor):.5f}",
            f"CHARGE=1{sign}",
            f"ADDUCT={made.adduct}",
            "MSLEVEL=2",
            f"COLLISION_ENERGY={made.energy_ev} eV",
        ]
        if made.molecule not in without_formula:
            lines.append(f"FORMULA={made.formula}")
        lines += [f"{mz:.5f} {height:.0f}" for mz, height in zip(*peaks_of(made), strict=True)]
        blocks.append("\n".join([*lines, "END IONS", ""]))
    return "\n".join(blocks)


def formula_table() -> str:
    """Formulas by feature, as a formula tool exports them."""
    ids = feature_ids(SPECTRA)
    rows = [f"{ids[name]},{formula},{score}" for name, formula, score in FORMULA_TABLE]
    return "\n".join(["feature_id,formula,score", *rows, ""])


def database() -> str:
    """Structures by name, as a file for ``--database``."""
    listed = {name: s for name, s in STRUCTURES.items() if name not in NOT_IN_DATABASE}
    rows = [f"{name},{smiles}" for name, smiles in {**listed, **ISOMERS}.items()]
    return "\n".join(["name,smiles", *rows, ""])


def mzml(spectra: Sequence[Made]) -> str:
    """The spectra as centroided mzML; the format has no place for a formula or an adduct."""
    body = "".join(_mzml_spectrum(i, made) for i, made in enumerate(spectra))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<mzML xmlns="http://psi.hupo.org/ms/mzml" version="1.1.0">\n'
        '<cvList count="2">\n'
        '<cv id="MS" fullName="PSI-MS" URI="https://purl.obolibrary.org/obo/ms.obo"/>\n'
        '<cv id="UO" fullName="Unit Ontology" URI="https://purl.obolibrary.org/obo/uo.obo"/>\n'
        "</cvList>\n"
        '<run id="example">\n'
        f'<spectrumList count="{len(spectra)}">\n{body}</spectrumList>\n</run>\n</mzML>\n'
    )


def _mzml_spectrum(index: int, made: Made) -> str:
    mz, height = peaks_of(made)
    negative = made.adduct.endswith("-")
    polarity = (
        _term("MS:1000129", "negative scan") if negative else _term("MS:1000130", "positive scan")
    )
    return (
        f'<spectrum index="{index}" id="scan={index + 1}" defaultArrayLength="{len(mz)}">\n'
        + _term("MS:1000511", "ms level", "2")
        + _term("MS:1000580", "MSn spectrum")
        + _term("MS:1000127", "centroid spectrum")
        + polarity
        + '<precursorList count="1"><precursor>\n'
        + '<selectedIonList count="1"><selectedIon>\n'
        + _term("MS:1000744", "selected ion m/z", f"{ion_mz(made.precursor):.5f}")
        + "</selectedIon></selectedIonList>\n<activation>\n"
        + _term("MS:1000422", "beam-type collision-induced dissociation")
        + _term("MS:1000045", "collision energy", str(made.energy_ev), "electronvolt")
        + '</activation>\n</precursor></precursorList>\n<binaryDataArrayList count="2">\n'
        + _binary(mz, _term("MS:1000514", "m/z array"))
        + _binary(height, _term("MS:1000515", "intensity array"))
        + "</binaryDataArrayList>\n</spectrum>\n"
    )


def _term(accession: str, name: str, value: str = "", unit: str = "") -> str:
    of_unit = f' unitCvRef="UO" unitAccession="UO:0000266" unitName="{unit}"' if unit else ""
    return f'<cvParam cvRef="MS" accession="{accession}" name="{name}" value="{value}"{of_unit}/>\n'


def _binary(values: NDArray[np.float64], kind: str) -> str:
    text = base64.b64encode(np.round(values, 5).astype("<f8").tobytes()).decode()
    double, plain = _term("MS:1000523", "64-bit float"), _term("MS:1000576", "no compression")
    return (
        f'<binaryDataArray encodedLength="{len(text)}">\n{double}{plain}{kind}'
        f"<binary>{text}</binary>\n</binaryDataArray>\n"
    )


def main() -> None:
    """Write every example file."""
    short = [made for made in SPECTRA if made.molecule in SELFTEST_MOLECULES]
    files = {
        HERE / "spectra.mgf": mgf(SPECTRA, WITHOUT_FORMULA),
        HERE / "formulas.csv": formula_table(),
        HERE / "structures.csv": database(),
        HERE / "spectra.mzML": mzml([made for made in SPECTRA if made.molecule == "caffeine"]),
        SELFTEST: mgf(short) + SELFTEST_REFUSED,
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
