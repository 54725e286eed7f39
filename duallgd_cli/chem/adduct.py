"""Adducts: how a molecule became the measured ion, their spellings, and their arithmetic."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from duallgd_cli.chem.elements import (
    ELECTRON_MASS_DA,
    INDEX,
    MASSES_DA,
    POTASSIUM_MASS_DA,
    SODIUM_MASS_DA,
    SYMBOLS,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import FormulaError


@dataclass(frozen=True)
class Adduct:
    """A supported ionisation.

    Attributes:
        name: Canonical spelling, such as ``[M+H]+``.
        change: Counts added to the molecule, in `elements.SYMBOLS` order; negative where lost.
        charge: Signed charge of the ion (always 1 or -1).
        metal_mass_da: Mass of a sodium or potassium atom held by the ion, 0 otherwise.
        carrier: 0 none, 1 sodium, 2 potassium.
        index: Row of the adduct in every model's embedding.
    """

    name: str
    change: tuple[int, ...]
    charge: int
    metal_mass_da: float
    carrier: int
    index: int

    @property
    def polarity(self) -> int:
        """1 for positive, -1 for negative mode."""
        return 1 if self.charge > 0 else -1

    @property
    def mass_shift(self) -> float:
        """Precursor m/z minus the mass of the molecule's atoms, Da."""
        atoms = sum(n * m for n, m in zip(self.change, MASSES_DA, strict=True))
        return atoms + self.metal_mass_da - self.charge * ELECTRON_MASS_DA


# (name, atoms gained or lost apart from the metal, metal). The row number is `Adduct.index`, which
# checkpoints rely on: append, never reorder.
_ROWS: Final[tuple[tuple[str, dict[str, int], str], ...]] = (
    ("[M+H]+", {"H": 1}, ""),
    ("[M+Na]+", {}, "Na"),
    ("[M+K]+", {}, "K"),
    ("[M+NH4]+", {"N": 1, "H": 4}, ""),
    ("[M-H2O+H]+", {"O": -1, "H": -1}, ""),
    ("[M]+", {}, ""),
    ("[M-H]-", {"H": -1}, ""),
    ("[M+HCOO]-", {"C": 1, "H": 1, "O": 2}, ""),
    ("[M+CH3COO]-", {"C": 2, "H": 3, "O": 2}, ""),
    ("[M+Cl]-", {"Cl": 1}, ""),
)
_METALS: Final = {"": (0.0, 0), "Na": (SODIUM_MASS_DA, 1), "K": (POTASSIUM_MASS_DA, 2)}


def _row(index: int, name: str, atoms: Mapping[str, int], metal: str) -> Adduct:
    mass_da, carrier = _METALS[metal]
    change = tuple(atoms.get(symbol, 0) for symbol in SYMBOLS)
    return Adduct(name, change, 1 if name.endswith("+") else -1, mass_da, carrier, index)


ADDUCTS: Final = tuple(_row(index, *row) for index, row in enumerate(_ROWS))
BY_NAME: Final = {adduct.name: adduct for adduct in ADDUCTS}
PERMANENT_CATION: Final = BY_NAME["[M]+"]
_BY_CHANGE: Final = {
    (adduct.change, adduct.carrier): adduct
    for adduct in ADDUCTS
    if adduct is not PERMANENT_CATION  # "M" alone says nothing; "[M]+" is matched by its charge
}

_TYPOGRAPHY: Final = str.maketrans(
    {"\u2212": "-", "\u2013": "-", "\u2010": "-", "\u2011": "-", "⁺": "+", "⁻": "-", "¹": "1"}
    | {"(": "[", ")": "]", "{": "[", "}": "]"}
)
# No adduct is that long, and int() refuses thousands of digits.
_SHAPE: Final = re.compile(r"\[?M(?P<terms>[^\[\]]{0,200}?)\]?(?P<charge>1?[+-]1?)?")
_TERM: Final = re.compile(r"([+-])([0-9]*)([A-Za-z][A-Za-z0-9]*)")
_ELEMENT: Final = re.compile(r"([A-Z][a-z]?)(\d*)")
# Names of solvents and salts that stand in adducts in place of formulas, lower case.
_NAMED: Final = {
    "fa": "CH2O2",
    "formate": "CHO2",
    "for": "CHO2",
    "hac": "C2H4O2",
    "acoh": "C2H4O2",
    "hoac": "C2H4O2",
    "oac": "C2H3O2",
    "ac": "C2H3O2",
    "acetate": "C2H3O2",
}


