"""The same molecules with their atoms listed in another order: what the leak study compares.

Prepared molecules list their atoms by element, as a formula does. A folder made by `prepare_orders`
also knows the order of each molecule's canonical SMILES, which only those know who know the
molecule: each is put together again, written as canonical SMILES and read back, as the authors'
code does. Letters: G molecules, N atoms of one molecule.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli.chem.elements import HEAVY
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import assemble, disassemble
from duallgd_cli.chem.valence import pair_index
from duallgd_cli.data.prepared import (
    FOLDS,
    MANIFEST,
    Molecules,
    load_array,
    load_molecules,
    origin,
    read_manifest,
    write,
)
from duallgd_cli.data.structures import PreparedMolecule, pack, prepare_molecule
from duallgd_cli.errors import DuallgdError, UnreadableError, UsageError

# Heavy elements of the authors' vocabulary; molecules with others are dropped, as they do.
AUTHORS_ELEMENTS: Final = ("C", "O", "P", "N", "S", "Cl", "F")
SMILES_PLACE: Final = "smiles_place"
# Order in which atoms are listed: by element, as a formula does; drawn; or as the canonical SMILES
# of the true molecule lists them, which nobody knows who asks.
AtomOrder = Literal["formula", "random", "truth"]


@dataclass(frozen=True, slots=True)
class OrderSelection:
    """Which molecules are taken.

    Attributes:
        smallest: Least number of heavy atoms.
        largest: Greatest number of heavy atoms.
        limit: At most so many, drawn at random; None for all.
        held_out: So many of them go to fold dev, and are not trained on.
        seed: Of both draws.
    """

    smallest: int = 6
    largest: int = 12
    limit: int | None = None
    held_out: int = 400
    seed: int = 1


def prepare_orders(
    source: Path,
    out: Path,
    selection: OrderSelection,
    advance: Callable[[int], None] = lambda rows: None,
) -> dict[str, object]:
    """Write a prepared folder of small molecules that knows the order of their canonical SMILES.

    Nothing is done where an earlier run has written it.

    Args:
        source: Prepared structures or spectra; folds val and test are left alone.
        out: Folder to write; beside it, in ``NAME-blind``, the same without fingerprints.
        selection: Which molecules.
        advance: Told of molecules done, for a progress display.

    Returns:
        The manifest.

    Raises:
        MissingInputError: The source holds no prepared data.
        UnreadableError: No molecule of it can be used, or too few to hold some out.
        UsageError: The folder holds what was made from other data or by another selection.
    """
    molecules = load_molecules(source)
    made_from = origin(source, **asdict(selection))
    if is_derived(out, made_from):
        return read_manifest(out)
    rejected: Counter[str] = Counter()
    found: list[tuple[PreparedMolecule, NDArray[np.int64]]] = []
    for row in _rows(molecules, selection).tolist():
        read = _ordered(molecules, row)
        if read is None:
            rejected["is not the same molecule when put together again"] += 1
        else:
            found.append(read)
        advance(1)
    if len(found) <= selection.held_out:
        raise UnreadableError(
            f"{source} holds {len(found)} usable molecules of {selection.smallest} to "
            f"{selection.largest} heavy atoms, expected more than the {selection.held_out} to "
            "hold out; use other data or hold out fewer"
        )
    fold = np.full(len(found), FOLDS.index("train"), np.uint8)
    fold[: selection.held_out] = FOLDS.index("dev")  # the rows come in random order
    arrays = pack([molecule for molecule, _ in found], fold)
    arrays[SMILES_PLACE] = np.concatenate([place for _, place in found]).astype(np.uint8)
    record = {
        "kind": "structures",
        "source": read_manifest(source).get("source"),
        "made_from": made_from,
        "molecules": len(found),
        "rejected": dict(rejected),
    }
    # One bit that belongs to no molecule, since an empty file cannot be memory-mapped.
    none = {"bits": np.zeros(1, np.uint16), "bit_offset": np.zeros_like(arrays["bit_offset"])}
    write(out.with_name(f"{out.name}-blind"), {**arrays, **none}, record)
    return write(out, arrays, record)


def _rows(molecules: Molecules, selection: OrderSelection) -> NDArray[np.int64]:
    """Molecules to take, in random order."""
    n = molecules.n_heavy
    fits = (n >= max(2, selection.smallest)) & (n <= selection.largest)
    fits &= molecules.in_folds("train", "dev")
    foreign = [place for place, symbol in enumerate(HEAVY) if symbol not in AUTHORS_ELEMENTS]
    fits &= ~molecules.atom_counts[:, foreign].any(1)
    generator = np.random.default_rng(selection.seed)
    return generator.permutation(np.flatnonzero(fits))[: selection.limit]


def _ordered(molecules: Molecules, row: int) -> tuple[PreparedMolecule, NDArray[np.int64]] | None:
    """The molecule, and the place of each of its element-sorted atoms in its canonical SMILES."""
    mol = _mol(molecules, row)
    if mol is None:
        return None
    # Read back, the atoms are numbered as the SMILES lists them.
    mol = parse_smiles(canonical_smiles(mol))
    return prepare_molecule(mol), disassemble(mol).order


def _mol(molecules: Molecules, row: int) -> Chem.Mol | None:
    result = assemble(molecules.formula(row), molecules.bond_class(row))
    if isinstance(result, Rejection):
        return None
    block = molecules.inchikey[row].decode()
    return next((mol for mol in result if _is(mol, block)), None)


def _is(mol: Chem.Mol, block: str) -> bool:
    try:
        return inchikey_block(mol) == block
    except DuallgdError:
        return False


@dataclass(frozen=True, eq=False)
class OrderedMolecules(Molecules):
    """Molecules whose atoms are listed in any order.

    Attributes:
        element: Elements in that order, molecule after molecule, int64 (atoms,).
        place: Where each atom of the element-sorted list stands in it, likewise, int64 (atoms,).
        atom_offset: int64 (G + 1,).
    """

    element: NDArray[np.int64]
    place: NDArray[np.int64]
    atom_offset: NDArray[np.int64]

    def atom_class(self, molecule: int) -> NDArray[np.int64]:
        """Heavy atoms of one molecule in their order, int64 (N,)."""
        return self.element[self.atom_offset[molecule] : self.atom_offset[molecule + 1]]


def load_in_order(folder: Path, order: AtomOrder, seed: int = 0) -> Molecules:
    """Molecules of a prepared folder with their atoms in an order.

    Args:
        folder: Made by `prepare_orders` unless the order is the formula's.
        order: The canonical SMILES's (``truth``), one drawn for each molecule (``random``), or by
            element (``formula``).
        seed: Of the random order.

    Raises:
        MissingInputError: The folder holds no prepared data.
        UsageError: The order of the true molecules is asked for and not known there.
    """
    molecules = load_molecules(folder)
    if order == "formula":
        return molecules
    if order == "random":
        generator = np.random.default_rng(seed)
        drawn = [generator.permutation(n) for n in molecules.n_heavy]
        return reordered(molecules, np.concatenate(drawn))
    if SMILES_PLACE not in read_manifest(folder)["arrays"]:
        raise UsageError(
            f"{folder} does not know the order of atoms in canonical SMILES; "
            "'python examples/studies/leak.py' derives it"
        )
    return reordered(molecules, load_array(folder, SMILES_PLACE).astype(np.int64))


def reordered(molecules: Molecules, place: NDArray[np.int64]) -> OrderedMolecules:
    """Molecules with their atoms moved.

    Args:
        molecules: With element-sorted atoms.
        place: New place of each atom within its molecule, molecule after molecule, int64 (atoms,).
    """
    offset = np.concatenate([[0], np.cumsum(molecules.n_heavy)])
    start = np.repeat(offset[:-1], molecules.n_heavy)
    by_formula = [molecules.atom_class(row) for row in range(len(molecules))]
    element = np.empty(len(place), np.int64)
    element[start + place] = np.concatenate(by_formula)
    of_bond = np.repeat(offset[:-1], np.diff(molecules.bond_offset))
    moved = place[of_bond[:, None] + molecules.bond_pair]
    same = {f.name: getattr(molecules, f.name) for f in fields(Molecules) if f.init}
    same["bond_pair"] = np.sort(moved, 1).astype(np.uint8)
    return OrderedMolecules(**same, element=element, place=place, atom_offset=offset)


def is_derived(folder: Path, made_from: Mapping[str, object]) -> bool:
    """Whether a folder was derived as asked; False where nothing was yet.

    Args:
        folder: Of the derived data.
        made_from: See `origin`.

    Raises:
        UsageError: It was derived from other data, or with other settings.
    """
    if not (folder / MANIFEST).is_file():
        return False
    if read_manifest(folder).get("made_from") != dict(made_from):
        raise UsageError(
            f"{folder} was made from other data or for other molecules; "
            "use another output folder, or remove that one"
        )
    return True


def pairs_of_order(shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the pairs of the formula's atoms are among those of the atoms as shown, int64 (M,).

    Args:
        shown: Index in the formula's list of each atom as shown, a permutation (N,).
    """
    ends = np.argsort(shown)[np.stack(np.triu_indices(len(shown), 1))]
    low, high = np.sort(ends, axis=0)
    return np.asarray(pair_index(low, high, len(shown)))
