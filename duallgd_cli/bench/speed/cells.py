"""What the study measures: one cell for each part, kernel, path and size; and what it reads there.

Letters: N heavy atoms, M = N (N - 1) / 2 pairs, S candidates, J steps.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import UsageError

PRESETS: Final = ("duallgd", "reference")
KERNELS: Final = ("softmax", "favor")
PATHS: Final = ("plain", "fast")
PARTS: Final = ("attention", "forward", "loop")
RANDOM: Final = "random"

_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")
_DEFAULT_STRIDE: Final = 10
_FEWEST, _MOST = 2, 400


@dataclass(frozen=True, slots=True)
class Subject:
    """Which network is measured, where and how.

    Attributes:
        preset: One of `PRESETS`.
        weights: A weights file or name, `RANDOM`, or None for what the preset has by default.
        device: As `runtime.Runtime` takes it.
        precision: Likewise.
        threads: Likewise.
        seed: Of random weights, inputs and noise.
        repeats: Timed runs of a cell, after one that warms up.
        limit_s: Seconds after which a cell is not repeated any more.
    """

    preset: str = "duallgd"
    weights: str | None = None
    device: str = "cpu"
    precision: str = "float32"
    threads: int = 1
    seed: int = 1
    repeats: int = 5
    limit_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure.

    Attributes:
        subject: The network and the machine.
        part: One of `PARTS`: the attention layers of the bond stream alone, one evaluation of the
            denoiser, or the whole sampling loop.
        kernel: One of `KERNELS`, of the attention over pairs.
        path: One of `PATHS`.
        atoms: N.
        samples: Graphs of one evaluation in the first two parts, S in the loop.
        steps: J; 1 in the first two parts.
    """

    subject: Subject
    part: str
    kernel: str
    path: str
    atoms: int
    samples: int = 1
    steps: int = 1

    @property
    def pairs(self) -> int:
        """M."""
        return self.atoms * (self.atoms - 1) // 2

    @property
    def evaluations(self) -> int:
        """Candidate-steps in one run."""
        return self.samples * self.steps

    def __str__(self) -> str:
        """What is being measured, for a progress bar."""
        return f"{self.part} {self.kernel} {self.path} N = {self.atoms}"


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of one candidate-step, counted where they are called.

    Attributes:
        flop: Of matrix products, a multiplication and an addition being two.
        exponentials: Elements of softmax, exp, sigmoid, GELU and the like.
        moved_bytes: What all operations read and write, as if none were fused.
        parameter_bytes: Of the parameters of the part, which an evaluation reads once at least.
    """

    flop: float
    exponentials: float
    moved_bytes: float
    parameter_bytes: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read at one cell.

    Attributes:
        wall_s: Of each timed run.
        cpu_s: CPU time of each, over all threads.
        memory_mib: Peak above what was there before, network and inputs included in that.
        memory_how: How it was read.
        weights: Name of the weights.
        parameters: Of the network, its spectrum encoder included where it has one.
        val_top1: Top-1 accuracy on validation spectra, from the weights' own record, or None.
        evaluations_at_once: Candidates in one evaluation of the network.
        work: Of the fast path, or None.
    """

    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    memory_mib: float
    memory_how: str
    weights: str
    parameters: int
    val_top1: float | None
    evaluations_at_once: int
    work: Work | None


# A reading, and the numbers by which both paths are compared.
Measured = tuple[Reading, NDArray[np.float32]]


def parse_atoms(text: str) -> tuple[int, ...]:
    """Numbers of atoms, ascending and each once.

    Args:
        text: ``10..100`` (every tenth), ``10..100:5``, ``30``, or several of them with commas.

    Raises:
        UsageError: Anything else, or a number out of range.
    """
    found: set[int] = set()
    for word in text.replace(" ", "").split(","):
        found.update(_numbers(word, text))
    wrong = [n for n in found if not _FEWEST <= n <= _MOST]
    if wrong:
        raise UsageError(f"numbers of atoms must be {_FEWEST} to {_MOST}, not {min(wrong)}")
    return tuple(sorted(found))


def _numbers(word: str, text: str) -> Sequence[int]:
    if word.isdecimal() and word.isascii():
        return [int(word)]
    matched = _RANGE.fullmatch(word)
    if matched is None:
        raise UsageError(f"atoms {text!r} are not of the form 10..100, 10..100:5 or 30,60,100")
    first, last = int(matched[1]), int(matched[2])
    stride = int(matched[3] or _DEFAULT_STRIDE)
    if first > last or stride < 1:
        raise UsageError(f"atoms {word!r} hold no number: the first is above the last, or stride 0")
    return range(first, min(last, _MOST + 1) + 1, stride)


def parse_choices(name: str, text: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Words with commas between them, each one of the choices, each once.

    Raises:
        UsageError: A word is none of them, or there is none.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if word not in choices]
    if wrong or not words:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise UsageError(f"{name} must be one or more of {', '.join(choices)}, not {shown}")
    return tuple(dict.fromkeys(words))
