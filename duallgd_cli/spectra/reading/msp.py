"""MSP as NIST, MassBank of North America (MoNA), RIKEN and MS-DIAL write it."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from duallgd_cli.spectra.reading.record import Record, peak_record

_KEY: Final = re.compile(r"\s*([A-Za-z$][^:=]{0,60}?)\s*:\s*(.*?)\s*")
_PEAK_COUNT: Final = re.compile(r"num ?peaks", re.IGNORECASE)
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
# MoNA keeps fields as quoted key=value pairs in its comments.
_COMMENT_PAIR: Final = re.compile(r"\"([^\"=]+)=([^\"]*)\"|(\S+?)=(?:\"([^\"]*)\"|(\S+))")


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MSP text in order; a blank line after the peaks or a new NAME ends one."""
    metadata: dict[str, str] = {}
    peak_lines: list[str] = []
    in_peaks = False
    for line in lines:
        key = None if line[:1].isdigit() else _KEY.fullmatch(line)
        is_name = key is not None and key[1].lower() == "name"
        if metadata and ((in_peaks and not line.strip()) or is_name):
            yield _finish(metadata, peak_lines)
            metadata, peak_lines, in_peaks = {}, [], False
        if key is not None:
            _add(metadata, key[1].lower(), key[2])
            in_peaks = in_peaks or _PEAK_COUNT.fullmatch(key[1]) is not None
        elif in_peaks and line.strip():
            peak_lines.append(line)
    if metadata:
        yield _finish(metadata, peak_lines)


def _add(metadata: dict[str, str], key: str, value: str) -> None:
    if key in {"comment", "comments"} and "=" in value:
        for match in _COMMENT_PAIR.finditer(value):
            name = (match[1] or match[3]).strip().lower()
            metadata.setdefault(name, (match[2] or match[4] or match[5] or "").strip())
        return
    if not metadata.get(key):
        metadata[key] = value


def _finish(metadata: dict[str, str], peak_lines: list[str]) -> Record:
    stated = next((metadata[key] for key in metadata if _PEAK_COUNT.fullmatch(key)), None)
    record = peak_record(metadata, _one_peak_a_line(peak_lines, stated))
    if stated is None:
        warning = "the record has no Num Peaks"
    elif stated.isdigit() and int(stated[:9]) != record.mz.size:
        warning = f"Num Peaks says {stated[:9]} and {record.mz.size} peaks were read"
    else:
        return record
    warnings = (*record.warnings, warning)
    return Record(metadata, record.mz, record.intensity, record.trouble, warnings)


def _one_peak_a_line(lines: list[str], stated: str | None) -> list[str]:
    """Split lines such as ``41 3; 42 10;`` or ``41 3 42 10``; annotations in quotes are dropped."""
    plain = [_QUOTED.sub("", line) if '"' in line or "'" in line else line for line in lines]
    plain = [line.replace(":", " ") for line in plain]  # 41:3 42:10, as GOLM writes
    if any(";" in line for line in plain):
        return [part for line in plain for part in line.split(";") if part.strip()]
    if stated is None or stated == str(len(plain)):
        return plain
    tokens = [token for line in plain for token in line.split()]
    if stated.isdigit() and len(tokens) == 2 * int(stated[:9]):
        return [" ".join(tokens[i : i + 2]) for i in range(0, len(tokens), 2)]
    return plain
