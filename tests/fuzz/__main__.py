"""``make fuzz``: 10,000 broken inputs, 300 of them through the whole command, and 20 kills."""

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.fuzz.commands import fuzz_command
from tests.fuzz.kills import kill_and_resume
from tests.fuzz.reading import fuzz_reading


def main():
    """Fuzz with the numbers asked for and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commands", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", default="1")
    asked = parser.parse_args()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), time.perf_counter()
        say(f"{asked.files} broken files", fuzz_reading(asked.files, asked.seed, folder), clock)
        codes = fuzz_command(asked.commands, asked.seed, folder)
        say(f"{asked.commands} broken files through the command", codes, clock)
        lines = kill_and_resume(asked.kills, asked.seed, folder)
        counts = {"resumed to the same bytes": len(lines), "journal lines kept": sum(lines)}
        say(f"{asked.kills} kills", counts, clock)


def say(what, counts, clock):
    """One line of counts, the most frequent first."""
    words = [f"{count} {name}" for name, count in sorted(counts.items(), key=lambda c: -c[1])]
    sys.stdout.write(f"{what}: {', '.join(words)}; {time.perf_counter() - clock:.0f} s\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
