"""MassBank's own release: a folder or zip of record files, or its MSP file."""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.spectra.reading import Unreadable, read

# Fields of a record, by the tag (and sub-tag) in a record file and by the key in the MSP release.
_TAGS: Final = {
    "ACCESSION": "accession",
    "DEPRECATED": "deprecated",
    "LICENSE": "license",
    "CH$SMILES": "smiles",
    "AC$INSTRUMENT": "instrument",
    "AC$INSTRUMENT_TYPE": "instrument_type",
    "AC$MASS_SPECTROMETRY: MS_TYPE": "ms_type",
    "AC$MASS_SPECTROMETRY: ION_MODE": "ion_mode",
    "AC$MASS_SPECTROMETRY: COLLISION_ENERGY": "collision_energy_text",
    "AC$MASS_SPECTROMETRY: RESOLUTION": "resolution",
    "MS$FOCUSED_ION: PRECURSOR_M/Z": "precursor_mz",
    "MS$FOCUSED_ION: PRECURSOR_TYPE": "adduct",
}
_MSP_KEYS: Final = {
    "db#": "accession",
    "license": "license",
    "smiles": "smiles",
    "instrument": "instrument",
    "instrument_type": "instrument_type",
    "spectrum_type": "ms_type",
    "ion_mode": "ion_mode",
    "collision_energy": "collision_energy_text",
    "precursormz": "precursor_mz",
    "precursor_type": "adduct",
}
_LICENSE_FILE: Final = "MassBank.json"
_DEED: Final = re.compile(
    r"creativecommons\.org/(?:licenses|publicdomain)/([a-z-]+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, eq=False)
class MassBankRecord:
    """One record as published.

    Attributes:
        fields: Text by the names on the right of `_TAGS`; what a record does not say is missing.
        mz: float64 (P,), in the record's order.
        intensity: float64 (P,), absolute where the record gives it.
    """

    fields: Mapping[str, str]
    mz: NDArray[np.float64]
    intensity: NDArray[np.float64]

    def text(self, name: str) -> str:
        """A field, "" where missing."""
        return self.fields.get(name, "")


def is_release(source: Path) -> bool:
    """Whether a path looks like a MassBank release and not like one data set among others."""
    if source.is_dir():
        return any(source.rglob("MSBNK-*.txt"))
    if source.suffix.lower() == ".zip":
        return True
    return source.suffix.lower() == ".msp" and "massbank" in source.name.lower()


def read_release(source: Path) -> Iterator[MassBankRecord]:
    """Read every record of a release, in the order of the file names.

    The MSP release names no licences; they are taken from the ``MassBank.json`` of the same
    release, which must lie beside it.

    Raises:
        MissingInputError: No such file, or no licences beside the MSP.
        UnreadableError: Not a release.
    """
    if not source.exists():
        raise MissingInputError(f"{source} does not exist; check the path")
    if source.is_dir():
        for path in sorted(source.rglob("*.txt")):
            yield from _records_of(path.read_text(encoding="utf-8", errors="replace"))
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".txt"):
                    yield from _records_of(archive.read(name).decode("utf-8", errors="replace"))
    else:
        yield from _msp_records(source)


def parse_record(text: str) -> MassBankRecord:
    """Read one record file; of repeated tags the first counts."""
    fields: dict[str, str] = {}
    peaks: list[list[str]] = []
    in_peaks = False
    for line in text.splitlines():
        if in_peaks and line.startswith(" "):
            peaks.append(line.split())
            continue
        tag, _, value = line.partition(": ")
        in_peaks = line.startswith("PK$PEAK:")
        subtag, _, rest = value.strip().partition(" ")
        if tag in _TAGS:
            fields.setdefault(_TAGS[tag], value.strip())
        elif f"{tag}: {subtag}" in _TAGS:
            fields.setdefault(_TAGS[f"{tag}: {subtag}"], rest.strip())
    # Columns are m/z, intensity and relative intensity.
    table = [row[:2] for row in peaks if len(row) >= 2]
    mz, intensity = np.array(table, dtype=np.float64).reshape(-1, 2).T
    return MassBankRecord(fields, mz, intensity)


def _records_of(text: str) -> Iterator[MassBankRecord]:
    """The record of a text file; none where the file is something else, such as a read-me."""
    if not text.lstrip("\ufeff").startswith("ACCESSION:"):
        return
    try:
        yield parse_record(text.lstrip("\ufeff"))
    except ValueError:
        accession = text.splitlines()[0].partition(":")[2].strip()
        yield MassBankRecord({"accession": accession}, np.zeros(0), np.zeros(0))


def _msp_records(source: Path) -> Iterator[MassBankRecord]:
    licenses = _read_licenses(source.parent / _LICENSE_FILE)
    for item in read(str(source), keep_structures=True):
        if isinstance(item, Unreadable):
            yield MassBankRecord({"accession": item.spectrum_id}, np.zeros(0), np.zeros(0))
            continue
        given = {key: value for key, value in item.metadata.items() if key in _MSP_KEYS}
        fields = {_MSP_KEYS[key]: value for key, value in given.items()}
        fields.setdefault("license", licenses.get(fields.get("accession", ""), ""))
        yield MassBankRecord(fields, item.mz, item.intensity)


def _read_licenses(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise MissingInputError(
            f"{path} does not exist; the MSP release names no licences, so put {_LICENSE_FILE} "
            "of the same release beside it, or use the record files"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableError(f"{path} is not JSON: {error}") from None
    return dict(_licenses_in(content))


def _licenses_in(node: object) -> Iterator[tuple[str, str]]:
    """Identifier and licence of every described record, however deep it stands."""
    if isinstance(node, list):
        for child in node:
            yield from _licenses_in(child)
    elif isinstance(node, dict):
        if isinstance(node.get("license"), str) and isinstance(node.get("identifier"), str):
            yield node["identifier"], _license_name(node["license"])
        for child in node.values():
            if isinstance(child, list | dict):
                yield from _licenses_in(child)


def _license_name(text: str) -> str:
    """Short name of a licence given as a link to its deed, such as ``CC BY-SA``."""
    deed = _DEED.search(text)
    if deed is None:
        return text
    return "CC0" if deed[1].lower() == "zero" else f"CC {deed[1].upper()}"
