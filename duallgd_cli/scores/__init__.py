"""Scores of candidates: each gives a number to every molecule that was proposed for a spectrum.

A score of your own has a ``name`` and is called like a function; see `Score` and
``examples/rescore.py``. C candidates, F fingerprint bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import Mol, is_internal_salt, is_zwitterion
from duallgd_cli.errors import UsageError
from duallgd_cli.sources import Query


@dataclass(frozen=True, eq=False)
class Molecule:
    """A molecule that was proposed.

    Attributes:
        mol: For RDKit.
        smiles: Canonical, without stereochemistry.
        inchi: Standard InChI.
        inchikey: 27 characters.
    """

    mol: Mol
    smiles: str
    inchi: str
    inchikey: str

    @classmethod
    def of(cls, mol: Mol, smiles: str) -> "Molecule":
        """Name a molecule.

        Raises:
            MoleculeError: It has no InChI.
        """
        inchi = identity.inchi(mol)
        return cls(mol, smiles, inchi, identity.inchikey_of(inchi))

    @property
    def block(self) -> str:
        """First block of the InChIKey, the identity of a molecule here."""
        return self.inchikey[: identity.BLOCK_LENGTH]

    @cached_property
    def bits(self) -> NDArray[np.uint16]:
        """Set Morgan bits, (n_on,)."""
        return identity.fingerprint(self.mol)

    @cached_property
    def is_salt(self) -> bool:
        """See `chem.molecule.is_internal_salt`."""
        return ("+" in self.smiles or "-]" in self.smiles) and is_internal_salt(self.mol)

    @cached_property
    def placement(self) -> str:
        """What a zwitterion shares with all that differ in the placement of charges alone.

        "" of any other molecule.
        """
        is_charged = "+" in self.smiles or "-]" in self.smiles
        is_placed = is_charged and (self.is_salt or is_zwitterion(self.mol))
        return identity.charge_free_smiles(self.mol) if is_placed else ""

    @cached_property
    def family(self) -> str:
        """See `chem.identity`."""
        return identity.family(self.mol)

    @cached_property
    def scaffold(self) -> str:
        """See `chem.identity`."""
        return identity.scaffold(self.mol)


class Score(Protocol):
    """A number for each molecule, the higher the likelier it is right."""

    @property
    def name(self) -> str:
        """Of the score: of its weight in the ranking, and in the outputs."""
        ...

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> NDArray[np.float64]:
        """Score molecules, (C,); a function of the arguments and nothing else."""
        ...


def score(
    scores: Sequence[Score], query: Query, molecules: Sequence[Molecule]
) -> list[Mapping[str, float]]:
    """Every score of every molecule, by name.

    Raises:
        UsageError: A score gives another shape, or no number.
    """
    if not molecules:
        return []
    columns = {}
    for each in scores:
        query.check()
        values = np.asarray(each(query, molecules), np.float64)
        if values.shape != (len(molecules),) or not np.isfinite(values).all():
            raise UsageError(
                f"score {each.name} must give one finite number for each of "
                f"{len(molecules)} molecules"
            )
        columns[each.name] = values.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
