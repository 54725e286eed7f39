"""What large inputs cost: processor time and most memory of one process, for each of several loads.

    python examples/studies/load.py                                # the table of docs/long-runs.md
    python examples/studies/load.py --only report --features 2000       # one line of it, smaller

Inputs are made first (see `load_inputs`), in a folder that is used again by the next call with the
same sizes. Each load is a command of its own, as a user types it; of a database and a library only
the reading is looked at, first of the file and then of what was kept of it.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import command
import load_inputs
import typer
from rich.table import Table

_MIB = 1 << 20
_DATABASE = "from duallgd_cli.sources.database import Database; Database.of_file"
_ANALOGUES = "from duallgd_cli.sources.structures import Analogues; Analogues.read"
_LIBRARY = "from duallgd_cli.sources.library import Library; Library.read"
_READ = "import sys; from pathlib import Path; {reader}(Path(sys.argv[1]))"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the inputs are.

    Attributes:
        features: Of a finished run.
        candidates: Structures of each feature in its journal.
        spectra: Whose formulas are looked for.
        molecules: Of a database; one in a hundred is none.
        library: Spectra of a library.
    """

    features: int
    candidates: int
    spectra: int
    molecules: int
    library: int


@dataclass(frozen=True, slots=True)
class Load:
    """Something that is measured.

    Attributes:
        what: In words.
        size: In words.
        arguments: Of Python.
        output: File or folder whose size is told, or None.
    """

    what: str
    size: str
    arguments: Sequence[str | Path]
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What it took.

    Attributes:
        seconds: Of the processor, all processes together.
        peak_bytes: Most memory of one process.
    """

    seconds: float
    peak_bytes: int


# A process begins with the peak of memory of the one that started it, so a small one starts each.
_MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss << 10)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measured(load: Load, folder: Path) -> Cost:
    """Run a load in a process of its own.

    Raises:
        CalledProcessError: It failed.
    """
    own_cache = ["env", f"DUALLGD_CACHE={folder / 'cache'}"]
    process = [*own_cache, sys.executable, *map(str, load.arguments)]
    command = [sys.executable, "-c", _MEASURED, *process]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, peak_bytes = done.stdout.split()
    return Cost(float(seconds), int(peak_bytes))


def reports(folder: Path, sizes: Sizes) -> list[Load]:
    """The report of a finished run."""
    output, size = _run(folder, sizes)
    page = folder / "report.html"
    arguments = ["-m", "duallgd_cli", "report", output, "--force", "-q", "-o", page]
    return [Load("duallgd report", size, arguments, page)]


def merges(folder: Path, sizes: Sizes) -> list[Load]:
    """The shards of a run joined."""
    output, size = _run(folder, sizes)
    merge = ["-m", "duallgd_cli", "merge", output, "--force", "-q", "-o"]
    table, parts = folder / "all.csv", folder / "with.csv"
    return [
        Load("duallgd merge", size, [*merge, table], table),
        Load("duallgd merge --parts", size, [*merge, parts, "--parts"], parts),
    ]


def formulas(folder: Path, sizes: Sizes) -> list[Load]:
    """The formulas of spectra, of a quarter first: what memory grows by is the difference."""
    loads = []
    for count in (sizes.spectra // 4, sizes.spectra):
        path = _made(folder / f"spectra-{count}.mgf", lambda p, n=count: load_inputs.spectra(p, n))
        table = folder / f"formulas-{count}.csv"
        arguments = ["-m", "duallgd_cli", "formulas", path, "--force", "-q", "-o", table]
        loads.append(Load("duallgd formulas", f"{count:,} spectra", arguments, table))
    return loads


def databases(folder: Path, sizes: Sizes) -> list[Load]:
    """A file of structures, as --database and --analogues read it."""
    path = folder / f"molecules-{sizes.molecules}.smi"
    _made(path, lambda p: load_inputs.molecules(p, sizes.molecules))
    size = f"{sizes.molecules:,} molecules"
    readers = {"--database": _DATABASE, "--analogues": _ANALOGUES}
    each = (_readings(option, size, reader, path) for option, reader in readers.items())
    return list(chain.from_iterable(each))


def libraries(folder: Path, sizes: Sizes) -> list[Load]:
    """A library of spectra, as --library reads it."""
    path = folder / f"library-{sizes.library}.mgf"
    _made(path, lambda p: load_inputs.spectra(p, sizes.library, named=True))
    return _readings("--library", f"{sizes.library:,} spectra", _LIBRARY, path)


LOADS: dict[str, Callable[[Path, Sizes], list[Load]]] = {
    "report": reports,
    "merge": merges,
    "formulas": formulas,
    "database": databases,
    "library": libraries,
}


def _readings(option: str, size: str, reader: str, path: Path) -> list[Load]:
    arguments = ["-c", _READ.format(reader=reader), path]
    return [
        Load(f"{option}, read", size, arguments),
        Load(f"{option}, read again", size, arguments),
    ]


def _run(folder: Path, sizes: Sizes) -> tuple[Path, str]:
    """Output of a run of eight shards, whose journals lie beside it, and its size in words."""
    place = folder / f"run-{sizes.features}-{sizes.candidates}"
    _made(place, lambda p: _run_in(p, sizes))
    return place / "out.csv", f"{sizes.features:,} features, {sizes.candidates} structures each"


def _run_in(place: Path, sizes: Sizes) -> None:
    place.mkdir(exist_ok=True)
    load_inputs.run(place, sizes.features, sizes.candidates, shards=8)


def _made(path: Path, make: Callable[[Path], None]) -> Path:
    """A file or folder that is made unless it was; what was not finished does not count."""
    mark = path.with_name(f"{path.name}.made")
    if not mark.exists():
        command.say(f"making {path}")
        make(path)
        mark.touch()
    return path


def _bytes_of(path: Path) -> int:
    """Of a file, or of a report with its pages."""
    pages = path.with_name(f"{path.stem}_files")
    return sum(one.stat().st_size for one in (path, *pages.glob("*")))


def main(
    features: Annotated[int, typer.Option(min=1, help="Of a finished run.")] = 20_000,
    candidates: Annotated[int, typer.Option(min=1, help="Structures of each of them.")] = 10,
    spectra: Annotated[int, typer.Option(min=4, help="Whose formulas are looked for.")] = 2_000,
    molecules: Annotated[int, typer.Option(min=1, help="Of a database.")] = 1_000_000,
    library: Annotated[int, typer.Option(min=1, help="Spectra of a library.")] = 300_000,
    only: Annotated[str | None, typer.Option(help=f"Some of {', '.join(LOADS)}.")] = None,
    folder: Annotated[Path, typer.Option(help="Where inputs and outputs are.")] = Path("load"),
) -> None:
    """Make inputs, run each load, and print what it took."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = Sizes(features, candidates, spectra, molecules, library)
    table = Table("what", "size", "processor s", "most MiB", "output MiB")
    for name in command.names_in(only, "load", LOADS):
        for load in LOADS[name](folder, sizes):
            cost = measured(load, folder)
            written = f"{_bytes_of(load.output) / _MIB:.1f}" if load.output else ""
            peak = f"{cost.peak_bytes / _MIB:.0f}"
            table.add_row(load.what, load.size, f"{cost.seconds:.1f}", peak, written)
    command.show(table, command.typed())


if __name__ == "__main__":
    command.run(main)
