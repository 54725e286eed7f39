"""What formulas and structures say of peaks: fragments, neutral losses and isotopes, for the eye.

The fragments of a candidate are those of the fragmentation score, so that the page shows what was
scored. C fragments, b bonds.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from duallgd_cli.chem.adduct import Adduct, parent_formula, parse_adduct
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, MASSES_DA, METALS
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
from duallgd_cli.spectra.annotation import excess
from duallgd_cli.spectra.types import ISOTOPES, IsotopePattern

# What a sub-formula ends with: the metals that the fragment kept, and a charge that is not one.
_KEPT: Final = re.compile(rf"(?P<metals>(?:(?:{'|'.join(METALS)})\d?)*)(?:[+-]\d)?$")
_MOST_EXPECTED: Final = 30  # fragments that a candidate is expected to give, cheapest first
_SMALLEST: Final = 3  # heavy atoms of one that is expected
_SAME_DA: Final = 0.003
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
) -> tuple[list[tuple[int, list[int]]], list[tuple[float, float]]]:
    """The fragments of a candidate that explain peaks, and those that are to be expected.

    Of other adducts than `CARRIED` the charge's sign decides; `mol` is None for what is none.

    Returns:
        Pairs of a place among `peaks` and the fragment's atoms, by their RDKit numbers; and pairs
        of m/z and height, 1 for the whole ion, lower the more it takes to cut a fragment out.
    """
    ion = parse_adduct(adduct)
    try:
        whole = None if mol is None else disassemble(mol)
    except MoleculeError:
        whole = None
    if whole is None or not isinstance(ion, Adduct):
        return [], []
    graph, order = whole
    if not len(graph.pair):
        return [], []
    found = fragments_of_isomers([graph], SCORED_TRIPLES)
    carried = 0 if ion.metals else CARRIED.get(ion.index, ion.polarity)
    height = 1 / np.sqrt(1 + found.cost)
    parsed = [(place, _subformula(peak.formula)) for place, peak in enumerate(peaks)]
    known = [(place, formula) for place, formula in parsed if formula is not None]
    explained, expected = [], list[tuple[float, float]]()
    if known:
        rows, which, _ = explaining_fragments(found, carried, np.stack([f.array for _, f in known]))
        for row, fragment in zip(rows.tolist(), which.tolist(), strict=True):
            place = known[row][0]
            atoms = order[found.inside[fragment]].tolist()
            explained.append((place, sorted(atoms)))
            mz = peaks[place].mz / (1 + 1e-6 * peaks[place].ppm)
            expected.append((mz, float(height[fragment])))
    if abs(ion.charge) == 1 and ion.molecules == 1 and not ion.metals:
        likely = np.flatnonzero(found.inside.sum(1) >= min(_SMALLEST, len(graph.element)))
        low, high = (found.inside[likely][:, ends] for ends in graph.pair.T)  # (C, b) each
        of_low, of_high = graph.element[graph.pair.T]
        kept = np.where(low, of_low, of_high)
        keeps_hetero = ((low != high) & (kept > 0)).any(1)
        # All electrons are paired: a heteroatom that was cut off takes a hydrogen, carbon leaves
        # one behind; a negative fragment keeps the pair of the bond.
        unpaired = (excess(found.counts[likely]) - carried) % 2 == 0
        shift = np.where(keeps_hetero | (ion.polarity < 0), 1, -1) * unpaired
        counts = found.counts[likely].astype(np.float64)
        counts[:, HYDROGEN] += carried + shift
        mass = counts @ np.array(MASSES_DA) - ion.polarity * ELECTRON_MASS_DA
        possible = counts[:, HYDROGEN] >= 0
        expected += zip(mass[possible].tolist(), height[likely][possible].tolist(), strict=True)
    distinct = list[tuple[float, float]]()
    for mz, tall in expected:
        if len(distinct) == len(explained) + _MOST_EXPECTED:
            break
        if all(abs(mz - other) > _SAME_DA for other, _ in distinct):
            distinct.append((round(mz, 4), round(tall, 3)))
    return explained, sorted(distinct)


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
