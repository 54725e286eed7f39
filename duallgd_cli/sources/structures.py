"""Structures of the user in memory: like the unknown ones, or of the formulas of one.

G structures, F fingerprint bits.
"""

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import Mol, disassemble, formula_of, usable
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.data.structures import StructureRow
from duallgd_cli.errors import MoleculeError
from duallgd_cli.spectra.annotation import index_ranges

# Atoms, a byte each in the order of `SYMBOLS`; SMILES, name, feature; set bits, two bytes each.
Stored: TypeAlias = tuple[bytes, str, str, str, bytes]
# Molecules of a hypothesis that are changed, and with which its candidates are compared.
_CHANGED: Final = 16
_COMPARED: Final = 200
# Tanimoto similarity that a heavy atom to be added or cut off must be worth.
_OF_AN_ATOM: Final = 0.02
# Atoms to add and to cut off, as a share of the formula's. Wider than for the molecules of the
# weights, since somebody said that these are alike: a disaccharide may go on or off.
_MOST_DIFFERENT: Final = 0.7


@dataclass(frozen=True, eq=False)
class Analogues:
    """Structures of the user."""

    smiles: Sequence[str]  # as they were given, of salts that of the parent
    names: Sequence[str]  # as the file calls them, else ""
    features: Sequence[str]  # id of the feature that each is an analogue of, "" for all
    counts: NDArray[np.uint8]  # atoms by element, (G, N_ELEMENTS)
    n_bits: NDArray[np.int64]  # how many bits of the fingerprint are set, (G,)
    bits: NDArray[np.uint16]  # those bits, of one molecule after the other

    @classmethod
    def of(cls, rows: Iterable[StructureRow]) -> "Analogues":
        """Those of these rows that are molecules."""
        return cls.of_stored(kept for _, kept in map(stored, rows) if not isinstance(kept, str))

    @classmethod
    def of_stored(cls, rows: Iterable[Stored]) -> "Analogues":
        """Those that are kept in this way."""
        smiles, names, features = list[str](), list[str](), list[str]()
        counts, n_bits, bits = bytearray(), array("q"), bytearray()
        for atoms, text, name, feature, on in rows:
            smiles.append(text)
            names.append(name)
            features.append(feature)
            counts += atoms
            n_bits.append(len(on) // 2)
            bits += on
        by_element = np.frombuffer(counts, np.uint8).reshape(-1, N_ELEMENTS)
        set_bits = np.frombuffer(bits, np.uint16)
        return cls(smiles, names, features, by_element, np.array(n_bits, np.int64), set_bits)

    def __len__(self) -> int:
        return len(self.smiles)

    def of_feature(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Which of them are analogues of the feature with one of these names, (G,)."""
        allowed = np.zeros(len(self), np.bool_)
        for name in {"", *names} & self._of_name.keys():
            allowed[self._of_name[name]] = True
        return allowed

    @cached_property
    def _of_name(self) -> Mapping[str, list[int]]:
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(self.features):
            rows[name].append(row)
        return rows

    def of_formulas(self, formulas: Iterable[Formula]) -> "Analogues":
        """Those that have the atoms of one of these formulas, whatever their charge."""
        fits = np.zeros(len(self), np.bool_)
        for formula in formulas:
            fits |= (self.counts == formula.array).all(1)
        return self._taken(np.flatnonzero(fits))

    def molecules(self) -> Iterator[Mol]:
        """Of all of them, each read when it is asked for."""
        return map(parse_smiles, self.smiles)

    def isomers(self, smiles: Iterable[str]) -> list[str]:
        """First blocks of the InChIKeys of those with the formula of one of these molecules."""
        formulas = {formula_of(parse_smiles(text)) for text in smiles}
        return [inchikey_block(mol) for mol in self.of_formulas(formulas).molecules()]

    def towards(
        self, probability: NDArray[np.float32], formula: Formula, allowed: NDArray[np.bool_]
    ) -> list[tuple[float, MolecularGraph]]:
        """Molecules that can be made to fit a formula and how alike they are; few or none.

        Of those that are allowed, (G,), the most alike come first: by the soft Tanimoto similarity
        to the predicted chance of each Morgan bit, (F,), less where atoms have to be added or cut
        off.
        """
        near = self._atoms_apart(formula) <= _MOST_DIFFERENT * sum(formula.counts[:N_HEAVY])
        rows, alike = self._most_alike(probability, formula, allowed & near, _CHANGED)
        graphs = (disassemble(parse_smiles(self.smiles[row]))[0] for row in rows)
        return list(zip(alike.tolist(), graphs, strict=True))

    def near(
        self, probability: NDArray[np.float32], formula: Formula, allowed: NDArray[np.bool_]
    ) -> "Analogues":
        """Those that candidates of a formula are compared with: the most alike, see `towards`."""
        return self._taken(self._most_alike(probability, formula, allowed, _COMPARED)[0])

    def _taken(self, rows: NDArray[np.int64]) -> "Analogues":
        smiles, names, features = (
            [texts[row] for row in rows] for texts in (self.smiles, self.names, self.features)
        )
        bits = self.bits[index_ranges(self._starts[rows], self._starts[rows + 1])[1]]
        return Analogues(smiles, names, features, self.counts[rows], self.n_bits[rows], bits)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.n_bits)])

    def _atoms_apart(self, formula: Formula) -> NDArray[np.int64]:
        """Heavy atoms to be added and cut off, (G,)."""
        wanted = np.array(formula.counts[:N_HEAVY])
        return np.asarray(np.abs(self.counts[:, :N_HEAVY] - wanted).sum(1))

    def _most_alike(
        self,
        probability: NDArray[np.float32],
        formula: Formula,
        allowed: NDArray[np.bool_],
        most: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows of the most alike and how alike they are; see `towards`."""
        rows = np.flatnonzero(allowed)
        owner, index = index_ranges(self._starts[rows], self._starts[rows + 1])
        common = np.bincount(owner, probability[self.bits[index]], len(rows))
        either = probability.sum() + self.n_bits[rows] - common
        alike = common / either - _OF_AN_ATOM * self._atoms_apart(formula)[rows]
        best = np.argsort(-alike, kind="stable")[:most]
        return rows[best], alike[best]

    def nearest(self, smiles: str) -> Mapping[str, Any] | None:
        """The molecule most like a candidate and what was changed, as plain values, or None."""
        if not len(self):
            return None
        mol = parse_smiles(smiles)
        is_set = np.zeros(FINGERPRINT_BITS, np.int64)
        is_set[fingerprint(mol)] = 1
        common = np.add.reduceat(is_set[self.bits], self._starts[:-1])
        alike = common / (is_set.sum() + self.n_bits - common)
        best = int(alike.argmax())
        template = self.smiles[best]
        change = difference(Formula(tuple(self.counts[best].tolist())), formula_of(mol))
        if not change:
            is_same = inchikey_block(parse_smiles(template)) == inchikey_block(mol)
            change = "the same molecule" if is_same else "isomer"
        return {
            "smiles": template,
            "name": self.names[best],
            "tanimoto": round(float(alike[best]), 4),
            "change": change,
        }


def difference(before: Formula, after: Formula) -> str:
    """What the second has more than the first, such as ``+C6H10O5`` or ``+O -NH``; "" if equal."""
    change = after.array - before.array
    each = {"+": np.maximum(change, 0), "-": np.maximum(-change, 0)}
    return " ".join(f"{sign}{Formula(tuple(n.tolist()))}" for sign, n in each.items() if n.any())


def stored(row: StructureRow) -> tuple[StructureRow, Stored | str]:
    """A row with its parent, and what is kept of the structure or why the row is none."""
    if row.fault:
        return row, row.fault
    row = row.without_salt()
    try:
        mol = usable(row.smiles)
    except MoleculeError as error:
        return row, error.reason
    texts = (" ".join(text.split()) for text in (row.smiles, row.name, row.feature_id))
    smiles, name, feature = (text.encode("utf-8", "replace").decode() for text in texts)
    return row, (bytes(formula_of(mol).counts), smiles, name, feature, fingerprint(mol).tobytes())
