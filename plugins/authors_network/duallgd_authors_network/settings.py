"""Sizes and variants of the reference network; stored in every converted checkpoint."""

from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Literal

from duallgd_authors_network.core import (
    MOST,
    MOST_LAYERS,
    DiffusionSettings,
    require,
    require_range,
)


@dataclass(frozen=True, slots=True)
class ReferenceDenoiserSettings:
    """The reference denoiser. Defaults are the released configuration."""

    layers: int = 5  # dual-stream layers
    atom_inputs: int = 16  # features of an atom
    condition_width: int = 2048  # of the projected fingerprint, first part of the global input
    global_inputs: int = 13  # features of the whole graph, its second part
    atom_width: int = 256  # d_x
    edge_width: int = 64  # of an atom pair in either stream, d_e
    global_width: int = 1024  # d_y
    atom_hidden: int = 256  # of the perceptron that reads atoms
    edge_hidden: int = 128  # of those that read bonds and write logits
    global_hidden: int = 2048  # of those that read and write the global state
    atom_feed: int = 256  # hidden channels of the feed-forward networks
    edge_feed: int = 128
    global_feed: int = 1024  # the paper says 2048, its counts say 1024
    pair_feed: int = 256  # of the bond stream
    heads: int = 8  # of every attention
    n_features: int = 128  # random ones of a head of the bond stream; 0 where the kernel needs none
    # of the bond stream: FAVOR+ with positive features, with sines and cosines, elu + 1, or exact
    kernel: Literal["positive", "waves", "elu", "softmax"] = "positive"
    # cross-attention in both directions, atoms from pairs alone, pairs from atoms alone, none, or
    # both without the incidence mask
    synchronisation: Literal["both", "atoms", "pairs", "none", "unmasked"] = "both"
    readout: Literal["pairs", "edges"] = "pairs"  # stream of the logits: of bonds or of atoms
    streams: Literal["both", "atoms"] = "both"  # the atom stream alone: "without line graph"

    def __post_init__(self) -> None:
        sizes = {size.name for size in fields(self) if size.type is int} - {"layers", "n_features"}
        require_range(self, "layers", least=1, most=MOST_LAYERS)
        require_range(self, *sorted(sizes), least=1, most=MOST)
        require_range(self, "n_features", least=0, most=MOST)
        require(self.atom_width % self.heads == 0, "heads must divide atom_width")
        require(self.edge_width % self.heads == 0, "heads must divide edge_width")
        random = self.kernel in ("positive", "waves") and self.streams == "both"
        require(not random or self.n_features >= 1, f"kernel {self.kernel} needs n_features")
        require(
            self.streams == "both" or self.readout == "edges", "one stream reads out from edges"
        )


@dataclass(frozen=True, slots=True)
class ReferenceEncoderSettings:
    """The reference's spectrum encoder (MIST). Defaults are those of the smaller release."""

    layers: int = 2
    width: int = 256  # of a peak: 256 for NPLIB1, 512 for MassSpecGym
    heads: int = 8
    fragment_bits: int = 512  # of a head that nothing uses: 512 or 2048
    # bits of the growing fingerprint predictions, each twice the one before
    fingerprint_sizes: tuple[int, ...] = (256, 512, 1024, 2048, 4096)

    def __post_init__(self) -> None:
        require_range(self, "layers", least=1, most=MOST_LAYERS)
        require_range(self, "width", "heads", "fragment_bits", least=1, most=MOST)
        require(self.width % self.heads == 0, "heads must divide width")
        sizes = self.fingerprint_sizes
        doubled = len(sizes) >= 1 and all(b == 2 * a for a, b in pairwise(sizes))
        require(doubled, "each fingerprint size must be twice the one before")
        require(1 <= sizes[0] <= sizes[-1] <= MOST, f"fingerprint sizes must be 1 to {MOST}")


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """Everything that fixes the reference network and the meaning of its input."""

    denoiser: ReferenceDenoiserSettings = field(default_factory=ReferenceDenoiserSettings)
    encoder: ReferenceEncoderSettings = field(default_factory=ReferenceEncoderSettings)
    n_steps: int = 500  # T
    # share of each bond class among ordered atom pairs of the training set
    marginal: tuple[float, ...] = (0.924, 0.044, 0.0055, 0.0002, 0.0263)
    max_atoms: int = 150  # largest number in its data, which divides the atom count it reads
    atom_symbols: tuple[str, ...] = ("C", "O", "P", "N", "S", "Cl", "F", "H")  # by atom class

    def __post_init__(self) -> None:
        require_range(self, "max_atoms", least=1, most=MOST)
        _ = self.process  # which refuses what is no process

    @property
    def process(self) -> DiffusionSettings:
        """The noise process; the network is given the step it is at."""
        return DiffusionSettings(self.n_steps, self.marginal, time_shift=0.0)
