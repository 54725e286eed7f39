"""Minimum MCES distance between the truth and ranked candidates, as myopic-mces defines it.

A pair scores its lower bound where that exceeds the threshold, else its exact distance, else the
threshold. Only the minimum over candidates is reported, so a candidate is solved only where it can
still lower that minimum, and the solver need only look below it: distances are multiples of 0.5.

The exact distance is an integer program for HiGHS, smaller than that of myopic-mces. Atoms i, bonds
e of the first molecule, atoms j, bonds f of the second, bond orders w. With y_ij = 1 where atom i
is mapped to atom j of the same element and c_ef = 1 where bond e is mapped to bond f, it is

    sum w_e + sum w_f - 2 max sum min(w_e, w_f) c_ef

where each atom has one partner at most, and a bond follows its ends: for every atom i and bond f,
the c_ef of the bonds e at i sum to at most y_ij + y_ij', j and j' the ends of f, and the other way
round. That each bond has one partner at most follows, summed over the ends of the bond. Once the
y are whole the best c are: only the y are integer variables. Twice a bond order is whole, so the
distances of one pair differ by whole numbers, and a gap below 1 proves the best.
"""

import logging
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity
from duallgd_cli.errors import UsageError

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

_log = logging.getLogger(__name__)

THRESHOLD: Final = 15.0
CAP: Final = 100.0
LIMIT_S: Final = 30.0
_STEP: Final = 0.5
_GAP: Final = 0.99
_MOST_NEIGHBOURS: Final = 8
_INFEASIBLE: Final = 2  # status of scipy.optimize.milp
# Part of the table's name: distances of another definition would be other numbers.
_TABLE: Final = "pair_v1"
_WAIT_S: Final = 60.0

