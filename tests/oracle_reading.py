"""What files of spectra say, read a second time and in another way, to check the readers against.

Nothing of `duallgd_cli.spectra.reading` is used but its public door, in `compared`. A person checks
files of their own by

    python tests/oracle_reading.py FILES...

which prints, file by file, how many records of each field agree (ok), differ with a word on it
(said) or differ without one (WRONG).
"""

import csv
import json
import re
import sys
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

FIELDS = ("records", "precursor", "polarity", "charge", "level", "rt", "energy", "adduct", "peaks")


@dataclass
class Reading:
    """One record; None is what it does not say.

    Attributes:
        polarity: 1 or -1, by a word for the mode, else by the sign of the charge.
        charge: Signed, where both its size and a sign are given; `size` is without it.
        rt: In seconds; `rts` are all that it may be where the file gives no unit.
        energy: In eV where the file says eV; `energies` where it gives numbers without that, and
            `is_share` where these are normalised.
        conflict: The mode, the sign of the charge and the adduct do not agree.
    """

    precursor: float | None = None
    polarity: int | None = None
    charge: int | None = None
    size: int | None = None
    level: int | None = None
    rt: float | None = None
    rts: tuple = ()
    energy: float | None = None
    energies: tuple = ()
    is_share: bool = False
    adduct: str | None = None
    peaks: int = 0
    conflict: bool = False
    words: dict = field(default_factory=dict)


# Keys without case and marks.
PRECURSOR = ["pepmass", "precursormz", "precursorion", "selectedionmz", "msfocusedionprecursormz"]
PRECURSOR += ["experimentalprecursormonoisotopicmz", "isolationwindowtargetmz"]
ADDUCT = ["adduct", "iontype", "precursortype", "msfocusedionprecursortype"]
ION = ["ion", "ionization"]  # an adduct or a source
MODE = ["ionmode", "polarity", "ionizationmode", "acmassspectrometryionmode", "scanpolarity"]
CHARGE = ["charge", "precursorcharge", "chargestate"]
LEVEL = ["mslevel", "spectrumtype", "acmassspectrometrymstype", "mstype", "spectype"]
TIME = {"rtinseconds": 1, "rtinminutes": 60, "retentiontime": 0, "rt": 0, "rtime": 0}
TIME |= {"acchromatographyretentiontime": 0}
ENERGY = ["collisionenergy", "acmassspectrometrycollisionenergy", "collision", "activationenergy"]
NOTHING = {"", "n/a", "na", "nan", "none", "null", "unknown", "-", "?"}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def _numbers(text):
    return [float(found) for found in re.findall(NUMBER, text)]


def _sign(text):
    """Of a word for polarity: 1, -1 or None."""
    word = re.sub(r"(?i)^\W*(?:n?esi|apci|appi|maldi)(?=[\W_]|$)[\s_]*", "", text.strip()).lower()
    if re.match(r"(p(os|$|\b)|\(?\+|ms:1000130)", word):
        return 1
    return -1 if re.match(r"(n(eg|$|\b)|\(?[-\u2013\u2212]|ms:1000129)", word) else None


def adduct_charge(adduct):
    """Signed charge at the end of an adduct, 0 without one."""
    ending = re.search(r"\](?:(\d*)([+-])|([+-])(\d+)|([+-]+))[*.\u2022]?$", adduct)
    if not ending:
        return 0
    size, sign, first, digits, many = ending.groups()
    if many and len(many) > 1:
        return len(many) if many[0] == "+" else -len(many)
    return int(size or digits or 1) * (1 if (sign or first or many)[0] == "+" else -1)


def _charge(text):
    """Size and sign of a charge; None for what it does not say. -0 is a sign alone."""
    sizes = {int(size) for size in re.findall(r"\d+", text)}
    size = sizes.pop() if len(sizes) == 1 else 0
    sign = 1 if "+" in text else -1 if "-" in text else None
    return size or None, (sign if size or sign == -1 else None)


def _times(text, unit):
    """All that a time may be, in seconds, with what its key says of the unit (0: nothing)."""
    numbers = _numbers(re.sub(r"(?i)^pt", "", text))
    if not numbers or numbers[0] <= 0:
        return ()
    if re.search(r"(?i)\d\s*(s|sec\w*)\b", text) or (not unit and numbers[0] >= 100):
        unit = 1
    elif re.search(r"(?i)\d\s*min", text):
        unit = 60
    return (numbers[0] * unit,) if unit else (numbers[0], numbers[0] * 60)


