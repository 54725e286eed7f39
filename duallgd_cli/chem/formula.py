"""Molecular formulas: parsing, printing, mass, and the atom list a formula alone determines."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import (
    ATOMIC_NUMBERS,
    ELECTRON_MASS_DA,
    HYDROGEN,
    INDEX,
    LOWEST_VALENCES,
    MASSES_DA,
    METALS,
    N_ELEMENTS,
    N_HEAVY,
    SYMBOLS,
)
from duallgd_cli.errors import FormulaError, UnsupportedElementError, quote

_TOKEN: Final = re.compile(r"([A-Z][a-z]?)(\d*)|(\()|(\))(\d*)", re.ASCII)
_CHARGE: Final = re.compile(r"(?:\^?(\d*)([+-])|([+-])(\d*))$", re.ASCII)
_SUBSCRIPTS: Final = str.maketrans("₀₁₂₃₄₅₆₇₈₉⁺⁻\u2212", "0123456789+--")
_MAX_COUNT: Final = 9999
_MAX_CHARGE: Final = 99
_MAX_LENGTH: Final = 500  # characters; far beyond any molecule, far below what int() refuses


@dataclass(frozen=True)
class Formula:
    """Counts of each element, in the order of `elements.SYMBOLS`, and the net charge."""

    counts: tuple[int, ...]  # N_ELEMENTS of them, none negative; the last is hydrogen
    charge: int = 0

    def __post_init__(self) -> None:
        if len(self.counts) != N_ELEMENTS or min(self.counts) < 0:
            raise FormulaError(f"counts must be {N_ELEMENTS} non-negative integers: {self.counts}")

    @classmethod
    def parse(cls, text: str) -> "Formula":
        """Read a formula such as ``C9H8O4``, ``(CH3)2CO`` or ``[C5H14NO]+``.

        Raises:
            UnsupportedElementError: An element outside the vocabulary, named in the message.
            FormulaError: Anything that is not a formula.
        """
        counts, charge = Counter[str](), 0
        if len(text) <= _MAX_LENGTH:
            body, charge = _split_charge(text.strip().translate(_SUBSCRIPTS).replace(" ", ""))
            counts = _count(body)
        if not counts or max(counts.values()) > _MAX_COUNT or abs(charge) > _MAX_CHARGE:
            raise FormulaError(
                f"{quote(text.strip())} is not a molecular formula; write it like C9H8O4"
            )
        foreign = [symbol for symbol in counts if symbol not in INDEX]
        if foreign:
            advice = "check it, no others can be drawn"
            if METALS.keys() & set(foreign):
                advice = "leave out the atoms of an adduct, no others can be drawn"
            raise UnsupportedElementError(
                f"formula {quote(text.strip())} holds {', '.join(foreign[:9])}; "
                f"supported elements are {' '.join(SYMBOLS)}; {advice}"
            )
        return cls(tuple(counts[symbol] for symbol in SYMBOLS), charge)

    @cached_property
    def atoms_mass(self) -> float:
        """Monoisotopic mass of the neutral atoms, Da."""
        return sum(n * m for n, m in zip(self.counts, MASSES_DA, strict=True))

    @property
    def mass(self) -> float:
        """Monoisotopic mass in Da, electrons of the charge accounted for."""
        return self.atoms_mass - self.charge * ELECTRON_MASS_DA

    @cached_property
    def array(self) -> NDArray[np.int16]:
        """Counts as int16, shape (N_ELEMENTS,)."""
        return np.asarray(self.counts, dtype=np.int16)

    @property
    def hydrogens(self) -> int:
        """Number of hydrogen atoms."""
        return self.counts[HYDROGEN]

    @property
    def n_heavy(self) -> int:
        """Number of atoms other than hydrogen."""
        return sum(self.counts[:N_HEAVY])

    @cached_property
    def atom_class(self) -> NDArray[np.int64]:
        """Heavy atoms sorted by element: the only atom order the network ever sees, shape (N,)."""
        return np.repeat(np.arange(N_HEAVY, dtype=np.int64), self.counts[:N_HEAVY])

    @property
    def unsaturation(self) -> float:
        """Rings plus double bonds, from standard valences (degree of unsaturation)."""
        excess = sum(n * (v - 2) for n, v in zip(self.counts, LOWEST_VALENCES, strict=True))
        return 1 + (excess + self.charge) / 2

    @property
    def has_even_electrons(self) -> bool:
        """Whether a closed-shell structure can exist: an even number of electrons."""
        electrons = sum(n * z for n, z in zip(self.counts, ATOMIC_NUMBERS, strict=True))
        return (electrons - self.charge) % 2 == 0

    def __str__(self) -> str:
        """Hill order: carbon, hydrogen, then alphabetical; without carbon all alphabetical."""
        body = hill(dict(zip(SYMBOLS, self.counts, strict=True)))
        sign = "+" if self.charge > 0 else "-"
        size = str(abs(self.charge)) if abs(self.charge) > 1 else ""
        return body + (sign + size if self.charge else "")


def hill(atoms: Mapping[str, int]) -> str:
    """Atoms in Hill's order: carbon and hydrogen first where there is carbon, then the alphabet."""
    first = ("C", "H") if atoms.get("C") else ()
    order = sorted(filter(atoms.get, atoms), key=lambda symbol: (symbol not in first, symbol))
    return "".join(f"{symbol}{n}" if (n := atoms[symbol]) > 1 else symbol for symbol in order)


def _split_charge(body: str) -> tuple[str, int]:
    match = _CHARGE.search(body)
    if match is None:
        return body.strip("[]"), 0
    head, before, after = body[: match.start()], match[1] or "", match[4] or ""
    if head.endswith("]") and head.startswith("["):
        head, digits = head[1:-1], before or after
    elif body[match.start()] == "^":
        digits = before
    else:
        # Digits before the sign belong to the last element: C5H14NO+ has charge one.
        head, digits = (head + before).rstrip("^"), after
    return head, int(digits or 1) * (1 if "+" in match[0] else -1)


def _count(body: str) -> Counter[str]:
    """How many atoms of each element, none where the text is no formula."""
    if _TOKEN.sub("", body):
        return Counter()
    groups = [Counter[str]()]
    for symbol, number, opening, _, times in _TOKEN.findall(body):
        if symbol:
            groups[-1][symbol] += int(number or 1)
        elif opening:
            groups.append(Counter())
        elif len(groups) == 1:
            return Counter()
        else:
            inner = groups.pop()
            groups[-1].update({symbol: n * int(times or 1) for symbol, n in inner.items()})
    return +groups[0] if len(groups) == 1 else Counter()
