"""Formula transformer: peaks as sub-formulas, attended to as a set (after MIST).

Padding is masked with -inf, so a spectrum's result does not depend on its batch. Letters: B
spectra, K peak rows, F fingerprint bits.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import relu, scaled_dot_product_attention

from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.model.tensors import constants, map_tensors

_N_ADDUCTS: Final = 16
N_INSTRUMENTS: Final = 3
_N_CARRIERS: Final = 3
_STEPS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)
N_COUNT_FEATURES: Final = len(_STEPS) + 1
_ENERGY_SCALE_EV: Final = 50.0
# Spectra computed together on a CPU: fewer carry less padding, more fill its caches.
_AT_ONCE: Final = 16
# Attributes of a batch that have a row for each peak.
_BY_ROW: Final = (
    *("subformula", "intensity", "ppm", "mz"),
    *("share", "carrier", "energy_ev", "mask"),
)


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
        return map_tensors(self, lambda tensor: tensor.to(device))

    def by_length(self, n_spectra: int) -> Iterator[tuple[Tensor, "PeakBatch"]]:
        """Batches of spectra of like numbers of rows, with hardly any padding left.

        Args:
            n_spectra: Of a batch, at most.

        Yields:
            Indices of its spectra in this one, int64, and the batch.
        """
        lengths = self.mask.sum(1)
        for index in lengths.argsort().split(n_spectra):
            n_rows = int(lengths[index[-1]])
            own = map_tensors(self, itemgetter(index))
            cut = {name: getattr(own, name)[:, :n_rows] for name in _BY_ROW}
            yield index, replace(own, **cut)


class FormulaTransformer(nn.Module):
    """Annotated peaks to fingerprint logits."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width = settings.width
        per_formula = N_ELEMENTS * N_COUNT_FEATURES
        self.peak_in = nn.Linear(2 * per_formula + 8, 2 * width)
        self.peak_out = nn.Linear(2 * width, width)
        self.parent_in = nn.Linear(per_formula, 2 * width)
        self.parent_out = nn.Linear(2 * width, width)
        self.carrier = nn.Embedding(_N_CARRIERS, width)
        self.adduct = nn.Embedding(_N_ADDUCTS, width)
        self.instrument = nn.Embedding(N_INSTRUMENTS, width)
        self.layers = nn.ModuleList(_Layer(settings) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(width)
        self.pool = nn.Linear(width, settings.heads)
        self.heads = settings.heads
        self.hidden = nn.Linear(2 * width, settings.summary)
        self.dropout = nn.Dropout(settings.dropout)
        self.fingerprint = nn.Linear(settings.summary, settings.fingerprint_bits)

    def forward(self, peaks: PeakBatch) -> Tensor:
        """Fingerprint logits, (B, F)."""
        if peaks.mask.device.type == "cpu":
            summary = self._summary_by_length(peaks)
        else:
            summary = self._summary(peaks)
        return self.fingerprint(self.dropout(relu(self.hidden(summary))))

    def _summary_by_length(self, peaks: PeakBatch) -> Tensor:
        """The same as `_summary` without computing padding, most of a batch of real spectra."""
        indices, parts = [], []
        for own, part in peaks.by_length(_AT_ONCE):
            indices.append(own)
            parts.append(self._summary(part))
        return torch.cat(parts)[torch.cat(indices).argsort()]

    def _summary(self, peaks: PeakBatch) -> Tensor:
        """Whole ion and peaks as one vector, (B, 2 width)."""
        parent = self.parent_out(relu(self.parent_in(count_features(peaks.parent))))
        parent = parent + self.adduct(peaks.adduct) + self.instrument(peaks.instrument)
        rows = self.peak_out(relu(self.peak_in(peak_features(peaks))))
        rows = rows + self.carrier(peaks.carrier)
        tokens = torch.cat([parent.unsqueeze(1), rows], 1)
        mask = nn.functional.pad(peaks.mask, (1, 0), value=True)
        for layer in self.layers:
            tokens = layer(tokens, mask)
        tokens = self.norm(tokens)
        return torch.cat([tokens[:, 0], self._pooled(tokens, mask)], -1)

    def _pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        score = self.pool(tokens).float().masked_fill(~mask.unsqueeze(-1), -torch.inf)
        weight = torch.softmax(score, 1).to(tokens.dtype)  # (B, K+1, H)
        split = tokens.unflatten(-1, (self.heads, -1))
        return torch.flatten((weight.unsqueeze(-1) * split).sum(1), 1)


class _Layer(nn.Module):
    """Pre-norm transformer layer."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(tokens)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        # On a CPU the fused kernel's backward pass alone took two fifths of a training step.
        is_slow = self.training and tokens.device.type == "cpu"
        with sdpa_kernel(SDPBackend.MATH) if is_slow else nullcontext():
            mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
        tokens = tokens + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        hidden = relu(self.up(self.feed_norm(tokens)))
        return tokens + self.dropout(self.down(hidden))


def count_features(counts: Tensor) -> Tensor:
    """Counts as a ramp over thresholds, so that one linear layer can tell small counts apart."""
    ramps = (counts.unsqueeze(-1) / constants(_STEPS, counts.device)).clamp(max=1.0)
    return torch.cat([ramps.flatten(-2), counts / 20], -1)


def peak_features(peaks: PeakBatch) -> Tensor:
    """What a peak is known by: its formula, what the ion has lost, and numbers, (B, K, ...)."""
    loss = peaks.parent.unsqueeze(1) - peaks.subformula
    energy = peaks.energy_ev / _ENERGY_SCALE_EV
    known = ~energy.isnan()
    numbers = torch.stack(
        [
            peaks.intensity,
            peaks.intensity.clamp_min(0).sqrt(),
            torch.log10(peaks.intensity.clamp_min(1e-4)) / 4,
            peaks.ppm / 10,
            peaks.mz / 1000,
            peaks.share,
            torch.where(known, energy, 0.0),
            known.float(),
        ],
        -1,
    )
    parts = [count_features(peaks.subformula), count_features(loss.clamp_min(0)), numbers]
    return torch.cat(parts, -1)
