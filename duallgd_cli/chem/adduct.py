"""Adducts: how a molecule became the measured ion, read by rule, and their arithmetic.

An adduct is a number of molecules, groups gained and lost, and a charge. Groups are formulas or the
field's names for them; each carries a charge of its own, so that the charge of the ion follows.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from duallgd_cli.chem.elements import (
    ELECTRON_MASS_DA,
    INDEX,
    LOWEST_VALENCES,
    MASSES_DA,
    METALS,
    SYMBOLS,
)
from duallgd_cli.chem.formula import Formula, hill
from duallgd_cli.errors import Failure, FormulaError, quote

# Monoisotopic mass of every element that an adduct may hold, Da.
_MASSES: Final = dict(zip(SYMBOLS, MASSES_DA, strict=True)) | {m: METALS[m][0] for m in METALS}


class Carrier(NamedTuple):
    """What a fragment may keep of its ion beside sub-formulas of one molecule."""

    molecules: int  # whole further ones of a multimer
    metals: str  # as they end a formula, such as "Na" or "Na2"; "" for none
    metal_mass_da: float  # of them all
    charge: int  # of the fragment, signed
    protons: int  # charge that no metal carries: hydrogen ions gained, negative where lost


@dataclass(frozen=True)
class Adduct:
    """An ionisation."""

    name: str = field(compare=False)  # canonical spelling, such as "[M+H]+" or "[2M+ACN+H]+"
    change: tuple[int, ...]  # counts added to the molecules, in the order of `SYMBOLS`
    metals: tuple[str, ...]  # symbol of every metal atom held by the ion, in alphabetical order
    charge: int  # of the ion, signed
    index: int  # row, in every model's embedding, of the adduct that networks take it for
    molecules: int = 1  # how many the ion holds

    @property
    def polarity(self) -> int:
        """1 for positive, -1 for negative mode."""
        return 1 if self.charge > 0 else -1

    @property
    def trained(self) -> "Adduct":
        """The adduct that networks were trained on and take this one for, often itself."""
        return ADDUCTS[self.index]

    @property
    def note(self) -> str:
        """Sentence on an adduct that networks were not trained on, else ""."""
        if self == self.trained:
            return ""
        return (
            f"networks were not trained on {self.name} and take it for {self.trained.name}; "
            "probabilities are not calibrated for it"
        )

    @cached_property
    def mass_shift(self) -> float:
        """Mass of the ion minus that of the molecules' atoms, Da."""
        atoms = sum(n * m for n, m in zip(self.change, MASSES_DA, strict=True))
        metals = sum(_MASSES[symbol] for symbol in self.metals)
        return atoms + metals - self.charge * ELECTRON_MASS_DA

    def neutral_mass(self, mz: float) -> float:
        """Mass of the atoms of one molecule whose ion has this m/z, Da."""
        return (mz * abs(self.charge) - self.mass_shift) / self.molecules

    def mz(self, mass: float) -> float:
        """m/z of the ion of molecules of this mass of atoms, Da."""
        return (mass * self.molecules + self.mass_shift) / abs(self.charge)

    @cached_property
    def carriers(self) -> tuple[Carrier, ...]:
        """What fragments may keep: first nothing but one charge, last all that the ion has."""
        own, one = self.charge - _charge_of_metals(self.metals), self.polarity
        # A fragment is not more often protonated or deprotonated than its ion, or once.
        fewest, most = min(own, one, 0), max(own, one, 0)
        counts = Counter(self.metals)
        carriers = []
        for molecules, *kept in itertools.product(
            range(self.molecules), *(range(n + 1) for n in counts.values())
        ):
            metals = Counter(dict(zip(counts, kept, strict=True)))
            mass = sum(_MASSES[symbol] for symbol in metals.elements())
            for charge in range(one, self.charge + one, one):
                protons = charge - _charge_of_metals(metals.elements())
                if fewest <= protons <= most:
                    carriers.append(Carrier(molecules, hill(metals), mass, charge, protons))
        return tuple(carriers)


def _charge_of_metals(metals: Iterable[str]) -> int:
    return sum(METALS[symbol][1] for symbol in metals)


