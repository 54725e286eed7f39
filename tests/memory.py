"""Memory of this process, as Linux tells it.

`ru_maxrss` tells it not: a process begins with the peak of the one that started it, and no peak is
forgotten.
"""

from contextlib import contextmanager
from pathlib import Path

_PROCESS = Path("/proc/self")


@contextmanager
def bounded_memory(most_mib):
    """The list that is given holds, after the block, by how many MiB the process grew at its peak.

    It stays empty, and nothing is bounded, where the system does not tell.

    Raises:
        AssertionError: More than `most_mib`.
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
    assert grown[0] <= most_mib, f"{grown[0]} MiB more at the peak"


def _mib(name):
    status = (_PROCESS / "status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) // 1024
