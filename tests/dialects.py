"""Files of twelve made compounds, as some fifty programs write them.

Masses are those of formulas; nothing was measured. `source` names the exporter that keys, units and
words for polarity were read from; where none is public it says so. Dialects of text are those in
`data/dialects`, a record of each.
"""

import io
import re
from dataclasses import dataclass, replace
from pathlib import Path

from pyteomics import mass, mgf

from tests import made_xml
from tests.made_xml import cv

ELECTRON = 0.000548579909


@dataclass(frozen=True)
class Made:
    """One spectrum as it is in truth; `charge` is signed, `rt` in seconds, `energy` in eV.

    `isotopes` are shares of the monoisotopic ion and the next two, of the most frequent elements.
    """

    name: str
    formula: str
    adduct: str
    charge: int
    mz: float
    rt: float
    energy: float
    peaks: tuple
    isotopes: tuple = ()
    level: int = 2


def _made(name, formula, adduct, charge, ion, rt, energy, fragments):
    def ion_mz(atoms, z):
        return (mass.calculate_mass(formula=atoms) - z * ELECTRON) / abs(z)

    mz = sorted(ion_mz(fragment, 1 if charge > 0 else -1) for fragment in fragments.split())
    peaks = tuple((m, 1000.0 - 111 * place) for place, m in enumerate(mz))
    atoms = mass.Composition(formula=ion)
    first = 0.0108 * atoms["C"] + 0.0037 * atoms["N"]
    isotopes = (1.0, first, first**2 / 2 + 0.002 * atoms["O"] + 0.32 * atoms["Cl"])
    return Made(name, formula, adduct, charge, ion_mz(ion, charge), rt, energy, peaks, isotopes)


MADE = tuple(
    _made(name, formula, adduct, int(charge), ion, float(rt), float(energy), fragments)
    for name, formula, adduct, charge, ion, rt, energy, fragments in (
        line.split(maxsplit=7)
        for line in """\
caffeine C8H10N4O2 [M+H]+ 1 C8H11N4O2 312.5 20 C8H11N4O2 C6H8N3O C5H8N3 C4H7N2
quercetin C15H10O7 [M-H]- -1 C15H9O7 421.75 35 C15H9O7 C8H3O4 C7H3O4 C7H3O3 C6H3O2
glucose C6H12O6 [M+Na]+ 1 C6H12O6Na 55.25 10 C6H12O6Na C4H8O4Na C3H6O3Na
chlorhexidine C22H30Cl2N10 [M+2H]2+ 2 C22H32Cl2N10 498 25 C7H9ClN3 C6H7ClN C8H15N4
choline C5H14NO [M]+ 1 C5H14NO 48.5 15 C5H14NO C3H10N C3H8N
citrate C6H8O7 [M-H]- -1 C6H7O7 66 10 C6H7O7 C5H3O3 C3H3O3 C4H5O2
lactose C12H22O11 [M+NH4]+ 1 C12H26NO11 61.75 12 C12H23O11 C6H11O5 C6H9O4 C6H7O3
sucrose C12H22O11 [M+Cl]- -1 C12H22O11Cl 60.5 18 C12H21O11 C6H11O6 C3H5O3
nicotinamide C6H6N2O [2M+H]+ 1 C12H13N4O2 95 8 C6H7N2O C6H4NO C5H6N
cortisol C21H30O5 [M-H2O+H]+ 1 C21H29O4 540.25 30 C21H29O4 C21H27O3 C20H25O2 C8H9O
salicin C13H18O7 [M+HCOO]- -1 C14H19O9 205.5 16 C13H17O7 C7H7O2 C6H5O
ATP C10H16N5O13P3 [M-2H]2- -2 C10H14N5O13P3 52.25 22 H2PO4 HP2O6 PO3""".splitlines()
    )
)


def _ms1(of):
    """The MS1 spectrum in which an ion was chosen."""
    step = 1.0032 / abs(of.charge)
    peaks = tuple((of.mz + step * n, 1e5 * share) for n, share in enumerate(of.isotopes))
    return replace(of, peaks=peaks, level=1)


WITH_MS1 = tuple(one for made in MADE for one in (_ms1(made), made))


@dataclass(frozen=True)
class Dialect:
    """A writer of files; `unsaid` are fields that they leave open or get wrong."""

    file: str
    write: object
    unsaid: frozenset
    made: tuple


DIALECTS = {}


def dialect(name, file, write, unsaid="", made=MADE):
    DIALECTS[name] = Dialect(file, write, frozenset(unsaid.split()), made)


def words(made):
    """What a template may say of a spectrum."""
    positive = made.charge > 0
    said = {name: pair[positive] for name, pair in {
        "Mode": ("Negative", "Positive"), "MODE": ("NEGATIVE", "POSITIVE"), "P": "NP", "sign": "-+",
        "mode": ("negative", "positive"), "polarity": "01", "minus": ("-", ""),
        "scan": ("MS:1000129|negative scan", "MS:1000130|positive scan"),
    }.items()}  # fmt: skip
    z = abs(made.charge)
    numbers = {"z": z, "z_if_many": z if z > 1 else 0, "min": made.rt / 60}
    mzs, intensities = (
        ",".join(form.format(one) for one in column)
        for form, column in zip(("{:.4f}", "{}"), zip(*made.peaks, strict=True), strict=True)
    )
    count = {"count": len(made.peaks), "mzs": mzs, "intensities": intensities}
    return vars(made) | numbers | said | count