_DASHES: Final = dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-")
_BRACKETS: Final = {"(": "[", ")": "]", "{": "[", "}": "]", "\u02d9": "*"}
_TYPOGRAPHY: Final = str.maketrans(_DASHES | _BRACKETS | dict.fromkeys("^'\""))
# What stands beside an adduct and is no part of it, and usual forms in terms of the rest.
_NEUTRAL_MASS: Final = re.compile(r"(?<=[\]+\d-])\s+\d+\.\d+\s*$")  # [M+H]+ 194.08, as CAMERA
_USUAL_FORMS: Final = tuple(
    (re.compile(form, re.IGNORECASE), usual)
    for form, usual in (
        (r"\s+", ""),
        (r"\]?\[(\d{0,2}[+-]|[+-]\d{1,2}|[+-]{2,3})\]$", r"]\1"),  # M+H[1+], as mummichog
        (r"^(\[?\d?M[^\]]*)\](\d?[+-]\d?)\[?([+-]\d?[A-Z][^\]]*)\]?$", r"\1\3]\2"),  # [M+H]+[-H2O]
        (r"([+-])\[([A-Z]\w*)\](\d)(?=[+\]-])", r"\1\3\2"),  # [M+(H2O)2+H]+
        (r"([+-]\d?)\[(\w+?)[+-]?\]", r"\1\2"),  # [M-2(H2O)+(H+)]+
        (r"(?<=\w)([+-])\]\1?$", r"]\1"),  # [M+H+]
        (r"^\[(?:Cat|C)\](?=\d?[+-])|^Cat(?=[+-])", "[M]"),
    )
)
_SEVERAL: Final = re.compile(
    r"[;,|/&]|\bor\b|\band\b|(?<=[+-])\s*(?=\[\d?M)|(?<=[+\d-])\s+\d+\.\d+\s+(?=\[)"
)
# No adduct is that long. Without a bracket, digits before the sign belong to the last group.
_SHAPE: Final = re.compile(
    r"\[?(?P<molecules>[1-9]?)[Mm](?P<terms>[^\[\]]{0,200}?)"
    r"(?:(?P<bracket>\](?P<before>[1-9]?\d?))?(?P<sign>\+{1,3}|-{1,3})(?P<after>[1-9]?\d?)|\]?)"
)
_TERM: Final = re.compile(r"([+-])([0-9]{0,2})([A-Za-z][A-Za-z0-9]*)")
_ELEMENT: Final = re.compile(r"([A-Z][a-z]?)([0-9]{0,2})")
_RADICAL: Final = re.compile(r"[*•·●∙⋅]|\.(?!\d)|[+-]\d?e(?![a-z])")
# Charge carriers that some programs write without their molecule: Na+, +H, (+NH4)+.
_BARE: Final = re.compile(
    r"\[?(?P<way>[+-]?)(?P<group>H|Na|K|Li|NH4|Cl|Br|I|Ag|Rb|Cs|HCOO|CHO2|CH3COO|C2H3O2|CF3COO)"
    r"\]?1?(?P<sign>[+-]?)1?\]?"
)
_ISOTOPE: Final = re.compile(
    r"(?<![A-Za-z\d])(?:(\d{1,3})([A-Z][a-z]?)(?![a-z\d])|([A-Z][a-z]?)(\d{2,3})(?![A-Za-z\d]))",
    re.IGNORECASE,
)
_LONGEST: Final = 300  # characters of an adduct
_MOST_ATOMS: Final = 99  # of an element, gained or lost
_LEAST_MASS_NUMBER: Final = 6  # smaller numbers beside an element count its atoms
_ISOTOPE_SPAN: Final = 4  # mass numbers that far from the usual one count atoms
# Names of solvents and salts that stand in adducts in place of formulas, lower case.
_NAMED: Final = {
    **dict.fromkeys(("fa", "hfa", "formicacid"), "CH2O2"),
    **dict.fromkeys(("formate", "for"), "CHO2"),
    **dict.fromkeys(("hac", "acoh", "hoac", "aceticacid"), "C2H4O2"),
    **dict.fromkeys(("oac", "ac", "aco", "acetate"), "C2H3O2"),
    **dict.fromkeys(("acn", "mecn", "acetonitrile"), "C2H3N"),
    **dict.fromkeys(("isoprop", "ipa", "iproh", "isopropanol"), "C3H8O"),
    **dict.fromkeys(("meoh", "methanol"), "CH4O"),
    **dict.fromkeys(("etoh", "ethanol"), "C2H6O"),
    "tfa": "C2HF3O2",
    "dmso": "C2H6OS",
    "dmf": "C3H7NO",
    "ammonium": "NH4",
    "water": "H2O",
    "h20": "H2O",  # a zero for the letter, in the most copied table of adducts
}
# Acids under whose names some programs mean the anions: [M+FA]-.
_ANIONS: Final = {"fa": "CHO2", "tfa": "C2F3O2", "hac": "C2H3O2"}
# How groups are usually written, where that is not in Hill's order.
_USUAL: Final = {"H3N": "NH3", "H4N": "NH4", "C2H3N": "ACN", "C2F3O2": "CF3COO", "C2HF3O2": "TFA"}


