"""What formulas and structures say of peaks: fragments, neutral losses and isotopes, for the eye.

The fragments of a candidate are those of the fragmentation score, so that the page shows what was
scored.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from duallgd_cli.chem.adduct import Adduct, parent_formula, parse_adduct
from duallgd_cli.chem.elements import METALS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.molecule import Mol, disassemble
from duallgd_cli.data.fragmentation import (
    CARRIED,
    SCORED_TRIPLES,
    explaining_fragments,
    fragments_of_isomers,
)
from duallgd_cli.errors import FormulaError, MoleculeError
from duallgd_cli.formulas.peaks import isotope_ratios
from duallgd_cli.results import ExplainedPeak
from duallgd_cli.spectra.types import ISOTOPES, IsotopePattern

# What a sub-formula ends with: the metals that the fragment kept, and a charge that is not one.
_KEPT: Final = re.compile(rf"(?P<metals>(?:(?:{'|'.join(METALS)})\d?)*)(?:[+-]\d)?$")
_LEAST_ISOTOPE: Final = 0.005  # of the monoisotopic ion, from which on an isotope is shown


@lru_cache(maxsize=10_000)  # the candidates of a feature ask for the same ones
def _subformula(text: str) -> Formula | None:
    """A sub-formula as journals write it, without the metals and charge it may end with."""
    try:
        return Formula.parse(_KEPT.sub("", text))
    except FormulaError:
        return None


@lru_cache(maxsize=1000)
def _ion(formula: str, adduct: str) -> tuple[Formula, tuple[str, ...]] | None:
    """Atoms and metals of an ion, None where they are unclear."""
    ion = parse_adduct(adduct)
    if not isinstance(ion, Adduct):
        return None
    try:
        return parent_formula(Formula.parse(formula), ion), ion.metals
    except FormulaError:
        return None


def neutral_loss(formula: str, adduct: str, subformula: str) -> str:
    """What an ion has lost where a fragment of this sub-formula is left, "" if that is unclear."""
    part, whole = _subformula(subformula), _ion(formula, adduct)
    if part is None or whole is None:
        return ""
    atoms, metals = whole
    try:
        lost = Formula(tuple(a - b for a, b in zip(atoms.counts, part.counts, strict=True)))
    except FormulaError:
        return ""
    kept = _KEPT.search(subformula)
    left = [*metals]
    for symbol, n in re.findall(r"([A-Z][a-z]?)(\d*)", kept["metals"] if kept else ""):
        del left[left.index(symbol) : left.index(symbol) + int(n or 1)]
    return str(lost) + "".join(left)


def fragments_of(
    mol: Mol | None, adduct: str, peaks: Sequence[ExplainedPeak]
) -> list[tuple[int, list[int]]]:
    """The fragments of a candidate that explain peaks.

    Of other adducts than `CARRIED` the charge's sign decides; `mol` is None for what is none.

    Returns:
        Pairs of a place among `peaks` and the fragment's atoms, by their RDKit numbers.
    """
    ion = parse_adduct(adduct)
    try:
        whole = None if mol is None else disassemble(mol)
    except MoleculeError:
        whole = None
    if whole is None or not isinstance(ion, Adduct):
        return []
    graph, order = whole
    parsed = [(place, _subformula(peak.formula)) for place, peak in enumerate(peaks)]
    known = [(place, formula) for place, formula in parsed if formula is not None]
    if not known or not len(graph.pair):
        return []
    found = fragments_of_isomers([graph], SCORED_TRIPLES)
    carried = 0 if ion.metals else CARRIED.get(ion.index, ion.polarity)
    rows, which, _ = explaining_fragments(found, carried, np.stack([f.array for _, f in known]))
    return [
        (known[row][0], sorted(order[found.inside[fragment]].tolist()))
        for row, fragment in zip(rows.tolist(), which.tolist(), strict=True)
    ]


def isotopes_of(pattern: IsotopePattern | None, formula: str, adduct: str) -> dict[str, Any] | None:
    """The isotopes that MS1 shows of an ion beside those of a formula.

    Returns:
        ``formula`` with its adduct, and ``bars``: how much heavier, measured and expected, relative
        to the monoisotopic ion. None where MS1 shows none, or there is no formula.
    """
    ion = parse_adduct(adduct)
    try:
        counts = np.array([Formula.parse(formula).counts])
    except FormulaError:
        return None
    if pattern is None or not isinstance(ion, Adduct):
        return None
    (expected,) = isotope_ratios(counts, ion)
    measured = np.array(pattern.intensity[1:]) / pattern.intensity[0]
    bars = [[0, 1.0, 1.0]] + [
        [offset, round(float(here), 4), round(float(there), 4)]
        for offset, here, there in zip(ISOTOPES, measured, expected, strict=True)
        if max(here, there) >= _LEAST_ISOTOPE
    ]
    return {"formula": formula, "adduct": adduct, "bars": sorted(bars)}
