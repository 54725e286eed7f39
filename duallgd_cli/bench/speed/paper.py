"""The scalability figures that the paper states in words (its appendix "Scalability Analysis").

One NVIDIA H200, one molecule of N atoms, T = 500 steps; label app:scalability. Absolute figures are
given at N = 100 alone, ratios of exact softmax over FAVOR+ at three sizes.
"""

from dataclasses import dataclass
from typing import Final

CITATION: Final = "paper, appendix Scalability Analysis, NVIDIA H200"
LOOP_STEPS: Final = 500


@dataclass(frozen=True, slots=True)
class PaperPoint:
    """One statement.

    Attributes:
        part: attention (time of one step) or loop (500 steps).
        kernel: softmax or favor.
        atoms: N.
        seconds: Time.
        mib: Peak GPU memory.
    """

    part: str
    kernel: str
    atoms: int
    seconds: float
    mib: float


@dataclass(frozen=True, slots=True)
class PaperRatio:
    """Exact softmax over FAVOR+.

    Attributes:
        part: attention or loop.
        atoms: N.
        time: Ratio of times.
        memory: Ratio of peak memory, or None where the text has none.
    """

    part: str
    atoms: int
    time: float
    memory: float | None


POINTS: Final = (
    PaperPoint("attention", "softmax", 100, 24.5e-3, 2.3 * 1024),
    PaperPoint("attention", "favor", 100, 3.0e-3, 125.0),
    PaperPoint("loop", "softmax", 100, 18.2, 2.6 * 1024),
    PaperPoint("loop", "favor", 100, 7.5, 375.0),
)
RATIOS: Final = (
    PaperRatio("attention", 60, 1.9, 5.0),
    PaperRatio("attention", 80, 4.9, 10.7),
    PaperRatio("attention", 100, 8.1, 18.5),
    PaperRatio("loop", 60, 1.1, None),
    PaperRatio("loop", 80, 1.6, None),
    PaperRatio("loop", 100, 2.4, 6.8),
)
