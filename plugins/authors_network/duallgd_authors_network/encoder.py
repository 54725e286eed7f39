"""The reference's spectrum encoder (MIST): peaks as sub-formulas to a fingerprint that grows.

Peaks and their sub-formulas are exactly as it was trained on them; nothing else uses them, as
`spectra.annotation` explains peaks for our own encoder. Modules have the authors' names, so that
their tensors fit as they are. Padding is masked with -inf, so a spectrum's result does not depend
on its batch.

Letters: B spectra, K tokens (peaks, then one token for the whole), H heads, D channels of a head, C
channels of a token, F fingerprint bits; P raw peaks.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot, relu

from duallgd_authors_network.core import (
    SYMBOLS,
    Adduct,
    Formula,
    SubformulaTable,
    map_tensors,
    parse_adduct,
    quote,
)
from duallgd_authors_network.denoiser import post_norm
from duallgd_authors_network.settings import ReferenceEncoderSettings

N_ELEMENTS: Final = 18
N_WAVES: Final = 9
N_COUNTS: Final = 255
N_TOKEN_TYPES: Final = 4
N_ADDUCTS: Final = 8
N_INSTRUMENTS: Final = 6
WHOLE_TYPE: Final = 3
_WAVES_OF_FORMULA: Final = N_ELEMENTS * N_WAVES
_PEAK_INPUTS: Final = 2 * _WAVES_OF_FORMULA + N_TOKEN_TYPES + N_ADDUCTS + 1 + N_INSTRUMENTS

# Element order of the reference's count vectors.
ELEMENTS: Final = (
    *("C", "H", "As", "B", "Br", "Cl", "Co", "F", "Fe"),
    *("I", "K", "N", "Na", "O", "P", "S", "Se", "Si"),
)
MAX_PEAKS: Final = 60
_LEAST_INTENSITY: Final = 0.001
_PRECURSOR_MARGIN: Final = 1.0
_MISSING_PRECURSOR_MZ: Final = 1e6
_DECIMALS: Final = 4
# Tolerances in ppm are taken at this m/z below it.
_LEAST_SCALE_MZ: Final = 200.0
_TOLERANCE_PPM: Final = 20.0

# Twice what an atom adds to rings plus double bonds; other elements count nothing.
_UNSATURATION: Final = np.array(
    [{"C": 2, "N": 1, "P": 1, "H": -1, "Cl": -1, "Br": -1, "I": -1, "F": -1}.get(symbol, 0)
     for symbol in ELEMENTS]
)  # fmt: skip
# In the order of the encoder's indices, in the reference's own spelling.
_ADDUCT_NAMES: Final = (
    *("[M+H]+", "[M+Na]+", "[M+K]+", "[M-H2O+H]+", "[M+H3N+H]+", "[M]+", "[M-H4O2+H]+"),
    "[M-H+2Na]+",
)
# Index of each; the same ion may be spelled otherwise.
ADDUCT_INDEX: Final = {parse_adduct(name): index for index, name in enumerate(_ADDUCT_NAMES)}


@dataclass(frozen=True, eq=False)
class FormulaPeaks:
    """Annotated spectra as the reference reads them; the last real token is the whole ion."""

    counts: Tensor  # atoms of each sub-formula in the reference's order, (B, K, N_ELEMENTS)
    token_type: Tensor  # 0 for peaks, `WHOLE_TYPE` for the whole, int64 (B, K)
    adduct: Tensor  # index, int64 (B, K)
    intensity: Tensor  # (B, K); 1 for the whole
    n_tokens: Tensor  # real ones, int64 (B,), at least 1

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
        self.int_to_feat_matrix = nn.Parameter(waves, requires_grad=False)
        self._extra_embeddings = nn.Parameter(torch.zeros(1, N_WAVES))  # of larger counts

    def forward(self, counts: Tensor) -> Tensor:
        """(..., N_ELEMENTS) to (..., N_ELEMENTS * N_WAVES)."""
        known = torch.cat([self.int_to_feat_matrix, self._extra_embeddings])
        return known[counts.long().clamp(0, N_COUNTS)].flatten(-2)


class TwoLayers(nn.Module):
    """Two linear layers, each with a ReLU behind it."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.input_layer = nn.Linear(inputs, width)
        self.layers = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., width)."""
        return relu(self.layers[0](relu(self.input_layer(x))))


class DifferenceAttention(nn.Module):
    """Attention whose scores also know how two sub-formulas differ."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        self.bias_u = nn.Parameter(torch.zeros(heads, width // heads))
        self.bias_v = nn.Parameter(torch.zeros(heads, width // heads))
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, tokens: Tensor, differences: Tensor, mask: Tensor) -> Tensor:
        """Change of the tokens, (B, K, C), from them, their differences (B, K, K, C) and a mask."""
        heads, width = self.bias_u.shape
        projected = linear(tokens, self.in_proj_weight, self.in_proj_bias)
        query, key, value = projected.unflatten(-1, (3, heads, width)).unbind(2)
        query = query * width**-0.5
        content = torch.einsum("bihd,bjhd->bhij", query + self.bias_u, key)
        # One row of differences meets all heads of one query: (B, K, H, D) with (B, K, K, H, D).
        split = differences.unflatten(-1, (heads, width))
        change = torch.einsum("bihd,bijhd->bhij", query + self.bias_v, split)
        score = (content + change).masked_fill(~mask[:, None, None, :], -torch.inf)
        mixed = torch.einsum("bhij,bjhd->bihd", torch.softmax(score, -1), value)
        return self.out_proj(mixed.flatten(2))


class TokenLayer(nn.Module):
    """One post-norm layer over tokens."""

    def __init__(self, settings: ReferenceEncoderSettings) -> None:
        super().__init__()
        width = settings.width
        self.self_attn = DifferenceAttention(width, settings.heads)
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, tokens: Tensor, differences: Tensor, mask: Tensor) -> Tensor:
        """New tokens, (B, K, C)."""
        change = self.self_attn(tokens, differences, mask)
        return post_norm(tokens, change, (self.linear1, self.linear2, self.norm1, self.norm2))


