"""Examples that stay on a device, from which batches are chosen, padded and made noisy.

Letters: B spectra, K peak rows, E examples, P peak rows of them all, F fingerprint bits.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS
from duallgd_cli.data.peaks import ENERGY_DROP, INSTRUMENT_DROP, JITTER, NOISE_PPM, PeakRows
from duallgd_cli.data.prepared import Molecules, offsets
from duallgd_cli.model.encoder import PeakBatch

_GROUPS: Final = 4  # parts of a batch, of spectra of like numbers of rows


Arrays = dict[str, NDArray[Any]]


def packed(examples: Sequence[PeakRows], molecules: Sequence[int]) -> Arrays:
    """Arrays of some spectra and the rows of their molecules."""
    return {
        "subformula": np.concatenate([one.subformula for one in examples]).astype(np.uint8),
        "numbers": np.concatenate([one.numbers for one in examples]),
        "carrier": np.concatenate([one.carrier for one in examples]).astype(np.uint8),
        "n_rows": np.array([len(one.carrier) for one in examples]),
        "parent": np.stack([one.parent for one in examples]).astype(np.uint8),
        "adduct": np.array([one.adduct for one in examples], np.uint8),
        "instrument": np.array([one.instrument for one in examples], np.uint8),
        "molecule": np.array(molecules, np.int64),
    }


@dataclass(eq=False)
class Store:
    """Examples on a device, each a number of peak rows of it.

    Attributes:
        bits: Set bits of the molecules, one after the other, int16.
        bit_offset: Where those of each begin, int64.
        arrays: As `packed` gives them, of E examples or P rows, most of them not yet filled.
        most_bits: Of a molecule.
        n_rows: Of each example, on the CPU, where batches are planned.
        n_examples: That are there.
    """

    bits: Tensor
    bit_offset: Tensor
    arrays: dict[str, Tensor]
    n_rows: NDArray[np.int64]
    most_bits: int
    n_examples: int = 0
    _start: Tensor = field(init=False)
    _filled: int = 0

    def __post_init__(self) -> None:
        self._start = torch.zeros_like(self.arrays["molecule"])

    @classmethod
    def of(
        cls, molecules: Molecules, n_examples: int, n_rows: int, device: torch.device
    ) -> "Store":
        """Room for so many examples of some molecules, with so many peak rows."""

        def room(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        arrays = {
            "subformula": room(n_rows, N_ELEMENTS),
            "numbers": room(n_rows, 5, dtype=torch.float32),
            "carrier": room(n_rows),
            "parent": room(n_examples, N_ELEMENTS),
            "adduct": room(n_examples),
            "instrument": room(n_examples),
            "molecule": room(n_examples, dtype=torch.int64),
        }
        bits = torch.from_numpy(np.asarray(molecules.bits).astype(np.int16)).to(device)
        offset = torch.from_numpy(np.array(molecules.bit_offset)).to(device)
        most_bits = int(np.diff(molecules.bit_offset).max())
        return cls(bits, offset, arrays, np.zeros(n_examples, np.int64), most_bits)

    def add(self, chunk: Arrays) -> bool:
        """Take examples in; False where there is no room left for them."""
        size, n_rows = len(chunk["n_rows"]), len(chunk["carrier"])
        examples = slice(self.n_examples, self.n_examples + size)
        rows = slice(self._filled, self._filled + n_rows)
        if examples.stop > len(self.n_rows) or rows.stop > len(self.arrays["carrier"]):
            return False
        for name, into in self.arrays.items():
            by_row = name in ("subformula", "numbers", "carrier")
            into[rows if by_row else examples] = torch.from_numpy(chunk[name]).to(into.device)
        start = torch.from_numpy(self._filled + offsets(chunk["n_rows"])[:-1])
        self._start[examples] = start.to(self._start.device)
        self.n_rows[examples] = chunk["n_rows"]
        self._filled = rows.stop
        self.n_examples = examples.stop  # last: another thread draws from what is there
        return True

    def batches(self, drawn: NDArray[np.int64]) -> Iterator[tuple[PeakBatch, Tensor]]:
        """Examples by their numbers of rows in parts, each with its true bits (B, F)."""
        by_length = drawn[np.argsort(self.n_rows[drawn], kind="stable")]
        for own in np.array_split(by_length, min(_GROUPS, len(drawn))):
            n_rows, index = self._there(self.n_rows[own]), self._there(own)
            peaks = self._peaks(index, n_rows, max(1, int(self.n_rows[own].max())))
            yield peaks, self._truth(self.arrays["molecule"][index])

    def _there(self, numbers: NDArray[np.int64]) -> Tensor:
        """On the device, without waiting for what it still computes."""
        tensor = torch.from_numpy(numbers)
        if self._start.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self._start.device, non_blocking=True)

    def _peaks(self, index: Tensor, n_rows: Tensor, most: int) -> PeakBatch:
        place = torch.arange(most, device=index.device)
        mask = place < n_rows[:, None]
        rows = (self._start[index][:, None] + place).clamp_max(self._filled - 1)
        a = self.arrays
        intensity, ppm, mz, share, energy = a["numbers"][rows].unbind(-1)
        return PeakBatch(
            a["subformula"][rows].float(), intensity.where(mask, 0.0), ppm, mz, share,
            a["carrier"][rows].long(), energy, mask, a["parent"][index].float(),
            a["adduct"][index].long(), a["instrument"][index].long(),
        )  # fmt: skip

    def _truth(self, molecule: Tensor) -> Tensor:
        start, stop = self.bit_offset[molecule], self.bit_offset[molecule + 1]
        place = torch.arange(self.most_bits, device=molecule.device)
        bits = self.bits[(start[:, None] + place).clamp_max(len(self.bits) - 1)].long()
        bits = bits.where(place < (stop - start)[:, None], FINGERPRINT_BITS)
        truth = torch.zeros(len(molecule), FINGERPRINT_BITS + 1, device=molecule.device)
        return truth.scatter_(1, bits, 1.0)[:, :-1]


def noisy(peaks: PeakBatch, dropout: float) -> PeakBatch:
    """Spectra made to look like those of a lab's own run, as `data.peaks.augment` does one."""
    mask, like = peaks.mask, peaks.intensity
    share = torch.rand_like(like[:, :1]) * dropout
    kept = mask & (torch.rand_like(like) >= share)
    intensity = (peaks.intensity * torch.exp(JITTER * torch.randn_like(like))).where(kept, 0.0)
    intensity = intensity / intensity.amax(1, keepdim=True).clamp_min(1e-6)
    ppm = peaks.ppm + NOISE_PPM * (torch.randn_like(like) + torch.randn_like(like[:, :1]))
    unknown = torch.rand_like(like[:, :1]) < ENERGY_DROP
    nameless = torch.rand_like(like[:, 0]) < INSTRUMENT_DROP
    return PeakBatch(
        peaks.subformula, intensity, ppm, peaks.mz, peaks.share, peaks.carrier,
        peaks.energy_ev.masked_fill(unknown, math.nan), kept, peaks.parent, peaks.adduct,
        peaks.instrument.masked_fill(nameless, 0),
    )  # fmt: skip
