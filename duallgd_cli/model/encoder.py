"""Formula transformer: peaks as sub-formulas, attended to as a set (after MIST).

Padding is masked with -inf, so a spectrum's result does not depend on its batch; on a GPU large
batches to train on go without. Letters: B spectra, b of them, P peak rows of all, K of one, T
tokens (B + P), H heads, F fingerprint bits.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot, relu, scaled_dot_product_attention

from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.model.tensors import Movable, constants

_N_ADDUCTS: Final = 16
N_INSTRUMENTS: Final = 3
_N_CARRIERS: Final = 3
_STEPS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)
N_COUNT_FEATURES: Final = len(_STEPS) + 1
_ENERGY_SCALE_EV: Final = 50.0
# Spectra computed together on a CPU: fewer carry less padding, more fill its caches.
_AT_ONCE: Final = 16
# Devices that have no attention without padding.
_PADDED_ON: Final = ("cpu", "mps")
# Attributes of a batch that have a row for each peak.
BY_ROW: Final = ("subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev")


@dataclass(frozen=True, eq=False)
class PeakBatch(Movable):
    """Peaks, one spectrum's rows after the other's; see `spectra.types.AnnotatedSpectrum`."""

    subformula: Tensor  # counts of the fragment ions, (P, N_ELEMENTS)
    intensity: Tensor  # relative to the base peak, float (P,)
    ppm: Tensor  # signed mass error, float (P,)
    mz: Tensor  # measured, float (P,)
    share: Tensor  # 1 / alternatives of the peak, float (P,)
    carrier: Tensor  # 0 none, 1 sodium, 2 potassium, int64 (P,)
    energy_ev: Tensor  # collision energy, NaN if missing, float (P,)
    spectrum: Tensor  # that each row is of, ascending, int64 (P,)
    parent: Tensor  # counts of the whole ion, float (B, N_ELEMENTS)
    adduct: Tensor  # index of the adduct, int64 (B,)
    instrument: Tensor  # 0 unknown, 1 orbitrap, 2 qtof, int64 (B,)
    start: Tensor  # of each spectrum's tokens, the whole ion first, and the end, int32 (B + 1,)
    longest: int  # tokens of a spectrum, at most

    @property
    def n_rows(self) -> Tensor:
        """Rows of each spectrum, int64 (B,)."""
        return self.start.diff().long() - 1

    def padded(self, index: Tensor) -> tuple["PeakBatch", Tensor]:
        """Some spectra with their rows as (b, K), and which are real, bool (b, K)."""
        n_rows = self.n_rows[index, None]
        place = torch.arange(int(n_rows.max()), device=index.device)
        mask = place < n_rows
        row = (self.start[index] - index)[:, None] + place
        parts = {name: getattr(self, name)[row * mask] for name in BY_ROW}
        for name in ("parent", "adduct", "instrument"):
            parts[name] = getattr(self, name)[index]
        return replace(self, **parts), mask


@dataclass(frozen=True, eq=False)
class PackedBatch(PeakBatch):
    """Spectra to train on, which a GPU computes without padding."""

    bit: Tensor  # true bits of the fingerprints, one spectrum's after the other's, int64
    bit_spectrum: Tensor  # the spectrum of each of them, int64

    @property
    def n_samples(self) -> int:
        """B."""
        return len(self.parent)

    def truth(self, n_bits: int) -> Tensor:
        """True bits as float 0/1, (B, n_bits)."""
        dense = torch.zeros(len(self.parent), n_bits, device=self.bit.device)
        dense[self.bit_spectrum, self.bit] = 1
        return dense


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
        device = peaks.start.device.type
        if isinstance(peaks, PackedBatch) and device not in _PADDED_ON:
            summary = self.packed_summary(peaks)
        else:
            by_length = peaks.n_rows.argsort(stable=True)
            parts = by_length.split(_AT_ONCE if device == "cpu" else len(by_length))
            summary = torch.cat([self._summary(*peaks.padded(part)) for part in parts])
            summary = summary[by_length.argsort()]
        return self.fingerprint(self.dropout(relu(self.hidden(summary))))

    def _summary(self, peaks: PeakBatch, mask: Tensor) -> Tensor:
        """Whole ions and peaks as one vector, (b, 2 width), of what `PeakBatch.padded` gives."""
        rows = self.peak_out(relu(self.peak_in(peak_features(peaks, peaks.parent.unsqueeze(1)))))
        rows = rows + self.carrier(peaks.carrier)
        tokens = torch.cat([self._whole_ion(peaks).unsqueeze(1), rows], 1)
        mask = nn.functional.pad(mask, (1, 0), value=True)
        for layer in self.layers:
            tokens = layer(tokens, mask)
        tokens = self.norm(tokens)
        score = self.pool(tokens).float().masked_fill(~mask.unsqueeze(-1), -torch.inf)
        weight = torch.softmax(score, 1).to(tokens.dtype)  # (b, K+1, H)
        split = tokens.unflatten(-1, (self.heads, -1))
        pooled = torch.flatten((weight.unsqueeze(-1) * split).sum(1), 1)
        return torch.cat([tokens[:, 0], pooled], -1)

    def _whole_ion(self, peaks: PeakBatch) -> Tensor:
        """The token of each whole ion, (B, width)."""
        token = self.parent_out(relu(self.parent_in(count_features(peaks.parent.float()))))
        return token + self.adduct(peaks.adduct) + self.instrument(peaks.instrument)

    def packed_summary(self, batch: PackedBatch) -> Tensor:
        """The same of a whole batch, (B, 2 width)."""
        n_spectra = len(batch.parent)
        parent = self._whole_ion(batch)
        features = peak_features(batch, batch.parent.float()[batch.spectrum])
        rows = self.peak_out(relu(self.peak_in(features)))
        # The gradient of a product is one; that of an embedding sorts all rows by their carriers.
        carrier = one_hot(batch.carrier, _N_CARRIERS)
        rows = rows + carrier.to(rows.dtype) @ self.carrier.weight.to(rows.dtype)
        each = torch.arange(n_spectra, device=rows.device)
        spectrum, order = torch.cat([each, batch.spectrum]).sort(stable=True)
        tokens = torch.cat([parent, rows.to(parent.dtype)]).index_select(0, order)
        for tensor in (tokens, batch.start):  # of another length in every batch
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        for layer in self.layers:
            tokens = layer(tokens, batch.start, batch.longest)
        tokens = self.norm(tokens)
        score = self.pool(tokens).float()
        most = score.new_full((n_spectra, self.heads), -torch.inf)
        of_head = spectrum[:, None].expand(-1, self.heads)
        most = most.scatter_reduce(0, of_head, score.detach(), "amax")
        weight = torch.exp(score - most[spectrum])
        total = weight.new_zeros(n_spectra, self.heads).index_add(0, spectrum, weight)
        weight = weight / total.index_select(0, spectrum)
        mean = (weight[..., None] * tokens.unflatten(-1, (self.heads, -1))).float().flatten(1)
        mean = mean.new_zeros(n_spectra, mean.shape[1]).index_add(0, spectrum, mean)
        return torch.cat([tokens[batch.start[:-1].long()].float(), mean], -1)


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

    def forward(self, tokens: Tensor, mask: Tensor, longest: int = 0) -> Tensor:
        """Attend and feed forward, (B, K + 1, W), under the mask of real tokens, bool (B, K + 1).

        Without padding (T, W), `PackedBatch.start` and how many tokens a spectrum has at most.
        """
        qkv = self.qkv(self.attention_norm(tokens)).unflatten(-1, (3, self.heads, -1))
        attended = _attended(qkv, mask, longest) if longest else _masked(qkv, mask, self.training)
        tokens = tokens + self.dropout(self.out(attended.flatten(-2)))
        hidden = relu(self.up(self.feed_norm(tokens)))
        return tokens + self.dropout(self.down(hidden))


def _masked(qkv: Tensor, mask: Tensor, training: bool) -> Tensor:
    """Attention among real tokens, (B, K, 3, H, D) to (B, K, H, D)."""
    query, key, value = qkv.permute(2, 0, 3, 1, 4)
    # On a CPU the fused kernel's backward pass alone took two fifths of a training step.
    is_slow = training and query.device.type == "cpu"
    with sdpa_kernel(SDPBackend.MATH) if is_slow else nullcontext():
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
    return mixed.transpose(1, 2)


def _attended(qkv: Tensor, start: Tensor, longest: int) -> Tensor:
    """Attention within each spectrum, (T, 3, H, D) to (T, H, D)."""
    from torch.nn.attention.varlen import varlen_attn

    # Half precision alone; what the rest is computed in is the caller's.
    query, key, value = qkv.bfloat16().unbind(1)
    mixed = varlen_attn(query, key, value, start, start, longest, longest)
    assert isinstance(mixed, Tensor)  # two where the logarithms of the sums are asked for
    return mixed.to(qkv.dtype)


def count_features(counts: Tensor) -> Tensor:
    """Counts as a ramp over thresholds, so that one linear layer can tell small counts apart."""
    ramps = (counts.unsqueeze(-1) / constants(_STEPS, counts.device)).clamp(max=1.0)
    return torch.cat([ramps.flatten(-2), counts / 20], -1)


def peak_features(peaks: PeakBatch, parent: Tensor) -> Tensor:
    """What a peak is known by: its formula, what its whole ion has lost, and numbers, (P, ...)."""
    loss = parent - peaks.subformula
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