_HOW_TO_WRITE: Final = "write it like [M+H]+, [2M+Na]+, [M+2H]2+ or [M+ACN+H]+"


class _NoAdductError(Exception):
    """Why a text is no adduct; never leaves here."""


@lru_cache(maxsize=1024)
def parse_adduct(text: str) -> Adduct | Failure:
    """The adduct that a spelling means, or in one sentence why it means none.

    Brackets, spaces, signs, upper and lower case and the order of the groups are free:
    ``[M+H]1+``, ``2M+H``, ``[M+2H]++``, ``M+ACN+H`` and ``[m+na]+`` are understood. An adduct that
    networks were trained on is recognised by the sum of its atoms, another one gets a name of its
    own. Radical ions, isotopes (``[M+37Cl]-``) and several adducts at once are refused.
    """
    try:
        if len(text) > _LONGEST:
            raise _NoAdductError(_HOW_TO_WRITE)
        written = unicodedata.normalize("NFKC", text.translate(_TYPOGRAPHY)).translate(_TYPOGRAPHY)
        parts = list(filter(str.strip, _SEVERAL.split(_NEUTRAL_MASS.sub("", written))))
        if len(parts) == 1:
            return _parsed(parts[0])
        adducts = {parse_adduct(part) for part in parts}
        if len(adducts) == 1 and isinstance(adduct := adducts.pop(), Adduct):
            return adduct
        several = "it may mean several adducts; name one of them"
        raise _NoAdductError(several if parts else _HOW_TO_WRITE)
    except _NoAdductError as error:
        message = f"adduct {quote(text)} is not supported: {error}; left out, it is inferred"
        return Failure("unsupported_adduct", message)


def _parsed(text: str) -> Adduct:
    for form, usual in _USUAL_FORMS:
        text = form.sub(usual, text)
    bare = _BARE.fullmatch(text)
    if bare is not None:
        text = f"[M{bare['way'] or '+'}{bare['group']}]{bare['sign']}"
    if _RADICAL.search(text) or text in ("[M]-", "M-", "m-", "[m]-"):
        raise _NoAdductError("a radical ion is not supported")
    match = _SHAPE.fullmatch(_ISOTOPE.sub(_monoisotopic, text))
    if match is None:
        raise _NoAdductError(_HOW_TO_WRITE)
    sign, molecules = match["sign"] or "", int(match["molecules"] or 1)
    stated = int(match["before"] or match["after"] or len(sign)) * (-1 if "-" in sign else 1)
    terms = match["terms"]
    if not terms:
        # M+1 is an isotope to some and [M+H]+ to others.
        if (molecules, stated) == (1, 1) and (match["bracket"] or not match["after"]):
            return PERMANENT_CATION
        raise _NoAdductError("it says neither what M gains nor what it loses; write it like [M+H]+")
    if terms[0] not in "+-":  # MNa+, [MH2]2+
        terms = re.sub(r"^\+H(\d)$", r"+\1H", f"+{terms}")
    faults = []
    for in_any_case, named in itertools.product((False, True), (_NAMED, _NAMED | _ANIONS)):
        try:
            return _summed(_groups(terms, named, in_any_case), molecules, stated)
        except _NoAdductError as fault:
            faults.append(fault)
    raise faults[0]


def _summed(groups: Counter[str], molecules: int, stated: int) -> Adduct:
    """The adduct of these groups, where their charges add up to the stated one (0: not stated)."""
    change, metals = _change(groups)
    exact = _BY_CHANGE.get((change, metals)) if molecules == 1 else None
    charge = sum(factor * _charge_of(group) for group, factor in groups.items())
    charge = charge if exact is None else exact.charge
    if charge == 0 or stated not in (0, charge):
        but = f", not {stated:+d}" if stated else ", which is no ion"
        raise _NoAdductError(f"its groups give charge {charge:+d}{but}")
    name = _name(molecules, groups, charge)
    index = BY_NAME[_nearest(change, metals, charge)].index
    return exact or Adduct(name, change, metals, charge, index, molecules)


