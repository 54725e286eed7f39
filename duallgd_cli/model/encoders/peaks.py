"""Annotated peaks of a batch of spectra as tensors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PeakBatch:
    """Peaks, padded; see `spectra.types.AnnotatedSpectrum`. B spectra, K rows.

    Attributes:
        subformula: Counts of the fragment ions, float (B, K, N_ELEMENTS).
        intensity: Relative to the base peak, float (B, K).
        ppm: Signed mass error, float (B, K).
        mz: Measured, float (B, K).
        share: 1 / alternatives of the peak, float (B, K).
        carrier: 0 none, 1 sodium, 2 potassium, int64 (B, K).
        energy_ev: Collision energy, NaN if missing, float (B, K).
        mask: Real rows, which come first, bool (B, K).
        parent: Counts of the whole ion, float (B, N_ELEMENTS).
        adduct: Index of the adduct, int64 (B,).
        instrument: 0 unknown, 1 orbitrap, 2 qtof, int64 (B,).
    """

    subformula: Tensor
    intensity: Tensor
    ppm: Tensor
    mz: Tensor
    share: Tensor
    carrier: Tensor
    energy_ev: Tensor
    mask: Tensor
    parent: Tensor
    adduct: Tensor
    instrument: Tensor

    def to(self, device: torch.device) -> "PeakBatch":
        """The same on another device."""
        moved = {name: getattr(self, name).to(device) for name in self.__dataclass_fields__}
        return replace(self, **moved)

    def by_length(self, n_spectra: int) -> Iterator[tuple[Tensor, "PeakBatch"]]:
        """Batches of spectra of like numbers of rows, with hardly any padding left.

        Args:
            n_spectra: Of a batch, at most.

        Yields:
            Places of its spectra in this one, int64, and the batch.
        """
        lengths = self.mask.sum(1)
        for places in lengths.argsort().split(n_spectra):
            n_rows = int(lengths[places[-1]])
            own = {name: getattr(self, name)[places] for name in self.__dataclass_fields__}
            cut = {name: own[name][:, :n_rows] for name in _BY_ROW}
            yield places, replace(self, **(own | cut))


_BY_ROW: Final = (
    "subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev", "mask",
)  # fmt: skip
