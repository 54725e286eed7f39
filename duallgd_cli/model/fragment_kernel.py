"""Kernel ridge regression beside the encoder: bits of molecules with like fragments and losses.

A network that is trained on a few thousand molecules forgets the single spectrum. This remembers
each: known molecules are compared with a spectrum by the fragments and neutral losses that they
share, rare ones above all, and the bits of those that are alike are added up with the weights of
ridge regression. Alone it is worse than the encoder; their mean is better than either.

Letters: B spectra, P peak rows, G known molecules, E fragments and losses of all of them, F
fingerprint bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding_bag

from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.encoder import PeakBatch
from duallgd_cli.model.tensors import Movable, minimum

# A sub-formula's place in the table of fragments and losses, a remainder: two of them seldom meet.
N_PLACES: Final = 262_139
# The encoder alone.
UNMIXED: Final = torch.tensor([1.0, 0.0, 0.0])
_FACTORS: Final = tuple(
    tuple(pow(base, 3 + element, (1 << 31) - 1) for element in range(N_ELEMENTS))
    for base in (48_271, 69_621)
)
# Bright peaks say hardly more than faint ones.
_POWER: Final = 0.25
_RIDGE: Final = 0.5
# Rounds of conjugate gradients; after these no chance moves by 0.001.
_ROUNDS: Final = 32
_LEAST, _MOST = 0.003, 0.97
# Keeps the three numbers finite where a few spectra are told perfectly; else no digit changes.
_PULL: Final = 1e-6
_SHORTEST: Final = 1e-9  # of a spectrum none of whose fragments says anything


def places(peaks: PeakBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Fragments of spectra, then their neutral losses.

    Returns:
        The place of each below `N_PLACES`, its weight, float32, and its spectrum, all (2 P,).
    """
    fragment = peaks.subformula.long()
    loss = peaks.parent[peaks.spectrum].long() - fragment
    place = [
        (counts * torch.tensor(factors, device=counts.device)).sum(-1) % N_PLACES
        for counts, factors in zip((fragment, loss), _FACTORS, strict=True)
    ]
    weight = peaks.intensity.float().clamp_min(0) ** _POWER * peaks.share
    return torch.cat(place), weight.repeat(2), peaks.spectrum.repeat(2)


@dataclass(frozen=True, eq=False)
class _Sparse:
    """A sparse matrix by its rows, to be multiplied with a dense one."""

    column: Tensor
    value: Tensor
    start: Tensor

    @classmethod
    def of(cls, row: Tensor, column: Tensor, value: Tensor, n_rows: int) -> "_Sparse":
        order = row.argsort(stable=True)
        counts = torch.bincount(row, minlength=n_rows)
        return cls(column[order], value[order], counts.cumsum(0) - counts)

    def __call__(self, dense: Tensor) -> Tensor:
        return embedding_bag(
            self.column, dense, self.start, mode="sum", per_sample_weights=self.value
        )


