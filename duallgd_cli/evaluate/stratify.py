"""Groups of spectra to report apart: by the molecule, by the measurement, by what was known."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from duallgd_cli.chem import identity
from duallgd_cli.evaluate.bootstrap import Estimate, per_spectrum
from duallgd_cli.evaluate.scoring import Scores
from duallgd_cli.evaluate.tables import Truth

MISSING: Final = "missing"
# Upper ends of the bins, inclusive; the last bin is open. Those of the four molecular ones are
# the paper's (appendix "Stratified Analysis by Structural Descriptors").
_COUNT_ENDS: Final = {
    "heavy_atoms": (15, 20, 25, 30, 35, 40, 45),
    "rings": (0, 2, 4),
    "aromatic_rings": (0, 1, 2),
    "heteroatoms": (1, 3, 5, 7, 9),
    "explained_peaks": (0, 2, 5, 10, 20, 40),
}
_ENERGY_ENDS_EV: Final = (10, 20, 30, 45, 60)
_SIMILARITY_ENDS: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.85)
_POLARITY: Final = {"+": "positive", "-": "negative"}


@dataclass(frozen=True, slots=True)
class Stratum:
    """One group of spectra.

    Attributes:
        by: What the groups differ in, such as ``heavy_atoms``.
        label: Which group, such as ``16-20``.
        spectra: How many.
        molecules: Of how many molecules.
        estimates: Mean over spectra of each metric, with its clustered interval.
    """

    by: str
    label: str
    spectra: int
    molecules: int
    estimates: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Counts that describe a molecule's graph."""

    heavy_atoms: int
    rings: int
    aromatic_rings: int
    heteroatoms: int


@lru_cache(maxsize=100_000)
def describe(smiles: str) -> Descriptors:
    """Count atoms and rings of a molecule.

    Raises:
        MoleculeError: The text is not a SMILES.
    """
    mol = identity.parse_smiles(smiles)
    rings = [[mol.GetBondWithIdx(i) for i in ring] for ring in mol.GetRingInfo().BondRings()]
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms() if atom.GetSymbol() != "H"]
    return Descriptors(
        heavy_atoms=len(symbols),
        rings=len(rings),
        aromatic_rings=sum(all(bond.GetIsAromatic() for bond in ring) for ring in rings),
        heteroatoms=sum(symbol != "C" for symbol in symbols),
    )


def strata(
    scores: Scores,
    truths: Sequence[Truth],
    metrics: Sequence[str],
    extra: Mapping[str, Mapping[str, float]] | None = None,
    *,
    seed: int = 0,
) -> list[Stratum]:
    """Report every group of every kind that holds a spectrum.

    Args:
        scores: Of the spectra.
        truths: The same spectra in the same order.
        metrics: Columns to report.
        extra: Further numbers by spectrum: ``explained_peaks`` and ``nearest_training`` (Tanimoto
            similarity to the nearest training molecule); a spectrum may be missing.
        seed: Of the bootstrap.
    """
    extra = extra or {}
    kinds: dict[str, list[tuple[float, str]]] = {
        by: [label(truth) for truth in truths] for by, label in _LABELS.items()
    }
    for by, values in extra.items():
        ends = _SIMILARITY_ENDS if by == "nearest_training" else _COUNT_ENDS[by]
        kinds[by] = [_binned(values.get(truth.spectrum_id), ends) for truth in truths]
    return [
        stratum
        for by, labels in kinds.items()
        if {label for _, label in labels} != {MISSING}
        for stratum in _grouped(by, labels, scores, metrics, seed)
    ]


def similarity_strata(
    scores: Scores,
    truths: Sequence[Truth],
    metrics: Sequence[str],
    nearest: Mapping[str, float],
    *,
    by: str,
    seed: int = 0,
) -> list[Stratum]:
    """Groups by the similarity to the nearest training molecule, of a part of the spectra.

    Args:
        scores: Of these spectra.
        truths: The same spectra in the same order.
        metrics: Columns to report.
        nearest: Similarity by spectrum.
        by: What the groups are called.
        seed: Of the bootstrap.
    """
    labels = [_binned(nearest.get(truth.spectrum_id), _SIMILARITY_ENDS) for truth in truths]
    return _grouped(by, labels, scores, metrics, seed)


def _grouped(
    by: str,
    labels: Sequence[tuple[float, str]],
    scores: Scores,
    metrics: Sequence[str],
    seed: int,
) -> list[Stratum]:
    return [
        _stratum(
            by,
            place[1],
            scores.subset(np.array([label == place for label in labels])),
            metrics,
            seed,
        )
        for place in sorted(set(labels))
    ]


def _stratum(by: str, label: str, part: Scores, metrics: Sequence[str], seed: int) -> Stratum:
    values = np.column_stack([part.columns[name] for name in metrics])
    estimates = per_spectrum(values, part.molecule, seed=seed)
    return Stratum(
        by=by,
        label=label,
        spectra=len(part),
        molecules=len(set(part.molecule)),
        estimates=dict(zip(metrics, estimates, strict=True)),
    )


def _binned(value: float | None, ends: Sequence[float]) -> tuple[float, str]:
    """Place and name of the bin of a number; whole numbers are named by what the bin can hold."""
    if value is None or math.isnan(value):
        return (math.inf, MISSING)
    whole = all(isinstance(end, int) for end in ends)
    place = next((i for i, end in enumerate(ends) if value <= end), len(ends))
    if place == 0:
        low = 0 if whole else -math.inf
        label = str(ends[0]) if ends[0] == low else f"<= {ends[0]}"
    elif place == len(ends):
        label = f">= {ends[-1] + 1}" if whole else f"> {ends[-1]}"
    else:
        low = ends[place - 1] + 1 if whole else ends[place - 1]
        label = str(low) if low == ends[place] else f"{low}-{ends[place]}"
    return (float(place), label)


def _count(name: str) -> Callable[[Truth], tuple[float, str]]:
    def label(truth: Truth) -> tuple[float, str]:
        return _binned(getattr(describe(truth.smiles), name), _COUNT_ENDS[name])

    return label


def _column(name: str) -> Callable[[Truth], tuple[float, str]]:
    def label(truth: Truth) -> tuple[float, str]:
        text = truth.fields.get(name, "")
        return (0.0, text) if text else (math.inf, MISSING)

    return label


def _polarity(truth: Truth) -> tuple[float, str]:
    adduct = truth.fields.get("adduct", "")
    sign = _POLARITY.get(adduct[-1:])
    return (0.0, sign) if sign else _column("ion_mode")(truth)


def _energy(truth: Truth) -> tuple[float, str]:
    try:
        value = float(truth.fields.get("collision_energy", ""))
    except ValueError:
        return (math.inf, MISSING)
    place, label = _binned(value, tuple(float(end) for end in _ENERGY_ENDS_EV))
    return place, label.replace(".0", "") + ("" if label == MISSING else " eV")


_LABELS: Final[dict[str, Callable[[Truth], tuple[float, str]]]] = {
    "heavy_atoms": _count("heavy_atoms"),
    "rings": _count("rings"),
    "aromatic_rings": _count("aromatic_rings"),
    "heteroatoms": _count("heteroatoms"),
    "adduct": _column("adduct"),
    "polarity": _polarity,
    "instrument": _column("instrument_type"),
    "collision_energy": _energy,
    "benchmark": _column("benchmark"),
}
