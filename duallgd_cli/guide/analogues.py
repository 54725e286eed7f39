"""The user's own molecules: places to start from, and what candidates are told apart by.

G molecules, F fingerprint bits.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.molecule import disassemble, formula_of, require_expressible
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.data.structures import MAX_HEAVY_ATOMS, StructureRow, read_rows
from duallgd_cli.errors import FormulaError, MoleculeError, UsageError, counted
from duallgd_cli.files import require_input
from duallgd_cli.guide.changes import difference, named
from duallgd_cli.guide.files import kept, lines_of, text_of

logger = logging.getLogger(__name__)

_KIND: Final = "analogues-2"
_TEXTS: Final = ("smiles", "names", "features")
_MOST_ROWS: Final = 200_000
# Molecules that a hypothesis' samples start from.
_ASKED: Final = 6
# Atoms to add and to cut off, as a share of the formula's. Wider than for the molecules of the
# weights, since somebody said that these are alike: a disaccharide may go on or off.
_MOST_DIFFERENT: Final = 0.7


@dataclass(frozen=True, eq=False)
class Analogues:
    """Molecules that are like the unknown ones.

    Attributes:
        smiles: Of each, as it was given.
        names: As the file calls them, else "".
        features: Id of the feature that it is an analogue of, "" for all.
        counts: Atoms by element, (G, N_ELEMENTS).
        n_bits: How many bits of the fingerprint are set, (G,).
        bits: Those bits, of one molecule after the other.
    """

    smiles: Sequence[str]
    names: Sequence[str]
    features: Sequence[str]
    counts: NDArray[np.uint8]
    n_bits: NDArray[np.int64]
    bits: NDArray[np.uint16]

    @classmethod
    def read(cls, path: Path) -> "Analogues":
        """Molecules of a file; rows that are none are counted in a warning.

        Args:
            path: ``.smi`` (SMILES, then a name), ``.csv`` or ``.tsv`` (columns smiles, name and
                feature_id) or ``.sdf``, packed or not.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is of another format.
            UsageError: It holds no molecule, or too many.
        """
        require_input(str(path))
        arrays = kept(path, _KIND, _arrays)
        left_out = "; ".join(lines_of(arrays["left_out"]))
        if not arrays["n_bits"].size:
            why = left_out or "it is empty"
            raise UsageError(f"{path} holds no molecule that can be an analogue: {why}")
        if left_out:
            logger.warning("%s: %s", path, left_out)
        smiles, names, features = (lines_of(arrays[name]) for name in _TEXTS)
        return cls(smiles, names, features, arrays["counts"], arrays["n_bits"], arrays["bits"])

    @classmethod
    def of(cls, rows: Iterable[StructureRow]) -> "Analogues":
        """Those of these rows that are molecules; see `read`."""
        return _made(rows)[0]

    def __len__(self) -> int:
        return len(self.smiles)

    def of_feature(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Which of them are analogues of the feature with one of these names, (G,)."""
        allowed = np.zeros(len(self), np.bool_)
        for name in ("", *names):
            allowed[self._of_name.get(name, [])] = True
        return allowed

    @cached_property
    def _of_name(self) -> Mapping[str, list[int]]:
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(self.features):
            rows[name].append(row)
        return rows

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.n_bits)[:-1]])

    @cached_property
    def _by_bit(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where the molecules of each bit begin, (F + 1,), and the molecules, bit after bit."""
        order = np.argsort(self.bits, kind="stable")
        row = np.repeat(np.arange(len(self), dtype=np.int32), self.n_bits)
        first = np.searchsorted(self.bits[order], np.arange(FINGERPRINT_BITS + 1))
        return first, row[order]

    def towards(
        self, probability: NDArray[np.float32], formula: Formula, allowed: NDArray[np.bool_]
    ) -> list[MolecularGraph]:
        """Molecules that can be made to fit a formula, most alike first; few or none.

        They are alike by the soft Tanimoto similarity to predicted chances, less where atoms have
        to be added or cut off.

        Args:
            probability: Predicted chance of each Morgan bit, (F,).
            formula: Of the unknown.
            allowed: Which are asked, (G,).
        """
        wanted = np.array(formula.counts[:N_HEAVY])
        different = np.abs(self.counts[:, :N_HEAVY] - wanted).sum(1) / wanted.sum()
        common = np.add.reduceat(probability[self.bits], self._starts)
        alike = (1 - different) * common / (probability.sum() + self.n_bits - common)
        alike[~allowed | (different > _MOST_DIFFERENT)] = -1
        best = np.argsort(-alike, kind="stable")[:_ASKED]
        return [_graph(self.smiles[row]) for row in best[alike[best] >= 0]]

    def nearest(self, smiles: str, allowed: NDArray[np.bool_]) -> Mapping[str, Any] | None:
        """The molecule most like a candidate, and what was changed, as plain values; None if none.

        Args:
            smiles: Of the candidate.
            allowed: Which are asked, (G,).
        """
        if not allowed.any():
            return None
        mol = parse_smiles(smiles)
        first, rows = self._by_bit
        bits = fingerprint(mol)
        common = np.bincount(
            np.concatenate([rows[first[bit] : first[bit + 1]] for bit in bits]), minlength=len(self)
        )
        alike = common / (len(bits) + self.n_bits - common)
        alike[~allowed] = -1
        best = int(alike.argmax())
        before, after = Formula(tuple(self.counts[best].tolist())), formula_of(mol)
        return {
            "smiles": self.smiles[best],
            "name": self.names[best],
            "tanimoto": round(float(alike[best]), 4),
            "change": difference(before, after),
            "change_name": named(before, after),
        }


def _graph(smiles: str) -> MolecularGraph:
    parts = disassemble(parse_smiles(smiles))
    bonded = np.flatnonzero(parts.bond_class)
    pair = np.stack(np.triu_indices(len(parts.atom_class), 1), 1)[bonded]
    bond_class = parts.bond_class[bonded].astype(np.int64)
    return MolecularGraph(parts.atom_class, pair, bond_class, parts.formula.hydrogens)


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    rows = list(islice(read_rows(path), _MOST_ROWS + 1))
    if len(rows) > _MOST_ROWS:
        raise UsageError(
            f"{path} holds more than {_MOST_ROWS} molecules; keep those that may be analogues"
        )
    made, refused = _made(rows)
    left_out = [f"{counted(n, 'molecule')} left out ({reason})" for reason, n in refused.items()]
    texts = {
        "smiles": made.smiles,
        "names": made.names,
        "features": made.features,
        "left_out": left_out,
    }
    return {
        **{name: text_of(lines) for name, lines in texts.items()},
        "counts": made.counts,
        "n_bits": made.n_bits,
        "bits": made.bits,
    }


def _made(rows: Iterable[StructureRow]) -> tuple[Analogues, Counter[str]]:
    """The molecules of rows, and how many rows were none, by reason."""
    found: list[tuple[StructureRow, NDArray[np.uint8], NDArray[np.uint16]]] = []
    refused: Counter[str] = Counter()
    for row in rows:
        try:
            mol = parse_smiles(row.smiles)
            formula = formula_of(mol)
            require_expressible(mol)
            if not 2 <= formula.n_heavy <= MAX_HEAVY_ATOMS:
                raise MoleculeError(f"number of heavy atoms outside 2 to {MAX_HEAVY_ATOMS}")
            found.append((row, formula.array.astype(np.uint8), fingerprint(mol)))
        except (MoleculeError, FormulaError) as error:
            refused["not a molecule" if "is not a molecule" in str(error) else str(error)] += 1
    texts = [(row.smiles, row.name, row.feature_id) for row, _, _ in found]
    smiles, names, features = zip(*texts, strict=True) if found else ((), (), ())
    return Analogues(
        smiles,
        names,
        features,
        np.array([counts for _, counts, _ in found], np.uint8).reshape(-1, N_ELEMENTS),
        np.array([len(bits) for _, _, bits in found], np.int64),
        np.concatenate([bits for *_, bits in found]) if found else np.zeros(0, np.uint16),
    ), refused
