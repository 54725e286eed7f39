"""Sizes of the network and of the diffusion process; stored in every checkpoint."""

from dataclasses import dataclass, field
from typing import Final

from duallgd_cli.config import require, require_range

# Beyond any network that would fit a machine; what is above is a mistake, or a broken file.
MOST: Final = 1 << 16
MOST_LAYERS: Final = 256


@dataclass(frozen=True, slots=True)
class DenoiserSettings:
    """The dual-stream denoiser."""

    layers: int = 6  # dual-stream layers K
    atom_width: int = 192  # channels of an atom, d_x
    pair_width: int = 64  # channels of a pair, d_e
    global_width: int = 256  # channels of the global state, d_y
    atom_heads: int = 8  # of the atom stream's self-attention and of the fingerprint attention
    pair_feed: int = 3  # hidden channels of a pair's feed-forward network, times `pair_width`
    pair_heads: int = 4  # of the bond stream's self-attention
    cross_heads: int = 8  # of both cross-attentions
    cross_width: int = 64  # channels of the cross-attentions' queries, keys and values
    pair_features: int = 16  # random features R of FAVOR+ per head; 0 uses exact softmax
    feature_seed: int = 20260701  # of the random features
    # Steps t up to which positions are not seen, and from which they are seen in full: with the
    # defaults always.
    fade_from: int = -1
    fade_to: int = 0
    position_limit: int = 64  # atoms of one element that get a position of their own

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
        require(self.fade_from < self.fade_to, "fade_from must be below fade_to")


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The formula transformer that reads a spectrum."""

    layers: int = 4
    width: int = 128  # channels of a peak token
    heads: int = 8
    summary: int = 160  # channels from which all fingerprint bits are read
    dropout: float = 0.2  # of each residual branch and of the summary while training
    fingerprint_bits: int = 4096

    def __post_init__(self) -> None:
        require_range(self, "layers", least=1, most=MOST_LAYERS)
        require_range(self, "width", "heads", "summary", "fingerprint_bits", least=1, most=MOST)
        require_range(self, "dropout", least=0, below=1)
        require(self.width % self.heads == 0, "heads must divide width")


@dataclass(frozen=True, slots=True)
class DiffusionSettings:
    """The forward process, and how it is sampled where nothing else is asked for."""

    n_steps: int = 500  # noise steps T
    # Share of each bond class among atom pairs: the stationary distribution.
    marginal: tuple[float, ...] = (0.924, 0.044, 0.0055, 0.0002, 0.0263)
    schedule: str = "quadratic"  # how sampling jumps; see `diffusion.sampler.parse_schedule`
    time_shift: float = 0.25  # see `diffusion.sampler.SamplingTask.timestep_offset`

    def __post_init__(self) -> None:
        require_range(self, "n_steps", least=1, most=MOST)
        require_range(self, "time_shift", least=0, below=1)
        is_sound = len(self.marginal) == 5 and all(0 < share <= 1 for share in self.marginal)
        require(is_sound, "marginal needs 5 shares above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Everything that fixes the shape of the network and the meaning of its input."""

    denoiser: DenoiserSettings = field(default_factory=DenoiserSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    diffusion: DiffusionSettings = field(default_factory=DiffusionSettings)
    memory_bits: int = 160  # fingerprint bits, by probability, that the denoiser attends to

    def __post_init__(self) -> None:
        require_range(self, "memory_bits", least=1, most=self.encoder.fingerprint_bits)
