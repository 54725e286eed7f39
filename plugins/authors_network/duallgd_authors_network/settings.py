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
    """The reference denoiser. Defaults are the released configuration.

    Attributes:
        layers: Number of dual-stream layers.
        atom_inputs: Features of an atom.
        condition_width: Channels of the projected fingerprint, the first part of the global input.
        global_inputs: Features of the whole graph, the second part of the global input.
        atom_width: Channels of an atom, d_x.
        edge_width: Channels of an atom pair in either stream, d_e.
        global_width: Channels of the global state, d_y.
        atom_hidden: Hidden channels of the perceptron that reads atoms.
        edge_hidden: Hidden channels of those that read bonds and write logits.
        global_hidden: Hidden channels of those that read and write the global state.
        atom_feed: Hidden channels of the atoms' feed-forward network.
        edge_feed: Hidden channels of the edges' feed-forward network.
        global_feed: Hidden channels of the global state's feed-forward network; the paper says
            2048, its counts say 1024.
        pair_feed: Hidden channels of the bond stream's feed-forward network.
        heads: Heads of every attention.
        n_features: Random features of a head of the bond stream; 0 where the kernel needs none.
        kernel: Attention of the bond stream: FAVOR+ with positive features, with sines and
            cosines, linear attention with elu + 1, or exact softmax.
        synchronisation: Cross-attention between the streams: both directions, atoms from pairs
            alone, pairs from atoms alone, none, or both without the incidence mask.
        readout: Logits from the bond stream, or from the edges of the atom stream.
        streams: Both streams, or the atom stream alone ("without line graph").
    """

    layers: int = 5
    atom_inputs: int = 16
    condition_width: int = 2048
    global_inputs: int = 13
    atom_width: int = 256
    edge_width: int = 64
    global_width: int = 1024
    atom_hidden: int = 256
    edge_hidden: int = 128
    global_hidden: int = 2048
    atom_feed: int = 256
    edge_feed: int = 128
    global_feed: int = 1024
    pair_feed: int = 256
    heads: int = 8
    n_features: int = 128
    kernel: Literal["positive", "waves", "elu", "softmax"] = "positive"
    synchronisation: Literal["both", "atoms", "pairs", "none", "unmasked"] = "both"
    readout: Literal["pairs", "edges"] = "pairs"
    streams: Literal["both", "atoms"] = "both"

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
    """The reference's spectrum encoder (MIST). Defaults are those of the smaller release.

    Attributes:
        layers: Transformer layers.
        width: Channels of a peak: 256 for NPLIB1, 512 for MassSpecGym.
        heads: Attention heads.
        fragment_bits: Outputs of the fragment head, which nothing uses: 512 or 2048.
        fingerprint_sizes: Bits of the growing fingerprint predictions, each twice the one before.
    """

    layers: int = 2
    width: int = 256
    heads: int = 8
    fragment_bits: int = 512
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
    """Everything that fixes the reference network and the meaning of its input.

    Attributes:
        denoiser: The dual-stream denoiser.
        encoder: The spectrum encoder.
        n_steps: Number of noise steps T.
        marginal: Share of each bond class among ordered atom pairs of the training set.
        max_atoms: Largest number of atoms in its data, which divides the atom count it reads.
        atom_symbols: Element of each atom class, in its order.
    """

    denoiser: ReferenceDenoiserSettings = field(default_factory=ReferenceDenoiserSettings)
    encoder: ReferenceEncoderSettings = field(default_factory=ReferenceEncoderSettings)
    n_steps: int = 500
    marginal: tuple[float, ...] = (0.924, 0.044, 0.0055, 0.0002, 0.0263)
    max_atoms: int = 150
    atom_symbols: tuple[str, ...] = ("C", "O", "P", "N", "S", "Cl", "F", "H")

    def __post_init__(self) -> None:
        require_range(self, "max_atoms", least=1, most=MOST)
        _ = self.process  # which refuses what is no process

    @property
    def process(self) -> DiffusionSettings:
        """The noise process; sampling jumps evenly, and the network is given the step it is at."""
        return DiffusionSettings(self.n_steps, self.marginal, schedule="uniform", time_shift=0.0)
