"""What joining the shards of a large run costs: journals made from those of a small one, merged.

    duallgd predict examples/spectra.mgf --formulas examples/formulas.csv --samples 30 -o small.csv
    python examples/studies/merging.py small.csv --features 100000

The features of the small run are repeated, each with a number and an identifier of its own.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from duallgd_cli.predict.journal import ENDING

MIB = 1 << 20


def features(small: Path) -> list[list[dict[str, Any]]]:
    """Lines of the small run's journal, by feature."""
    found: dict[int, list[dict[str, Any]]] = {}
    for line in small.with_name(small.name + ENDING).read_text("ascii").splitlines()[1:-1]:
        values = json.loads(line)
        found.setdefault(values["case"], []).append(values)
    return list(found.values())


def lines(small: Path, count: int) -> Iterator[tuple[int, str]]:
    """Number of a feature, and its lines, for so many of them."""
    spectra = 0
    for number, feature in enumerate(islice(cycle(features(small)), count)):
        members = [
            {**one, "source": [one["source"][0], place], "spectrum_id": f"made:{place}"}
            for place, one in enumerate(feature[0]["members"], spectra)
        ]
        spectra += len(members)
        for values in feature:
            changed = {"case": number, "members": [] if values["hypothesis"] else members}
            yield number, json.dumps({**values, **changed}, separators=(",", ":")) + "\n"


def make(small: Path, folder: Path, count: int, shards: int) -> int:
    """Write the journals of all shards; their bytes."""
    with small.with_name(small.name + ENDING).open() as file:
        header = json.loads(file.readline())
    paths = [folder / f"out.csv.shard-{n}-of-{shards}{ENDING}" for n in range(1, shards + 1)]
    files = [path.open("w", encoding="ascii") for path in paths]
    for place, file in enumerate(files, 1):
        file.write(json.dumps({**header, "shard": f"{place}/{shards}"}) + "\n")
    for number, line in lines(small, count):
        files[number % shards].write(line)
    for file in files:
        file.write(json.dumps({"end": {"cases": count}}) + "\n")
        file.close()
    return sum(path.stat().st_size for path in paths)


def main(
    small: Annotated[Path, typer.Argument(help="Output of a finished run, its journal beside it.")],
    features: Annotated[int, typer.Option(help="How many are made.")] = 100_000,
    shards: Annotated[int, typer.Option(help="Journals they are in.")] = 64,
    folder: Annotated[Path, typer.Option(help="Where they are written.")] = Path("merging"),
    format: Annotated[str, typer.Option(help="Of the output.")] = "csv",
) -> None:
    """Make journals, merge them, and print what that took."""
    folder.mkdir(parents=True, exist_ok=True)
    size = make(small, folder, features, shards)
    command = ["-m", "duallgd_cli", "merge", folder / "out.csv", "-q", "-o", folder / "all.csv"]
    began = time.monotonic()
    subprocess.run([sys.executable, *command, "--format", format], check=True)
    wall_s = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    typer.echo(
        f"{features} features, {shards} journals of {size / MIB:.0f} MiB in all "
        f"({size / features / 1000:.1f} kB a feature), output "
        f"{(folder / 'all.csv').stat().st_size / MIB:.0f} MiB: {wall_s:.1f} s, processor "
        f"{used.ru_utime + used.ru_stime:.1f} s, most memory of one process "
        f"{used.ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    typer.run(main)
