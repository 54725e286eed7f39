"""Statistics of attention asymmetry by kind of bond; numpy and scipy alone.

A kind of bond is its two elements, the less electronegative first, and its class: ``C=O``, ``C:N``.
Letters: M pairs of a molecule, R bonds of one kind in all molecules, V views (all layers and noise
levels together, each layer, each noise level), G molecules.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from duallgd_cli.chem.elements import HEAVY
from duallgd_cli.evaluate.intervals import DRAWS, Estimate
from duallgd_cli.evaluate.intervals import means as mean_of

# Pauling's scale, in the order of `chem.elements.HEAVY`. The paper names no scale.
ELECTRONEGATIVITY: Final = (
    2.55, 3.04, 3.44, 2.19, 2.58, 3.98, 3.16, 2.96, 2.66, 2.04, 1.90, 2.55,
)  # fmt: skip
UNBONDED: Final = "…"
_SIGNS: Final = (UNBONDED, "-", "=", "#", ":")
_QUANTILES: Final = (5, 25, 50, 75, 95)
_TAIL_PERCENT: Final = 2.5
# Kinds of bond that are rarer are left to the table of all of them.
MIN_BONDS: Final = 10
MIN_MOLECULES: Final = 5
UNEQUAL: Final = "unequal electronegativity"
EQUAL: Final = "equal electronegativity"
OVERALL: Final = (UNEQUAL, EQUAL)


@dataclass(frozen=True, eq=False)
class MoleculeAsymmetry:
    """What was seen in one molecule.

    Attributes:
        key: First block of its InChIKey.
        kind: Kind of each pair, M names.
        log_ratio: log2 of the asymmetry ratio, oriented, float64 (M, V); below 0 where the more
            electronegative end gets more.
        by_row: log2 of the lower over the higher atom's weight, over all, float64 (M,).
    """

    key: str
    kind: tuple[str, ...]
    log_ratio: NDArray[np.float64]
    by_row: NDArray[np.float64]


def views(first: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lower atom's weights (L, S, M) as (M, 1 + L + S): over all, by layer, by noise level."""
    return np.concatenate([first.mean((0, 1))[None], first.mean(1), first.mean(0)]).T


def asymmetry(
    key: str,
    atom_class: NDArray[np.int64],
    bond_class: NDArray[np.int64],
    first: NDArray[np.float64],
    seed: int = 0,
) -> MoleculeAsymmetry:
    """Orient every pair's weights from the less to the more electronegative end.

    Where both are equally electronegative (same element; C and Se) a coin decides, as in the paper;
    it depends on the molecule and the seed alone.

    Args:
        key: Of the molecule.
        atom_class: Elements, (N,).
        bond_class: True classes, (M,).
        first: Lower atom's weights, (L, S, M).
        seed: Of the coin.
    """
    low, high = np.triu_indices(len(atom_class), 1)
    scale = np.array(ELECTRONEGATIVITY)
    rise = scale[atom_class[high]] - scale[atom_class[low]]
    number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest())
    coin = np.random.default_rng((seed, number)).choice((-1.0, 1.0), len(low))
    sign = np.where(rise == 0, coin, np.sign(rise))
    weight = views(first)
    by_row = np.log2(weight) - np.log2(1 - weight)
    less = np.where(rise < 0, atom_class[high], atom_class[low]).tolist()
    more = np.where(rise < 0, atom_class[low], atom_class[high]).tolist()
    kind = tuple(
        f"{HEAVY[a]}{_SIGNS[bond]}{HEAVY[b]}"
        for a, b, bond in zip(less, more, bond_class.tolist(), strict=True)
    )
    return MoleculeAsymmetry(key, kind, sign[:, None] * by_row, by_row[:, 0])


def summarise(
    molecules: Sequence[MoleculeAsymmetry], view_names: Sequence[str]
) -> list[dict[str, Any]]:
    """Statistics of every kind of bond, after those of all with unequal and with equal ends.

    Means come with their intervals, as in `evaluate.intervals`, by molecule. ``by_view`` has those
    of each layer and each noise level, ``unbonded`` that over pairs of the same elements without a
    bond; NaN where there are none. ``difference`` of the electronegativities is None for several
    kinds together. ``verdict`` says which end gets more by the interval of the mean: high, low or
    neither. ``p_value`` is that of a two-sided sign test over the molecules' means.

    Args:
        molecules: At least one.
        view_names: Names of the views after the first.
    """
    grouped = _grouped(molecules)
    bonded = [name for name in grouped if UNBONDED not in name]
    first = {name: place for place, name in enumerate(OVERALL)}
    bonded.sort(key=lambda name: (first.get(name, 2), -len(grouped[name][1]), name))
    found = []
    for name in bonded:
        values, owners = grouped.get(_without_bond(name), ([], []))
        away = np.array([value[:1] for value in values]).reshape(-1, 1)
        unbonded = mean_of(away, owners)[0]
        found.append(_summary(name, *grouped[name], view_names, unbonded))
    return found


def means(molecules: Sequence[MoleculeAsymmetry]) -> dict[str, Estimate]:
    """Mean log2 r of every common kind of bond, and of all with unequal and with equal ends."""
    return {
        name: mean_of(np.array(values)[:, :1], owners)[0]
        for name, (values, owners) in _grouped(molecules).items()
        if UNBONDED not in name and is_common(len(owners), len(set(owners)))
    }


