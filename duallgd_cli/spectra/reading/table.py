"""Tab-separated tables in the MassSpecGym layout: one spectrum a row, peaks in two columns."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import UnreadableError, quote
from duallgd_cli.spectra.reading.record import (
    LONGEST_LINE,
    MOST_PEAKS,
    TOO_LARGE,
    Record,
    unreadable_record,
)


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Rows in order; energies without unit are in eV unless the text as recorded is given too.

    Raises:
        UnreadableError: Two columns have one name.
    """
    rows = (line for line in lines if line.strip())
    header = [cell.lower() for cell in _cells(next(rows, ""), 1000)]
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise UnreadableError(f"the table has two columns {quote(twice)}; rename or remove one")
    for line in rows:
        cells = _cells(line, len(header))
        if len(line) > LONGEST_LINE:
            yield unreadable_record(dict(zip(header, cells, strict=False)), TOO_LARGE)
        elif len(cells) != len(header):
            n = line.count("\t") + 1
            trouble = f"the row has {n} columns and the header {len(header)}"
            yield unreadable_record(dict(zip(header, cells, strict=False)), trouble)
        else:
            yield _record(dict(zip(header, cells, strict=True)))


def _cells(line: str, most: int) -> list[str]:
    return [cell.strip().strip('"').strip() for cell in line.split("\t", most)]


def _record(cells: dict[str, str]) -> Record:
    as_recorded = cells.get("collision_energy_text", "")
    if as_recorded:
        cells["collision_energy"] = as_recorded
    texts = [
        cells.pop(name, "").strip("[]() ").replace(",", " ") for name in ("mzs", "intensities")
    ]
    if max(text.count(" ") for text in texts) > 2 * MOST_PEAKS:
        return unreadable_record(cells, TOO_LARGE)
    mz, intensity = map(_numbers, texts)
    if mz is None or intensity is None:
        trouble = "its columns mzs and intensities must hold numbers separated by commas"
        return unreadable_record(cells, trouble)
    if mz.size != intensity.size:
        trouble = f"it has {mz.size} m/z values and {intensity.size} intensities"
        return unreadable_record(cells, trouble)
    return Record(cells, mz, intensity, energy_in_ev=not as_recorded)


def _numbers(text: str) -> NDArray[np.float64] | None:
    if not text.isascii() or "_" in text:
        return None
    try:
        return np.array(text.split(), dtype=np.float64)
    except ValueError:
        return None
