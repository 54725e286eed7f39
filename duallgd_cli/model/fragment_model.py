"""Fragment model: which fragments of a structure a spectrometer shows, and how intense.

A perceptron on each fragment apart, for every number of hydrogens that it may have gained or lost.
Intensities are relative to the base peak. X fragments, H numbers of hydrogens.
"""

from typing import Final

import torch
from torch import Tensor, nn

# Standard deviation of log intensities about their mean, as measured on fold train.
LOG_INTENSITY_SPREAD: Final = 1.6
_RARE: Final = -5.0
_FAINTEST: Final = 1e-3


class FragmentModel(nn.Module):
    """Chances and intensities of fragments.

    Args:
        n_inputs: Features of a fragment.
        n_shifts: H.
        width: Of both hidden layers.
        dropout: Before the last layer.
    """

    def __init__(
        self, n_inputs: int, n_shifts: int, width: int = 192, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(n_inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.dropout = nn.Dropout(dropout)
        self.presence = nn.Linear(width, n_shifts)
        self.intensity = nn.Linear(width, n_shifts)
        nn.init.zeros_(self.presence.weight)
        nn.init.constant_(self.presence.bias, _RARE)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Log-odds of a peak, and the mean of its log intensity, both (X, H).

        Args:
            features: As `data.fragmentation.fragment_features` makes them, (X, n_inputs).
        """
        hidden = self.dropout(self.hidden(features))
        return self.presence(hidden), self.intensity(hidden)


def fragment_loss(model: FragmentModel, features: Tensor, intensity: Tensor) -> Tensor:
    """Cross entropy of presence and Gaussian loss of log intensities, per peak that is there.

    Args:
        model: To judge.
        features: (X, n_inputs).
        intensity: Measured, 0 where there is no peak, (X, H).
    """
    presence, mean = model(features)
    there = (intensity > 0).float()
    entropy = nn.functional.binary_cross_entropy_with_logits(presence, there, reduction="sum")
    residual = (mean - intensity.clamp_min(_FAINTEST).log()) / LOG_INTENSITY_SPREAD
    loss: Tensor = (entropy + 0.5 * (residual.square() * there).sum()) / there.sum().clamp_min(1)
    return loss


@torch.inference_mode()
def expected_intensity(model: FragmentModel, features: Tensor) -> Tensor:
    """Square root of intensity times the chance of a peak, (X, H), for comparisons."""
    presence, mean = model(features)
    return torch.sigmoid(presence) * torch.exp(mean.clamp_max(0) / 2)
