"""From the name that a user gives to the benchmark."""

from pathlib import Path
from typing import Final

from duallgd_cli.evaluate.suites import massspecgym, nplib1, table
from duallgd_cli.evaluate.suites.suite import Suite

_NAMED: Final = {"massspecgym": massspecgym.suite, "nplib1": nplib1.suite}


def find(name: str, data_dir: Path | None) -> Suite:
    """The benchmark ``massspecgym``, ``nplib1``, or a table of labelled spectra.

    Args:
        name: Of a benchmark or a file.
        data_dir: Folder with its files, or None.

    Raises:
        MissingInputError: Its files are not there.
        UnreadableError: They are not what they should be.
        UsageError: Downloading is not possible here.
    """
    known = _NAMED.get(name.lower())
    return known(data_dir) if known is not None else table.suite(Path(name), data_dir)
