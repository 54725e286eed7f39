"""Tab-separated tables in the MassSpecGym layout: one spectrum a row, peaks in two columns."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.spectra.reading.record import Record, unreadable_record


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Rows in order; energies without unit are in eV unless the text as recorded is given too."""
    rows = (line for line in lines if line.strip())
    header = [_unquoted(name).lower() for name in next(rows, "").split("\t")]
    for line in rows:
        cells = [_unquoted(cell) for cell in line.split("\t")]
        if len(cells) != len(header):
            trouble = f"the row has {len(cells)} columns and the header {len(header)}"
            yield unreadable_record(dict(zip(header, cells, strict=False)), trouble)
        else:
            yield _record(dict(zip(header, cells, strict=True)))


def _unquoted(cell: str) -> str:
    return cell.strip().strip('"').strip()


def _record(cells: dict[str, str]) -> Record:
    mz, intensity = _numbers(cells.pop("mzs", "")), _numbers(cells.pop("intensities", ""))
    as_recorded = cells.get("collision_energy_text", "")
    in_ev = not as_recorded
    if as_recorded:
        cells["collision_energy"] = as_recorded
    if mz is None or intensity is None:
        trouble = "its columns mzs and intensities must hold numbers separated by commas"
        return unreadable_record(cells, trouble)
    if mz.size != intensity.size:
        trouble = f"it has {mz.size} m/z values and {intensity.size} intensities"
        return unreadable_record(cells, trouble)
    return Record(cells, mz, intensity, energy_in_ev=in_ev)


def _numbers(text: str) -> NDArray[np.float64] | None:
    tokens = text.strip("[]() ").replace(",", " ").split()
    if not text.isascii() or "_" in text:
        return None
    try:
        return np.array(tokens, dtype=np.float64)
    except ValueError:
        return None
