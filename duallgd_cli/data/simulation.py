"""Simulated spectra: bonds of a known structure broken at random, fragments as sub-formulas.

Measured spectra of a few thousand molecules cannot teach an encoder what fragments mean for the
hundreds of thousands of structures without a spectrum. This crude forward model can teach part of
it: cheap bonds break first, each cut moves hydrogens so that the fragment ion keeps an even number
of electrons, and intensities fall with the cost of the cuts. N atoms, b bonds, C cut sets.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.chem.elements import (
    ATOMIC_NUMBERS,
    BOND_AROMATIC,
    ELECTRON_MASS_DA,
    HYDROGEN,
    MASSES_DA,
    N_ELEMENTS,
    N_HEAVY,
)
from duallgd_cli.data.peaks import PeakRows
from duallgd_cli.data.prepared import Molecules

_VALENCE: Final = np.array([4, 3, 2, 3, 2, 1, 1, 1, 1, 3, 4, 2], np.float32)
_ORDER: Final = np.array([0, 1, 2, 3, 1.5], np.float32)
# What breaking a bond costs: by class, and less where a heteroatom is at one end.
_COST: Final = np.array([0.0, 1.0, 2.0, 3.0, 2.5], np.float32)
_HETERO_DISCOUNT: Final = 0.35
_PAIRS: Final = 32
_TRIPLES: Final = 12
_SMALL_ION_COST: Final = 2.5
_PROTONATED: Final = next(a for a in ADDUCTS if a.name == "[M+H]+")
_DEPROTONATED: Final = next(a for a in ADDUCTS if a.name == "[M-H]-")
_CATION: Final = next(a for a in ADDUCTS if a.name == "[M]+")
_NEGATIVE_SHARE: Final = 0.3


def simulate(molecules: Molecules, molecule: int, generator: np.random.Generator) -> PeakRows:
    """A spectrum that the molecule might give, drawn at random.

    Args:
        molecules: Prepared molecules.
        molecule: Row.
        generator: Source of randomness.
    """
    negative = generator.random() < _NEGATIVE_SHARE
    adduct = _DEPROTONATED if negative else _PROTONATED
    if molecules.charge[molecule] > 0:  # a permanent cation flies as it is
        adduct = _CATION
    parent = molecules.atom_counts[molecule].astype(np.float32)
    inside, cost, cuts = _fragments(molecules, molecule, generator)
    counts = _fragment_counts(molecules, molecule, inside)
    counts[:, HYDROGEN] += _hydrogen_shift(cuts, adduct.charge, generator)
    counts[:, HYDROGEN] += _paired(counts, adduct.charge, generator)
    parent_ion = parent + np.asarray(adduct.change, np.float32)
    real = (counts >= 0).all(1) & (counts <= parent_ion).all(1)
    counts, cost = counts[real], cost[real]
    # Ions of one or two heavy atoms lie below the mass range of most instruments.
    cost = cost + _SMALL_ION_COST * (counts[:, :N_HEAVY].sum(1) < 3)
    softness = np.exp(generator.normal(0, 0.5))
    weight = np.exp(-cost / softness + generator.normal(0, 1.0, len(cost)))
    n_peaks = min(len(cost), 2 + generator.poisson(10))
    order = np.argsort(-weight, kind="stable")[:n_peaks]
    counts = np.concatenate([counts[order], parent_ion[None]])
    weight = np.append(weight[order], generator.exponential(0.5))
    counts, first = np.unique(counts, axis=0, return_index=True)
    weight = weight[first]
    numbers = np.zeros((len(weight), 5), np.float32)
    numbers[:, 0] = weight / max(float(weight.max()), 1e-9)
    numbers[:, 1] = generator.normal(0, 2.5, len(weight))
    numbers[:, 2] = counts @ np.asarray(MASSES_DA) - adduct.charge * ELECTRON_MASS_DA
    numbers[:, 3] = 1.0
    numbers[:, 4] = np.nan
    carrier = np.zeros(len(weight), np.int64)
    return PeakRows(counts.astype(np.float32), numbers, carrier, parent_ion, adduct.index, 0)


def _fragments(
    molecules: Molecules, molecule: int, generator: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float32], NDArray[np.int64]]:
    """Atoms of each fragment (C, N), the cost of its cuts (C,) and their number (C,)."""
    start, stop = molecules.bond_offset[molecule : molecule + 2]
    pair = molecules.bond_pair[start:stop].astype(np.int64)
    kind = molecules.bond_type[start:stop].astype(np.int64)
    n, b = int(molecules.n_heavy[molecule]), len(pair)
    element = molecules.atom_class(molecule)
    hetero = (element[pair] != 0).any(1) & (kind != BOND_AROMATIC)
    cost = _COST[kind] - _HETERO_DISCOUNT * hetero
    chance = np.exp(-cost)
    cut = np.zeros((b + _PAIRS + _TRIPLES, b), bool)
    cut[np.arange(b), np.arange(b)] = True
    drawn = generator.choice(b, size=(_PAIRS + _TRIPLES, 3), p=chance / chance.sum())
    rows = b + np.arange(_PAIRS + _TRIPLES)
    cut[rows, drawn[:, 0]] = cut[rows, drawn[:, 1]] = True
    cut[rows[_PAIRS:], drawn[_PAIRS:, 2]] = True
    joined = np.zeros((len(cut), n, n), np.float32)
    joined[:, pair[:, 0], pair[:, 1]] = ~cut
    joined += joined.transpose(0, 2, 1) + np.eye(n, dtype=np.float32)
    for _ in range(max(1, int(np.ceil(np.log2(n))))):
        joined = (joined @ joined > 0).astype(np.float32)
    # Of each cut set, the fragments at both ends of its first bond.
    first = np.argmax(cut, 1)
    sides = pair[first]
    inside = np.concatenate(
        [joined[np.arange(len(cut)), sides[:, 0]], joined[np.arange(len(cut)), sides[:, 1]]]
    ).astype(bool)
    inside = np.unique(inside[~inside.all(1)], axis=0)
    crossing = inside[:, pair[:, 0]] != inside[:, pair[:, 1]]
    return inside, (crossing @ cost).astype(np.float32), crossing.sum(1)


def _fragment_counts(
    molecules: Molecules, molecule: int, inside: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Element counts of fragments as they stood in the molecule, (C, N_ELEMENTS)."""
    start, stop = molecules.bond_offset[molecule : molecule + 2]
    pair = molecules.bond_pair[start:stop].astype(np.int64)
    order = _ORDER[molecules.bond_type[start:stop]]
    element = molecules.atom_class(molecule)
    used = np.zeros(len(element), np.float32)
    np.add.at(used, pair.ravel(), order.repeat(2))
    hydrogens = np.clip(np.floor(_VALENCE[element] - used + 0.25), 0, None)
    # [nH] and charges are not visible here: spread what is missing over atoms that can hold it.
    total = float(molecules.atom_counts[molecule, HYDROGEN])
    hydrogens *= total / max(float(hydrogens.sum()), 1.0)
    one_hot = np.zeros((len(element), N_ELEMENTS), np.float32)
    one_hot[np.arange(len(element)), element] = 1
    one_hot[:, N_HEAVY] = hydrogens
    counts: NDArray[np.float32] = np.rint(inside.astype(np.float32) @ one_hot)
    return counts


def _hydrogen_shift(
    cuts: NDArray[np.int64], charge: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Hydrogens gained where single bonds break, one at each cut moving to either side."""
    odd = cuts % 2 == 1
    draw = generator.random(len(cuts))
    after_odd = np.where(draw < 0.45, 0, np.where(draw < 0.8, 2 * charge, -2 * charge))
    after_even = np.where(draw < 0.6, charge, np.where(draw < 0.8, -charge, 3 * charge))
    return np.where(odd, after_odd, after_even).astype(np.float32)


def _paired(
    counts: NDArray[np.float32], charge: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """One hydrogen more or less where electrons would be left unpaired, as after a double bond."""
    odd = (counts @ np.asarray(ATOMIC_NUMBERS) - charge) % 2
    change: NDArray[np.float32] = np.where(generator.random(len(counts)) < 0.5, odd, -odd)
    return change.astype(np.float32)