def parse_adduct(text: str) -> Adduct | None:
    """The supported adduct that a spelling means, or None.

    Brackets, spaces, the sign and the order of the terms are free: ``M+H``, ``[M+H]1+``,
    ``[M+H-H2O]+``, ``[M+FA-H]-``, ``[M-H+HCOOH]-``, ``M+Hac-H``, ``[M+OAc]-`` and ``M+`` are all
    understood, since what counts is the sum of the atoms. ``M`` without a charge, radical ions
    (``[M]+.``), multimers and multiply charged ions give None.
    """
    compact = re.sub(r"\s+", "", text).translate(_TYPOGRAPHY)
    match = _SHAPE.fullmatch(compact)
    if match is None:
        return None
    charge = {"+": 1, "-": -1}.get((match["charge"] or "").strip("1"), 0)
    if not match["terms"]:
        return PERMANENT_CATION if charge == 1 else None
    atoms = _sum_terms(match["terms"])
    if atoms is None:
        return None
    carrier = {(0, 0): 0, (1, 0): 1, (0, 1): 2}.get((atoms.pop("Na", 0), atoms.pop("K", 0)))
    if carrier is None or not atoms.keys() <= INDEX.keys():
        return None
    change = tuple(atoms.get(symbol, 0) for symbol in SYMBOLS)
    adduct = _BY_CHANGE.get((change, carrier))
    return adduct if adduct is not None and charge in (0, adduct.charge) else None


def _sum_terms(terms: str) -> Counter[str] | None:
    """Atoms gained or lost by terms such as ``+FA-H``; None where one is not understood."""
    if terms == "H":  # MH+
        terms = "+H"
    total: Counter[str] = Counter()
    position = 0
    for match in _TERM.finditer(terms):
        body = _NAMED.get(match[3].lower(), match[3])
        elements = _ELEMENT.findall(body)
        if match.start() != position or "".join(s + n for s, n in elements) != body:
            return None
        position = match.end()
        factor = int(match[2] or 1) * (1 if match[1] == "+" else -1)
        for symbol, number in elements:
            total[symbol] += factor * int(number or 1)
    return total if position == len(terms) else None


def parent_formula(formula: Formula, adduct: Adduct) -> Formula:
    """The ion's atoms without its metal: what fragments are made of.

    The charge is the ion's, or 0 for a sodium or potassium adduct, whose metal carries it.

    Raises:
        FormulaError: The adduct takes away atoms that the molecule does not have.
    """
    counts = tuple(n + d for n, d in zip(formula.counts, adduct.change, strict=True))
    if min(counts) < 0:
        lost = SYMBOLS[counts.index(min(counts))]
        raise FormulaError(f"{adduct.name} takes away {lost}, of which {formula} has too little")
    return Formula(counts, 0 if adduct.carrier else adduct.charge)


def precursor_mz(formula: Formula, adduct: Adduct) -> float:
    """Monoisotopic m/z of the ion of a molecule (for [M]+: of the cation itself)."""
    return formula.atoms_mass + adduct.mass_shift


def fits(formula: Formula, adduct: Adduct) -> bool:
    """Whether a closed-shell molecule of this formula can form this adduct.

    A permanent cation goes with [M]+ alone: its formula has charge 1, or is written without the
    charge and then has an odd number of electrons. Everything else is a neutral molecule.
    """
    if adduct is PERMANENT_CATION:
        return formula.charge in (0, 1) and Formula(formula.counts, 1).has_even_electrons
    if formula.charge != 0 or not formula.has_even_electrons:
        return False
    return all(n + d >= 0 for n, d in zip(formula.counts, adduct.change, strict=True))


def infer_adduct(formula: Formula, mz: float, polarity: int, ppm: float) -> list[Adduct]:
    """Every adduct by which a molecule gives an ion at a measured m/z.

    Args:
        formula: Of the molecule (neutral, or of a permanent cation).
        mz: Precursor m/z.
        polarity: 1, -1, or 0 if unknown.
        ppm: Largest difference, relative to `mz`.
    """
    return [
        adduct
        for adduct in ADDUCTS
        if polarity in (0, adduct.polarity)
        and fits(formula, adduct)
        and abs(precursor_mz(formula, adduct) - mz) <= ppm * 1e-6 * mz
    ]