class PeakTransformer(nn.Module):
    """Annotated spectra to the state of the token that stands for the whole."""

    def __init__(self, settings: ReferenceEncoderSettings) -> None:
        super().__init__()
        width = settings.width
        self.form_embedder_mod = CountEmbedding()
        # Reference: its weights hold an embedding of instruments, which no result depends on.
        self.instrument_embedder = nn.Parameter(torch.zeros(N_INSTRUMENTS, N_INSTRUMENTS))
        self.intermediate_layer = TwoLayers(_PEAK_INPUTS, width)
        self.pairwise_featurizer = TwoLayers(_WAVES_OF_FORMULA, width)
        self.peak_attn_layers = nn.ModuleList(TokenLayer(settings) for _ in range(settings.layers))

    def forward(self, peaks: FormulaPeaks) -> Tensor:
        """(B, C)."""
        last = (peaks.n_tokens - 1).view(-1, 1, 1)
        index = torch.arange(peaks.counts.shape[1], device=last.device)
        mask = index < peaks.n_tokens.unsqueeze(1)
        tokens = self.intermediate_layer(self._peak_features(peaks, last))
        apart = (peaks.counts.unsqueeze(2) - peaks.counts.unsqueeze(1)).abs()
        differences = self.pairwise_featurizer(self.form_embedder_mod(apart))
        for layer in self.peak_attn_layers:
            tokens = layer(tokens, differences, mask)
        return tokens.gather(1, last.expand(-1, -1, tokens.shape[2])).squeeze(1)

    def _peak_features(self, peaks: FormulaPeaks, last: Tensor) -> Tensor:
        parent = peaks.counts.gather(1, last.expand(-1, -1, N_ELEMENTS))
        loss = (parent - peaks.counts).abs()
        intensity = peaks.intensity.unsqueeze(2)
        features = [
            self.form_embedder_mod(peaks.counts),
            self.form_embedder_mod(loss),
            one_hot(peaks.token_type, N_TOKEN_TYPES),
            one_hot(peaks.adduct, N_ADDUCTS),
            intensity,
            # Reference: the released models were trained with instruments left out.
            intensity.new_zeros(*intensity.shape[:2], N_INSTRUMENTS),
        ]
        return torch.cat(features, 2)


