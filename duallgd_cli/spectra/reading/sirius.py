"""SIRIUS ``.ms``: compounds, each with any number of MS1 and MS2 blocks.

Every MS2 block becomes a spectrum. Blocks of one compound share its ``>feature_id``, or its name
where it has none, so that collision energies are read together.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from duallgd_cli.spectra.reading.record import Record, peak_record

_FIELD: Final = re.compile(r"[>#]\s*([A-Za-z][\w/-]*)[:=]?\s*(.*?)\s*")
_MS1: Final = frozenset({"ms1", "ms1merged", "ms1peaks", "ms1mergedpeaks"})
_MS2: Final = frozenset({"ms2", "ms2peaks", "ms2merged", "collision", "ms2mergedpeaks"})


@dataclass(slots=True)
class _Compound:
    metadata: dict[str, str] = field(default_factory=dict)
    blocks: list[tuple[str, str, list[str]]] = field(default_factory=list)  # level, energy, lines


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Spectra of all compounds in order; a compound without a block gives one without peaks."""
    compound = _Compound()
    for line in lines:
        match = _FIELD.fullmatch(line) if line[:1] in {">", "#"} else None
        key = match[1].lower() if match else ""
        if key == "compound" and line[0] == ">":
            yield from _spectra(compound)
            compound = _Compound()
        if match is not None:
            _add(compound, key, match[2], line[0] == "#")
        elif line.strip() and line[0] not in ">#" and compound.blocks:
            compound.blocks[-1][2].append(line)
    yield from _spectra(compound)


def _add(compound: _Compound, key: str, value: str, is_comment: bool) -> None:
    if key not in _MS1 and key not in _MS2:
        if not compound.metadata.get(key):
            compound.metadata[key] = value
    elif not is_comment:
        level, energy = "1" if key in _MS1 else "2", value if key == "collision" else ""
        blocks = compound.blocks
        # ">ms2" and ">collision 35" in a row, in either order, open one block.
        if blocks and blocks[-1][0] == level == "2" and not blocks[-1][2]:
            _, earlier, _ = blocks.pop()
            energy = energy or earlier
        blocks.append((level, energy, []))


def _spectra(compound: _Compound) -> Iterator[Record]:
    if not compound.metadata and not compound.blocks:
        return
    shared = dict(compound.metadata)
    # In this format the "parent mass" is the m/z of the ion.
    shared["precursor_mz"] = shared.get("parentmass", "")
    shared.setdefault("title", shared.get("compound", ""))
    shared.setdefault("feature_id", shared.get("compound", ""))
    for level, energy, lines in compound.blocks or [("2", "", [])]:
        block = {"ms_level": level} | ({"collision_energy": energy} if energy else {})
        yield peak_record(shared | block, lines)
