"""Which explained peaks the fragments of a structure stand for, for people to look at."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.elements import METALS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.molecule import Mol, disassemble
from duallgd_cli.data.fragmentation import CARRIED, explaining_fragments, pieces
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.errors import Failure, FormulaError, MoleculeError

# What a sub-formula ends with: the metals that the fragment kept, and a charge that is not one.
KEPT: Final = re.compile(rf"(?P<metals>(?:(?:{'|'.join(METALS)})\d?)*)(?:[+-]\d)?$")


@lru_cache(maxsize=10_000)  # the candidates of a feature are asked for the same ones
def subformula_of(text: str) -> Formula | None:
    """A sub-formula as journals write it, without the metals and charge it may end with."""
    try:
        return Formula.parse(KEPT.sub("", text))
    except FormulaError:
        return None


def explained_by(mol: Mol | None, adduct: str, subformulas: Sequence[str]) -> list[list[Any]]:
    """The sub-formulas that fragments of a candidate explain.

    Args:
        mol: The candidate, None for what is no molecule.
        adduct: Name of the adduct; of other adducts than `CARRIED` the charge's sign decides.
        subformulas: Of the explained peaks.

    Returns:
        Pairs of a place among `subformulas` and the fragment's atoms, by their RDKit numbers.
    """
    parsed = [(place, subformula_of(text)) for place, text in enumerate(subformulas)]
    known = [(place, formula) for place, formula in parsed if formula is not None]
    ion = parse_adduct(adduct)
    try:
        whole = None if mol is None else disassemble(mol)
    except MoleculeError:
        return []
    if whole is None:
        return []
    graph = graph_of_bonds(whole.formula, whole.bond_class)
    if isinstance(ion, Failure) or not known or not len(graph.pair):
        return []
    found = pieces(graph, np.random.default_rng(0))  # as the fragmentation score draws them
    carried = 0 if ion.metals else CARRIED.get(ion.index, ion.polarity)
    rows, which, _ = explaining_fragments(found, carried, np.stack([f.array for _, f in known]))
    return [
        [known[row][0], sorted(whole.order[found.inside[fragment]].tolist())]
        for row, fragment in zip(rows.tolist(), which.tolist(), strict=True)
    ]
