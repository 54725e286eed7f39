"""Which fragments of a candidate explain which peaks: what a page marks under the pointer.

The fragments are those of the fragmentation score, so that the page shows what was scored.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from duallgd_cli.chem.adduct import parent_formula, parse_adduct
from duallgd_cli.chem.elements import HYDROGEN, METALS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.chem.valence import bonds_of
from duallgd_cli.data.fragmentation import CARRIED, explaining_fragments, fragments
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.errors import Failure, FormulaError, MoleculeError

# How a sub-formula ends that keeps metals or more than one charge.
_KEPT: Final = re.compile(rf"(?P<metals>(?:(?:{'|'.join(METALS)})\d?)*)(?:[+-]\d)?$")


@lru_cache(maxsize=10_000)  # the candidates of a feature are asked for the same ones
def subformula_of(text: str) -> Formula | None:
    """A sub-formula as journals write it, without the metals and charge it may end with."""
    try:
        return Formula.parse(_KEPT.sub("", text))
    except FormulaError:
        return None


def neutral_loss(formula: str, adduct: str, subformula: str) -> str:
    """What an ion has lost where a fragment of this sub-formula is left, "" where that is unclear.

    Args:
        formula: Of the molecule.
        adduct: Name of the adduct.
        subformula: Of the fragment.
    """
    part, ion = subformula_of(subformula), parse_adduct(adduct)
    if part is None or isinstance(ion, Failure):
        return ""
    try:
        whole = parent_formula(Formula.parse(formula), ion)
        lost = Formula(tuple(a - b for a, b in zip(whole.counts, part.counts, strict=True)))
    except FormulaError:
        return ""
    kept = _KEPT.search(subformula)
    left = [*ion.metals]
    for symbol, n in re.findall(r"([A-Z][a-z]?)(\d*)", kept["metals"] if kept else ""):
        del left[left.index(symbol) : left.index(symbol) + int(n or 1)]
    return str(lost) + "".join(left)


def explained_by(smiles: str, adduct: str, subformulas: Sequence[str]) -> list[list[Any]]:
    """The sub-formulas that fragments of a candidate explain.

    Args:
        smiles: The candidate.
        adduct: Name of the adduct; of other adducts than `CARRIED` the charge's sign decides.
        subformulas: Of the explained peaks.

    Returns:
        Pairs of a place among `subformulas` and the fragment's atoms, by their RDKit numbers.
    """
    parsed = [(place, subformula_of(text)) for place, text in enumerate(subformulas)]
    known = [(place, formula) for place, formula in parsed if formula is not None]
    ion = parse_adduct(adduct)
    try:
        whole = disassemble(parse_smiles(smiles))
    except MoleculeError:
        return []
    bonds = np.array(bonds_of(len(whole.atom_class), whole.bond_class)).reshape(-1, 3)
    if isinstance(ion, Failure) or not known or not len(bonds):
        return []
    hydrogens = int(whole.formula.array[HYDROGEN])
    graph = MolecularGraph(whole.atom_class, bonds[:, :2], bonds[:, 2], hydrogens)
    found = fragments(graph, np.random.default_rng(0))  # as the fragmentation score draws them
    carried = 0 if ion.metals else CARRIED.get(ion.index, ion.polarity)
    rows, which, _ = explaining_fragments(found, carried, np.stack([f.array for _, f in known]))
    return [
        [known[row][0], sorted(whole.order[found.inside[fragment]].tolist())]
        for row, fragment in zip(rows.tolist(), which.tolist(), strict=True)
    ]
