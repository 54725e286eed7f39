"""Groups of spectra to report apart: by the molecule, by the measurement, by what was known.

Where formulas are predicted, how often the true one is among them is told by groups of its own.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

import numpy as np

from duallgd_cli.chem import identity
from duallgd_cli.evaluate.metrics import Scores
from duallgd_cli.evaluate.tables import Truth, molecule, number

MISSING: Final = "missing"
# Upper ends of the bins, inclusive; the last bin is open. Those of the four molecular ones are
# the paper's (appendix "Stratified Analysis by Structural Descriptors").
_ENDS: Final[Mapping[str, Sequence[float]]] = {
    "heavy_atoms": (15, 20, 25, 30, 35, 40, 45), "rings": (0, 2, 4), "aromatic_rings": (0, 1, 2),
    "heteroatoms": (1, 3, 5, 7, 9), "collision_energy": (10.0, 20.0, 30.0, 45.0, 60.0),
    "explained_peaks": (0, 2, 5, 10, 20, 40), "nearest_training": (0.3, 0.4, 0.5, 0.6, 0.7, 0.85),
}  # fmt: skip
_POLARITY: Final = {"+": "positive", "-": "negative"}
RANKS: Final = (1, 5, 10)  # among predicted formulas

# Index and name of a group, so that groups sort.
GroupLabel = tuple[float, str]
_UNKNOWN: Final[GroupLabel] = (math.inf, MISSING)


@lru_cache(maxsize=100_000)
def describe(smiles: str) -> dict[str, int]:
    """Count atoms and rings of a molecule."""
    mol = identity.parse_smiles(smiles)
    rings = [[mol.GetBondWithIdx(i) for i in ring] for ring in mol.GetRingInfo().BondRings()]
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms() if atom.GetSymbol() != "H"]
    return {
        "heavy_atoms": len(symbols),
        "rings": len(rings),
        "aromatic_rings": sum(all(bond.GetIsAromatic() for bond in ring) for ring in rings),
        "heteroatoms": sum(symbol != "C" for symbol in symbols),
    }


def strata(
    scores: Scores,
    metrics: Sequence[str],
    notes: Mapping[str, Mapping[str, float]],
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Report every group of every kind that holds a spectrum.

    Args:
        scores: Of the spectra.
        metrics: Columns to report.
        notes: Further numbers by spectrum: ``explained_peaks`` and ``nearest_training`` (Tanimoto
            similarity to the nearest training molecule); a spectrum may be missing.
        seed: Of the bootstrap.

    Returns:
        For each group what it differs in (``by``) and its ``label``, how many ``spectra`` of how
        many ``molecules`` it holds, and the ``estimates`` of the metrics over its spectra.
    """
    kinds: dict[str, list[GroupLabel]] = {}
    for truth in scores.truths:
        for by, label in _labels(truth, notes).items():
            kinds.setdefault(by, []).append(label)
    return [
        group
        for by, labels in kinds.items()
        if {label for _, label in labels} != {MISSING}
        for group in grouped(by, labels, scores, metrics, seed)
    ]


def grouped(
    by: str, labels: Sequence[GroupLabel], scores: Scores, metrics: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """Report every group of one kind, each as `strata` says."""
    groups = []
    for label in sorted(set(labels)):
        part = scores.subset(np.array([other == label for other in labels]))
        estimates = part.means(metrics, seed)
        groups.append(
            {
                "by": by,
                "label": label[1],
                "spectra": len(part),
                "molecules": len(set(part.molecule)),
                "estimates": {name: asdict(estimate) for name, estimate in estimates.items()},
            }
        )
    return groups


def formula_accuracy(
    truths: Sequence[Truth], ranked: Mapping[str, Sequence[str]], seed: int
) -> list[dict[str, Any]]:
    """Share of spectra whose true formula is among the first 1, 5 and 10, as `strata` gives it."""
    columns: dict[str, list[float]] = {f"formula_accuracy@{k}": [] for k in RANKS}
    for truth in truths:
        figures, best = molecule(truth.smiles), ranked.get(truth.spectrum_id, ())
        for k in RANKS:
            is_right = figures is not None and figures.formula in (set(best[:k]) - {""})
            columns[f"formula_accuracy@{k}"].append(float(is_right))
    scores = Scores(tuple(truths), {name: np.array(column) for name, column in columns.items()})
    return grouped("all", [(0.0, "all")] * len(truths), scores, list(columns), seed)


def _labels(truth: Truth, notes: Mapping[str, Mapping[str, float]]) -> dict[str, GroupLabel]:
    """The group of a spectrum in every kind."""
    cells = defaultdict(str, truth.fields)
    sign = _POLARITY.get(cells["adduct"][-1:])
    labels = {by: _binned(by, count) for by, count in describe(truth.smiles).items()}
    labels["adduct"] = _named(cells["adduct"])
    labels["polarity"] = _named(sign or cells["ion_mode"])
    labels["instrument"] = _named(cells["instrument_type"])
    energy = number(cells["collision_energy"])
    labels["collision_energy"] = _binned("collision_energy", energy, " eV")
    labels["benchmark"] = _named(cells["benchmark"])
    for by in ("explained_peaks", "nearest_training"):
        labels[by] = _binned(by, notes.get(by, {}).get(truth.spectrum_id))
    return labels


def _named(text: str) -> GroupLabel:
    return (0.0, text) if text else _UNKNOWN


def _binned(by: str, value: float | None, unit: str = "") -> GroupLabel:
    """Bin of a number; whole numbers are named by what the bin can hold."""
    if value is None or math.isnan(value):
        return _UNKNOWN
    ends = _ENDS[by]
    whole = all(isinstance(end, int) for end in ends)
    index = bisect_left(ends, value)
    if index == 0:
        label = "0" if whole and ends[0] == 0 else f"<= {ends[0]:g}"
    elif index == len(ends):
        label = f">= {ends[-1] + 1}" if whole else f"> {ends[-1]:g}"
    else:
        low = ends[index - 1] + whole
        label = f"{low:g}" if low == ends[index] else f"{low:g}-{ends[index]:g}"
    return (float(index), label + unit)
