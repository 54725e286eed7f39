"""From the keys, values and peaks of one record to a `Spectrum`, the same way for every format.

Readers of formats only split records into keys, values and peaks: every dialect's keys are brought
to one canonical name here, and what values mean is read in `quantities`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import PERMANENT_CATION, parse_adduct
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import (
    Failure,
    FormulaError,
    UnsupportedElementError,
    clip,
    printable,
    quote,
)
from duallgd_cli.spectra.compounds import SURE, with_compound
from duallgd_cli.spectra.reading.quantities import (
    ELECTRON,
    MISSING,
    Stated,
    collision_energy_ev,
    finite,
    ion_of,
    number,
    precursor_of,
    retention_time,
)
from duallgd_cli.spectra.types import HIGHEST_MZ, UNIT_RESOLUTION, Source, Spectrum

MOST_PEAKS: Final = 1_000_000  # of one spectrum in text
LONGEST_LINE: Final = 1 << 25  # characters of a line, and of a record
TOO_LARGE: Final = (
    f"it is longer than {LONGEST_LINE >> 20} million characters or has more than {MOST_PEAKS:,} "
    "peaks; restore the file, or centroid the spectrum"
)
_FIELD_COST: Final = 100  # characters that an entry of a dictionary takes the place of
_LONGEST_NAME: Final = 1000  # characters of an instrument that are looked at
# Fragmentation by electrons or light, which makes other fragments than collisions do.
_NO_COLLISIONS: Final = re.compile(
    r"electron (?:activated|capture|detachment|transfer)|photo-?dissociation"
    r"|\b(?:EAD|ECD|ETD|EDD|EThcD|ETciD|UVPD)(?![a-z])",
    re.IGNORECASE,
)
# Missing values that mean something under some key: N/A is no sodium, and Na is.
_MEANT: Final = frozenset(
    {("ionmode", "-"), ("charge", "-"), ("pepmass", "nan"), ("precursor_mz", "nan")}
    | {("adduct", "Na"), ("ion", "Na")}
)
_STRUCTURE: Final = re.compile(r"smiles|inchi|selfies|mol_?(file|block)|^structure$", re.IGNORECASE)
_STRUCTURE_VALUE: Final = re.compile(r"InChI=1|\b[A-Z]{14}-[A-Z]{10}-[A-Z]\b")
_LEVEL: Final = re.compile(
    r"(?:FULL )?MS|(?:MS\s?)?\(?([1-9])\)?(?:\.0*)?", re.ASCII | re.IGNORECASE
)
# What has no number and means MS2 all the same.
_TANDEM_LEVEL: Final = re.compile(r"MS\W?(?:MS|n)", re.IGNORECASE)
# Canonical names in the order in which they are tried: the first that is present wins.
PRECURSOR: Final = ("pepmass", "precursor_mz")
ADDUCT: Final = ("adduct", "ion")
IDENTIFIER: Final = ("feature_id", "spectrum_id", "identifier", "title", "compound_name", "scans")
INSTRUMENT: Final = (
    *("filter string", "analyzer", "instrument_type", "instrument"),
    "fragmentation_mode",
)

# The keys that programs and libraries write for each name, without spaces and marks.
_KEYS: Final = {
    "adduct": "adducttype adductname adduction adductionname precursortype precursoradduct "
    "featureadduct ionspecies bestion precursoriontype",
    "ion": "iontype ionname",
    # In SIRIUS .ms IONIZATION is the adduct; elsewhere it says ESI.
    "ionization": "ionisation ionsource ionsourcetype ionizationmethod ionisationmethod ionimethod "
    "ionizationtype msionization msionisation ionizationsource mode msmode scanmode",
    "ionization_energy": "ionisationenergy electronenergy",
    **dict.fromkeys(("pepmass", "feature_id", "spectype", "formula", "molecular_formula"), ""),
    "precursor_mz": "precursormass precursor mz precursorionmz precursorion precmz",
    "charge": "precursorcharge chargestate precursorchargestate ioncharge z",
    "ionmode": "polarity scanpolarity ionpolarity ionpol ionizationmode ionisationmode esimode "
    "polaritymode acquisitionpolarity ionizationpolarity",
    "spectrum_id": "accession db#",
    "identifier": "id",
    "title": "recordtitle",
    "compound_name": "name",
    "scans": "scan scannumber",
    "usi": "spectrumusi universalspectrumidentifier",
    "ms_level": "mstype spectrumtype",
    "collision_energy": "colenergy collision ce collisionenergies fragmentationenergy",
    "instrument_type": "",
    "instrument": "sourceinstrument instrumentation",
    "filter string": "filterline scanfilter thermofilter",
    "analyzer": "analyser massanalyzer massanalyser ms2analyzer ms2analyser detector",
    "fragmentation_mode": "fragmentationmethod fragmentationtype specialfragmentation activation "
    "activationmethod activationtype dissociation dissociationmethod dissociationtype",
    "retention_time": "rt rettime rtquery rtime",
}
# Names of which two values in one record contradict each other.
_COMPARED: Final = frozenset({*ADDUCT, *PRECURSOR, "charge", "ionmode"})
_SEPARATORS: Final = re.compile(r"[\s_/().\[\]-]")
_NAMES: Final = {
    _SEPARATORS.sub("", key): name for name, keys in _KEYS.items() for key in (name, *keys.split())
}
# Times whose key names the unit.
_TIME_KEY: Final = re.compile(
    r"(?:rt|rettime|retentiontime)(?:in)?(?:s|secs?|seconds?|mins?|minutes?)"
)
# Energies whose key names the unit that a bare number has.
_ENERGY_UNITS: Final = {
    **dict.fromkeys(("collisionenergyev", "ceev", "collisionvoltage"), "eV"),
    **dict.fromkeys(("nce", "collisionenergynce", "normalizedcollisionenergy", "hcdenergy"), "NCE"),
}
# Keys that name a formula of the molecule, not what was computed of one, nor that of the ion.
_FORMULA_KEY: Final = re.compile(r"formula(?:neutral|text|string|hill|sirius|\d*)$")
_FORMULA_OF_ION: Final = re.compile(r"precursor|adduct|^ion")

_ACTIVATION: Final = re.compile(r"@(?:hcd|cid|uvpd|e[a-z]{1,3}d)(\d+(?:\.\d+)?)", re.IGNORECASE)
# The ion trap of a hybrid, named where the analyser of the fragments stands: in a filter line, or
# after the activation (CID; IT). After an ion trap before it (IT-CID) another analyser may follow.
_TRAPPED: Final = re.compile(
    r"\bITMS\b|(?:;|\+|\bHCD|\bCID|\bETD)[ ,;/_-]*\(?IT\b(?![- ]?(?:FT|TOF|Orbi))"
)
_ORBITRAP: Final = re.compile(
    r"orbi?t(r|\b)ap|fourier|exactive|exploris|\bfusion\b|lumos|\beclipse\b|\bastral\b|\bastms\b|"
    r"\bid-?x\b|(?<!\bltq )(?<!\bltq-)\bvelos(?! p)|\bft-?icr|icr\b|\bhcd\b|\bitft\b|\bqft\b|"
    r"\bft-?ms\b|\bft\b|\bltq ?ft|apex[ -]qe?|solarix",
    re.IGNORECASE,
)
_TOF: Final = re.compile(
    r"tof|time[- ]of[- ]flight|maxis|\bimpact\b|xevo(?![ -]?tq)|synapt|\bx500|qstar|\blct\b|"
    r"\b65[2-6]\d\b",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d*)?")
_OF_IONISATION: Final = ("ionization", "ion", "ionmode", "instrument_type", "instrument")
_LONGEST: Final = 200  # characters of a text on ionisation, and of one that holds a number
_SOFT: Final = re.compile(
    r"esi|apci|appi|maldi|dart|electrospray|spray|nsi|atmospheric|\blc\b", re.IGNORECASE
)
# Tandem instruments, whose 70 eV is a collision energy.
_TANDEM: Final = re.compile(
    r"triple ?tof|q-?tof|zeno|orbi|exactive|exploris|\bltq|maxis|impact|xevo|synapt|\bqft|\bitft",
    re.IGNORECASE,
)
_CHEMICAL: Final = re.compile(r"(?<![a-z])[np]?ci(?![a-z])|chemical ioni[sz]", re.IGNORECASE)
_SEVENTY: Final = re.compile(r"(?<!\d)70(?:\.0*)?\s*(?:e?v)?\s*$", re.IGNORECASE)
# Ion traps and quadrupoles, by kind, by make and by model; where no Fourier-transform or
# time-of-flight analyser is named beside them.
_UNIT: Final = re.compile(
    r"(?-i:\b(?:Q|Qq|L)?IT\b)|ion[- ]?trap|linear[- ]trap|msd[- ]?trap|q[- ]?trap|\bqqq?\b|_qqq\b|"
    r"triple[- ]?(?:stage[- ]?)?quad|tandem[- ]quad|^ *quadrupole *$|(?:esi|apci|appi)-q\b|"
    r"\btq(?:[sdx]|ms|-?xs)?\b|\bsqd?(?:ms)?\b|\btsq|\bltq|\blcq|\blxq|velos p|amazon|\bhct|"
    r"esquire|quattro|\bzq\b|\bevoq\b|\bqsight\b|\bapi[- ]?(?:\d{3,4}|iii)\b|"
    r"sciex (?:[3-6]500|7500)\b|\b64[1-9]\d[a-d]?\b|\blcms-?(?:20[1-5]0|80\d\d)",
    re.IGNORECASE,
)


@dataclass(slots=True, eq=False)
class Record:
    """One record as a format reader splits it, at once or line by line, as far as it fits."""

    # keys lower case, in the file's order; of a repeated key the first value that is not empty
    metadata: dict[str, str] = field(default_factory=dict)
    mz: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # (P,), any order
    intensity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # (P,)
    trouble: str = ""  # why it cannot be used; once it is `TOO_LARGE` the rest is left out
    warnings: list[str] = field(default_factory=list)  # sentences about what was repaired
    assumptions: list[str] = field(default_factory=list)  # sentences about what was guessed
    energy_in_ev: bool = False  # the format defines a collision energy without unit to be in eV
    time_in_s: bool = False  # the format defines a retention time without unit to be in seconds
    isolation_window: tuple[float, float] | None = None  # its ends, m/z
    refusal: Failure | None = None  # why nothing can be predicted of a record that can be read
    # other values of keys that say something of the ion
    repeated: list[tuple[str, str]] = field(default_factory=list)
    peak_lines: list[str] = field(default_factory=list)  # not yet read
    size: int = 0  # characters so far

    def add_field(self, key: str, value: str) -> None:
        """Take a field."""
        self.count(len(key) + len(value) + _FIELD_COST)
        if not self.trouble and not self.metadata.get(key):
            self.metadata[key] = value
        elif not self.trouble and self.metadata[key] != value and canonical_key(key) in _COMPARED:
            self.repeated.append((key, value))

    def add_peak(self, line: str) -> None:
        """Take a line of peaks."""
        self.count(len(line))
        if len(self.peak_lines) >= MOST_PEAKS:
            self.trouble = TOO_LARGE
        if not self.trouble:
            self.peak_lines.append(line)

    def count(self, characters: int) -> None:
        """Take note of what a line holds."""
        self.size += characters
        if self.size > LONGEST_LINE:
            self.trouble = TOO_LARGE


def place_name(source: Source) -> str:
    """``<file stem>:<index>``, the identifier of a record that has none."""
    stem = "stdin" if source.file == "-" else PurePath(source.file).name.split(".")[0]
    return f"{printable(stem)}:{source.index}"


def unreadable(source: Source, reason: str, spectrum_id: str = "") -> Spectrum:
    """What stands in place of a record that could not be read."""
    failure = Failure("unreadable", reason)
    return Spectrum(source, spectrum_id or place_name(source), failure=failure)


def build(record: Record, source: Source, keep_structures: bool) -> Spectrum:
    """The spectrum of a record."""
    recorded = {key: printable(value).strip() for key, value in record.metadata.items()}
    stated = listed(recorded)
    for key, value in record.repeated:
        if not is_missing(value):
            stated.setdefault(canonical_key(key), []).append((key, printable(value).strip()))
    fields = {name: values[0][1] for name, values in stated.items()}
    spectrum_id = first(fields, IDENTIFIER) or place_name(source)
    trouble = record.trouble
    if not trouble and record.mz.size != record.intensity.size:
        trouble = f"it has {record.mz.size} m/z values and {record.intensity.size} intensities"
    if trouble:
        return unreadable(source, trouble, spectrum_id)
    warnings, assumptions = [*record.warnings], [*record.assumptions]
    masses = [mass for name in PRECURSOR for mass in stated.get(name, ())]
    precursor_mz = precursor_of(masses, warnings)
    ion = ion_of(stated, warnings, assumptions)
    failure = record.refusal or _ionisation_failure(stated, ion["adduct_text"], warnings)
    instrument = instrument_of(fields)
    energy = fields.get("collision_energy", "")
    # A Thermo filter line names the energy last: 35.00 of ``...195.09@hcd35.00 [50-200]``.
    if not energy and (of_filter := _ACTIVATION.findall(fields.get("filter string", ""))):
        energy = f"{of_filter[-1]} NCE"
    energy_text = f"{energy} eV" if record.energy_in_ev and number(energy) else energy
    energy_ev = collision_energy_ev(energy_text, precursor_mz, instrument)
    ms_level = _level(fields) if failure is None else 2  # so that it has a row of its own
    if record.refusal is None:
        warnings.extend(_remarks(record, ms_level, energy, energy_ev))
        modes = (fields.get(name, "") for name in ("fragmentation_mode", "filter string"))
        if mode := next(filter(_NO_COLLISIONS.search, modes), ""):
            warnings.append(
                f"fragments of {clip(mode)}: the networks know those of collisions (CID, HCD)"
            )
    formula_text, usi = formula_of(recorded, warnings), fields.get("usi", "")
    times = stated.get("retention_time", ())
    retention_time_s = retention_time(times, warnings, assumptions, in_seconds=record.time_in_s)
    order = np.argsort(record.mz, kind="stable")
    if not keep_structures:
        recorded = {
            key: value
            for key, value in recorded.items()
            if not _STRUCTURE.search(key) and not _STRUCTURE_VALUE.search(value)
        }
    spectrum = Spectrum(
        source=source,
        spectrum_id=spectrum_id,
        mz=record.mz[order],
        intensity=record.intensity[order],
        precursor_mz=precursor_mz,
        precursor_text=_as_written(first(fields, PRECURSOR), precursor_mz),
        feature_id=fields.get("feature_id", ""),
        scans=fields.get("scans", ""),
        usi=usi if usi.startswith("mzspec:") else "",
        **ion,
        formula_text=formula_text,
        collision_energy_text=energy,
        collision_energy_ev=energy_ev,
        retention_time_s=retention_time_s,
        precursor_intensity=_precursor_intensity(recorded),
        isolation_window=record.isolation_window,
        instrument=instrument,
        ms_level=ms_level,
        metadata=recorded,
        failure=failure,
        warnings=tuple(dict.fromkeys(warnings)),
        assumptions=tuple(dict.fromkeys(assumptions)),
    )
    if not (compound_id := fields.get("compound_id", "")):
        return spectrum
    pairs = (pair.rpartition(" ") for pair in fields.get("ion_probabilities", "").split(", "))
    adducts = [(name, share) for name, _, text in pairs if (share := finite(text)) is not None]
    # An adduct that somebody has corrected since then stays as it is.
    if adducts and spectrum.adduct_text != (adducts[0][0] if adducts[0][1] >= SURE else ""):
        adducts = []
    elif adducts:
        spectrum = replace(spectrum, answered_by=fields.get("answered_by", ""))
    return with_compound(spectrum, compound_id, adducts)


def _ionisation_failure(stated: Stated, adduct_text: str, warnings: list[str]) -> Failure | None:
    """Why a spectrum cannot be predicted because of how its ion was made, or None."""
    texts = [text[:_LONGEST] for name in _OF_IONISATION for _, text in stated.get(name, ())]
    electron = next((text for text in texts if ELECTRON.search(text)), "")
    if not electron and any(_SEVENTY.search(t) for _, t in stated.get("ionization_energy", ())):
        electron = "70 eV"
    bare = re.sub(r"[*•·.●]", "", adduct_text)
    is_molecular_ion = bare != "" and parse_adduct(bare) == PERMANENT_CATION
    if not electron and is_molecular_ion and not any(map(_SOFT.search, texts)):
        is_seventy = any(_SEVENTY.search(t) for _, t in stated.get("collision_energy", ()))
        if any(re.search(r"(?<![a-z])gc(?![a-z])", text, re.IGNORECASE) for text in texts):
            electron = f"{adduct_text} after gas chromatography"
        elif is_seventy and not any(map(_TANDEM.search, texts)):
            electron = f"{adduct_text} at 70 eV"
    if electron:
        message = (
            f"it was measured by electron ionisation ({clip(electron)}), whose radical ions are "
            "not predicted; give spectra of electrospray or another soft ionisation"
        )
        return Failure("unsupported_measurement", message)
    if any(_CHEMICAL.search(text) and not _SOFT.search(text) for text in texts):
        warnings.append(
            "measured by chemical ionisation: networks were trained on electrospray, and "
            "probabilities are not calibrated for it"
        )
    return None


def _precursor_intensity(recorded: Mapping[str, str]) -> float | None:
    """That of mzML, mzXML and others, or the number beside PEPMASS."""
    second = (*recorded.get("pepmass", "").split(), "", "")[1]
    intensity = finite(recorded.get("precursor_intensity", second))
    return intensity if intensity is not None and intensity > 0 else None


def _as_written(text: str, mz: float | None) -> str:
    """A precursor m/z as the text of its field has it, with a point; "" where it is not there."""
    numbers = (found.replace(",", ".") for found in _NUMBER.findall(text[:_LONGEST]))
    return next((found for found in numbers if float(found) == mz), "")


def _remarks(record: Record, ms_level: int, energy: str, energy_ev: float | None) -> Iterator[str]:
    """What to say of what is read, but not as somebody might think."""
    if ms_level > 2:
        yield (
            f"an MS{ms_level} spectrum is read as if it were MS2: its precursor is a fragment, so "
            "the formula must be the fragment's"
        )
    for key, value in record.metadata.items():
        text = value.strip()
        is_level = _squeezed(key) == "mslevel" and not is_missing(text)
        if is_level and not (_LEVEL.fullmatch(text) or _TANDEM_LEVEL.fullmatch(text)):
            yield f"{clip(key)} {quote(text)} is no MS level and is left out"
    # 0 and words mean that there is no energy.
    if energy_ev is None and number(energy) != 0 and re.search(r"\d", energy):
        yield (
            f"collision energy {quote(energy)} gives no one value in eV and counts as missing; "
            "write it like 35 eV"
        )
    # Zeros are ordinary; where no peak is possible the failure says so.
    mz, intensity = record.mz, record.intensity
    possible = np.isfinite(intensity) & (intensity >= 0) & (mz >= 0) & (mz < HIGHEST_MZ)
    lost = mz.size - int(possible.sum())
    if 0 < lost < mz.size:
        yield f"{lost} of {mz.size} peaks had no possible m/z and intensity and were left out"


@lru_cache(maxsize=4096)
def canonical_key(key: str) -> str:
    """The one name for all spellings of a key in lower case; other keys as they are."""
    squeezed = _squeezed(key)
    if squeezed in _ENERGY_UNITS:
        return "collision_energy"
    if _TIME_KEY.fullmatch(squeezed):
        return "retention_time"
    if squeezed not in _NAMES and "adduct" in squeezed:
        return "other adduct"
    return _NAMES.get(squeezed, key)


@lru_cache(maxsize=4096)
def _squeezed(key: str) -> str:
    """A key without spaces and marks."""
    return _SEPARATORS.sub("", key)


def listed(metadata: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Keys and values under canonical names, in the file's order, missing values left out.

    Keys of retention times are without spaces and marks; an energy has the unit of its key.
    """
    stated: dict[str, list[tuple[str, str]]] = {}
    for key, value in metadata.items():
        name, text = canonical_key(key), value.strip()
        if text.lower() in MISSING and not {(name, text), (name, text.lower())} & _MEANT:
            continue
        if name == "scans" and text == "-1":  # MS-DIAL
            continue
        if name == "ms_level" and not _LEVEL.fullmatch(text):  # SPECTRUMTYPE: Centroid
            continue
        unit = _ENERGY_UNITS.get(_squeezed(key)) if name == "collision_energy" else None
        value = f"{text} {unit}" if unit and finite(text) else value
        written = _squeezed(key) if name == "retention_time" else key
        stated.setdefault(name, []).append((written, value))
    return stated