def _energies(text):
    """The energy in eV, and what it may be where no eV is given; a share is of m/z 500."""
    several = re.search(rf"{NUMBER}\s*[-,/]\s*{NUMBER}", text)
    said = re.findall(rf"(?i)({NUMBER})\s*eV", text)
    if said and not several:
        return abs(float(said[0])), ()
    return None, tuple(map(abs, _numbers(text)))


def _polarity(made, mode, charge):
    """Fill in what the word for the mode, the charge and the adduct say of polarity together."""
    if mode in ("0", "1"):  # as the Spectra package of R counts
        mode = "-+"[int(mode)]
    made.size, sign = _charge(charge)
    of_adduct = adduct_charge(made.adduct or "")
    signs = [_sign(mode), sign, of_adduct and of_adduct // abs(of_adduct)]
    size = made.size and of_adduct and made.size != abs(of_adduct)
    made.conflict = len({one for one in signs if one}) > 1 or bool(size)
    made.polarity = signs[0] or sign
    made.charge = made.size and made.polarity and made.size * made.polarity


def _reading(fields, peaks, level=None):
    """What the fields of a record mean; of those of one kind the first counts."""
    first = {}
    for key, value in fields:
        name, value = re.sub(r"[^a-z0-9]", "", key.lower()), str(value).strip()
        if value.lower() not in NOTHING or (name in MODE and value):
            first.setdefault(name, value)

    def of(names):
        return next((first[name] for name in names if name in first), "")

    made = Reading(peaks=peaks, words=first, level=level)
    precursor, *more = re.split(r"[\s;]+", re.sub(r"(?<=\d),(?=\d{3})", "", of(PRECURSOR)))
    made.precursor = next(iter(_numbers(precursor)), None)
    made.adduct = of(ADDUCT) or next((first[n] for n in ION if "M" in first.get(n, "")), None)
    _polarity(made, of(MODE), of(CHARGE) or next((one for one in more if one[-1:] in "+-"), ""))
    for name in LEVEL:
        found = re.fullmatch(r"(?i)(?:ms)?\s*(\d)|ms|correlated ms", first.get(name, ""))
        made.level = made.level or (int(found[1] or 1) if found else None)
    made.rts = next((_times(first[name], unit) for name, unit in TIME.items() if name in first), ())
    made.rt = made.rts[0] if len(made.rts) == 1 else None
    made.energy, made.energies = _energies(of(ENERGY))
    made.is_share = bool(re.search(r"(?i)nce|%|normali", of(ENERGY)))
    return made


# --- families of files ---


def _is_peak(line):
    return bool(re.match(rf"\s*{NUMBER}[\s,;:]+{NUMBER}", line))


def _mgf(text):
    def fields(lines):
        return [line.split("=", 1) for line in lines if re.match(r"[A-Za-z_ ]+[\w ]*=", line)]

    head, *blocks = re.split(r"(?m)^BEGIN IONS\s*$", text)
    for block in blocks:
        lines = block.split("END IONS")[0].splitlines()
        yield _reading(fields([*lines, *head.splitlines()]), sum(map(_is_peak, lines)))


def _colons(text):
    """MSP, MAT, MassBank: fields, a number of peaks, peaks; MSTYPE begins other peaks."""
    names = {"accession"} if "ACCESSION:" in text else {"name", "ch$name", "compound_name"}
    fields, peaks, rest = [], 0, 0
    for line in [*text.splitlines(), f"{min(names)}: end"]:
        pair = re.match(r"([^:\t]+):\s?(.*)", line)
        starts = pair and pair[1].strip().lower() in names
        again = pair and pair[1].strip().lower() == "mstype"
        if (starts or again) and rest:
            yield _reading(fields, peaks)
            fields = [] if starts else [one for one in fields if one[0].strip().lower() != "mstype"]
            peaks = rest = 0
        count = re.match(r"(?i)(?:num\s?(?:peaks|features)|PK\$NUM_PEAK)\s*:\s*(\d+)", line)
        if count:
            rest = int(count[1])
        elif rest and _is_peak(line):
            peaks += sum(map(_is_peak, re.split(r";", line)))
        elif pair:
            fields.append(_massbank(pair[1], pair[2]))
            fields += re.findall(r'"([^"=]+)=([^"]*)"', line if pair[1] == "Comments" else "")


def _massbank(key, value):
    """A field of a MassBank record has its name within the value."""
    if key.startswith(("AC$", "MS$")) and " " in value:
        inner, value = value.split(" ", 1)
        return key + inner, value
    return key, value


def _sirius(text):
    for compound in re.split(r"(?m)^>compound", text)[1:]:
        head, *blocks = re.split(r"(?m)^>(?=ms1|ms2|collision)", compound)
        fields = [line[1:].partition(" ")[::2] for line in head.splitlines() if line[:1] == ">"]
        fields = [("precursormz" if key == "parentmass" else key, value) for key, value in fields]
        for block in blocks:
            first, *lines = block.splitlines()
            more = [tuple(first.split(None, 1))] if " " in first.strip() else []
            level = 1 if first.startswith("ms1") else 2
            yield _reading(fields + more, sum(map(_is_peak, lines)), level=level)


def _mzspeclib(text):
    for record in re.split(r"(?m)^<Spectrum=", text)[1:]:
        head, _, block = record.partition("<Peaks>")
        fields = []
        for key, value in re.findall(r"(?m)^.*?\|([^=|]+)=(.*)$", head):
            if key == "unit":  # of the value before
                fields[-1] += " eV" if "volt" in value else value.split("|")[-1]
            elif key == "other attribute value":  # of the name before
                fields[-2:] = [fields[-1], value]
            else:
                fields += [key, value]
        pairs = zip(fields[::2], fields[1::2], strict=True)
        yield _reading(pairs, sum(map(_is_peak, block.splitlines())))


def _json(text):
    try:
        records = json.loads(text)
    except ValueError:
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    for record in records if isinstance(records, list) else [records]:
        fields = [(key, value) for key, value in record.items() if not isinstance(value, dict)]
        fields += [(one["name"], one["value"]) for one in record.get("metaData", [])]
        if "mzmine" in str(record.get("softwaresource")):
            fields.insert(0, ("rtinminutes", record.get("rt", "")))
        peaks = record.get("peaks_json", record.get("peaks", record.get("spectrum", [])))
        if isinstance(peaks, str):
            peaks = json.loads(peaks) if peaks[:1] == "[" else peaks.split()
        yield _reading(fields, len(peaks))


def _table(text):
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        yield _reading(row.items(), len(row["mzs"].split(",")))


def _xml(path, name):
    """Elements of a name, with their attributes, without namespaces."""
    tree = etree.parse(str(path)).getroot()
    for element in tree.iter():
        element.tag = re.sub(r"\{.*\}", "", str(element.tag))
    groups = {one.get("id"): one for one in tree.iter("referenceableParamGroup")}
    for reference in list(tree.iter("referenceableParamGroupRef")):
        reference.extend(deepcopy(groups[reference.get("ref")])[:])
    return tree.iter(name)


def _mzml(path):
    for scan in _xml(path, "spectrum"):
        terms = {}
        for term in scan.iter("cvParam"):
            value, unit = term.get("value"), term.get("unitName") or ""
            terms.setdefault(term.get("name"), f"{value} {'eV' if 'volt' in unit else unit}")
        if "MS1 spectrum" in terms:
            terms.setdefault("ms level", "1")
        terms["polarity"] = "".join(w for w in ("negative", "positive") if f"{w} scan" in terms)
        terms["retention time"] = terms.get("scan start time", "")
        yield _reading(terms.items(), int(scan.get("defaultArrayLength")))


def _mzxml(path):
    for scan in _xml(path, "scan"):
        fields = list(scan.items())
        for precursor in scan.findall("precursorMz"):
            fields += [("precursor mz", precursor.text), *precursor.items()]
        yield _reading(fields, int(scan.get("peaksCount")))


def read(path):
    """Readings of a file by its content; its family follows from the first marks that it shows."""
    text = Path(path).read_text("utf-8", errors="replace").lstrip("\ufeff")
    if re.search(r"(?m)^\d+,\d+\t", text) and not re.search(r"(?m)^\d+\.\d+\s", text):
        text = re.sub(r"(?<=\d),(?=\d)", ".", text)  # as Windows writes numbers in many countries
    for mark, family in (
        (r"(?s).{,500}<mzXML", lambda _: _mzxml(path)),
        (r"(?s).{,500}<(indexed)?mzML", lambda _: _mzml(path)),
        (r"\s*<mzSpecLib>", _mzspeclib),
        (r"\s*[\[{]", _json),
        (r"(?s).*?^BEGIN IONS", _mgf),
        (r"(?s).*?^>compound", _sirius),
        (r"[^\n]*\bmzs\t", _table),
        (r"(?is).*?^(name|accession|ch\$name|compound_name):", _colons),
    ):
        if re.match("(?m)" + mark, text):
            return list(family(text))
    return []


# --- the comparison ---

SAID = {
    "precursor": r"(?i)precursor|m/z|pepmass",
    "polarity": r"(?i)polarity|charge|mode|positive|negative|adduct",
    "charge": r"(?i)polarity|charge|mode|positive|negative|adduct",
    "level": r"(?i)level|MS1|stage",
    "rt": r"(?i)retention|minute|second",
    "energy": r"(?i)energ|collision",
    "adduct": r"(?i)adduct|ion type",
    "peaks": r"(?i)peak",
}


def verdicts(reading, spectrum, truth=None):
    """Field by field: ok, said or WRONG.

    Args:
        reading: The oracle's.
        spectrum: The reader's.
        truth: What the spectrum is, where that is known; it decides what the file leaves open.
    """
    said = " ".join([*spectrum.warnings, *getattr(spectrum, "assumptions", ())])
    rt = getattr(spectrum, "retention_time_s", None)
    of_adduct = adduct_charge(reading.adduct or "")
    titles = " ".join(reading.words.get(name, "") for name in ("title", "filterstring"))
    title = re.search(r"(?:^|[\s,;])([+-])\s?(?:MS|ESI|[pc]\b)", titles)
    signs = {of_adduct and of_adduct // abs(of_adduct), _sign(title[1]) if title else 0}
    agree = {
        "precursor": _near(spectrum.precursor_mz, reading.precursor),
        "polarity": spectrum.polarity == (reading.polarity or 0)
        or (not reading.polarity and spectrum.polarity in signs),
        "charge": spectrum.charge == (reading.charge or 0)
        or (not reading.charge and spectrum.charge == of_adduct)
        or (spectrum.charge == reading.size and not spectrum.polarity and not reading.polarity),
        "level": spectrum.ms_level == (reading.level or 2),
        "rt": _near(rt, reading.rt, 1e-3)
        if len(reading.rts) < 2
        else truth is not None and _near(rt, truth.rt, 0.5),
        "energy": _near(spectrum.collision_energy_ev, reading.energy)
        or (bool(reading.energies) and _may_be(spectrum.collision_energy_ev, reading)),
        "adduct": spectrum.adduct_text.strip() == (reading.adduct or ""),
        "peaks": len(spectrum.mz) == reading.peaks,
    }
    if reading.conflict:  # which of them is believed is for the row to say
        agree["polarity"] = agree["charge"] = spectrum.polarity != 0
    return {
        name: "ok" if fine
        else "said" if spectrum.failure or re.search(SAID[name], said)
        else "WRONG"
        for name, fine in agree.items()
    }  # fmt: skip


def _near(one, other, tolerance=1e-4):
    if one is None or not other:
        return one is None and not other
    return abs(one - other) <= tolerance


def _may_be(energy, reading):
    """Numbers without a unit are eV, or shares of an energy that m/z 500 scales; or their mean."""
    energies = reading.energies
    if reading.is_share:
        energies = [value * (reading.precursor or 0) / 500 for value in energies]
    return energy is None or min(energies) - 0.2 < energy < max(energies) + 0.2


def compared(path, truth=()):
    """Of each field of a file the verdicts, and the spectra that belong to the oracle's readings.

    Returns:
        {field: [verdict of each record]}, [(reading, spectrum, truth or None)].
    """
    from duallgd_cli.spectra.reading import read as door

    expected, spectra = read(path), list(door(str(path)))
    if len(spectra) != len(expected):  # a reader may keep MS1 spectra within the record
        expected = [one for one in expected if one.level != 1]
        spectra = [one for one in spectra if one.ms_level != 1]
        truth = [one for one in truth if one.level != 1]
    same = len(expected) == len(spectra)
    found = {name: [] for name in FIELDS} | {"records": ["ok" if same else "WRONG"]}
    truth = list(truth) if len(truth) == len(expected) else [None] * len(expected)
    triples = list(zip(expected, spectra, truth, strict=False))
    for triple in triples:
        for name, verdict in verdicts(*triple).items():
            found[name].append(verdict)
    return found, triples


def table(rows):
    """Text of {name: {field: verdicts}}: of each field the worst, and how often it occurs."""
    widest = max((len(str(name)) for name in rows), default=0)
    lines = [" ".join([" " * widest, *(f"{name:>9}" for name in FIELDS)])]
    for name, found in rows.items():
        cells = []
        for one in FIELDS:
            worst = next((v for v in ("WRONG", "said", "ok") if v in found[one]), "")
            cells.append(f"{worst} {found[one].count(worst)}" if worst else "")
        lines.append(" ".join([f"{name!s:{widest}}", *(f"{cell:>9}" for cell in cells)]))
    return "\n".join(lines)


if __name__ == "__main__":
    rows = {}
    for name in sys.argv[1:]:
        try:
            rows[name] = compared(name)[0]
        except Exception as error:  # noqa: BLE001  # one file must not end the table
            rows[name] = dict.fromkeys(FIELDS, ()) | {"records": ["said"]}
            sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
    sys.stdout.write(table(rows) + "\n")