class GrowingFingerprint(nn.Module):
    """Doubles a predicted fingerprint again and again; gates that see the spectrum lower it."""

    def __init__(self, settings: ReferenceEncoderSettings) -> None:
        super().__init__()
        width, (first, *later) = settings.width, settings.fingerprint_sizes
        self.initial_predict = nn.Sequential(nn.Linear(width, first), nn.Sigmoid())
        self.predict_bricks, self.gate_bricks = (
            nn.ModuleList(nn.Sequential(nn.Linear(n, bits), nn.Sigmoid()) for n, bits in sizes)
            for sizes in ([(bits // 2, bits) for bits in later], [(width, bits) for bits in later])
        )

    def forward(self, summary: Tensor) -> Tensor:
        """Probability of each bit, (B, F), from the spectrum's summary (B, C)."""
        probability = self.initial_predict(summary)
        for predict, gate in zip(self.predict_bricks, self.gate_bricks, strict=True):
            probability = gate(summary) * predict(probability)
        return probability


class ReferenceEncoder(nn.Module):
    """Annotated spectra to fingerprint probabilities."""

    def __init__(self, settings: ReferenceEncoderSettings) -> None:
        super().__init__()
        # Reference: its weights hold a head for fragments, which no result depends on.
        fragments = nn.Sequential(nn.Linear(settings.width, settings.fragment_bits))
        self.spectra_encoder = nn.ModuleList(
            [PeakTransformer(settings), fragments, GrowingFingerprint(settings)]
        )

    def forward(self, peaks: FormulaPeaks) -> Tensor:
        """Probability of each fingerprint bit, (B, F)."""
        transformer, _, grow = self.spectra_encoder
        return grow(transformer(peaks))


def reordered(counts: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Counts in our order of the elements, (..., 13), in the reference's, int64 (..., 18)."""
    found = np.zeros((*counts.shape[:-1], N_ELEMENTS), dtype=np.int64)
    found[..., [ELEMENTS.index(symbol) for symbol in SYMBOLS]] = counts
    return found


def process_peaks(
    mz: NDArray[np.float64], intensity: NDArray[np.float64], precursor_mz: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Merge, cut, scale and choose peaks, (P,), of all spectra of one ion as the reference does.

    Returns:
        m/z and the square root of the relative intensity, the most intense first.
    """
    _, first, group = np.unique(np.round(mz, _DECIMALS), return_index=True, return_inverse=True)
    highest = np.zeros(len(first))
    np.maximum.at(highest, group, intensity)
    order = np.argsort(first)
    mz, intensity = mz[first[order]], highest[order]
    limit = (precursor_mz or _MISSING_PRECURSOR_MZ) + _PRECURSOR_MARGIN
    mz, intensity = mz[mz <= limit], intensity[mz <= limit]
    if not mz.size or intensity.max() <= 0:
        return mz[:0], intensity[:0]
    root = np.sqrt(intensity / intensity.max())
    chosen = np.argsort(-root, kind="stable")[:MAX_PEAKS]
    chosen = chosen[root[chosen] > _LEAST_INTENSITY]
    return mz[chosen], root[chosen]


def assign(
    formula: Formula,
    adduct: Adduct,
    mz: NDArray[np.float64],
    tolerance_ppm: float = _TOLERANCE_PPM,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give each peak the sub-formula of the molecule that is nearest in mass.

    The reference adds the whole adduct to every sub-formula and allows no negative unsaturation.

    Deviations are in ppm of the peak's m/z or of 200, whichever is more, and below the tolerance.

    Returns:
        For those peaks that have a sub-formula, in the order given: index of the peak, (K,); atoms
        without the adduct, (K, 18).
    """
    wanted = mz - adduct.mass_shift
    margin = np.maximum(mz, _LEAST_SCALE_MZ) * tolerance_ppm * 1e-6
    table = SubformulaTable(formula.counts, float((wanted + margin).max(initial=0.0)))
    found = table.find(wanted, margin)
    atoms = reordered(found.counts)
    deviation = np.abs(found.error_da)
    possible = (atoms @ _UNSATURATION >= -2) & (deviation < margin[found.owner])
    peak, atoms, deviation = found.owner[possible], atoms[possible], deviation[possible]
    order = np.lexsort((deviation, peak))
    peak, nearest = np.unique(peak[order], return_index=True)
    return peak, atoms[order[nearest]]


def reference_peaks(
    formula: Formula,
    adduct: Adduct,
    mz: NDArray[np.float64],
    intensity: NDArray[np.float64],
    precursor_mz: float | None = None,
) -> FormulaPeaks:
    """What the reference's encoder reads of the raw peaks, (P,), of one ion, as a batch of one.

    Raises:
        ValueError: An adduct that the reference does not know.
    """
    if adduct not in ADDUCT_INDEX:
        known = ", ".join(_ADDUCT_NAMES)
        raise ValueError(f"the reference encoder knows {known}, not {quote(adduct.name)}")
    mz, root = process_peaks(mz, intensity, precursor_mz)
    peak, counts = assign(formula, adduct, mz)
    n_tokens = len(peak) + 1
    token_type = torch.zeros(1, n_tokens, dtype=torch.long)
    token_type[0, -1] = WHOLE_TYPE
    return FormulaPeaks(
        torch.from_numpy(np.concatenate([counts, reordered(formula.array)[None]]))[None],
        token_type,
        torch.full((1, n_tokens), ADDUCT_INDEX[adduct]),
        torch.from_numpy(np.append(root[peak], 1.0).astype(np.float32))[None],
        torch.tensor([n_tokens]),
    )
