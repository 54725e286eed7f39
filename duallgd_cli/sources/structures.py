"""The user's own molecules: templates, what candidates are compared with, a table by feature.

G molecules, F fingerprint bits.
"""

import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS, MAX_HEAVY_ATOMS, N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import Mol, disassemble, formula_of, require_expressible
from duallgd_cli.data.molecular_graph import MolecularGraph, graph_of_bonds
from duallgd_cli.data.structures import StructureRow, read_rows, reason_of
from duallgd_cli.errors import FormulaError, MoleculeError, UsageError, clip, quote
from duallgd_cli.sources.kept import kept, left_out, line_of, text_of, with_lines
from duallgd_cli.spectra.annotation import index_ranges
from duallgd_cli.tables import numbered_rows

logger = logging.getLogger(__name__)

_KIND: Final = "analogues-4"
_MOST_ROWS: Final = 1_000_000
_TEXTS: Final = ("smiles", "names", "features")
_AT_ONCE: Final = 20_000  # molecules that are looked at together
# Molecules of a hypothesis that are changed, and with which its candidates are compared.
_CHANGED: Final = 16
_COMPARED: Final = 200
# Tanimoto similarity that a heavy atom to be added or cut off must be worth.
_OF_AN_ATOM: Final = 0.02
_ROUNDING: Final = 1e-9  # of a similarity that is summed in another order
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
            path: See `data.structures.read_rows`.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is of another format.
            UsageError: It holds no molecule, or too many.
        """
        return cls(**kept(path, _KIND, "molecule that can be used", _arrays))

    @classmethod
    def of(cls, rows: Sequence[StructureRow]) -> "Analogues":
        """Those of these rows that are molecules; see `read`."""
        return cls(**with_lines(_columns(rows, Counter(), len(rows))))

    def __len__(self) -> int:
        return len(self.smiles)

    def of_feature(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Which of them are analogues of the feature with one of these names, (G,)."""
        allowed = np.zeros(len(self), np.bool_)
        for name in {"", *names} & self._of_name.keys():
            allowed[self._of_name[name]] = True
        return allowed

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

    @cached_property
    def _of_name(self) -> Mapping[str, NDArray[np.int64]]:
        rows: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        for row, name in enumerate(self.features):
            rows[name].append(row)
        return {name: np.array(places, np.int64) for name, places in rows.items()}

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.n_bits)])

    def towards(
        self, probability: NDArray[np.float32], formula: Formula, allowed: NDArray[np.bool_]
    ) -> list[tuple[float, MolecularGraph]]:
        """Molecules that can be made to fit a formula and how alike they are; few or none.

        They are alike by the soft Tanimoto similarity to predicted chances, less where atoms have
        to be added or cut off; the most alike come first.

        Args:
            probability: Predicted chance of each Morgan bit, (F,).
            formula: Of the query.
            allowed: Which of them may be taken, (G,).
        """
        n_atoms = self._atoms_apart(formula)
        fits = allowed & (n_atoms <= _MOST_DIFFERENT * sum(formula.counts[:N_HEAVY]))
        rows, alike = self._most_alike(probability, n_atoms, fits, _CHANGED)
        parts = (disassemble(parse_smiles(self.smiles[row])) for row in rows)
        graphs = (graph_of_bonds(each.formula, each.bond_class) for each in parts)
        return list(zip(alike.tolist(), graphs, strict=True))

    def near(
        self, probability: NDArray[np.float32], formula: Formula, allowed: NDArray[np.bool_]
    ) -> "Analogues":
        """Those that candidates of a formula are compared with: the most alike, see `towards`."""
        n_atoms = self._atoms_apart(formula)
        return self._taken(self._most_alike(probability, n_atoms, allowed, _COMPARED)[0])

    def _taken(self, rows: NDArray[np.int64]) -> "Analogues":
        smiles, names, features = (
            [texts[row] for row in rows] for texts in (self.smiles, self.names, self.features)
        )
        bits = self.bits[index_ranges(self._starts[rows], self._starts[rows + 1])[1]]
        return Analogues(smiles, names, features, self.counts[rows], self.n_bits[rows], bits)

    def _atoms_apart(self, formula: Formula) -> NDArray[np.int64]:
        """Heavy atoms to be added and cut off, (G,)."""
        wanted = np.array(formula.counts[:N_HEAVY])
        return np.asarray(np.abs(self.counts[:, :N_HEAVY] - wanted).sum(1))

    def _most_alike(
        self,
        probability: NDArray[np.float32],
        n_atoms: NDArray[np.int64],
        allowed: NDArray[np.bool_],
        most: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows of the most alike and how alike they are; see `towards`.

        A molecule cannot have more in common than the most probable bits of its number. Of a
        million molecules, few need their bits looked at: some whose bound is highest, and then
        those whose bound is above the least of the best of these.
        """

        def similarity(rows: NDArray[np.int64]) -> NDArray[np.float64]:
            owner, index = index_ranges(self._starts[rows], self._starts[rows + 1])
            common = np.bincount(owner, probability[self.bits[index]], len(rows))
            return worth(rows, common)

        def worth(rows: NDArray[np.int64], common: NDArray[Any]) -> NDArray[np.float64]:
            either = probability.sum() + self.n_bits[rows] - common
            return np.asarray(common / either - _OF_AN_ATOM * n_atoms[rows])

        rows = np.flatnonzero(allowed)
        if len(rows) > (n_first := max(most, _AT_ONCE)):
            sums = np.cumsum(-np.sort(-probability.astype(np.float64)))
            bound = worth(rows, sums[self.n_bits[rows] - 1])
            first = rows[np.argpartition(-bound, n_first)[:n_first]]
            least = np.partition(similarity(first), -most)[-most]
            rows = rows[bound > least - _ROUNDING]
        alike = similarity(rows)
        best = np.argsort(-alike, kind="stable")[:most]
        return rows[best], alike[best]

    def nearest(self, smiles: str) -> Mapping[str, Any] | None:
        """The molecule most like a candidate, and what was changed, as plain values; None if none.

        Args:
            smiles: Of the candidate.
        """
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


def _arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    """The columns of a file's molecules, and what is left out."""
    if (total := sum(1 for _ in islice(read_rows(path), _MOST_ROWS + 1))) > _MOST_ROWS:
        raise UsageError(
            f"{path} holds more than {_MOST_ROWS} molecules; keep those that may be analogues"
        )
    refused: Counter[str] = Counter()
    columns = _columns(read_rows(path), refused, total)
    return {**columns, "left_out": text_of(filter(None, [left_out(refused, "molecule")]))}


def _columns(
    rows: Iterable[StructureRow], refused: Counter[str], total: int
) -> dict[str, NDArray[Any]]:
    """The molecules of so many rows as `Analogues`; those that are none are counted by reason."""
    texts = {name: bytearray() for name in _TEXTS}
    n_bits = array("q")
    counts, bits = bytearray(), bytearray()  # an object for each would take several times as much
    for number, row in enumerate(rows):
        if number and number % _AT_ONCE == 0:
            logger.info("%d of %d molecules read", number, total)
        try:
            formula, set_bits = atoms_and_bits(row)
        except (MoleculeError, FormulaError) as error:
            refused[reason_of(error)] += 1
            continue
        for name, text in zip(_TEXTS, (row.smiles, row.name, row.feature_id), strict=True):
            texts[name] += line_of(text)
        n_bits.append(len(set_bits))
        counts += bytes(formula.counts)
        bits += set_bits.tobytes()
    return {
        **{name: np.frombuffer(text, np.uint8) for name, text in texts.items()},
        "counts": np.frombuffer(counts, np.uint8).reshape(-1, N_ELEMENTS),
        "n_bits": np.frombuffer(n_bits, np.int64),
        "bits": np.frombuffer(bits, np.uint16),
    }


def atoms_and_bits(row: StructureRow) -> tuple[Formula, NDArray[np.uint16]]:
    """The formula of a row's molecule, and the bits of its fingerprint that are set.

    Raises:
        MoleculeError: It is no molecule that can be proposed.
        FormulaError: It has other elements.
    """
    if row.fault:
        raise MoleculeError(row.fault)
    mol = parse_smiles(row.smiles)
    formula = formula_of(mol)
    require_expressible(mol)
    if not 2 <= formula.n_heavy <= MAX_HEAVY_ATOMS:
        raise MoleculeError(f"number of heavy atoms outside 2 to {MAX_HEAVY_ATOMS}")
    return formula, fingerprint(mol)


def difference(before: Formula, after: Formula) -> str:
    """What the second has more than the first, such as ``+C6H10O5`` or ``+O -NH``; "" if equal."""
    change = after.array - before.array
    each = {"+": np.maximum(change, 0), "-": np.maximum(-change, 0)}
    return " ".join(f"{sign}{Formula(tuple(n.tolist()))}" for sign, n in each.items() if n.any())


_FEATURE: Final = "feature_id"
_COLUMNS: Final = ("core", "require", "forbid", "analogue")
_ALSO: Final = {"required": "require", "forbidden": "forbid", "analogues": "analogue"}
_BETWEEN: Final = "|"  # no SMILES and no SMARTS has it


def read_guides(path: Path) -> tuple[dict[str, Guide], Analogues | None]:
    """What the molecules of single features must be like, by feature, and molecules like them.

    Several values in a cell have ``|`` between them, and rows add up. Columns that are none of
    these are named in a warning.

    Args:
        path: CSV or TSV with ``feature_id`` and any of core, require, forbid and analogue.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It does not name features, or is no text.
        UsageError: It says nothing, is too long, or a cell cannot be read.
    """
    guides: defaultdict[str, Guide] = defaultdict(Guide)
    alike: list[StructureRow] = []
    for number, (line, row) in enumerate(numbered_rows(path, (_FEATURE,), _ALSO)):
        if number == 0 and (others := row.keys() - {_FEATURE, *_COLUMNS}):
            logger.warning("%s: not used are the columns %s", path, clip(", ".join(sorted(others))))
        if number >= _MOST_ROWS:
            raise UsageError(f"{path} has more than {_MOST_ROWS:,} rows; keep those needed")
        core, require, forbid, analogues = (
            tuple(filter(None, map(str.strip, row.get(column, "").split(_BETWEEN))))
            for column in _COLUMNS
        )
        guide, name = Guide(".".join(core) or None, require, forbid), row[_FEATURE]
        try:
            guide.check()
        except UsageError as error:
            raise UsageError(f"{path}, line {line}: {error}") from None
        if not name:
            raise UsageError(f"{path}, line {line}: no {_FEATURE}; say which feature it is of")
        if guide != Guide():
            guides[name] = guides[name].and_also(guide)
        alike += (StructureRow(smiles, "", line, "", name) for smiles in analogues)
    molecules = Analogues.of(alike)
    if len(molecules) < len(alike):
        wrong = next(row for row in alike if row.smiles not in molecules.smiles)
        raise UsageError(
            f"{path}, line {wrong.line}: analogue {quote(wrong.smiles)} is no molecule that "
            "samples can start from; write a SMILES such as CCO"
        )
    if not guides and not alike:
        raise UsageError(f"{path} says nothing of any feature; fill {', '.join(_COLUMNS)}")
    return dict(guides), molecules if alike else None
