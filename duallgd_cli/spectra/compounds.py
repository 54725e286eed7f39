"""Features of one molecule: its adducts, losses, dimers, doubly charged ions and isotopes.

Every feature may be any of the usual ions of a molecule, each as probable as it is frequent. The
odds of a compound are those of its ions times, for each further feature that elutes with the first
and has its neutral mass, the likelihood of its m/z, retention time and elution over the chance that
a stranger lies there. Compounds are taken from the best on, no feature twice.

Letters: N features, E entries (a feature and an ion that it may be).
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from duallgd_cli.spectra.types import LINKED, Spectrum

# How frequent ions are in electrospray, among those that are measured of a molecule.
_FREQUENCIES: Final = {
    1: {
        "[M+H]+": 0.6, "[M+Na]+": 0.12, "[M+NH4]+": 0.07, "[M-H2O+H]+": 0.07, "[M+K]+": 0.03,
        "[M+2H]2+": 0.03, "[2M+H]+": 0.02, "[M-2H2O+H]+": 0.015, "[2M+Na]+": 0.01,
        "[M-NH3+H]+": 0.01, "[M+ACN+H]+": 0.01, "[M+H+Na]2+": 0.005, "[2M+NH4]+": 0.005,
        "[M-H+2Na]+": 0.005,
    },
    -1: {
        "[M-H]-": 0.68, "[M+HCOO]-": 0.1, "[M+Cl]-": 0.06, "[M+CH3COO]-": 0.04, "[2M-H]-": 0.04,
        "[M-H2O-H]-": 0.03, "[M-CO2-H]-": 0.02, "[M-2H]2-": 0.02, "[M+Na-2H]-": 0.01,
    },
}  # fmt: skip
# Heavier isotopes: Da, and how often one is measured where the ion is.
_ISOTOPES: Final = ((0.0, 1.0), (1.00336, 0.2), (1.99705, 0.04), (2.00671, 0.06))
_HALOGEN: Final = 1.4  # largest intensity of 81Br next to its ion
_NEAR_S: Final = 10.0  # between retention times of ions of one molecule, at most
_SPREAD_S: Final = 2.5  # standard deviation of their difference
# A feature is that much likelier near a mass than anywhere: masses have few decimals.
_DENSITY: Final = 8 / 500
_ELUTION: Final = ((0.9, 1.0), (0.7, 0.0), (0.5, -2.0), (-2.0, -6.0))  # log odds by correlation
_APART: Final = -2.0  # log odds of ions whose elutions hardly overlap
_FEWEST_POINTS: Final = 5  # of an elution that is compared
_LEAST_GAIN: Final = 3.0  # log odds of a compound over its features being strangers
# Ions whose spectra tell most of a molecule, the best first.
_TELLING: Final = ("[M+H]+", "[M-H]-")
HIGHEST: Final = 0.99  # probability of an adduct that is stated
SURE: Final = 0.9  # least probability of an adduct that is taken for known
_LEAST_SHOWN: Final = 0.01


class ElutingIon(NamedTuple):
    """What linking looks at of a feature."""

    mz: float
    tolerance_da: float  # of its m/z
    rt_s: float  # when it is strongest
    polarity: int  # 1, -1 or 0
    charge: int = 0  # without its sign, 0 if unknown
    height: float = 0.0  # when it is strongest; 0 if unknown
    time: NDArray[np.float64] = np.zeros(0)  # of its elution in MS1, s, ascending; may be empty
    trace: NDArray[np.float64] = np.zeros(0)  # intensity at these times


class OfCompound(NamedTuple):
    """The compound of a feature."""

    compound: int  # from 0 in the order of first features
    # what the feature may be with probabilities, likeliest first; none where no other ion tells
    adducts: tuple[tuple[str, float], ...] = ()


def with_compound(
    spectrum: Spectrum, compound_id: str, adducts: Sequence[tuple[str, float]]
) -> Spectrum:
    """A spectrum with its compound, and its adduct where that is hardly in doubt.

    What it may be comes with probabilities, likeliest first; nothing where no other ion tells.
    """
    if not adducts:
        return replace(spectrum, compound_id=compound_id)
    shown = [f"{name} ({min(share, HIGHEST):.2g})" for name, share in adducts]
    if adducts[0][1] >= SURE:
        spectrum = replace(spectrum, adduct_text=adducts[0][0], adduct_source=LINKED)
        said = f"adduct {shown[0]} by other ions of compound {compound_id}"
        said += f"; next is {shown[1]}" if shown[1:] else ""
    else:
        said = f"one of several ions of compound {compound_id}: {' or '.join(shown[:3])}"
    return replace(
        spectrum,
        compound_id=compound_id,
        adducts=tuple(adducts),
        assumptions=(said, *spectrum.assumptions),
    )


def answering(linked: Sequence[OfCompound], heights: Sequence[float]) -> dict[int, int]:
    """For features whose compound another ion answers for, the number of that feature.

    A feature takes part whose adduct is hardly in doubt. The best is the protonated, then the
    deprotonated molecule, then the strongest ion.
    """
    members: defaultdict[int, list[int]] = defaultdict(list)
    for number, (compound, adducts) in enumerate(linked):
        if adducts and adducts[0][1] >= SURE:
            members[compound].append(number)

    def rank(number: int) -> tuple[float, ...]:
        adduct = linked[number].adducts[0][0]
        place = _TELLING.index(adduct) if adduct in _TELLING else len(_TELLING)
        return (place, -heights[number], number)

    best = {compound: min(numbers, key=rank) for compound, numbers in members.items()}
    return {
        number: best[compound]
        for compound, numbers in members.items()
        for number in numbers
        if number != best[compound]
    }


class _PossibleIon(NamedTuple):
    """A feature as an ion: its number, the adduct, which isotope, and how probable that is."""

    node: int
    adduct: str
    isotope: int
    mass: float
    tolerance_da: float
    prior: float


# Log odds of a compound over strangers, and its features as ions, the one that it is around first.
_Compound: TypeAlias = tuple[float, Sequence[_PossibleIon]]


def link(ions: Sequence[ElutingIon]) -> list[OfCompound]:
    """The compound of each feature of a run, and what ion of it the feature is."""
    entries = [
        _PossibleIon(
            node,
            adduct.name,
            isotope,
            adduct.neutral_mass(ion.mz - distance / abs(adduct.charge)),
            ion.tolerance_da * abs(adduct.charge) / adduct.molecules,
            math.log(share if isotope else frequency),
        )
        for node, ion in enumerate(ions)
        for polarity in ((ion.polarity,) if ion.polarity else (1, -1))
        for name, frequency in _FREQUENCIES[polarity].items()
        if isinstance(adduct := parse_adduct(name), Adduct)
        and ion.charge in (0, abs(adduct.charge))
        for isotope, (distance, share) in enumerate(_ISOTOPES)
    ]
    entries.sort(key=lambda one: one.mass)
    linker = _Linker(ions, entries)
    best: list[defaultdict[str, float]] = [defaultdict(lambda: -math.inf) for _ in ions]
    for one in entries:
        if not one.isotope:
            best[one.node][one.adduct] = one.prior - linker.alone[one.node]
    waiting: list[tuple[float, int, Sequence[_PossibleIon]]] = []
    for gain, members in linker.compounds():
        for one in members:
            best[one.node][one.adduct] = max(best[one.node][one.adduct], gain)
        waiting.append((-gain, len(waiting), members))
    heapq.heapify(waiting)
    taken: dict[int, int] = {}
    told: set[int] = set()  # features whose compound tells of adducts: not an ion and its isotopes
    while waiting:
        _, order, (anchor, *others) = heapq.heappop(waiting)
        free = [one for one in others if one.node not in taken]
        if anchor.node in taken or not free:
            continue
        if len(free) < len(others):
            if (rest := linker.scored(anchor, free)) is not None:
                heapq.heappush(waiting, (-rest[0], order, rest[1]))
            continue
        nodes = [one.node for one in (anchor, *others)]
        taken |= dict.fromkeys(nodes, anchor.node)
        told |= {*nodes} if any(one.adduct != anchor.adduct for one in others) else set()
    numbers: dict[int, int] = {}
    return [
        OfCompound(
            numbers.setdefault(taken.get(node, node), len(numbers)),
            _probabilities(best[node]) if node in told else (),
        )
        for node in range(len(ions))
    ]


class _Linker:
    """Weighs compounds against strangers.

    Attributes:
        alone: Log probability of the likeliest ion of each feature, (N,): what it is of a stranger.
    """

    def __init__(self, ions: Sequence[ElutingIon], entries: Sequence[_PossibleIon]) -> None:
        self._ions, self._entries = ions, entries
        self._time = np.array([ion.rt_s for ion in ions])
        ordered = np.sort(self._time)
        edges = [np.searchsorted(ordered, self._time + end) for end in (-_NEAR_S, _NEAR_S)]
        self._near = np.maximum(edges[1] - edges[0] - 1, 1)
        self._elution = cache(lambda first, other: _alike(ions[first], ions[other]))
        self.alone = [-math.inf] * len(ions)
        for one in entries:
            if not one.isotope:
                self.alone[one.node] = max(self.alone[one.node], one.prior)

    def compounds(self) -> Iterator[_Compound]:
        """Compounds likelier than strangers, each around an ion that is no heavier isotope."""
        entries = self._entries
        mass = np.array([one.mass for one in entries])
        tolerance = np.array([one.tolerance_da for one in entries])
        node = np.array([one.node for one in entries], np.int64)
        time = self._time[node]
        widest = float(tolerance.max(initial=0.0))
        starts = np.searchsorted(mass, mass - tolerance - widest)
        ends = np.searchsorted(mass, mass + tolerance + widest, "right")
        for place, anchor in enumerate(entries):
            if anchor.isotope or ends[place] - starts[place] < 2:
                continue
            near = np.arange(starts[place], ends[place])
            near = near[
                (node[near] != anchor.node)
                & (np.abs(time[near] - time[place]) <= _NEAR_S)
                & (np.abs(mass[near] - mass[place]) <= tolerance[near] + tolerance[place])
            ]
            if near.size and (found := self.scored(anchor, [entries[n] for n in near])):
                yield found

    def scored(self, anchor: _PossibleIon, others: Sequence[_PossibleIon]) -> _Compound | None:
        """The compound of an ion and others of its mass; None where strangers are likelier."""
        by_node: dict[int, tuple[float, _PossibleIon]] = {}
        for one in others:
            within = anchor.tolerance_da + one.tolerance_da
            chance = min(self._near[anchor.node] * 2 * within * _DENSITY, 1.0)
            apart = 3 * (one.mass - anchor.mass) / math.hypot(anchor.tolerance_da, one.tolerance_da)
            late = (self._time[one.node] - self._time[anchor.node]) / _SPREAD_S
            gain = one.prior - self.alone[one.node] - math.log(chance) - (apart**2 + late**2) / 2
            gain += self._elution(*sorted((anchor.node, one.node)))
            if gain > by_node.get(one.node, (0.0,))[0]:
                by_node[one.node] = gain, one
        kept: dict[tuple[str, int], int] = {(anchor.adduct, 0): anchor.node}
        chosen: list[_PossibleIon] = []
        total = anchor.prior - self.alone[anchor.node]
        for gain, one in sorted(by_node.values(), key=lambda pair: (pair[1].isotope, -pair[0])):
            same = kept.get((one.adduct, one.isotope))
            # Scans of one ion may have become two features; isomers elute apart.
            if same is not None and abs(self._time[same] - self._time[one.node]) > _SPREAD_S:
                continue
            light = kept.get((one.adduct, 0))
            if one.isotope and (light is None or not self._may_be_isotope(one, light)):
                continue
            kept.setdefault((one.adduct, one.isotope), one.node)
            chosen.append(one)
            total += gain
        return (total, (anchor, *chosen)) if chosen and total > _LEAST_GAIN else None

    def _may_be_isotope(self, one: _PossibleIon, light: int) -> bool:
        """Whether a feature is no stronger next to an ion than that isotope of it can be."""
        ion = self._ions[light]
        carbon = 1.3 * 0.0108 * ion.mz * max(ion.charge, 1) / 12 + 0.05
        most = (0.0, carbon, _HALOGEN, carbon**2 / 2 + 0.05)[one.isotope]
        return self._ions[one.node].height <= most * ion.height


def _alike(first: ElutingIon, other: ElutingIon) -> float:
    """Log odds of one molecule by how alike ions elute; 0 where MS1 does not show it."""
    if min(first.time.size, other.time.size) < _FEWEST_POINTS:
        return 0.0
    inside = (first.time >= other.time[0]) & (first.time <= other.time[-1])
    if inside.sum() < _FEWEST_POINTS:
        return _APART
    one = first.trace[inside]
    another = np.interp(first.time[inside], other.time, other.trace)
    one, another = one - one.mean(), another - another.mean()
    size = math.sqrt(float(one @ one) * float(another @ another))
    correlation = float(one @ another) / size if size else 0.0
    return next(odds for least, odds in _ELUTION if correlation >= least)


def _probabilities(gains: dict[str, float]) -> tuple[tuple[str, float], ...]:
    """Adducts with their probabilities, likeliest first."""
    most = max(gains.values())
    odds = {name: math.exp(gain - most) for name, gain in gains.items()}
    total = sum(odds.values())
    shares = ((name, share / total) for name, share in odds.items())
    likeliest = sorted(shares, key=lambda one: -one[1])
    return tuple(one for one in likeliest if one[1] >= _LEAST_SHOWN)
