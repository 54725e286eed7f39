"""Sizes of the network and of the diffusion process; stored in every checkpoint."""

from dataclasses import dataclass, field
from typing import Final

from duallgd_cli.config import require, require_range

# Beyond any network that would fit a machine; what is above is a mistake, or a broken file.
MOST: Final = 1 << 16
MOST_LAYERS: Final = 256


@dataclass(frozen=True, slots=True)
class DenoiserSettings:
    """The dual-stream denoiser.

    Attributes:
        layers: Number of dual-stream layers K.
        atom_width: Channels of an atom, d_x.
        pair_width: Channels of a pair, d_e.
        global_width: Channels of the global state, d_y.
        atom_heads: Heads of the atom stream's self-attention and of the fingerprint attention.
        pair_feed: Hidden channels of a pair's feed-forward network, as a multiple of `pair_width`.
        pair_heads: Heads of the bond stream's self-attention.
        cross_heads: Heads of both cross-attentions.
        cross_width: Channels of the cross-attentions' queries, keys and values.
        pair_features: Random features R of FAVOR+ per head; 0 uses exact softmax.
        feature_seed: Seed of the random features.
        position_limit: Atoms of one element that get a position of their own.
    """

    layers: int = 6
    atom_width: int = 192
    pair_width: int = 64
    global_width: int = 256
    atom_heads: int = 8
    pair_feed: int = 3
    pair_heads: int = 4
    cross_heads: int = 8
    cross_width: int = 64
    pair_features: int = 16
    feature_seed: int = 20260701
    position_limit: int = 64

    def __post_init__(self) -> None:
        widths = ("atom_width", "pair_width", "global_width", "cross_width", "pair_feed")
        heads = ("atom_heads", "pair_heads", "cross_heads")
        require_range(self, *widths, *heads, "position_limit", least=1, most=MOST)
        require_range(self, "layers", least=1, most=MOST_LAYERS)
        require_range(self, "pair_features", least=0, most=MOST)
        require(0 <= self.feature_seed < 1 << 62, "feature_seed must be 0 to below 2^62")
        require(self.atom_width % self.atom_heads == 0, "atom_heads must divide atom_width")
        require(self.pair_width % self.pair_heads == 0, "pair_heads must divide pair_width")
        require(self.cross_width % self.cross_heads == 0, "cross_heads must divide cross_width")


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The formula transformer that reads a spectrum.

    Attributes:
        layers: Transformer layers.
        width: Channels of a peak token.
        heads: Attention heads.
        summary: Channels from which all fingerprint bits are read.
        dropout: Dropout of each residual branch and of the summary while training.
        fingerprint_bits: Length of the predicted fingerprint.
    """

    layers: int = 4
    width: int = 128
    heads: int = 8
    summary: int = 160
    dropout: float = 0.2
    fingerprint_bits: int = 4096

    def __post_init__(self) -> None:
        require_range(self, "layers", least=1, most=MOST_LAYERS)
        require_range(self, "width", "heads", "summary", "fingerprint_bits", least=1, most=MOST)
        require_range(self, "dropout", least=0, below=1)
        require(self.width % self.heads == 0, "heads must divide width")


@dataclass(frozen=True, slots=True)
class DiffusionSettings:
    """The forward process.

    Attributes:
        n_steps: Number of noise steps T.
        marginal: Share of each bond class among atom pairs: the stationary distribution.
        time_shift: Timestep offset of sampling where nothing else is asked for; see
            `diffusion.SamplingTask`.
    """

    n_steps: int = 500
    marginal: tuple[float, ...] = (0.924, 0.044, 0.0055, 0.0002, 0.0263)
    time_shift: float = 0.25

    def __post_init__(self) -> None:
        require_range(self, "n_steps", least=1, most=MOST)
        require_range(self, "time_shift", least=0, below=1)
        is_sound = len(self.marginal) == 5 and all(0 < share <= 1 for share in self.marginal)
        require(is_sound, "marginal needs 5 shares above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Everything that fixes the shape of the network and the meaning of its input.

    Attributes:
        denoiser: The dual-stream denoiser.
        encoder: The spectrum encoder.
        diffusion: The forward process.
        memory_bits: Fingerprint bits, by probability, that the denoiser attends to.
    """

    denoiser: DenoiserSettings = field(default_factory=DenoiserSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    diffusion: DiffusionSettings = field(default_factory=DiffusionSettings)
    memory_bits: int = 160

    def __post_init__(self) -> None:
        require_range(self, "memory_bits", least=1, most=self.encoder.fingerprint_bits)
