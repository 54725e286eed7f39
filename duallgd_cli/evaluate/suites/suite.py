"""A benchmark: rows in the MassSpecGym layout, and what must be said with their results."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duallgd_cli.evaluate.suites.published import Published
from duallgd_cli.evaluate.tables import PEAKS, Truth, id_column
from duallgd_cli.files import replaced

Row = Mapping[str, str]

# What a lab has of an unknown. Whatever is not listed here does not reach the prediction.
_MEASURED: Final = (
    "mzs",
    "intensities",
    "precursor_mz",
    "adduct",
    "ion_mode",
    "instrument_type",
    "instrument",
    "resolution",
    "collision_energy",
    "collision_energy_text",
)


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """One benchmark, found on this machine.

    Attributes:
        title: What results on it may be called, without the fold.
        test_title: What results on the fold ``test`` are called, "" for the title and the fold.
        files: What was read, for hashes in the report.
        rows: Reads the spectra from the start, each time it is called.
        fold: Its test fold.
        published: Rows of others.
        submission: Whether results may be handed in to MassSpecGym.
        remarks: Sentences that belong to every result.
    """

    title: str
    files: tuple[Path, ...]
    rows: Callable[[], Iterator[Row]]
    fold: str
    published: Sequence[Published] = ()
    submission: bool = False
    remarks: tuple[str, ...] = ()
    test_title: str = ""

    def titled(self, fold: str) -> str:
        """What results on a fold may be called."""
        if fold == "test" and self.test_title:
            return self.test_title
        return f"{self.title}, fold {fold or 'all'}"


def write_unlabelled(
    rows: Iterable[Row], chosen: Sequence[Truth], path: Path, *, with_formula: bool
) -> None:
    """Write spectra as a lab would have them: no structure, and no formula unless it is given.

    Args:
        rows: Of the benchmark.
        chosen: Spectra to write.
        path: TSV file.
        with_formula: The formula-known track.
    """
    columns = (*_MEASURED, "formula") if with_formula else _MEASURED
    wanted = {truth.spectrum_id for truth in chosen}
    name = ""
    with replaced(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(("identifier", *columns)) + "\n")
        for row in rows:
            name = name or id_column([row], str(path))
            if row[name] in wanted:
                cells = (row[name], *(row.get(column, "") for column in columns))
                file.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


def write_truth(chosen: Sequence[Truth], path: Path) -> None:
    """Write the truth of the chosen spectra, so that predictions can be scored again later."""
    columns = [name for name in chosen[0].fields if name not in PEAKS] if chosen else []
    columns += ["inchikey"] if "inchikey" not in columns else []
    with replaced(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(columns) + "\n")
        for truth in chosen:
            fields = {**truth.fields, "inchikey": truth.molecule}
            cells = (" ".join(fields[name].split()) for name in columns)
            file.write("\t".join(cells) + "\n")
