"""MSP as NIST, MassBank of North America (MoNA), RIKEN and MS-DIAL write it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from duallgd_cli.spectra.reading.record import MOST_PEAKS, Block, Record, peak_record

_KEY: Final = re.compile(r"\s*([A-Za-z$][^:=]{0,60}?)\s*:")
_PEAK_COUNT: Final = re.compile(r"num ?peaks", re.IGNORECASE)
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
# MoNA keeps fields as quoted key=value pairs in its comments.
_COMMENT_PAIR: Final = re.compile(
    r"\"([^\"=]+)=([^\"]*)\"|(?<![^\s\"])([^\s\"=]+)=(?:\"([^\"]*)\"|(\S+))"
)


@dataclass(slots=True)
class _Entry(Block):
    """Lines of one record so far.

    Attributes:
        in_peaks: The field Num Peaks was seen.
        before: Fields that stand before a blank line, which may belong to a record of their own.
    """

    in_peaks: bool = False
    before: dict[str, str] = field(default_factory=dict)

    def ends_with(self, line: str) -> bool:
        """Whether a blank line ends the record: after its peaks, or where it says it has none."""
        if line.strip() or not self.in_peaks:
            return False
        return bool(self.peaks) or _expected(self.metadata) in {None, 0}

    def ends_before(self, key: str) -> bool:
        """Whether a field is the next record's: after peaks, or a second name."""
        if self.in_peaks:
            return bool(self.peaks) or key in self.metadata or _expected(self.metadata) == 0
        return key == "name" and (key in self.metadata or key in self.before)

    def take(self, key: str, value: str) -> None:
        """Take a field, or those that stand in a comment."""
        if key in {"comment", "comments"} and "=" in value:
            for match in _COMMENT_PAIR.finditer(value):
                name = (match[1] or match[3]).strip().lower()
                self.add_field(name, (match[2] or match[4] or match[5] or "").strip(" ;"))
        else:
            self.add_field(key, value)
        if not self.in_peaks and _PEAK_COUNT.fullmatch(key):
            self.join()
            self.in_peaks = True

    def pause(self) -> None:
        """Take a blank line between fields."""
        if not self.in_peaks:
            self.join()
            self.before, self.metadata = self.metadata, {}

    def join(self) -> None:
        """Count fields before and after a blank line as one record's."""
        if self.before:
            self.metadata, self.before = {**self.before, **self.metadata, **self.before}, {}

    def split(self, key: str) -> tuple["_Entry", "_Entry"]:
        """This record and the beginning of the next, whose first field is `key`.

        Some writers put FORMULA, PRECURSORTYPE and others before NAME; where the record before
        lacks Num Peaks, the blank line between them is all that tells them apart.
        """
        if key == "mstype":
            shared = {k: v for k, v in self.metadata.items() if not _of_block(k)}
            return self, _Entry(shared)
        if self.in_peaks or "name" in self.metadata:
            self.join()
            return self, _Entry()
        return _Entry(self.before, trouble=self.trouble), _Entry(self.metadata)


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MSP text in order, whatever the order of their fields.

    A record ends at a blank line after its peaks, at a field after its peaks, or at a second NAME.
    An MSTYPE after peaks (MS-FINDER) begins another spectrum of the same compound.
    """
    entry = _Entry()
    for line in lines:
        match = None if line[:1].isdigit() else _KEY.match(line)
        key = match[1].lower() if match else ""
        if entry.ends_before(key) if match is not None else entry.ends_with(line):
            done, entry = entry.split(key)
            yield _finish(done)
        if match is not None:
            entry.take(key, line[match.end() :].strip())
        elif not line.strip():
            entry.pause()
        elif entry.in_peaks:
            entry.add_peak(line)
    entry.join()
    if entry.metadata:
        yield _finish(entry)


def _of_block(key: str) -> bool:
    """Whether a field belongs to one block of peaks and not to the compound."""
    return key == "mstype" or _PEAK_COUNT.fullmatch(key) is not None


def _expected(metadata: Mapping[str, str]) -> int | None:
    """The number of peaks that a record states; None where it states none."""
    stated = next((metadata[key] for key in metadata if _PEAK_COUNT.fullmatch(key)), "")
    return int(stated) if _COUNT.fullmatch(stated) else None


def _finish(entry: _Entry) -> Record:
    expected = _expected(entry.metadata)
    record = peak_record(entry, _one_peak_a_line(entry.peaks, expected))
    if not any(map(_PEAK_COUNT.fullmatch, entry.metadata)):
        warning = "the record has no Num Peaks"
    elif expected is not None and expected != record.mz.size:
        warning = f"Num Peaks says {expected}, and there are {record.mz.size}"
    else:
        return record
    return replace(record, warnings=(*record.warnings, warning))


def _one_peak_a_line(lines: list[str], expected: int | None) -> list[str]:
    """Split lines such as ``41 3; 42 10;`` or ``41 3 42 10``; annotations in quotes are dropped."""
    plain = [_QUOTED.sub("", line) if '"' in line or "'" in line else line for line in lines]
    plain = [line.replace(":", " ") for line in plain]  # 41:3 42:10, as GOLM writes
    if any(";" in line for line in plain):
        return [part for line in plain for part in line.split(";", MOST_PEAKS) if part.strip()]
    if expected is None or expected == len(plain):
        return plain
    tokens = [token for line in plain for token in line.split(None, 2 * MOST_PEAKS)]
    if len(tokens) == 2 * expected:
        return [" ".join(tokens[i : i + 2]) for i in range(0, len(tokens), 2)]
    return plain
