"""One loop for all kinds of broken input: what came of each, and how much memory it took."""

import random
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from duallgd_cli.errors import DuallgdError

MOST_MIB = 512  # above what the process held before
_PROCESS = Path("/proc/self")


def fuzz(count, seed, try_one):
    """Try `count` broken inputs; how often each outcome or error in a sentence came.

    Args:
        count: Of inputs.
        seed: A text; the same inputs for the same one.
        try_one: From a generator of random numbers to outcomes.

    Raises:
        Exception: A bug; a note tells with which input it can be had again.
    """
    seen = Counter()
    for number in range(count):
        try:
            seen.update(try_one(random.Random(f"{seed}:{number}")))
        except DuallgdError as error:
            assert_sentence(str(error))
            seen[type(error).__name__] += 1
        except BaseException as error:
            error.add_note(f"broken input {number} of seed {seed!r}")
            raise
    return seen


def assert_sentence(text):
    """A message is there, on one line, and of a length that somebody reads."""
    assert text.strip(), "an empty message"
    assert "\n" not in text, f"more than one line: {text!r}"
    assert len(text) < 600, f"too long: {text!r}"


@contextmanager
def bounded_memory():
    """The list that is given holds, after the block, by how many MiB the process grew at its peak.

    It stays empty where the system does not tell.

    Raises:
        AssertionError: More than `MOST_MIB`.
    """
    grown = []
    try:
        (_PROCESS / "clear_refs").write_text("5")  # forgets the peak so far
    except OSError:
        yield grown
        return
    before = _mib("VmRSS")
    yield grown
    grown.append(max(0, _mib("VmHWM") - before))
    assert grown[0] <= MOST_MIB, f"{grown[0]} MiB more at the peak"


def _mib(name):
    status = (_PROCESS / "status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) // 1024
