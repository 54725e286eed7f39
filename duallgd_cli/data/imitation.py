"""What an encoder would say of structures without spectra: fingerprints mixed from neighbours.

An encoder that never saw a molecule says which structures its spectrum could be of: the chance of a
bit is the share of those that have it. So a prediction is imitated by a mixture of structures: some
like the molecule, or like another one that is like it, and isomers. They have in common what the
spectrum shows and differ in what it leaves open, so a substructure is missed with all of its bits.
Bits that are lost each by itself would still tell a molecule from its isomers (84 % of them rather
than 34 %), and a denoiser that learns from those trusts a prediction too much.

Letters: G molecules, K neighbours, B molecules of a batch, F fingerprint bits.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.elements import FINGERPRINT_BITS, MASSES_DA
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.files import replaced

_N_NEIGHBOURS: Final = 64
_WINDOW: Final = 10_000  # molecules lighter, and as many heavier, among which neighbours are sought
_AT_ONCE: Final = 1024

# Of what is mixed; found by chance moves towards what `figures` of the study measures on fold val.
_SEEN: Final = 0.27  # molecules that are in the mixture themselves, as those with known analogues
_CONCENTRATION: Final = 0.067, 9.2  # least of a mixture's weights (Dirichlet), and its range
_LEAST_NEAR: Final = 2.2  # neighbours of the centre that are mixed: from here to all of them
_CENTRE: Final = 9.4  # mean rank, among the molecule's neighbours, of the one in the centre
_OWN: Final = 1.6, 2.4  # share of the molecule's own neighbours (beta)
_FAR: Final = 2.7, 0.59  # share of molecules of about the same mass, isomers above all (beta)
_FAR_SEEN: Final = 0.5, 9.8
_N_FAR: Final = 24
_FAR_PLACES: Final = 11.1, 1.66  # spread in the order of masses, and its range
_FLOOR: Final = 0.024  # share of how often each bit is set in all molecules
_SHARPNESS: Final = 1.4  # factor of the logits, to which noise of this deviation is added
_DEVIATION: Final = 0.87
_CERTAIN_LOGIT: Final = 30.0


def by_mass(molecules: Molecules) -> NDArray[np.int64]:
    """Rows of fold train, the lightest first; isomers follow each other."""
    rows = np.flatnonzero(molecules.in_folds("train"))
    return rows[np.argsort(molecules.atom_counts[rows] @ np.array(MASSES_DA), kind="stable")]


def load_neighbours(folder: Path, molecules: Molecules, device: torch.device) -> NDArray[np.int32]:
    """`neighbours` of a prepared folder's molecules, computed once and kept beside them."""
    path = folder / "neighbours.npy"
    with suppress(OSError, ValueError):  # not there, or broken
        # Older than the data, it is of those that were there before.
        if path.stat().st_mtime_ns >= (folder / "manifest.json").stat().st_mtime_ns:
            alike: NDArray[np.int32] = np.load(path, mmap_mode="r")
            if len(alike) == len(molecules):
                return alike
    alike = neighbours(molecules, device)
    # Where the folder cannot be written to, the next run looks for them again.
    with suppress(OSError), replaced(path) as new, new.open("wb") as stream:
        np.save(stream, alike)
    return alike


@torch.no_grad()
def neighbours(molecules: Molecules, device: torch.device) -> NDArray[np.int32]:
    """The molecules of fold train most alike by Tanimoto similarity, of about the same mass.

    Rows, the most similar first, (G, K), zeros for molecules of other folds. K is 64, or the number
    of molecules, each of which is then its own last neighbour. For half a million it takes two
    seconds on a GPU, half an hour on a core.
    """
    order = by_mass(molecules)
    n = len(order)
    n_kept = min(_N_NEIGHBOURS, n)
    alike = np.zeros((len(molecules), n_kept), np.int32)
    n_bits = torch.from_numpy(np.diff(molecules.bit_offset)[order]).float().to(device)
    low, held = 0, dense_bits(molecules, order[:0], device)
    for first in range(0, n, _AT_ONCE):
        last = min(first + _AT_ONCE, n)
        start, stop = max(0, first - _WINDOW), min(n, last + _WINDOW)
        # The window moves on: what it holds already is not made again.
        new = dense_bits(molecules, order[low + len(held) : stop], device)
        low, held = start, torch.cat([held[start - low :], new])
        common = (held[first - low : last - low] @ held.T).float()
        similarity = common / (n_bits[first:last, None] + n_bits[start:stop] - common)
        similarity.diagonal(first - low).fill_(-1)  # itself
        best = similarity.topk(n_kept, dim=1).indices.cpu().numpy() + low
        alike[order[first:last]] = order[best]
    return alike