# Two canonical SMILES in alphabetical order.
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class MoleculeGraph:
    """Atoms and bonds of a molecule as the MCES distance sees them; N atoms, E bonds.

    Attributes:
        elements: Symbol of each atom.
        ends: Atoms of each bond, E pairs.
        orders: Bond orders, aromatic 1.5, float64 (E,).
    """

    elements: tuple[str, ...]
    ends: tuple[tuple[int, int], ...]
    orders: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of the exact distance of one pair.

    Attributes:
        lower: The distance is at least this.
        upper: The distance is at most this; infinity if no mapping was found.
        limit_s: Longest time limit of a search that ran out, 0 if none did.
    """

    lower: float
    upper: float
    limit_s: float = 0.0

    def __and__(self, other: "Interval") -> "Interval":
        """What two searches together know."""
        return Interval(
            max(self.lower, other.lower),
            min(self.upper, other.upper),
            max(self.limit_s, other.limit_s),
        )

    def settles(self, cutoff: float) -> bool:
        """Whether it is proven that the distance is above the cutoff, or which one it is."""
        return self.lower == self.upper or self.lower > cutoff


class SolvedPairs:
    """Pairs solved so far: in a file, so that a second run need not solve them again, or in memory.

    The file is an SQLite database; several processes may use it at once.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Open a file, which is made if absent.

        Args:
            path: Of the file; None keeps pairs in memory alone.

        Raises:
            UsageError: The file is no such cache, or cannot be written.
        """
        self._path = path
        with self._asked() as where:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(where, timeout=_WAIT_S, isolation_level=None)
            self._file.execute(
                f"CREATE TABLE IF NOT EXISTS {_TABLE} (first TEXT, second TEXT, lower REAL, "
                "upper REAL, limit_s REAL, PRIMARY KEY (first, second)) WITHOUT ROWID"
            )

    def __getitem__(self, pair: Pair) -> Interval | None:
        """What is known of a pair."""
        wanted = f"SELECT lower, upper, limit_s FROM {_TABLE} WHERE first = ? AND second = ?"
        with self._asked():
            row = self._file.execute(wanted, pair).fetchone()
        return None if row is None else Interval(*row)

    def __setitem__(self, pair: Pair, found: Interval) -> None:
        """Add what was found of a pair, in place of what was known."""
        row = (*pair, found.lower, found.upper, found.limit_s)
        with self._asked():
            self._file.execute(f"REPLACE INTO {_TABLE} VALUES (?, ?, ?, ?, ?)", row)

    @contextmanager
    def _asked(self) -> Iterator[Path | str]:
        try:
            yield self._path or ":memory:"
        except (sqlite3.DatabaseError, OSError) as error:
            raise UsageError(
                f"{self._path} cannot be used as MCES cache ({error}); "
                "delete it or name another file with --mces-cache"
            ) from error


@dataclass(slots=True)
class Search:
    """Computes minimum distances, each pair once.

    Attributes:
        limit_s: Time limit of one pair, s.
        solved: Pairs solved before, to which new ones are added.
        needed: Pairs whose exact distance was asked for.
        timeouts: Those whose time limit ran out, each counted as the worst that it could score.
    """

    limit_s: float = LIMIT_S
    solved: SolvedPairs = field(default_factory=SolvedPairs)
    needed: set[Pair] = field(default_factory=set)
    timeouts: set[Pair] = field(default_factory=set)

    def minima(
        self,
        truth: str,
        candidates: Sequence[str | None],
        top_k: Sequence[int],
        *,
        threshold: float = THRESHOLD,
        ceiling: float = CAP,
    ) -> list[float]:
        """Smallest distance among the first k candidates, for each k.

        Args:
            truth: Canonical SMILES.
            candidates: Canonical SMILES, best first; None where a candidate is no molecule.
            top_k: Ascending.
            threshold: Distances above it are not computed.
            ceiling: Value without any candidate, and the largest value.
        """
        best, start, values = ceiling, 0, []
        for k in top_k:
            valid = dict.fromkeys(smiles for smiles in candidates[start:k] if smiles is not None)
            own = molecule_graph(truth)
            bounds = sorted((lower_bound(own, molecule_graph(s)), s) for s in valid)
            for bound, smiles in bounds:
                if bound >= best:  # so are all that follow
                    break
                if bound > threshold or smiles == truth:
                    best = bound
                    continue
                cutoff = min(threshold, best - _STEP)
                found = self._distance((truth, smiles), bound, cutoff)
                best = min(best, threshold if found is None else found)
            values.append(best)
            start = max(start, k)
        return values

    def _distance(self, pair: Pair, bound: float, cutoff: float) -> float | None:
        """Distance of a pair, or None if it is above the cutoff or was not found in time."""
        first, second = sorted(pair)
        key = (first, second)
        self.needed.add(key)
        found = self.solved[key] or Interval(bound, math.inf)
        if not found.settles(cutoff) and found.limit_s < self.limit_s:
            graphs = molecule_graph(first), molecule_graph(second)
            found &= search(*graphs, cutoff, self.limit_s, bound)
            self.solved[key] = found
        if not found.settles(cutoff):
            _log.debug("no proven distance within %.0f s for %s and %s", self.limit_s, *key)
            self.timeouts.add(key)
        return found.upper if found.upper <= cutoff else None


def require() -> None:
    """Check that MCES can be computed here.

    Raises:
        UsageError: A package is missing.
    """
    if find_spec("scipy") is None:
        raise UsageError(
            "MCES needs scipy, which is not installed; pip install 'duallgd[evaluate]', or leave "
            "MCES out with --no-mces"
        )


@lru_cache(maxsize=20_000)
def molecule_graph(smiles: str) -> MoleculeGraph:
    """Read the graph of a valid SMILES.

    Raises:
        MoleculeError: The text is not a SMILES.
    """
    mol = identity.parse_smiles(smiles)
    bonds = list(mol.GetBonds())
    return MoleculeGraph(
        elements=tuple(atom.GetSymbol() for atom in mol.GetAtoms()),
        ends=tuple((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds),
        orders=np.array([bond.GetBondTypeAsDouble() for bond in bonds], dtype=np.float64),
    )


def lower_bound(first: MoleculeGraph, second: MoleculeGraph) -> float:
    """Smallest MCES distance that the atoms' neighbourhoods allow.

    The same number as the stronger bound of myopic-mces, as an assignment problem over vectors: an
    atom is the list of its bond orders to each element, sorted and padded with zeros; mapping one
    atom to another of its element costs half the L1 distance, and leaving it out costs half its own
    bond orders, which is the distance to a vector of zeros.
    """
    from scipy.optimize import linear_sum_assignment  # only the `evaluate` extra brings scipy

    symbols = sorted(set(first.elements) | set(second.elements))
    profiles = [_profiles(graph, symbols) for graph in (first, second)]
    total = 0.0
    for symbol in symbols:
        mine, theirs = (
            profile[[element == symbol for element in graph.elements]]
            for profile, graph in zip(profiles, (first, second), strict=True)
        )
        size = max(len(mine), len(theirs))
        mine, theirs = (np.pad(part, ((0, size - len(part)), (0, 0))) for part in (mine, theirs))
        cost = np.abs(mine[:, None, :] - theirs[None, :, :]).sum(axis=2) / 2
        total += float(cost[linear_sum_assignment(cost)].sum())
    return total


def _profiles(graph: MoleculeGraph, symbols: list[str]) -> NDArray[np.float64]:
    """Bond orders of each atom to each element, sorted downwards, float64 (N, symbols x 8)."""
    table = np.zeros((len(graph.elements), len(symbols), _MOST_NEIGHBOURS))
    column = [symbols.index(element) for element in graph.elements]
    filled = np.zeros(table.shape[:2], dtype=np.int64)
    for (a, b), order in zip(graph.ends, graph.orders, strict=True):
        for atom, neighbour in ((a, b), (b, a)):
            cell = (atom, column[neighbour])
            table[(*cell, filled[cell])] = order
            filled[cell] += 1
    table.sort(axis=2)
    return table[:, :, ::-1].reshape(len(graph.elements), -1)


def search(
    first: MoleculeGraph,
    second: MoleculeGraph,
    cutoff: float,
    limit_s: float,
    bound: float = 0.0,
) -> Interval:
    """Find the mapping of smallest distance up to a cutoff.

    Args:
        first: A molecule.
        second: Another.
        cutoff: Larger distances are of no interest.
        limit_s: Wall time, s.
        bound: What the distance is known to be at least.
    """
    from scipy.optimize import Bounds, milp

    atoms = _pairs(first.elements, second.elements)
    bonds = _pairs(_bond_elements(first), _bond_elements(second))
    total = float(first.orders.sum() + second.orders.sum())
    if not bonds:  # nothing to choose
        return Interval(total, total)
    gains = [2 * min(first.orders[e], second.orders[f]) for e, f in bonds]
    gain = np.array([0.0] * len(atoms) + gains)
    # Gains are whole: the least that keeps the distance within the cutoff is rounded up.
    least = math.ceil(total - cutoff - 1e-9)
    found = milp(
        -gain,
        integrality=np.arange(len(gain)) < len(atoms),
        bounds=Bounds(0, 1),
        constraints=_constraints((first, second), atoms, bonds, gain, least),
        options={"time_limit": limit_s, "mip_rel_gap": _GAP / total},  # the gain is below the total
    )
    if found.status == _INFEASIBLE:
        return Interval(max(bound, cutoff + _STEP), math.inf)
    upper = math.inf if found.x is None else distance(_mapping(found.x, atoms), first, second)
    return Interval(upper, upper) if found.success else Interval(bound, upper, limit_s)


def distance(mapping: Mapping[int, int], first: MoleculeGraph, second: MoleculeGraph) -> float:
    """Sum of the bond orders that a mapping of atoms leaves without a partner, rounding-free."""
    partner = {
        frozenset(ends): float(order)
        for ends, order in zip(second.ends, second.orders, strict=True)
    }
    total = float(first.orders.sum() + second.orders.sum())
    for (a, b), order in zip(first.ends, first.orders.tolist(), strict=True):
        if a in mapping and b in mapping:
            total -= 2 * min(order, partner.get(frozenset((mapping[a], mapping[b])), 0.0))
    return total


def _pairs(mine: Sequence[object], theirs: Sequence[object]) -> list[tuple[int, int]]:
    """Index pairs of equal entries, in order."""
    return [(i, j) for i, one in enumerate(mine) for j, other in enumerate(theirs) if one == other]


def _bond_elements(graph: MoleculeGraph) -> list[frozenset[str]]:
    return [frozenset((graph.elements[a], graph.elements[b])) for a, b in graph.ends]


def _constraints(
    graphs: tuple[MoleculeGraph, MoleculeGraph],
    atoms: list[tuple[int, int]],
    bonds: list[tuple[int, int]],
    gain: NDArray[np.float64],
    least_gain: int,
) -> "LinearConstraint":
    """One partner an atom, bonds follow their ends, and the gain is at least so much.

    The columns are the y of `atoms`, then the c of `bonds`.
    """
    from scipy.optimize import LinearConstraint
    from scipy.sparse import coo_array

    column = {pair: place for place, pair in enumerate(atoms)}
    partners: defaultdict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    follows: defaultdict[tuple[int, int, int], dict[int, float]] = defaultdict(dict)
    for pair, place in column.items():
        for side in (0, 1):
            partners[side, pair[side]][place] = 1.0
    for place, bond in enumerate(bonds, start=len(atoms)):
        for side, (mine, theirs) in enumerate((graphs, graphs[::-1])):
            for atom in mine.ends[bond[side]]:
                row = follows[side, atom, bond[1 - side]]
                row[place] = 1.0
                for end in theirs.ends[bond[1 - side]]:
                    pair = (atom, end) if side == 0 else (end, atom)
                    if pair in column:
                        row[column[pair]] = -1.0
    rows = [*partners.values(), *follows.values(), dict(enumerate(-gain))]
    upper = [1.0] * len(partners) + [0.0] * len(follows) + [-float(least_gain)]
    cells = [(value, (at, place)) for at, row in enumerate(rows) for place, value in row.items()]
    values, places = zip(*cells, strict=True)
    matrix = coo_array((values, tuple(zip(*places, strict=True))), shape=(len(rows), len(gain)))
    return LinearConstraint(matrix.tocsr(), ub=np.array(upper))


def _mapping(values: NDArray[np.float64], atoms: list[tuple[int, int]]) -> dict[int, int]:
    """Partners of the first molecule's atoms, as far as a solver came.

    Stopped early, it may leave anything behind; whatever is read maps distinct atoms.
    """
    found: dict[int, int] = {}
    for (i, j), value in zip(atoms, values[: len(atoms)], strict=True):
        if value > 0.5 and i not in found and j not in found.values():
            found[i] = j
    return found
