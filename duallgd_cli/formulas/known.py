"""How often formulas occur among known structures, and what that says of those that never did.

Letters: K formulas, D changes of composition, G groups of sources.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import INDEX, MASSES_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.spectra.annotation import excess
from duallgd_cli.spectra.formula_candidates import RARER, codes

FILE: Final = Path(__file__).with_name("known.npz")
GROUPS: Final = ("natural products", "molecules with public spectra", "other compounds")
# Steps by which the formulas of a family differ; each is looked for in both directions.
_GAINS: Final = ("H2", "C", "CH2", "O", "CO", "H2O", "C2H4", "C2H2O", "C3H4", "N", "NH", "C2H3NO")
_GAINS_RARE: Final = ("C6H10O5", "C5H8", "SO3", "S", "HPO3", "CF2", "C4H4", "C6H4")
_SWAPS: Final = (("F", "H"), ("Cl", "H"), ("Br", "H"), ("O", "S"), ("NH", "O"), ("Cl", "F"))
_MASSIVE_DA: Final = 500.0
_MASSES: Final = np.array(MASSES_DA)


def _changes() -> NDArray[np.int64]:
    """Changes of composition, shape (D, N_ELEMENTS)."""
    gains = [Formula.parse(text).array for text in (*_GAINS, *_GAINS_RARE)]
    gains += [Formula.parse(a).array - Formula.parse(b).array for a, b in _SWAPS]
    return np.array([*gains, *(-gain for gain in gains)], dtype=np.int64)


_CHANGES: Final = _changes()
_STEPS: Final = codes(np.maximum(_CHANGES, 0)) - codes(np.maximum(-_CHANGES, 0))


class KnownFormulas(NamedTuple):
    """A table of formulas.

    Attributes:
        code: Of each formula, ascending, int64 (T,); the last stands for no formula.
        structures: Number of structures, at most 255, uint8 (T, G); the last row is 0.
        total: The same of all groups together, int64 (T,).
        rarer: Combinations of the rarer elements that several formulas share, int16 (R, 9).
        rarer_weight: Log of the share of formulas with each, float64 (R,).
    """

    code: NDArray[np.int64]
    structures: NDArray[np.uint8]
    total: NDArray[np.int64]
    rarer: NDArray[np.int16]
    rarer_weight: NDArray[np.float64]

    def counts(self, formulas: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Known structures of formulas (K, N_ELEMENTS) by group, shape (K, G)."""
        code = codes(formulas)
        row = np.searchsorted(self.code[:-1], code)
        return self.structures[np.where(self.code[row] == code, row, -1)].astype(np.int64)

    def log_share(self, formulas: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Log of the share of known formulas with the same rarer elements, shape (K,)."""
        radix = np.int64(64) ** np.arange(self.rarer.shape[1])
        known = self.rarer.astype(np.int64) @ radix
        order = np.argsort(known)
        wanted = np.zeros(len(formulas), np.int64)
        for column, place in zip(formulas[:, RARER].T, radix, strict=True):
            wanted += column.astype(np.int64) * place
        row = order[np.minimum(np.searchsorted(known[order], wanted), order.size - 1)]
        found = known[row] == wanted
        return np.where(found, self.rarer_weight[row], self.rarer_weight.min() - 1.0)


@cache
def known_formulas() -> KnownFormulas:
    """The table that comes with duallgd."""
    return load(FILE)


def load(path: Path) -> KnownFormulas:
    """Read a table that `save` wrote."""
    with np.load(path) as file:
        code = np.append(np.cumsum(file["step"].astype(np.int64)), -1)
        empty = np.zeros((1, len(GROUPS)), dtype=np.uint8)
        structures = np.concatenate([file["structures"], empty])
        total = structures.sum(axis=1, dtype=np.int64)
        return KnownFormulas(code, structures, total, file["rarer"], file["rarer_weight"])


def save(path: Path, formulas: NDArray[np.int16], structures: NDArray[np.int64]) -> None:
    """Write a table.

    Args:
        path: Of an .npz file.
        formulas: Distinct formulas, shape (T, N_ELEMENTS).
        structures: Known structures of each by group, shape (T, G).
    """
    code = codes(formulas)
    order = np.argsort(code)
    rarer, n_formulas = np.unique(formulas[:, RARER], axis=0, return_counts=True)
    several = n_formulas > 1
    np.savez_compressed(
        path,
        step=np.diff(code[order], prepend=0),
        structures=np.minimum(structures[order], 255).astype(np.uint8),
        rarer=rarer[several].astype(np.int16),
        rarer_weight=np.log(n_formulas[several] / len(formulas)),
    )


def composition(known: KnownFormulas, formulas: NDArray[np.int16]) -> NDArray[np.float32]:
    """What a formula looks like apart from its own count, shape (K, `n_composition`).

    Numbers and ratios of atoms, and how many structures are known of each formula that a step of a
    family leads to: homologues, oxidised and conjugated forms, other halogens.
    """
    n = formulas.astype(np.float64)
    carbon, heavy = n[:, [0]], n[:, :-1].sum(axis=1, keepdims=True)
    rdbe = excess(n)[:, None] / 2 + 1
    mass = (n @ _MASSES)[:, None]
    ratios = [n[:, [INDEX[s]]] / carbon for s in ("H", "O", "N", "S", "F")]
    rarer = n[:, RARER].sum(axis=1, keepdims=True)
    hetero = (heavy - carbon) / heavy
    kinds = (n[:, 1:-1] > 0).sum(axis=1, keepdims=True)
    share = known.log_share(formulas)[:, None] / 5
    shape = [rdbe / 10, rdbe / heavy, mass / _MASSIVE_DA, rarer / 4, hetero, kinds / 4, share]
    odd = n[:, [INDEX["N"]]] % 2
    near = np.log1p(_neighbours(known, formulas)) / 3
    total = np.log1p(np.expm1(near * 3).sum(axis=1, keepdims=True)) / 3
    present = (n > 0)[:, 1:-1]
    return np.concatenate([n / 10, present, *ratios, *shape, odd, near, total], axis=1).astype(
        np.float32
    )


def _neighbours(known: KnownFormulas, formulas: NDArray[np.int16]) -> NDArray[np.float64]:
    """Structures known of each formula that a change leads to, shape (K, D)."""
    # A code is linear in the counts as long as none of them falls below zero.
    code = np.add.outer(codes(formulas), _STEPS)
    possible = np.ones(code.shape, dtype=bool)
    for change, column in zip(_CHANGES, possible.T, strict=True):
        for element in np.flatnonzero(change < 0):
            column &= formulas[:, element] >= -change[element]
    row = np.searchsorted(known.code[:-1], code)
    found = possible & (known.code[row] == code)
    return np.where(found, known.total[row], 0).astype(np.float64)