def dense_bits(molecules: Molecules, rows: NDArray[np.integer], device: torch.device) -> Tensor:
    """Fingerprints of some molecules, 0 or 1, (rows, F); counts in bfloat16 are exact to 256."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    dense = torch.zeros(len(rows), FINGERPRINT_BITS, dtype=kind, device=device)
    dense[*(torch.from_numpy(each).to(device) for each in molecules.bits_of(rows))] = 1
    return dense


class Imitation:
    """Imitated predictions for the molecules of a collection.

    Its `neighbours` are given, and the share of the molecules whose true fingerprint is given.
    """

    def __init__(self, molecules: Molecules, alike: NDArray[np.int32], clean_share: float) -> None:
        self.molecules, self.alike, self.clean_share = molecules, alike, clean_share
        self.order = by_mass(molecules)  # rows of fold train
        self.place = np.zeros(len(molecules), np.int64)  # of each molecule in that order
        self.place[self.order] = np.arange(len(self.order))
        often = np.bincount(molecules.bits, minlength=FINGERPRINT_BITS) / len(molecules)
        self.often = often.clip(1e-4, 0.99)  # share of the molecules that have each bit, (F,)

    def __call__(self, rows: NDArray[np.int64], generator: np.random.Generator) -> Tensor:
        """Chance of each bit of some molecules of fold train, float32 (B, F)."""
        member, weight = self._mixture(rows, generator)
        owner = np.repeat(np.arange(len(rows)), member.shape[1])
        mixed = self._sum_of_bits(owner, member.ravel(), weight.ravel(), len(rows))
        chance = ((1 - _FLOOR) * mixed + _FLOOR * self.often).clip(1e-5, 1 - 1e-5)
        chance = chance.astype(np.float32)
        noise = _DEVIATION * generator.standard_normal(chance.shape, np.float32)
        logit = _SHARPNESS * (np.log(chance) - np.log1p(-chance)) + noise
        clean = np.flatnonzero(generator.random(len(rows)) < self.clean_share)
        n = len(clean)
        own = self._sum_of_bits(np.arange(n), rows[clean], np.ones(n), n)
        logit[clean] = _CERTAIN_LOGIT * (2 * own - 1)
        return torch.sigmoid(torch.from_numpy(logit))

    def _mixture(
        self, rows: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Molecules that are mixed, with repeats, and their weights, which sum to 1: (B, C)."""
        n, k = len(rows), self.alike.shape[1]
        seen = generator.random(n) < _SEEN
        rank = np.minimum(generator.exponential(_CENTRE, n).astype(int), k - 1)
        centre = np.where(seen, rows, self.alike[rows, rank])
        near = np.c_[centre, self.alike[centre]]
        own = self.alike[rows]

        least, span = _CONCENTRATION
        concentration = least * span ** generator.random((n, 1))
        # The truth is one of what could be the truth, and so the likelier the larger its weight.
        shape = concentration + (np.arange(k + 1) == 0) * seen[:, None]
        n_near = _LEAST_NEAR * (k / _LEAST_NEAR) ** generator.random((n, 1))
        n_own = (k / 2) ** generator.random((n, 1))
        near_weight = generator.gamma(shape) * (np.arange(k + 1) <= n_near) + 1e-12
        own_weight = generator.gamma(concentration, size=(n, k)) * (np.arange(k) < n_own) + 1e-12
        own_share = np.where(seen, 0.0, generator.beta(*_OWN, n))[:, None]
        far_share = np.where(seen, generator.beta(*_FAR_SEEN, n), generator.beta(*_FAR, n))[:, None]

        least, span = _FAR_PLACES
        spread = least * span ** generator.random((n, 1))
        steps = np.rint(generator.normal(0.0, spread, (n, _N_FAR))).astype(int)
        far = self.order[(self.place[rows][:, None] + steps).clip(0, len(self.order) - 1)]
        weights = (
            (1 - far_share) * (1 - own_share) * near_weight / near_weight.sum(1, keepdims=True),
            (1 - far_share) * own_share * own_weight / own_weight.sum(1, keepdims=True),
            np.repeat(far_share / _N_FAR, _N_FAR, 1),
        )
        return np.concatenate([near, own, far], 1), np.concatenate(weights, 1)

    def _sum_of_bits(
        self,
        owner: NDArray[np.int64],
        member: NDArray[np.int64],
        weight: NDArray[np.float64],
        n_owners: int,
    ) -> NDArray[np.float64]:
        """Summed weights of the members with each bit, by owner, (owners, F)."""
        used = weight > 1e-9
        part, bits = self.molecules.bits_of(member[used])
        place = owner[used][part] * FINGERPRINT_BITS + bits
        summed = np.bincount(place, weight[used][part], n_owners * FINGERPRINT_BITS)
        return summed.astype(np.float64).reshape(n_owners, FINGERPRINT_BITS)