def mean_of_unequal(molecule: MoleculeAsymmetry) -> float:
    """Mean log2 r of one molecule's bonds with unequal ends; NaN if it has none."""
    own = [_overall(kind) == UNEQUAL for kind in molecule.kind]
    return float(molecule.log_ratio[own, 0].mean()) if any(own) else math.nan


def is_common(bonds: int, molecules: int) -> bool:
    """Whether a kind of bond is seen often enough to be shown and counted."""
    return bonds >= MIN_BONDS and molecules >= MIN_MOLECULES


def common_kinds(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Kinds of bond in results.json that are common enough for a table to be read or a figure."""
    return [
        kind
        for kind in found["kinds"]
        if kind["kind"] in OVERALL or is_common(kind["bonds"], kind["molecules"])
    ]


def order_effect(molecules: Sequence[MoleculeAsymmetry]) -> Estimate:
    """Mean of `MoleculeAsymmetry.by_row` over bonds between equally electronegative atoms.

    Off zero where the network sees the order of the atoms: elements are sorted, so that the order
    then stands for the element as well.
    """
    values, owners = [np.empty(0)], []
    for molecule in molecules:
        own = [UNBONDED not in kind and _overall(kind) == EQUAL for kind in molecule.kind]
        values.append(molecule.by_row[own])
        owners += [molecule.key] * sum(own)
    return mean_of(np.concatenate(values)[:, None], owners)[0]


def median_interval(
    values: NDArray[np.float64], clusters: Sequence[str], seed: int = 0
) -> Estimate:
    """Median with its 95 % bootstrap interval; whole molecules are resampled.

    Args:
        values: float64 (R,), at least one.
        clusters: Molecule of each.
        seed: Of the resampling.
    """
    order = np.argsort(values, kind="stable")
    names, code = np.unique(np.array(clusters), return_inverse=True)
    code, ordered = code[order], values[order]
    generator = np.random.default_rng(seed)
    medians = np.empty(DRAWS)
    for draw in range(DRAWS):
        picks = generator.integers(len(names), size=len(names))
        total = np.bincount(picks, minlength=len(names))[code].cumsum()
        medians[draw] = ordered[np.searchsorted(total, total[-1] / 2)]
    low, high = np.percentile(medians, [_TAIL_PERCENT, 100 - _TAIL_PERCENT])
    return Estimate(float(np.median(values)), float(low), float(high))


def _grouped(
    molecules: Sequence[MoleculeAsymmetry],
) -> dict[str, tuple[list[NDArray[np.float64]], list[str]]]:
    """Bonds by kind: their views, (V,) each, and their molecules."""
    found: dict[str, tuple[list[NDArray[np.float64]], list[str]]] = defaultdict(lambda: ([], []))
    for molecule in molecules:
        for name, value in zip(molecule.kind, molecule.log_ratio, strict=True):
            for values, owners in (found[name], found[_overall(name)]):
                values.append(value)
                owners.append(molecule.key)
    return found


def _summary(
    name: str,
    views: list[NDArray[np.float64]],
    owners: list[str],
    view_names: Sequence[str],
    unbonded: Estimate,
) -> dict[str, Any]:
    values = np.array(views)
    first = values[:, 0]
    mean, *others = mean_of(values, owners)
    names, code = np.unique(np.array(owners), return_inverse=True)
    of_molecules = np.bincount(code, first)
    negative, positive = int((of_molecules < 0).sum()), int((of_molecules > 0).sum())
    return {
        "kind": name,
        "difference": difference_of(name),
        "bonds": len(first),
        "molecules": len(names),
        "mean": asdict(mean),
        "median": asdict(median_interval(first, owners)),
        "magnitude": float(np.abs(first).mean()),
        "share_negative": float((first < 0).mean()),
        "molecules_negative": negative,
        "p_value": binomtest(negative, negative + positive).pvalue if negative + positive else 1.0,
        "quantiles": tuple(np.percentile(first, _QUANTILES).tolist()),
        "by_view": {name: asdict(of) for name, of in zip(view_names, others, strict=True)},
        "unbonded": asdict(unbonded),
        "verdict": "high" if mean.high < 0 else "low" if mean.low > 0 else "neither",
    }


def _ends(kind: str) -> tuple[str, str]:
    sign = next(sign for sign in _SIGNS if sign in kind)
    low, high = kind.split(sign)
    return low, high


def _overall(kind: str) -> str:
    overall = UNEQUAL if difference_of(kind) else EQUAL
    return f"{overall} {UNBONDED}" if UNBONDED in kind else overall


def _without_bond(kind: str) -> str:
    if kind in OVERALL:
        return f"{kind} {UNBONDED}"
    return UNBONDED.join(_ends(kind))


def difference_of(kind: str) -> float | None:
    """Electronegativity of a kind's second element less the first; None for `OVERALL` kinds."""
    if kind in OVERALL:
        return None
    low, high = (ELECTRONEGATIVITY[HEAVY.index(end)] for end in _ends(kind))
    return high - low
