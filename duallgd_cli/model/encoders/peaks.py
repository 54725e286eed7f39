"""Annotated peaks of a batch of spectra as tensors."""

from dataclasses import dataclass, replace

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
        mask: Real rows, bool (B, K).
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
