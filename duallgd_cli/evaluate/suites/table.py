"""Any table of labelled spectra in the MassSpecGym layout."""

from pathlib import Path

from duallgd_cli.errors import MissingInputError
from duallgd_cli.evaluate.suites.suite import Suite
from duallgd_cli.evaluate.tables import read_rows

# The table of open MassBank spectra marks the molecules that public benchmarks hold out.
_MASSBANK_COLUMN = "benchmark"


def truth_only(path: Path) -> Suite:
    """A table that only says what spectra are; their peaks may be missing.

    Raises:
        MissingInputError: There is no such file, said when its rows are read.
    """
    return Suite(
        title=path.name,
        files=(path,),
        rows=lambda: read_rows(path, required=("smiles",)),
        fold="",
    )


def suite(path: Path, data_dir: Path | None) -> Suite:
    """Find a table, as named or in a folder.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: A column is missing.
    """
    found = path if data_dir is None or path.is_file() else data_dir / path
    if not found.is_file():
        raise MissingInputError(
            f"benchmark {path} is neither massspecgym nor nplib1, nor a file that exists"
        )
    required = ("smiles", "mzs", "intensities", "precursor_mz")
    first = next(read_rows(found, required=required), {})
    title, test_title = found.name, ""
    remarks: tuple[str, ...] = ()
    if _MASSBANK_COLUMN in first:
        title = "MassBank"
        test_title = "MassBank test (molecules of the NPLIB1 / MassSpecGym held-out parts)"
        remarks = ("Not comparable with figures on the full NPLIB1 or MassSpecGym benchmarks.",)
    return Suite(
        title=title,
        test_title=test_title,
        files=(found,),
        rows=lambda: read_rows(found, required=required),
        fold="",
        remarks=remarks,
    )