def filled(text, values):
    """A text with values in place of fields such as ``{mz:.4f}``; braces of JSON are none."""
    return re.sub(r"\{\w+(?::[^{}]*)?\}", lambda field: field[0].format(**values), text)


def template(path):
    """A dialect of text: how one record is written, perhaps with its MS1 spectrum before it."""
    first, *parts = re.split(r"(?m)^== (\w+) ==\n", path.read_text("utf-8"))
    said = dict(line.split(" = ", 1) for line in first.splitlines())
    texts = dict.fromkeys(("head", "ms1", "between", "tail"), "")
    texts |= zip(parts[::2], parts[1::2], strict=True)

    def write(made):
        records = []
        for place, one in enumerate(made):
            peaks = said.get("join", "\n").join(said["peak"].format(*peak) for peak in one.peaks)
            n = (place // 2 if texts["ms1"] else place) + 1
            values = words(one) | {"n": n, "peaks": peaks}
            record = texts["ms1" if one.level == 1 else "record"]
            records.append(filled(record, values))
        return texts["head"] + texts["between"].join(records) + texts["tail"]

    name, dot, ending = path.name.partition(".")
    made = WITH_MS1 if texts["ms1"] else MADE
    dialect(name, f"a{dot}{ending}", write, said.get("unsaid", ""), made)


for _path in sorted(Path(__file__).with_name("data").joinpath("dialects").iterdir()):
    template(_path)
# Windows in German
dialect(
    "MS-DIAL 5 MSP, commas",
    "a.msp",
    lambda made: re.sub(r"(?<=\d)\.(?=\d)", ",", DIALECTS["MS-DIAL 5 MSP"].write(made)),
    "polarity charge level",
)


# fmt: off
def matchms(m):
    return {"compound_name": m.name, "precursor_mz": m.mz, "charge": m.charge, "adduct": m.adduct,
            "ionmode": words(m)["mode"], "retention_time": m.rt, "ms_level": "2",
            "collision_energy": f"{m.energy} eV"}


def by_pyteomics(params):
    def write(made):
        written = io.StringIO()
        mgf.write([{"params": params(m), "m/z array": [p[0] for p in m.peaks],
                    "intensity array": [p[1] for p in m.peaks]} for m in made], output=written)
        return written.getvalue()
    return write


# matchms 0.27 save_as_mgf; no PEPMASS
dialect("matchms MGF", "a.mgf", by_pyteomics(matchms))
# pyteomics 5 mgf.write
dialect("pyteomics MGF", "a.mgf", by_pyteomics(lambda m: {
    "title": m.name, "pepmass": (m.mz, 5e4), "charge": m.charge, "rtinseconds": m.rt}),
    "adduct energy level")


def _mzml(time, energy):
    def scan(n, m):
        kind = [("MS:1000580", "MSn spectrum"), ("MS:1000579", "MS1 spectrum")][m.level == 1]
        terms = cv("MS:1000511", "ms level", m.level) + cv(*kind)
        terms += cv(*words(m)["scan"].split("|")) + cv("MS:1000127", "centroid spectrum")
        of = made_xml.windowed(m.mz, 0.5, 0.5, [m.mz], cv(*made_xml.CID) + energy(m),
                               cv("MS:1000041", "charge state", abs(m.charge)))
        own = made_xml.arrays(*zip(*m.peaks, strict=True))
        of = made_xml.precursors(of) if m.level == 2 else ""
        return made_xml.spectrum(n + 1, own, terms, time(m), of)
    return lambda made: made_xml.mzml(map(scan, range(len(made)), made), cv("MS:1001547", "maXis"))


def _mzxml(made):
    def scan(n, m):
        energy, of = "", ""
        if m.level == 2:
            energy = f' collisionEnergy="{m.energy}"'
            of = f'<precursorMz precursorCharge="{abs(m.charge)}">{m.mz}</precursorMz>'
        return (
            f'<scan num="{n + 1}" centroided="1" msLevel="{m.level}" peaksCount="{len(m.peaks)}" '
            f'polarity="{words(m)["sign"]}" retentionTime="PT{m.rt}S"{energy}>{of}'
            f"{made_xml.peaks_of_mzxml(m.peaks)}</scan>")
    return made_xml.mzxml(map(scan, range(len(made)), made))


EV = "UO:0000266|electronvolt"
# ProteoWizard 3 IO.cpp; minutes, charges without sign
dialect("msconvert mzML", "a.mzML", _mzml(
    lambda m: cv("MS:1000016", "scan start time", m.rt / 60, "UO:0000031|minute"),
    lambda m: cv("MS:1000045", "collision energy", m.energy, EV)), "adduct", WITH_MS1)
# OpenMS 3 MzMLHandler; seconds, activation energy
dialect("OpenMS mzML", "a.mzML", _mzml(
    lambda m: cv("MS:1000016", "scan start time", m.rt, "UO:0000010|second"),
    lambda m: cv("MS:1000509", "activation energy", m.energy, EV)), "adduct", WITH_MS1)
# ProteoWizard 3 Serializer_mzXML
dialect("msconvert mzXML", "a.mzXML", _mzxml, "adduct", WITH_MS1)
# fmt: on