@dataclass(frozen=True, eq=False)
class FragmentKernel(Movable):
    """Chances of fingerprint bits by the known molecules whose spectra are alike."""

    mixing: Tensor  # factor of the encoder's logits, of these, and what is added, (3,)
    rarity: Tensor  # weight of each place, (N_PLACES,)
    used: Tensor  # places that a known molecule has, ascending
    known: _Sparse  # known molecules by place, rows of length 1, (G, used)
    across: _Sparse  # the same, transposed
    bits: _Sparse  # bits by known molecule, (F, G)
    mean: Tensor  # share of the known molecules that have each bit, (F,)

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, Tensor],
        bit_offset: NDArray[np.int64],
        molecule_bits: NDArray[np.uint16],
    ) -> "FragmentKernel":
        """From the arrays of a weights file, and the bits of one molecule after the other.

        ``n_places`` (G,) says how many fragments and losses each molecule has; these are ``place``
        (E,), each once a molecule, and ``weight`` (E,). ``mixing`` has three numbers.

        Raises:
            WeightsError: The arrays fit neither each other nor the molecules.
        """
        n_known = len(bit_offset) - 1
        if not _is_sound(tensors, n_known):
            raise WeightsError(
                "the spectra of known molecules in the weights are broken; fetch or copy the "
                "weights again"
            )
        counts, place = tensors["n_places"].long(), tensors["place"].long()
        molecule = torch.arange(n_known)
        row = molecule.repeat_interleave(counts)
        often = torch.bincount(place, minlength=N_PLACES)
        rarity = torch.log((n_known + 1) / (often + 1)).sqrt()
        value = tensors["weight"].float() * rarity[place]
        length = torch.zeros(n_known).index_add(0, row, value.square()).sqrt()
        value = value / length.clamp_min(_SHORTEST)[row]
        used = often.nonzero()[:, 0]
        column = torch.searchsorted(used, place)
        bits = torch.from_numpy(molecule_bits.astype(np.int64))
        owner = molecule.repeat_interleave(torch.from_numpy(np.diff(bit_offset)))
        return cls(
            mixing=tensors["mixing"].float(),
            rarity=rarity,
            used=used,
            known=_Sparse.of(row, column, value, n_known),
            across=_Sparse.of(column, row, value, len(used)),
            bits=_Sparse.of(bits, owner, torch.ones(len(bits)), FINGERPRINT_BITS),
            mean=torch.bincount(bits, minlength=FINGERPRINT_BITS) / n_known,
        )

    def chance(self, peaks: PeakBatch) -> Tensor:
        """Chance of each bit, float32 (B, F)."""
        place, weight, spectrum = places(peaks)
        query = torch.zeros(len(peaks.parent) * N_PLACES, device=weight.device)
        query = query.index_add(0, spectrum * N_PLACES + place, weight * self.rarity[place])
        query = query.view(-1, N_PLACES).T
        query = query / query.norm(dim=0).clamp_min(_SHORTEST)
        residual = direction = self.known(query[self.used])  # (G, B)
        # Weights of the known molecules by conjugate gradients, all spectra at once.
        solution = torch.zeros_like(residual)
        size = residual.square().sum(0)
        for _ in range(_ROUNDS):
            image = self.known(self.across(direction)) + _RIDGE * direction
            step = size / (direction * image).sum(0).clamp_min(1e-30)
            solution = solution + step * direction
            residual = residual - step * image
            before, size = size, residual.square().sum(0)
            direction = residual + size / before.clamp_min(1e-30) * direction
        mean = self.mean[:, None]
        return (mean + self.bits(solution) - mean * solution.sum(0)).T.clamp(_LEAST, _MOST)

    def mixed(self, logits: Tensor, peaks: PeakBatch) -> Tensor:
        """The encoder's logits (B, F), together with what the known molecules say."""
        return mixed(self.mixing, logits, self.chance(peaks))


def mixed(mixing: Tensor, logits: Tensor, chance: Tensor) -> Tensor:
    """Logits of an encoder and of chances, (B, F), weighted by three numbers (3,)."""
    return mixing[0] * logits.float() + mixing[1] * torch.logit(chance) + mixing[2]


def fitted_mixing(logits: Tensor, chance: Tensor, truth: Tensor) -> Tensor:
    """The three numbers that suit spectra best whose molecules neither side has seen.

    Logits of the encoder, chances by the known molecules, and true bits, 0 or 1, (B, F) each.
    """

    def loss(mixing: Tensor) -> Tensor:
        entropy = binary_cross_entropy_with_logits(mixed(mixing, logits, chance), truth)
        return entropy + _PULL * (mixing - UNMIXED).square().sum()

    return minimum(loss, UNMIXED)


def _is_sound(tensors: Mapping[str, Tensor], n_known: int) -> bool:
    """Whether arrays fit each other and so many known molecules."""
    if {"n_places", "place", "weight", "mixing"} - tensors.keys():
        return False
    counts, place, weight = (tensors[name] for name in ("n_places", "place", "weight"))
    return bool(
        not (place.is_floating_point() or counts.is_floating_point())
        and len(counts) == n_known
        and int(counts.sum()) == len(place) == len(weight) > 0
        and (counts >= 0).all()
        and ((place >= 0) & (place < N_PLACES)).all()
        and (weight > 0).all()
        and tensors["mixing"].shape == (3,)
    )
