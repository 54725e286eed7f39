"""Samples that start from what one change makes of known molecules.

S samples, F fingerprint bits, M pairs of atoms.
"""

from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.generator.templates import molecule_of

if TYPE_CHECKING:
    from duallgd_cli.chem.edits import Groups
    from duallgd_cli.chem.molecule import Mol

_price: Final = itemgetter(0)
# Changes of one known molecule, so that a large one takes no longer than its drawing.
_MOST_OF_ONE: Final = 1_000
_LEAST, _MOST = 0.003, 0.997


def edited_starts(
    known: Iterable[MolecularGraph],
    formula: Formula,
    probability: NDArray[np.float32],
    groups: "Groups",
    samples: int,
) -> Tensor | None:
    """Graphs of a formula that are one change away from known molecules, the most probable ones.

    Args:
        known: The molecules.
        formula: Of the unknown.
        probability: Predicted chance of each Morgan bit, (F,); says which are probable.
        groups: What may be put in place of a group or a hydrogen.
        samples: S at most.

    Returns:
        Bond classes, int64 (S, M), all different, or None where there are none.
    """
    from duallgd_cli.chem.edits import edited  # rdkit loads only here
    from duallgd_cli.chem.identity import charge_free_smiles, fingerprint
    from duallgd_cli.chem.molecule import disassemble

    chance = probability.astype(np.float64).clip(_LEAST, _MOST)
    log_odds = np.log(chance / (1 - chance))
    best: dict[str, tuple[float, Mol]] = {}
    for mol in filter(None, map(molecule_of, known)):
        made = islice(edited(mol, formula, groups), _MOST_OF_ONE)
        priced = sorted(((-log_odds[fingerprint(one)].sum(), one) for one in made), key=_price)
        own: dict[str, tuple[float, Mol]] = {}
        for price, one in priced:
            if len(own) == samples:
                break
            own.setdefault(charge_free_smiles(one), (price, one))  # tautomers may share a graph
        # No more are held: a thousand changes of a large molecule take 25 MiB.
        best = dict(sorted((best | own).items(), key=lambda item: _price(item[1]))[:samples])
    rows = [disassemble(one).bond_class for _, one in best.values()]
    return torch.from_numpy(np.stack(rows)).long() if rows else None
