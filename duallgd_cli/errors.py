"""Anticipated problems: exceptions that carry an exit code, and the `Failure` value.

Raise for the caller's mistake, return a `Failure` for one spectrum's trouble, let bugs crash.
"""

import re
import reprlib
from dataclasses import dataclass
from typing import Final

# Control characters, line separators, marks that turn the direction of text, lone surrogates.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_FORMULA_STARTS: Final = ("=", "+", "-", "@")  # of a cell that a spreadsheet runs
LONGEST_QUOTE: Final = 200
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = LONGEST_QUOTE


def printable(text: str) -> str:
    """The text without anything that ends a line or steers a terminal; spaces stand there."""
    return text if text.isprintable() else _UNPRINTABLE.sub(" ", text)


def inert(cell: str) -> str:
    """Text that came from a file, so that no spreadsheet runs it."""
    if not cell or cell[0].isalnum():
        return cell
    text = printable(cell).lstrip()
    if len(text) < 2 or not text.startswith(_FORMULA_STARTS):
        return cell
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return cell


def bare(cell: str) -> str:
    """What `inert` made a cell of: names in our own tables are again those of the spectra."""
    return cell[1:] if cell.startswith("'") and inert(cell[1:]) == cell else cell


def quote(found: object) -> str:
    """Input of any type as a message may repeat it: quoted, escaped, 200 characters at most."""
    if not isinstance(found, str):
        try:
            shown = _SHORT.repr(found)
        except ValueError:  # Python writes no integer of more than 4,300 digits
            shown = "a number of thousands of digits"
        return shown if len(shown) <= LONGEST_QUOTE else f"{shown[: LONGEST_QUOTE - 3]}..."
    shown = repr(found[: LONGEST_QUOTE + 1])  # escapes what is not printable
    return shown if len(shown) <= LONGEST_QUOTE else f"{shown[: LONGEST_QUOTE - 4]}...{shown[-1]}"


def clip(text: str) -> str:
    """The same without quotation marks, for names of things."""
    return quote(text)[1:-1]


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things in words: ``1 peak``, ``2 peaks``, or another plural where given."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


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


class WorkerDiedError(DuallgdError):
    """A process that shared the work was ended from outside; the same command may succeed."""

    exit_code = 75


class InterruptedRunError(DuallgdError):
    """The user stopped a run; what was computed is kept."""

    exit_code = 130


class FormulaError(ValueError):
    """A text is not a molecular formula, or holds an element outside the vocabulary."""


class UnsupportedElementError(FormulaError):
    """A formula holds elements outside the vocabulary."""


class MoleculeError(ValueError):
    """A structure that cannot be read, or that a bond matrix over heavy atoms cannot express.

    Its reason is in words under which structures can be counted.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one spectrum has no candidates. A value, not an exception: the run goes on."""

    # one word for the `status` column: no_formula, formula_mismatch, unsupported_adduct,
    # unsupported_element, too_large, too_small, no_peaks, unreadable, no_precursor,
    # unsupported_measurement, same_compound, no_candidate, timeout
    status: str
    message: str  # one sentence, with the number that was out of bounds and what to do about it


class OutOfTimeError(Exception):
    """One spectrum used up its time; raised between steps and turned into status ``timeout``."""


class RefusedError(Exception):
    """A hypothesis that cannot be predicted; whoever tries it turns it into a row that says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)  # as other processes make it again
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.message