def _monoisotopic(match: re.Match[str]) -> str:
    """A mass number beside an element, such as 35Cl or Cl35, left out where it is the usual one."""
    symbol, number = (match[2] or match[3]).capitalize(), int(match[1] or match[4])
    usual = round(_MASSES.get(symbol, 0.0))
    if symbol == "H" or number < _LEAST_MASS_NUMBER or abs(number - usual) > _ISOTOPE_SPAN:
        return match[0]
    if number != usual:
        raise _NoAdductError(f"it holds the isotope {match[0]}; name the monoisotopic adduct")
    return symbol


def _change(groups: Counter[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Atoms that groups add, in `SYMBOLS` order, and the metals among them."""
    atoms: Counter[str] = Counter()
    for group, factor in groups.items():
        for symbol, number in _atoms(group).items():
            atoms[symbol] += factor * number
    if max(map(abs, atoms.values()), default=0) > _MOST_ATOMS:
        raise _NoAdductError(f"no adduct has more than {_MOST_ATOMS} atoms of an element")
    if any(atoms[symbol] < 0 for symbol in METALS):
        raise _NoAdductError("M holds no metal that it could lose")
    metals = sorted(symbol for symbol in METALS for _ in range(atoms[symbol]))
    return tuple(atoms[symbol] for symbol in SYMBOLS), tuple(metals)


def _groups(terms: str, named: Mapping[str, str], in_any_case: bool) -> Counter[str]:
    """How often each group is gained, by its formula in Hill's order; negative where lost.

    Groups may have names, in lower case here; in any case, letters are read as elements whatever
    their case where there is one way to do so.
    """
    groups: Counter[str] = Counter()
    position = 0
    for match in _TERM.finditer(terms):
        body = named.get(match[3].lower(), match[3])
        if in_any_case:
            spelled = _spellings(body.lower())
            body = spelled[0] if len(spelled) == 1 else body
        elements = _ELEMENT.findall(body)
        if match.start() != position or "".join(s + n for s, n in elements) != body:
            break
        position = match.end()
        groups[hill(_atoms(body))] += int(match[2] or 1) * (1 if match[1] == "+" else -1)
    if position != len(terms):
        raise _NoAdductError(f"the group {quote(terms[position:])} is no formula and no known name")
    return groups


def _spellings(letters: str) -> list[str]:
    """Formulas that a text in lower case may be, two at most: of ``nacl`` NaCl, of ``si`` two."""
    ends: list[list[str]] = [[] for _ in letters] + [[""]]
    for at in reversed(range(len(letters))):
        for size in (1, 2):
            symbol, rest = letters[at : at + size].capitalize(), letters[at + size :]
            if len(symbol) == size and symbol in _MASSES:
                digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
                ends[at] += [f"{symbol}{digits}{end}" for end in ends[at + size + len(digits)]]
        ends[at] = ends[at][:2]
    return ends[0]


def _atoms(group: str) -> Counter[str]:
    atoms: Counter[str] = Counter()
    for symbol, number in _ELEMENT.findall(group):
        if symbol not in _MASSES:
            raise _NoAdductError(f"it holds {symbol}; adducts may hold {' '.join(_MASSES)}")
        atoms[symbol] += int(number or 1)
    return atoms


def _charge_of(group: str) -> int:
    """Charge of a group as it comes or goes with all electrons paired: H and Na 1, Cl -1, H2O 0.

    Without its metals a group of an even number of electrons is neutral. Of the others those are
    cations that hold more hydrogen than their valences allow (NH4), H itself and alkyl groups.
    """
    atoms = _atoms(group)
    charge = sum(METALS[symbol][1] * atoms.pop(symbol) for symbol in [*atoms] if symbol in METALS)
    excess = sum(n * (LOWEST_VALENCES[INDEX[symbol]] - 2) for symbol, n in atoms.items())
    if excess % 2 == 0:
        return charge
    is_cation = not atoms.keys() - {"C", "H"} or (atoms["H"] > 0 and excess < -2)
    return charge + (1 if is_cation else -1)


def _nearest(change: tuple[int, ...], metals: tuple[str, ...], charge: int) -> str:
    """Name of the trained adduct whose fragments are likest those of another one."""
    if (same := _BY_CHANGE.get((change, metals))) is not None and same.charge == charge:
        return same.name
    gained = dict(zip(SYMBOLS, change, strict=True))
    if charge > 0:
        if metals:
            return "[M+K]+" if set(metals) == {"K"} else "[M+Na]+"
        return "[M-H2O+H]+" if gained["O"] < 0 and gained["H"] < 0 else "[M+H]+"
    if gained["C"] > 0 and gained["O"] > 1:
        return "[M+HCOO]-" if gained["C"] == 1 else "[M+CH3COO]-"
    return "[M+Cl]-" if any(gained[s] > 0 for s in ("F", "Cl", "Br", "I")) else "[M-H]-"


def _name(molecules: int, groups: Counter[str], charge: int) -> str:
    """The printed form: neutral groups first, what is gained before what is lost."""
    order = sorted(groups, key=lambda g: (_charge_of(g) != 0, groups[g] * _charge_of(g) < 0, g))
    terms = [f"{_sign(groups[g])}{_times(groups[g])}{_USUAL.get(g, g)}" for g in order if groups[g]]
    return f"[{_times(molecules)}M{''.join(terms)}]{_times(charge)}{_sign(charge)}"


def _sign(number: int) -> str:
    return "+" if number > 0 else "-"


def _times(number: int) -> str:
    return str(abs(number)) if abs(number) > 1 else ""


def parent_formula(formula: Formula, adduct: Adduct) -> Formula:
    """The ion's atoms without its metals: what fragments are made of.

    The charge is the ion's, less that of its metals: 0 for a sodium or potassium adduct.

    Raises:
        FormulaError: The adduct takes away atoms that the molecules do not have.
    """
    counts = _counts_of_ion(formula, adduct)
    if min(counts) < 0:
        lost = SYMBOLS[counts.index(min(counts))]
        raise FormulaError(f"{adduct.name} takes away {lost}, of which {formula} has too little")
    return Formula(counts, adduct.charge - _charge_of_metals(adduct.metals))


def precursor_mz(formula: Formula, adduct: Adduct) -> float:
    """Monoisotopic m/z of the ion of a molecule (for [M]+: of the cation itself)."""
    return adduct.mz(formula.atoms_mass)


def fits(formula: Formula, adduct: Adduct) -> bool:
    """Whether a closed-shell molecule of this formula can form this adduct.

    A permanent cation goes with [M]+ alone: its formula has charge 1, or is written without the
    charge and then has an odd number of electrons.
    """
    if adduct is PERMANENT_CATION:
        return formula.charge in (0, 1) and Formula(formula.counts, 1).has_even_electrons
    if formula.charge != 0 or not formula.has_even_electrons:
        return False
    return min(_counts_of_ion(formula, adduct)) >= 0


def _counts_of_ion(formula: Formula, adduct: Adduct) -> tuple[int, ...]:
    changed = zip(formula.counts, adduct.change, strict=True)
    return tuple(n * adduct.molecules + d for n, d in changed)


def infer_adduct(formula: Formula, mz: float, polarity: int, ppm: float) -> list[Adduct]:
    """Trained adducts by which a molecule gives an ion at a measured m/z; polarity may be 0."""
    return [
        adduct
        for adduct in ADDUCTS
        if polarity in (0, adduct.polarity)
        and fits(formula, adduct)
        and abs(precursor_mz(formula, adduct) - mz) <= ppm * 1e-6 * mz
    ]


def _trained(index: int, name: str) -> Adduct:
    change, metals = _change(_groups(name[2 : name.index("]")], _NAMED, in_any_case=False))
    return Adduct(name, change, metals, 1 if name.endswith("+") else -1, index)


# Adducts that networks were trained on. The row number is `Adduct.index`, which checkpoints rely
# on: append, never reorder.
_TRAINED: Final = (
    *("[M+H]+", "[M+Na]+", "[M+K]+", "[M+NH4]+", "[M-H2O+H]+", "[M]+"),
    *("[M-H]-", "[M+HCOO]-", "[M+CH3COO]-", "[M+Cl]-"),
)
ADDUCTS: Final = tuple(_trained(index, name) for index, name in enumerate(_TRAINED))
BY_NAME: Final = {adduct.name: adduct for adduct in ADDUCTS}
PERMANENT_CATION: Final = BY_NAME["[M]+"]
_BY_CHANGE: Final = {
    (adduct.change, adduct.metals): adduct
    for adduct in ADDUCTS
    if adduct is not PERMANENT_CATION  # "M" alone says nothing; "[M]+" is matched by its charge
}