def canonical(metadata: Mapping[str, str]) -> dict[str, str]:
    """Fields under canonical names, missing values left out; of duplicates the first counts."""
    return {name: values[0][1] for name, values in listed(metadata).items()}


def first(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Value of the first name that is present, else ""."""
    return next((fields[name] for name in names if name in fields), "")


def is_missing(value: str) -> bool:
    """Whether a value says that there is none: ``N/A``, ``na``, ``null``, empty and the like."""
    return value.strip().lower() in MISSING


def formula_of(recorded: Mapping[str, str], warnings: list[str]) -> str:
    """FORMULA, then MOLECULAR_FORMULA, then any key that names a formula of the molecule.

    A text that is no formula is left out under other keys, which is said.
    """
    ranked = [
        ({"formula": 0, "molecularformula": 1}.get(squeezed, 2), key, value)
        for key, value in recorded.items()
        if _FORMULA_KEY.search(squeezed := _squeezed(key))
        and not (_FORMULA_OF_ION.search(squeezed) or is_missing(value))
    ]
    formulas: list[tuple[str, str, object]] = []
    for rank, key, value in sorted(ranked, key=lambda entry: entry[0]):
        meaning: object = value  # the row says which element is not supported
        try:
            meaning = Formula.parse(value)
        except FormulaError as error:
            if rank > 1 and not isinstance(error, UnsupportedElementError):
                warnings.append(f"{clip(key)} {quote(value)} is no formula and is left out")
                continue
        formulas.append((key, value, meaning))
    for key, value, meaning in formulas[1:]:
        if meaning != formulas[0][2]:
            used = f"{clip(formulas[0][0])} {clip(formulas[0][1])}"
            warnings.append(f"{used} is used, not {clip(key)} {clip(value)}")
    return formulas[0][1] if formulas else ""


def _level(fields: Mapping[str, str]) -> int:
    """MS level: the digit of ``2``, ``MS2`` or ``MS1``; 1 for correlated MS blocks; else 2."""
    if fields.get("spectype", "").strip().upper() == "CORRELATED MS":
        return 1
    match = _LEVEL.fullmatch(fields.get("ms_level", "MS2"))
    return int(match[1] or 1) if match else 2


def compound_name(metadata: Mapping[str, str]) -> str:
    """What a record calls its compound, else its title, else ""."""
    return first(canonical(metadata), ("compound_name", "title"))


def instrument_class(text: str) -> str:
    """``orbitrap`` (Fourier transform), ``qtof`` (time of flight), `UNIT_RESOLUTION`, or ""."""
    kinds = {_TRAPPED: UNIT_RESOLUTION, _ORBITRAP: "orbitrap", _TOF: "qtof", _UNIT: UNIT_RESOLUTION}
    return next((kind for words, kind in kinds.items() if words.search(text)), "")


def instrument_of(fields: Mapping[str, str]) -> str:
    """Class of the analyser that recorded a spectrum, by its fields under canonical names.

    The filter line decides; then an ion trap named for the fragments, since hybrids are called by
    their better analyser; then the first field that names a class.
    """
    texts = [fields.get(name, "")[:_LONGEST_NAME] for name in INSTRUMENT]
    if not instrument_class(texts[0]) and any(map(_TRAPPED.search, texts)):
        return UNIT_RESOLUTION
    return next(filter(None, map(instrument_class, texts)), "")
