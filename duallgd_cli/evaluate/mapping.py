"""The largest common edge subgraph of two molecules, as an integer program for HiGHS.

The distance that myopic-mces defines, in a smaller program. Atoms i, bonds e of the first molecule,
atoms j, bonds f of the second, bond orders w. With y_ij = 1 where atom i is mapped to atom j of the
same element and c_ef = 1 where bond e is mapped to bond f, the distance is

    sum w_e + sum w_f - 2 max sum min(w_e, w_f) c_ef

where each atom has one partner at most, and a bond follows its ends: for every atom i and bond f,
the c_ef of the bonds e at i sum to at most y_ij + y_ij', j and j' the ends of f, and the other way
round. That each bond has one partner at most follows, summed over the ends of the bond. Once the
y are whole the best c are: only the y are integer variables. Twice a bond order is whole, so the
distances of one pair differ by whole numbers, and a gap below 1 proves the best.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.evaluate.bounds import MoleculeGraph

if TYPE_CHECKING:
    import highspy

_GAP: Final = 0.99
_CHOSEN: Final = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found.

    Attributes:
        distance: Of the best mapping found, None if there is none within the cutoff so far.
        is_final: Whether the search came to its end: the distance is the smallest, or with None
            every mapping is above the cutoff.
    """

    distance: float | None
    is_final: bool


def search(first: MoleculeGraph, second: MoleculeGraph, cutoff: float, limit_s: float) -> Answer:
    """Find the mapping of smallest distance up to a cutoff.

    Args:
        first: A molecule.
        second: Another.
        cutoff: Larger distances are of no interest.
        limit_s: Wall time, s.
    """
    import highspy

    program = _Program(first, second)
    if not program.bonds:  # nothing to choose
        total = distance({}, first, second)
        return Answer(total if total <= cutoff else None, is_final=True)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {
        "output_flag": False,
        "threads": 1,
        "time_limit": limit_s,
        "mip_abs_gap": _GAP,
        "mip_rel_gap": 0.0,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(program.model(cutoff))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Answer(None, is_final=True)
    values = np.array(solver.getSolution().col_value)
    best = distance(program.mapping(values), first, second)
    return Answer(best, is_final=status == highspy.HighsModelStatus.kOptimal)


def distance(mapping: dict[int, int], first: MoleculeGraph, second: MoleculeGraph) -> float:
    """Sum of the bond orders that a mapping leaves without a partner, exact and rounding-free."""
    partner = {
        frozenset((int(a), int(b))): float(order)
        for (a, b), order in zip(second.ends, second.orders, strict=True)
    }
    total = float(first.orders.sum() + second.orders.sum())
    for (a, b), order in zip(first.ends.tolist(), first.orders.tolist(), strict=True):
        if a in mapping and b in mapping:
            total -= 2 * min(order, partner.get(frozenset((mapping[a], mapping[b])), 0.0))
    return total


@dataclass(slots=True)
class _Rows:
    """Constraints: each a list of columns with coefficients, and its bounds."""

    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(self, plus: list[int], minus: list[int], upper: float) -> None:
        """The sum of some columns minus that of others is at most `upper`."""
        self.columns += [*plus, *minus]
        self.values += [1.0] * len(plus) + [-1.0] * len(minus)
        self.starts.append(len(self.columns))
        self.upper.append(upper)


@dataclass(frozen=True)
class _Program:
    first: MoleculeGraph
    second: MoleculeGraph

    @cached_property
    def atoms(self) -> dict[tuple[int, int], int]:
        """Column of each y_ij."""
        pairs = [
            (i, j)
            for i, mine in enumerate(self.first.elements)
            for j, theirs in enumerate(self.second.elements)
            if mine == theirs
        ]
        return {pair: column for column, pair in enumerate(pairs)}

    @cached_property
    def bonds(self) -> dict[tuple[int, int], int]:
        """Column of each c_ef."""
        kinds = [
            [frozenset((graph.elements[a], graph.elements[b])) for a, b in graph.ends]
            for graph in (self.first, self.second)
        ]
        pairs = [
            (e, f)
            for e, mine in enumerate(kinds[0])
            for f, theirs in enumerate(kinds[1])
            if mine == theirs
        ]
        return {pair: len(self.atoms) + place for place, pair in enumerate(pairs)}

    def model(self, cutoff: float) -> "highspy.HighsLp":
        """The program for mappings of at most that distance; what is minimised is whole."""
        import highspy

        rows = self._rows()
        gains = [2 * min(self.first.orders[e], self.second.orders[f]) for e, f in self.bonds]
        total = float(self.first.orders.sum() + self.second.orders.sum())
        # Gains are whole: the least that keeps the distance within the cutoff is rounded up.
        least = math.ceil(total - cutoff - 1e-9)
        rows.columns += list(self.bonds.values())
        rows.values += [-gain for gain in gains]
        rows.starts.append(len(rows.columns))
        rows.upper.append(-float(least))

        model = highspy.HighsLp()
        n_atoms, n_columns = len(self.atoms), len(self.atoms) + len(self.bonds)
        model.num_col_, model.num_row_ = n_columns, len(rows.upper)
        model.col_cost_ = np.array([0.0] * n_atoms + [-gain for gain in gains])
        model.col_lower_, model.col_upper_ = np.zeros(n_columns), np.ones(n_columns)
        model.row_lower_ = np.full(len(rows.upper), -highspy.kHighsInf)
        model.row_upper_ = np.array(rows.upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(rows.starts, dtype=np.int32)
        model.a_matrix_.index_ = np.array(rows.columns, dtype=np.int32)
        model.a_matrix_.value_ = np.array(rows.values)
        kind = highspy.HighsVarType
        model.integrality_ = [kind.kInteger] * n_atoms + [kind.kContinuous] * len(self.bonds)
        return model

    def mapping(self, values: NDArray[np.float64]) -> dict[int, int]:
        """Partners of the first molecule's atoms, as far as a solver came.

        Stopped early, it may leave anything behind; whatever is read maps distinct atoms.
        """
        found: dict[int, int] = {}
        for (i, j), column in self.atoms.items() if len(values) else ():
            if values[column] > _CHOSEN and i not in found and j not in found.values():
                found[i] = j
        return found

    def _rows(self) -> _Rows:
        rows = _Rows()
        for side, graph in enumerate((self.first, self.second)):
            for atom in range(len(graph.elements)):
                partners = [c for pair, c in self.atoms.items() if pair[side] == atom]
                if len(partners) > 1:
                    rows.add(partners, [], 1.0)
        self._follow(rows, 0)
        self._follow(rows, 1)
        return rows

    def _follow(self, rows: _Rows, side: int) -> None:
        """Bonds at an atom of one molecule go where the atom goes."""
        mine, theirs = (self.first, self.second) if side == 0 else (self.second, self.first)
        at: dict[tuple[int, int], list[int]] = {}
        for pair, column in self.bonds.items():
            bond, other = pair[side], pair[1 - side]
            for atom in mine.ends[bond].tolist():
                at.setdefault((atom, other), []).append(column)
        for (atom, other), columns in at.items():
            ends = theirs.ends[other].tolist()
            places = [(atom, end) if side == 0 else (end, atom) for end in ends]
            rows.add(columns, [self.atoms[p] for p in places if p in self.atoms], 0.0)
