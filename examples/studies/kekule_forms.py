"""Prepared structures with single and double bonds in place of aromatic ones: an arm of a study.

A Kekule form is chosen as `chem.hydrogens` chooses it when a bond matrix becomes a molecule. Which
of several equivalent ones depends on the order of the atoms, and that is the molecule's canonical
one. Needs no rdkit.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from atom_orders import is_derived
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_DOUBLE, BOND_SINGLE, HYDROGEN
from duallgd_cli.chem.hydrogens import Rejection, complete
from duallgd_cli.chem.valence import Skeleton
from duallgd_cli.data.prepared import Molecules, load_molecules, origin, read_manifest, write
from duallgd_cli.errors import UnreadableError


def prepare_kekule_forms(
    source: Path,
    out: Path,
    max_atoms: int,
    advance: Callable[[int], None] = lambda rows: None,
) -> dict[str, object]:
    """Write a prepared folder of the same molecules without aromatic bonds, unless it is there.

    Args:
        source: Prepared structures; folds val and test are left alone.
        out: Folder to write.
        max_atoms: The largest molecules to take, in heavy atoms.
        advance: Told of molecules done, for a progress display.

    Returns:
        The manifest.

    Raises:
        MissingInputError: The source holds no prepared data.
        UnreadableError: No molecule of it can be used.
        UsageError: The folder holds what was made from other data.
    """
    molecules = load_molecules(source)
    made_from = origin(source, max_atoms=max_atoms)
    if is_derived(out, made_from):
        return read_manifest(out)
    fits = molecules.n_heavy <= max_atoms
    rows = np.flatnonzero(fits & molecules.in_folds("train", "dev"))
    forms = []
    for row in rows.tolist():
        forms.append(kekule_form(molecules, row))
        advance(1)
    kept = np.array([form is not None for form in forms], bool)
    if not kept.any():
        raise UnreadableError(f"{source} holds no molecule of up to {max_atoms} heavy atoms")
    arrays = molecules.take(rows[kept]).arrays()
    arrays["bond_type"] = np.concatenate([form for form in forms if form is not None])
    record = {
        "kind": "structures",
        "source": read_manifest(source).get("source"),
        "made_from": made_from,
        "molecules": int(kept.sum()),
        "rejected": {"no Kekule form": int((~kept).sum())},
    }
    return write(out, arrays, record)


def kekule_form(molecules: Molecules, row: int) -> NDArray[np.uint8] | None:
    """Classes of a molecule's bonds, none of them aromatic, (b,); None where there is no form."""
    own = slice(int(molecules.bond_offset[row]), int(molecules.bond_offset[row + 1]))
    kind = np.array(molecules.bond_type[own])
    aromatic = kind == BOND_AROMATIC
    if not aromatic.any():
        return kind
    ends = [(int(a), int(b)) for a, b in molecules.bond_pair[own]]
    bonds = [(a, b, int(k)) for (a, b), k in zip(ends, kind, strict=True)]
    skeleton = Skeleton.of(molecules.atom_class(row).tolist(), sorted(bonds))
    hydrogens = int(molecules.atom_counts[row, HYDROGEN])
    answers = complete(skeleton, hydrogens, int(molecules.charge[row]))
    if isinstance(answers, Rejection):
        return None
    is_double = np.array([pair in answers[0].double for pair in ends])
    kind[aromatic] = np.where(is_double[aromatic], BOND_DOUBLE, BOND_SINGLE)
    return kind
