"""Molecules laid out for a page, alike ones turned alike: places, bonds and labels as numbers.

RDKit lays out; the page's script draws, in a quarter of the space and a fifth of the time of paths.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from rdkit import Chem
from rdkit.Chem import rdDepictor

from duallgd_cli.chem.molecule import Mol
from duallgd_cli.chem.parts import ring_atoms

_MOST_CORES: Final = 12
_SCALE: Final = 20.0  # pixels an Å
_BOND: Final = 30.0  # length of one
_CARBON: Final = 6
_MARGIN: Final = 8.0
_LETTER: Final = 10.0  # width of one in a label
_TALL: Final = 15.0  # of a line of a label
_ORDERS: Final = {Chem.BondType.DOUBLE: 2, Chem.BondType.TRIPLE: 3}
# Where the hydrogens of a label stand as seen from its element.
_RIGHT, _LEFT, _ABOVE, _BELOW = "r", "l", "u", "d"
_ASIDE: Final = 0.3  # of a bond's length, from which neighbours lie to the right or to the left


def depictions(molecules: Sequence[Mol | None]) -> list[dict[str, Any] | None]:
    """Layouts of molecules, each turned like the first one wherever they share a ring system.

    Args:
        molecules: Best first, None for what is none; they are changed.

    Returns:
        For each, in pixels: ``box`` (width, height); ``atoms`` (x, y) in RDKit's order; ``bonds``
        (two atoms, order 1 to 3, side of the second line: 1 right, -1 left of the way from the
        first atom to the other, 0 both) in the order of their atoms, none of them aromatic;
        ``labels`` (atom, element, hydrogens, charge, where the hydrogens stand). None for what is
        no molecule.
    """
    known = [mol for mol in molecules if mol is not None]
    if known:
        first, *others = known
        rdDepictor.Compute2DCoords(first)
        cores = _cores(first) if others else []
        for mol in others:
            _lay_out(mol, first, cores)
    return [None if mol is None else _drawn(mol) for mol in molecules]


def _cores(first: Mol) -> list[Mol]:
    """Pieces of a molecule that others may share, largest first: elements and bond types alone."""
    bonded = {a.GetIdx(): {n.GetIdx() for n in a.GetNeighbors()} for a in first.GetAtoms()}
    while ends := [atom for atom, others in bonded.items() if len(others) < 2]:
        for end in ends:  # what is left of them are the rings and what joins them (Murcko)
            for other in bonded.pop(end):
                bonded[other].discard(end)
    rings = sorted((tuple(sorted(ring)) for ring in first.GetRingInfo().AtomRings()), key=len)
    joined = (tuple(sorted(atoms)) for atoms in ring_atoms(first))
    systems = sorted(joined, key=lambda atoms: (-len(atoms), atoms))
    atom_sets = list(dict.fromkeys([tuple(sorted(bonded)), *systems, *reversed(rings)]))
    symbols = [f"[#{atom.GetAtomicNum()}]" for atom in first.GetAtoms()]
    pieces = (
        Chem.MolFragmentToSmiles(first, atoms, atomSymbols=symbols, allBondsExplicit=True)
        for atoms in atom_sets[:_MOST_CORES]
        if atoms
    )
    return [*map(Chem.MolFromSmarts, pieces)]


def _lay_out(mol: Mol, first: Mol, cores: Iterable[Mol]) -> None:
    """Give a molecule places: those of the first molecule for the largest core they share."""
    for core in cores:
        if match := mol.GetSubstructMatch(core):
            pairs = list(zip(first.GetSubstructMatch(core), match, strict=True))
            try:
                rdDepictor.GenerateDepictionMatching2DStructure(mol, first, pairs)
            except (RuntimeError, ValueError):  # a core that RDKit cannot lay the rest around
                continue
            return
    rdDepictor.Compute2DCoords(mol)


def _drawn(mol: Mol) -> dict[str, Any]:
    places = mol.GetConformer().GetPositions()[:, :2] * (_SCALE, -_SCALE)
    Chem.Kekulize(mol)
    bonds = sorted(
        (
            *sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())),
            _ORDERS.get(bond.GetBondType(), 1),
        )
        for bond in map(mol.GetBondWithIdx, range(mol.GetNumBonds()))
    )
    near: list[list[int]] = [[] for _ in places]
    for one, other, _ in bonds:
        near[one].append(other)
        near[other].append(one)
    points = [complex(x, y) for x, y in places.tolist()]  # NumPy takes long for so few
    middle = sum(points).real / len(points)
    room = np.full((len(places), 4), _MARGIN)  # to the left, above, to the right, below
    labels = []
    for number, atom in enumerate(map(mol.GetAtomWithIdx, range(len(points)))):
        symbol, hydrogens, charge = atom.GetSymbol(), atom.GetTotalNumHs(), atom.GetFormalCharge()
        if atom.GetAtomicNum() == _CARBON and not charge and near[number]:
            continue
        side = _side(points, number, near[number], middle)
        labels.append((number, symbol, hydrogens, charge, side))
        half = _LETTER * len(symbol) / 2
        room[number] = half, _TALL / 2, half + _LETTER * (charge != 0), _TALL / 2
        beside = _LETTER * (hydrogens > 0) + 0.7 * _LETTER * (hydrogens > 1)
        tall = _TALL if hydrogens else 0.0
        more = {_LEFT: (0, beside), _ABOVE: (1, tall), _RIGHT: (2, beside), _BELOW: (3, tall)}
        place, extra = more[side]
        room[number, place] += extra
        room[number] += 2
    low, high = (places - room[:, :2]).min(0), (places + room[:, 2:]).max(0)
    rings = [set(ring) for ring in mol.GetRingInfo().AtomRings()]
    return {
        "box": np.ceil(high - low).astype(int).tolist(),
        "atoms": (places - low).round(1).tolist(),
        "bonds": [
            [one, other, order, _second_line(points, one, other, near, rings) if order == 2 else 0]
            for one, other, order in bonds
        ],
        "labels": labels,
    }


def _side(points: Sequence[complex], atom: int, near: Sequence[int], middle: float) -> str:
    """Where there is room for the hydrogens of an atom: away from its neighbours `near`."""
    if not near:
        return _RIGHT
    away = (sum(points[other] for other in near) / len(near) - points[atom]) / _BOND
    if abs(away.real) > _ASIDE:
        return _LEFT if away.real > 0 else _RIGHT
    if len(near) > 1:
        return _ABOVE if away.imag > 0 else _BELOW
    return _LEFT if points[atom].real < middle else _RIGHT


def _second_line(
    points: Sequence[complex],
    one: int,
    other: int,
    near: Sequence[Sequence[int]],
    rings: Iterable[set[int]],
) -> int:
    """On which side of a double bond its second line lies: inside its ring, else where more is."""
    around = [ring for ring in rings if one in ring and other in ring]
    if around:
        beside = list(min(around, key=len) - {one, other})
    elif len(near[one]) == 1 or len(near[other]) == 1:
        return 0
    else:
        beside = [atom for end in (one, other) for atom in near[end] if atom not in (one, other)]
    way = (points[other] - points[one]).conjugate()
    turned = sum((way * (points[atom] - points[one])).imag for atom in beside)
    return int(math.copysign(1, turned))
