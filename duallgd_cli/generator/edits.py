"""Samples that begin as molecules made of known ones: by one change, or of their parts.

S samples, F fingerprint bits, M pairs of atoms.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.building_blocks import BuildingBlocks
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.generator.templates import molecule_of

if TYPE_CHECKING:
    from duallgd_cli.chem.molecule import Mol

_price: Final = itemgetter(0)
# Changes of one known molecule, so that a large one takes no longer than its drawing.
_MOST_OF_ONE: Final = 1_000
# Molecules that are compared at once: a thousand large ones take 25 MiB.
_AT_ONCE: Final = 1_000
# What one change is worth, in log-odds, next to blocks put together; chosen on fold val.
_OF_A_CHANGE: Final = 15.0
_LEAST, _MOST = 0.003, 0.997


def changed(
    known: Iterable[MolecularGraph], formula: Formula, blocks: BuildingBlocks
) -> "Iterator[tuple[Mol, float]]":
    """Molecules of a formula that are one change away from known ones, some more than once.

    Args:
        known: The molecules.
        formula: Of the unknown.
        blocks: What may be put in place of a group or a hydrogen.

    Returns:
        Molecules, made when they are asked for, and what is added to the log-odds of the bits.
    """
    from duallgd_cli.chem.edits import edited  # rdkit loads only here

    mols = list(filter(None, map(molecule_of, known)))
    each = (islice(edited(mol, formula, blocks), _MOST_OF_ONE) for mol in mols)
    return ((one, _OF_A_CHANGE) for made in each for one in made)


def put_together(
    blocks: BuildingBlocks, formula: Formula, probability: NDArray[np.float32]
) -> "Iterator[tuple[Mol, float]]":
    """Molecules of a formula from two or three building blocks; see `changed`.

    Args:
        blocks: Of known molecules.
        formula: Of the unknown.
        probability: Predicted chance of each Morgan bit, (F,); says which are put together.
    """
    from duallgd_cli.chem.joining import together  # rdkit loads only here

    yield from together(blocks, formula, _log_odds(probability))


def likeliest_starts(
    made: "Iterator[tuple[Mol, float]]", probability: NDArray[np.float32], samples: int
) -> Tensor | None:
    """Graphs of the likeliest of molecules.

    Args:
        made: Of one formula, and what is added to the log-odds of the bits of each.
        probability: Predicted chance of each Morgan bit, (F,).
        samples: S at most.

    Returns:
        Bond classes, int64 (S, M), all different, or None where there are none.
    """
    from duallgd_cli.chem.identity import charge_free_smiles, fingerprint  # rdkit loads only here
    from duallgd_cli.chem.molecule import disassemble

    log_odds = _log_odds(probability)
    best: dict[str, tuple[float, Mol]] = {}
    while some := list(islice(made, _AT_ONCE)):
        priced = [(-worth - log_odds[fingerprint(one)].sum(), one) for one, worth in some]
        own: dict[str, tuple[float, Mol]] = {}
        for price, one in sorted(priced, key=_price):
            if len(own) == samples:
                break
            own.setdefault(charge_free_smiles(one), (price, one))  # tautomers may share a graph
        both = sorted([*best.items(), *own.items()], key=lambda item: -_price(item[1]))
        best = dict(sorted(dict(both).items(), key=lambda item: _price(item[1]))[:samples])
    rows = [disassemble(one).bond_class for _, one in best.values()]
    return torch.from_numpy(np.stack(rows)).long() if rows else None


def _log_odds(probability: NDArray[np.float32]) -> NDArray[np.float64]:
    chance = probability.astype(np.float64).clip(_LEAST, _MOST)
    return np.asarray(np.log(chance / (1 - chance)))
