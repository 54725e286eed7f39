"""Examples that stay on a device, and batches of them without padding, made noisy.

Most spectra have far fewer peaks than the fullest of a batch, so a batch is the rows of all its
spectra one after the other, and attention is told where each begins.

Letters: B spectra, P peak rows of them all, T tokens (B + P), E examples, F fingerprint bits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS
from duallgd_cli.data.peaks import ENERGY_DROP, INSTRUMENT_DROP, JITTER, NOISE_PPM, PeakRows
from duallgd_cli.data.prepared import Molecules, offsets
from duallgd_cli.model.encoder import PeakBatch
from duallgd_cli.spectra.annotation import index_ranges

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


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Peaks of B spectra, one spectrum after the other.

    Attributes:
        rows: The P rows, each as a spectrum of its own with one row, with its spectrum's parent.
        spectrum: That each row is of, int64 (P,).
        parent: Counts of the whole ions, float (B, N_ELEMENTS).
        adduct: Of each spectrum, int64 (B,).
        instrument: Of each spectrum, int64 (B,).
        order: For each token, its number among whole ions and then rows, int64 (T,).
        start: Where each spectrum's tokens begin, the whole ion first, and the end, int32 (B + 1,).
    """

    rows: PeakBatch
    spectrum: Tensor
    parent: Tensor
    adduct: Tensor
    instrument: Tensor
    order: Tensor
    start: Tensor


@dataclass(eq=False)
class Store:
    """Examples on a device, each a number of peak rows of it.

    Attributes:
        bits: Set bits of the molecules, one after the other, int16.
        bit_offset: Where those of each begin, int64.
        arrays: As `packed` gives them, of E examples or P rows, most of them not yet filled.
        most_bits: Of a molecule.
        n_rows: Of each example, on the CPU, where batches are planned, so that nothing waits.
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

    def batch(
        self, drawn: NDArray[np.int64], dropout: float, generator: np.random.Generator
    ) -> tuple[PackedBatch, Tensor]:
        """Examples made to look like those of a lab's own run, and their true bits (B, F).

        Peaks go missing, intensities wobble, masses are off, energy or instrument are not recorded,
        as `data.peaks.augment` does it with one spectrum.

        Args:
            drawn: Numbers of B examples.
            dropout: Largest share of a spectrum's rows that are dropped.
            generator: Of what is dropped.
        """
        n_rows = self.n_rows[drawn]
        spectrum, place = index_ranges(np.zeros_like(n_rows), n_rows)
        lost = generator.random(len(drawn), np.float32) * dropout
        kept = generator.random(len(spectrum), np.float32) >= lost[spectrum]
        spectrum, place = spectrum[kept], place[kept]
        start = offsets(1 + np.bincount(spectrum, minlength=len(drawn)))
        order = np.empty(start[-1], np.int64)
        order[start[:-1]] = np.arange(len(drawn))
        order[np.arange(len(spectrum)) + spectrum + 1] = len(drawn) + np.arange(len(spectrum))
        index, of, order_there = (self._there(one) for one in (drawn, spectrum, order))
        example = index[of]
        parent = self.arrays["parent"][index].float()
        instrument = self.arrays["instrument"][index].long()
        nameless = torch.rand_like(parent[:, 0]) < INSTRUMENT_DROP
        rows = self._rows(self._start[example] + self._there(place), of, parent)
        made = PackedBatch(
            rows, of, parent, self.arrays["adduct"][index].long(),
            instrument.masked_fill(nameless, 0), order_there,
            self._there(start.astype(np.int32)),
        )  # fmt: skip
        return made, self._truth(self.arrays["molecule"][index])

    def _there(self, numbers: NDArray[Any]) -> Tensor:
        """On the device, without waiting for what it still computes."""
        tensor = torch.from_numpy(numbers)
        if self._start.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self._start.device, non_blocking=True)

    def _rows(self, index: Tensor, spectrum: Tensor, parent: Tensor) -> PeakBatch:
        """Rows as spectra of one row, noise on them; spectra as `parent` has them."""
        a, like = self.arrays, parent[:, 0]
        intensity, ppm, mz, share, energy = a["numbers"][index].unbind(-1)
        intensity = intensity * torch.exp(JITTER * torch.randn_like(intensity))
        brightest = torch.zeros_like(like).scatter_reduce(0, spectrum, intensity, "amax")
        intensity = intensity / brightest.clamp_min(1e-6)[spectrum]
        off = NOISE_PPM * torch.randn_like(like)
        ppm = ppm + NOISE_PPM * torch.randn_like(ppm) + off[spectrum]
        unknown = (torch.rand_like(like) < ENERGY_DROP)[spectrum]
        energy = energy.masked_fill(unknown, math.nan)
        of_row = [one[:, None] for one in (intensity, ppm, mz, share)]
        none = torch.zeros_like(spectrum)
        return PeakBatch(
            a["subformula"][index].float()[:, None], *of_row, a["carrier"][index].long()[:, None],
            energy[:, None], torch.ones_like(unknown)[:, None], parent[spectrum], none, none,
        )  # fmt: skip

    def _truth(self, molecule: Tensor) -> Tensor:
        start, stop = self.bit_offset[molecule], self.bit_offset[molecule + 1]
        place = torch.arange(self.most_bits, device=molecule.device)
        bits = self.bits[(start[:, None] + place).clamp_max(len(self.bits) - 1)].long()
        bits = bits.where(place < (stop - start)[:, None], FINGERPRINT_BITS)
        truth = torch.zeros(len(molecule), FINGERPRINT_BITS + 1, device=molecule.device)
        return truth.scatter_(1, bits, 1.0)[:, :-1]
