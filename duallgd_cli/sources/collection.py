"""Known molecules that come with the weights: places to start from, and what molecules are made of.

Letters: G known molecules, F fingerprint bits, S samples, N atoms, M = N (N - 1) / 2 pairs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.building_blocks import NO_BLOCKS, BuildingBlocks
from duallgd_cli.chem.elements import (
    BOND_AROMATIC,
    HYDROGEN,
    N_ELEMENTS,
    N_HEAVY,
    VALENCES,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.valence import MolecularGraph, pair_index
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.prepared import Molecules, offsets
from duallgd_cli.errors import UsageError, WeightsError
from duallgd_cli.runtime import in_order

if TYPE_CHECKING:
    from duallgd_cli.chem.molecule import Mol

R = TypeVar("R")

# Molecules that a spectrum's samples start from, if there are as many samples.
BEGUN: Final = 6
# Molecules of which all are listed that are one change away.
_EDITED: Final = 16
# Atoms to add and to cut off, as a share of the formula's, beyond which a molecule is of no use.
_MOST_DIFFERENT: Final = 0.4
_BLOCK_LETTERS: Final = 14
_MOST_BONDS: Final = np.array([valences[-1] for valences in VALENCES[:N_HEAVY]])
_ORDER: Final = np.array([0, 1, 2, 3, 1.5])
_BROKEN: Final = "the templates in the weights are broken; fetch or copy the weights again"
# Arrays of a weights file, and their types there.
_DTYPES: Final[Mapping[str, type]] = {
    "atom_counts": np.uint8, "n_bonds": np.uint8, "bond_pair": np.uint8, "bond_type": np.uint8,
    "n_bits": np.int16, "bits": np.int16, "inchikey": np.uint8, "blocks": np.uint8,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Collection:
    """Known molecules."""

    molecules: Molecules  # as they were prepared; their charges and folds are not known here
    blocks: BuildingBlocks = NO_BLOCKS  # what they are put together from

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Collection":
        """From the tensors of a weights file, see `tensors`.

        Raises:
            WeightsError: They are not of known molecules.
        """
        try:
            kept = {name: tensors[name].numpy() for name in _DTYPES}
            if not _fit(kept):
                raise WeightsError(_BROKEN)
            counts, blocks = kept["atom_counts"], BuildingBlocks.read(kept["blocks"])
            molecules = Molecules(
                atom_counts=counts,
                charge=np.zeros(len(counts), np.int8),
                bond_offset=offsets(kept["n_bonds"]),
                bond_pair=kept["bond_pair"],
                bond_type=kept["bond_type"],
                bit_offset=offsets(kept["n_bits"]),
                bits=kept["bits"].view(np.uint16),
                fold=np.zeros(len(counts), np.uint8),
                inchikey=kept["inchikey"].view("S14")[:, 0],
            )
        except KeyError as error:
            raise WeightsError(
                f"the weights hold no {error} of templates; fetch or copy them again"
            ) from None
        except ValueError:
            raise WeightsError(_BROKEN) from None
        return cls(molecules, blocks)

    def tensors(self) -> dict[str, Tensor]:
        """What a weights file keeps; integers all of them."""
        known = self.molecules
        kept = {
            "atom_counts": known.atom_counts,
            "n_bonds": np.diff(known.bond_offset).astype(np.uint8),
            "bond_pair": known.bond_pair,
            "bond_type": known.bond_type,
            "n_bits": np.diff(known.bit_offset).astype(np.int16),
            "bits": known.bits.view(np.int16),  # what every version of the file format knows
            "inchikey": known.inchikey.astype("S14")[:, None].view(np.uint8),
            "blocks": self.blocks.packed(),
        }
        return {name: torch.from_numpy(np.array(values)) for name, values in kept.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """First blocks of their InChIKeys."""
        return tuple(key.decode("ascii") for key in self.molecules.inchikey.tolist())

    def near(
        self, probability: NDArray[np.float32], formula: Formula, most: int = _EDITED
    ) -> list[MolecularGraph]:
        """Known molecules that have nearly the formula's atoms, most alike first; few or none.

        They are alike by the soft Tanimoto similarity to the predicted chance of each Morgan bit,
        (F,), less where atoms have to be added or cut off.
        """
        known = self.molecules
        wanted = np.array(formula.counts[:N_HEAVY])
        different = np.abs(known.atom_counts[:, :N_HEAVY] - wanted).sum(1) / wanted.sum()
        common = np.add.reduceat(probability[known.bits], known.bit_offset[:-1])
        either = probability.sum() + np.diff(known.bit_offset) - common
        alike = np.where(different <= _MOST_DIFFERENT, (1 - different) * common / either, 0)
        best = np.argsort(-alike, kind="stable")[:most]
        return [graph_of(self.molecules, int(row)) for row in best[alike[best] > 0]]


def molecule_of(graph: MolecularGraph) -> "Mol | None":
    """A known molecule with its hydrogens, an odd electron being that of a cation; None if none."""
    from duallgd_cli.chem.molecule import assemble

    n = len(graph.element)
    counts = np.bincount(graph.element, minlength=N_ELEMENTS)
    counts[HYDROGEN] = graph.hydrogens
    formula = Formula(tuple(counts.tolist()))
    if not formula.has_even_electrons:
        formula = replace(formula, charge=1)
    made = assemble(formula, bonds_between(graph, np.arange(n), n).astype(np.int8))
    return None if isinstance(made, str) else made


def _fit(kept: Mapping[str, NDArray[Any]]) -> bool:
    """Whether arrays of a weights file have types and shapes of molecules."""
    if any(a.dtype != _DTYPES[name] or not a.ndim for name, a in kept.items()):
        return False
    pair, bits, rows = kept["bond_pair"], kept["bits"], len(kept["atom_counts"])
    shapes = {
        "atom_counts": (rows, N_ELEMENTS),
        "inchikey": (rows, _BLOCK_LETTERS),
        "n_bonds": (rows,),
        "n_bits": (rows,),
        "bond_pair": (len(pair), 2),
        "bond_type": (len(pair),),
        "bits": (len(bits),),
        "blocks": (len(kept["blocks"]),),
    }
    if any(array.shape != shapes[name] for name, array in kept.items()):
        return False
    sums = [kept[name].sum(dtype=np.int64) for name in ("n_bonds", "n_bits")]
    return bool(rows) and sums == [len(pair), len(bits)]


def known_molecules(
    molecules: Molecules,
    max_atoms: int,
    structures: Molecules | None = None,
    advance: Callable[[int], None] = lambda molecules: None,
    workers: int = 1,
) -> Collection:
    """Those of fold train, up to a number of heavy atoms, and what they are put together from.

    Building blocks that several other structures of fold train have are taken too. ``advance`` is
    told of each molecule that is cut, which takes one of so many processes 7 ms.

    Raises:
        UsageError: There are none.
    """
    from duallgd_cli.chem.joining import cut, parts_of

    def rows_of(prepared: Molecules) -> NDArray[np.int64]:
        return np.flatnonzero(prepared.in_folds("train") & (prepared.n_heavy <= max_atoms))

    rows = rows_of(molecules)
    if not len(rows):
        raise UsageError(
            f"fold train holds no molecule of at most {max_atoms} heavy atoms; give another "
            "--max-atoms, or another folder"
        )
    own = of_each(parts_of, molecules, rows, workers, advance)
    if structures is None:
        return Collection(molecules.take(rows), cut(own))
    others = of_each(parts_of, structures, rows_of(structures), workers, advance)
    return Collection(molecules.take(rows), cut(own, others))


def of_each(
    work: "Callable[[Mol], R]",
    molecules: Molecules,
    rows: NDArray[np.int64],
    workers: int = 1,
    advance: Callable[[int], None] = lambda molecules: None,
) -> "Iterator[R]":
    """What work on prepared molecules gives, but for those that none comes of; see `in_order`."""
    graphs = (graph_of(molecules, row) for row in rows.tolist())
    for made in in_order(partial(_of_graph, work), graphs, workers):
        advance(1)
        if made is not None:
            yield made


def _of_graph(work: "Callable[[Mol], R]", graph: MolecularGraph) -> "R | None":
    mol = molecule_of(graph)
    return None if mol is None else work(mol)


def starts(
    graphs: Sequence[MolecularGraph],
    formula: Formula,
    samples: int,
    seed: int,
    exchange: bool = True,
) -> NDArray[np.int64]:
    """Graphs of a formula to start samples from, (S, M), which take known molecules in turn.

    With ``exchange`` every other turn has surplus atoms turned into those that lack.
    """
    generator, atoms = np.random.default_rng(seed), formula.atom_class
    wanted = np.array(formula.counts[:N_HEAVY])
    bonds = []
    for sample in range(samples):
        turn, which = divmod(sample, len(graphs))
        graph = graphs[which]
        graph = exchanged(graph, wanted, generator) if exchange and turn % 2 else graph
        bonds.append(bonds_between(graph, placed(graph, atoms, generator), len(atoms)))
    return np.stack(bonds)


def exchanged(
    graph: MolecularGraph, wanted: NDArray[np.int64], generator: np.random.Generator
) -> MolecularGraph:
    """The molecule with surplus atoms turned into those that it lacks, where their bonds allow.

    Wanted are the formula's atoms by element, (N_HEAVY,).
    """
    element = graph.element.copy()
    bonds = np.zeros(len(element))
    np.add.at(bonds, graph.pair, _ORDER[graph.bond_class][:, None])
    aromatic = np.zeros(len(element), np.bool_)
    aromatic[graph.pair[graph.bond_class == BOND_AROMATIC]] = True
    while True:
        surplus = np.bincount(element, minlength=N_HEAVY) - wanted
        able = (surplus[element] > 0)[:, None] & (surplus < 0) & ~aromatic[:, None]
        able &= bonds[:, None] <= _MOST_BONDS
        if not able.any():
            return replace(graph, element=element)
        atom, new = generator.choice(np.argwhere(able))
        element[atom] = new


def placed(
    graph: MolecularGraph,
    atom_class: NDArray[np.int64],
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Where a molecule's atoms stand among those of a formula, (n,); -1 of those cut off.

    The elements of both are sorted, (N,) of the formula. Chance has it which atoms are cut off,
    ends of chains first, and which places the others take; those of one element keep their order.
    """
    is_kept = np.ones(len(graph.element), np.bool_)
    wanted = np.bincount(atom_class, minlength=N_HEAVY)
    surplus = np.bincount(graph.element, minlength=N_HEAVY) - wanted
    while (surplus > 0).any():
        bonded = graph.pair[is_kept[graph.pair].all(1)]
        degree = np.bincount(bonded.ravel(), minlength=len(is_kept))
        too_many = np.flatnonzero(is_kept & (surplus[graph.element] > 0))
        ends = too_many[degree[too_many] <= 1]
        atom = generator.choice(ends if len(ends) else too_many)
        is_kept[atom] = False
        surplus[graph.element[atom]] -= 1
    kept, place = np.flatnonzero(is_kept), np.full(len(graph.element), -1)
    for element in np.unique(graph.element[kept]):
        atoms = kept[graph.element[kept] == element]
        free = np.flatnonzero(atom_class == element)
        place[atoms] = np.sort(generator.choice(free, len(atoms), replace=False))
    return place


def bonds_between(graph: MolecularGraph, place: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """A molecule's bonds between the N atoms of a formula, (M,), its atoms placed by `placed`."""
    ends = np.sort(place[graph.pair], 1)
    whole = ends[:, 0] >= 0
    bond_class = np.zeros(n * (n - 1) // 2, np.int64)
    bond_class[pair_index(ends[whole, 0], ends[whole, 1], n)] = graph.bond_class[whole]
    return bond_class
