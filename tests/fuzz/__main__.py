"""``make fuzz``: broken inputs of every kind and killed runs, with counts and peaks of memory."""

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.fuzz.commands import fuzz_command
from tests.fuzz.kills import kill_and_resume
from tests.fuzz.loop import bounded_memory
from tests.fuzz.reading import fuzz_archives, fuzz_reading
from tests.fuzz.settings import fuzz_settings
from tests.fuzz.tables import fuzz_tables
from tests.fuzz.weights import fuzz_weights

# What is broken, what each count is of, and how many there are unless somebody says otherwise.
_KINDS = {
    "files": (fuzz_reading, "broken files of spectra", 10_000),
    "archives": (fuzz_archives, "broken archives", 2_000),
    "tables": (fuzz_tables, "broken tables of formulas", 2_000),
    "settings": (fuzz_settings, "broken files of settings", 2_000),
    "weights": (fuzz_weights, "broken weights files", 2_000),
    "commands": (fuzz_command, "broken files through the whole command", 300),
}


def main():
    """Fuzz with the numbers asked for and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, (_, what, count) in _KINDS.items():
        parser.add_argument(f"--{name}", type=int, default=count, help=f"{what}; {count}")
    parser.add_argument("--kills", type=int, default=20, help="killed runs; 20")
    parser.add_argument("--seed", default="1")
    asked = vars(parser.parse_args())
    warnings.simplefilter("error")
    clock = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, (run, what, _) in _KINDS.items():
            with bounded_memory() as grown:
                counts = run(asked[kind], asked["seed"], folder)
            say(f"{asked[kind]} {what}", counts, clock, grown)
        lines = [] if not asked["kills"] else kill_and_resume(asked["kills"], asked["seed"], folder)
        counts = {"resumed to the same bytes": len(lines), "journal lines kept": sum(lines)}
        say(f"{asked['kills']} kills", counts, clock)


def say(what, counts, clock, grown=()):
    """One line of counts, the most frequent first; a traceback would have ended the run."""
    words = [f"{count} {name}" for name, count in sorted(counts.items(), key=lambda c: -c[1])]
    words += ["0 tracebacks", *(f"{mib} MiB more at the peak" for mib in grown)]
    sys.stdout.write(f"{what}: {', '.join(words)}; {time.perf_counter() - clock:.0f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
