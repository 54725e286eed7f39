"""Anticipated problems: exceptions that carry an exit code, and the `Failure` value.

Raise for the caller's mistake, return a `Failure` for one spectrum's trouble, let bugs crash.
"""

import unicodedata
from dataclasses import dataclass
from typing import Final

# Control characters, line separators and paragraph separators: categories of Unicode.
_BREAKING: Final = ("Cc", "Zl", "Zp")


class DuallgdError(Exception):
    """A problem whose message tells the user, in one sentence, what to do next."""

    exit_code = 1


class UsageError(DuallgdError):
    """The command line or a Python call asks for something impossible."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown, of the wrong type or out of range."""


class UnreadableError(DuallgdError):
    """An input exists but holds nothing that can be read."""

    exit_code = 65


class MissingInputError(DuallgdError):
    """An input file does not exist."""

    exit_code = 66


class WeightsError(DuallgdError):
    """Weights are missing, broken or do not fit."""

    exit_code = 69


class InterruptedRunError(DuallgdError):
    """The user stopped a run; what was computed is kept."""

    exit_code = 130


class FormulaError(ValueError):
    """A text is not a molecular formula, or holds an element outside the vocabulary."""


class UnsupportedElementError(FormulaError):
    """A formula holds elements outside the vocabulary."""


class MoleculeError(ValueError):
    """A structure that cannot be read, or that a bond matrix over heavy atoms cannot express."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one spectrum has no candidates. A value, not an exception: the run goes on.

    Attributes:
        status: One word for the `status` column: no_formula, formula_mismatch, unsupported_adduct,
            unsupported_element, too_large, too_small, no_peaks, unreadable, no_precursor,
            no_candidate, timeout.
        message: One sentence, with the number that was out of bounds and what to do about it.
        stage: read, formula, annotate, sample or assemble.
    """

    status: str
    message: str
    stage: str


def printable(text: str) -> str:
    """The text without anything that ends a line or steers a terminal; spaces stand there."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(char) in _BREAKING else char for char in text)
