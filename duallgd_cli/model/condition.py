"""What is known about a spectrum before any noise is drawn, in the form the denoiser takes.

Letters: B graphs, N atoms, K fingerprint bits kept.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from duallgd_cli.model.tensors import map_tensors

# Bits less likely than this say nothing that the formula does not.
MIN_PROBABILITY: Final = 0.02


@dataclass(frozen=True, eq=False)
class Condition:
    """Formula and fingerprint of a batch; the atom list is a function of the formula alone.

    Attributes:
        atom_class: Elements, sorted, int64 (B, N); 0 at padding.
        atom_mask: Real atoms, bool (B, N).
        formula: Counts in the order of `chem.elements.SYMBOLS`, float (B, N_ELEMENTS).
        charge: Net charge, float (B,).
        bit: Fingerprint bits kept, int64 (B, K).
        bit_log_prob: Log-probability of each, float (B, K); -inf at padding.
    """

    atom_class: Tensor
    atom_mask: Tensor
    formula: Tensor
    charge: Tensor
    bit: Tensor
    bit_log_prob: Tensor

    @property
    def hydrogens(self) -> Tensor:
        """Hydrogen atoms, float (B,)."""
        return self.formula[:, -1]

    def to(self, device: torch.device) -> "Condition":
        """The same on another device."""
        return map_tensors(self, lambda tensor: tensor.to(device))


def keep_bits(probability: Tensor, n_bits: int) -> tuple[Tensor, Tensor]:
    """The most probable bits of a predicted fingerprint.

    Args:
        probability: (B, F).
        n_bits: K.

    Returns:
        Bits, int64 (B, K), and their log-probabilities (B, K), -inf below `MIN_PROBABILITY`.
    """
    value, bit = probability.topk(min(n_bits, probability.shape[1]), dim=1)
    log_prob = torch.where(value >= MIN_PROBABILITY, value.clamp_min(1e-6).log(), -torch.inf)
    return bit, log_prob
