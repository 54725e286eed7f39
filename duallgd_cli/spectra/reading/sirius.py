"""SIRIUS ``.ms``: compounds, each with any number of MS1 and MS2 blocks.

Every MS2 block becomes a spectrum. Blocks of one compound share its ``>feature_id``, or its name
where it has none, so that collision energies are read together.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from duallgd_cli.spectra.reading.record import Block, Record, peak_record

_FIELD: Final = re.compile(r"[>#]\s*([A-Za-z][\w/-]*)[:=]?")
_MS1: Final = frozenset({"ms1", "ms1merged", "ms1peaks", "ms1mergedpeaks"})
_MS2: Final = frozenset({"ms2", "ms2peaks", "ms2merged", "collision", "ms2mergedpeaks"})


@dataclass(slots=True)
class _Compound(Block):
    """Fields and peak lines of one compound.

    Attributes:
        spectra: Level, collision energy and index of the first peak line of each spectrum.
    """

    spectra: list[tuple[str, str, int]] = field(default_factory=list)

    def begin(self, level: str, energy: str) -> None:
        """Begin a spectrum: ">ms2" and ">collision 35" in a row, in either order, are one."""
        if level == "2" and self.spectra and self.spectra[-1][::2] == ("2", len(self.peaks)):
            _, earlier, _ = self.spectra.pop()
            energy = energy or earlier
        self.count(len(energy))
        self.spectra += [] if self.trouble else [(level, energy, len(self.peaks))]

    def records(self) -> Iterator[Record]:
        """Its spectra; a compound without a block gives one without peaks."""
        if not self.metadata and not self.spectra:
            return
        # In this format the "parent mass" is the m/z of the ion.
        self.metadata["precursor_mz"] = self.metadata.get("parentmass", "")
        for name in ("title", "feature_id"):
            self.metadata.setdefault(name, self.metadata.get("compound", ""))
        spectra = self.spectra or [("2", "", 0)]
        ends = [start for _, _, start in spectra[1:]] + [len(self.peaks)]
        for (level, energy, start), end in zip(spectra, ends, strict=True):
            own = {"ms_level": level} | ({"collision_energy": energy} if energy else {})
            block = Block(self.metadata | own, trouble=self.trouble)
            yield peak_record(block, self.peaks[start:end])


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Spectra of all compounds in order."""
    compound = _Compound()
    for line in lines:
        mark = line[:1]
        match = _FIELD.match(line) if mark in {">", "#"} else None
        if match is None:
            if line.strip() and mark not in {">", "#"} and compound.spectra:
                compound.add_peak(line)
            continue
        key, value = match[1].lower(), line[match.end() :].strip()
        if key == "compound" and mark == ">":
            yield from compound.records()
            compound = _Compound()
        if key not in _MS1 | _MS2:
            compound.add_field(key, value)
        elif mark == ">":
            compound.begin("1" if key in _MS1 else "2", value if key == "collision" else "")
    yield from compound.records()
