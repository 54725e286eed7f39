"""The reference's spectrum encoder (MIST): peaks as sub-formulas to a fingerprint that grows.

Padding is masked with -inf, so a spectrum's result does not depend on its batch. Letters:
B spectra, K tokens (peaks, then one token for the whole), H heads, D channels of a head, C channels
of a token.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, relu

from duallgd_cli.model.tensors import map_tensors
from duallgd_cli.reference.layers import PostNorm
from duallgd_cli.reference.settings import ReferenceEncoderSettings

N_ELEMENTS: Final = 18
N_WAVES: Final = 9
N_COUNTS: Final = 255
N_TOKEN_TYPES: Final = 4
N_ADDUCTS: Final = 8
N_INSTRUMENTS: Final = 6
WHOLE_TYPE: Final = 3
_WAVES_OF_FORMULA: Final = N_ELEMENTS * N_WAVES
_PEAK_INPUTS: Final = 2 * _WAVES_OF_FORMULA + N_TOKEN_TYPES + N_ADDUCTS + 1 + N_INSTRUMENTS


@dataclass(frozen=True, eq=False)
class FormulaPeaks:
    """Annotated spectra as the reference reads them; the last real token is the whole ion.

    Attributes:
        counts: Atoms of each sub-formula in the reference's element order, (B, K, N_ELEMENTS).
        token_type: 0 for peaks, `WHOLE_TYPE` for the whole, int64 (B, K).
        adduct: Index of the adduct, int64 (B, K).
        intensity: (B, K); 1 for the whole.
        n_tokens: Real tokens, int64 (B,), at least 1.
    """

    counts: Tensor
    token_type: Tensor
    adduct: Tensor
    intensity: Tensor
    n_tokens: Tensor

    def to(self, device: torch.device) -> "FormulaPeaks":
        """The same on another device."""
        return map_tensors(self, lambda tensor: tensor.to(device))


class CountEmbedding(nn.Module):
    """Counts of atoms as waves of falling frequency."""

    def __init__(self) -> None:
        super().__init__()
        frequency = 2.0 ** -torch.linspace(1, N_WAVES, N_WAVES)
        count = torch.arange(N_COUNTS).unsqueeze(1)
        waves = 1 - torch.cos(2 * math.pi * count * frequency)
        # Reference: a parameter that is never trained, counted among the others.
        self.table = nn.Parameter(waves, requires_grad=False)
        self.beyond = nn.Parameter(torch.zeros(1, N_WAVES))

    def forward(self, counts: Tensor) -> Tensor:
        """(..., N_ELEMENTS) to (..., N_ELEMENTS * N_WAVES)."""
        known = torch.cat([self.table, self.beyond])
        return known[counts.long().clamp(0, N_COUNTS)].flatten(-2)


class TwoLayers(nn.Module):
    """Two linear layers, each with dropout and a ReLU behind it."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(inputs, width)
        self.outer = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., width)."""
        return relu(self.dropout(self.outer(relu(self.dropout(self.inner(x))))))


class DifferenceAttention(nn.Module):
    """Attention whose scores also know how two sub-formulas differ."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.content_bias = nn.Parameter(torch.zeros(heads, width // heads))
        self.difference_bias = nn.Parameter(torch.zeros(heads, width // heads))

    def forward(self, tokens: Tensor, differences: Tensor, mask: Tensor) -> Tensor:
        """Change of the tokens, (B, K, C).

        Args:
            tokens: (B, K, C).
            differences: (B, K, K, C).
            mask: Real tokens, bool (B, K).
        """
        heads, width = self.content_bias.shape
        query, key, value = self.qkv(tokens).unflatten(-1, (3, heads, width)).unbind(2)
        query = query * width**-0.5
        content = torch.einsum("bihd,bjhd->bhij", query + self.content_bias, key)
        # One row of differences meets all heads of one query: (B, K, H, D) with (B, K, K, H, D).
        split = differences.unflatten(-1, (heads, width))
        change = torch.einsum("bihd,bijhd->bhij", query + self.difference_bias, split)
        score = (content + change).masked_fill(~mask[:, None, None, :], -torch.inf)
        mixed = torch.einsum("bhij,bjhd->bihd", torch.softmax(score, -1), value)
        return self.out(mixed.flatten(2))


class TokenLayer(nn.Module):
    """One post-norm layer over tokens."""

    def __init__(self, settings: ReferenceEncoderSettings) -> None:
        super().__init__()
        width = settings.width
        self.attention = DifferenceAttention(width, settings.heads)
        self.peaks = PostNorm(width, 4 * width, settings.dropout)

    def forward(self, tokens: Tensor, differences: Tensor, mask: Tensor) -> Tensor:
        """New tokens, (B, K, C)."""
        return self.peaks(tokens, self.attention(tokens, differences, mask))


class Growth(nn.Module):
    """Doubles a predicted fingerprint; a gate that sees the spectrum can only lower it."""

    def __init__(self, width: int, bits: int) -> None:
        super().__init__()
        self.predict = nn.Linear(bits // 2, bits)
        self.gate = nn.Linear(width, bits)

    def forward(self, probability: Tensor, summary: Tensor) -> Tensor:
        """(B, bits) from (B, bits / 2) and the spectrum's summary (B, C)."""
        return torch.sigmoid(self.gate(summary)) * torch.sigmoid(self.predict(probability))


class ReferenceEncoder(nn.Module):
    """Annotated spectra to fingerprint probabilities.

    Args:
        settings: Sizes.
    """

    def __init__(self, settings: ReferenceEncoderSettings) -> None:
        super().__init__()
        self.settings = settings
        width, drop = settings.width, settings.dropout
        self.counts = CountEmbedding()
        # Reference: its weights hold an embedding of instruments and a head for fragments, which
        # no result depends on.
        self.instrument = nn.Parameter(torch.zeros(N_INSTRUMENTS, N_INSTRUMENTS))
        self.fragments = nn.Linear(width, settings.fragment_bits)
        self.peaks_in = TwoLayers(_PEAK_INPUTS, width, drop)
        self.differences_in = TwoLayers(_WAVES_OF_FORMULA, width, drop)
        self.layers = nn.ModuleList(TokenLayer(settings) for _ in range(settings.layers))
        self.first = nn.Linear(width, settings.fingerprint_sizes[0])
        later = settings.fingerprint_sizes[1:]
        self.growth = nn.ModuleList(Growth(width, bits) for bits in later)

    def forward(self, peaks: FormulaPeaks) -> Tensor:
        """Probability of each fingerprint bit, (B, F)."""
        summary = self.summary(peaks)
        probability = torch.sigmoid(self.first(summary))
        for stage in self.growth:
            probability = stage(probability, summary)
        return probability

    def summary(self, peaks: FormulaPeaks) -> Tensor:
        """State of the token that stands for the whole, (B, C)."""
        last = (peaks.n_tokens - 1).view(-1, 1, 1)
        index = torch.arange(peaks.counts.shape[1], device=last.device)
        mask = index < peaks.n_tokens.unsqueeze(1)
        tokens = self.peaks_in(self._peak_features(peaks, last))
        apart = (peaks.counts.unsqueeze(2) - peaks.counts.unsqueeze(1)).abs()
        differences = self.differences_in(self.counts(apart))
        for layer in self.layers:
            tokens = layer(tokens, differences, mask)
        whole: Tensor = tokens.gather(1, last.expand(-1, -1, tokens.shape[2])).squeeze(1)
        return whole

    def _peak_features(self, peaks: FormulaPeaks, last: Tensor) -> Tensor:
        parent = peaks.counts.gather(1, last.expand(-1, -1, N_ELEMENTS))
        loss = (parent - peaks.counts).abs()
        intensity = peaks.intensity.unsqueeze(2)
        features = [
            self.counts(peaks.counts),
            self.counts(loss),
            one_hot(peaks.token_type, N_TOKEN_TYPES),
            one_hot(peaks.adduct, N_ADDUCTS),
            intensity,
            # Reference: the released models were trained with instruments left out.
            intensity.new_zeros(*intensity.shape[:2], N_INSTRUMENTS),
        ]
        return torch.cat(features, 2)
