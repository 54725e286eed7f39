"""The authors' network at other sizes behind the interface of ours; a variant of `networks`.

Letters: B graphs, N atoms, M pairs.
"""

from dataclasses import dataclass
from typing import Final

import torch
from their_network import (
    ReferenceDenoiser,
    ReferenceDenoiserSettings,
    ReferenceSettings,
    with_features,
)
from torch import Tensor, nn

from duallgd_cli.chem.elements import HEAVY
from duallgd_cli.model.duallgd import Condition
from duallgd_cli.model.settings import DenoiserSettings
from duallgd_cli.model.tensors import map_tensors

_RELEASED: Final = ReferenceSettings()
_BITS: Final = _RELEASED.denoiser.condition_width


@dataclass(frozen=True, eq=False)
class KnownAtoms:
    """What is known before any noise is drawn.

    Attributes:
        atom_class: Elements in the authors' vocabulary, in the order given, int64 (B, N).
        atom_mask: Real atoms, bool (B, N).
        fingerprint: Probability of each folded Morgan bit, (B, 2048).
    """

    atom_class: Tensor
    atom_mask: Tensor
    fingerprint: Tensor

    def expand(self, samples: int) -> "KnownAtoms":
        """Repeat that of one spectrum for several candidates, without copying."""
        return map_tensors(self, lambda tensor: tensor.expand(samples, -1))


class OrderReadingDenoiser(nn.Module):
    """The authors' denoiser at other sizes, without dropout, conditioned on Morgan bits.

    Behind the interface of ours, so that one loop trains and samples both. It reads the order of
    the atoms it is given: with the order of the true molecule's canonical SMILES it is the
    published arrangement, with element-sorted atoms it reads nothing that a formula does not say.

    Args:
        settings: Widths, heads and layers; what the reference alone has keeps its proportions.
        n_steps: T.
    """

    vocabulary: Tensor

    def __init__(self, settings: DenoiserSettings, n_steps: int) -> None:
        super().__init__()
        atom, pair, width = settings.atom_width, settings.pair_width, settings.global_width
        self.n_steps = n_steps
        self.network = ReferenceDenoiser(
            ReferenceDenoiserSettings(
                layers=settings.layers,
                atom_width=atom,
                edge_width=pair,
                global_width=width,
                atom_hidden=atom,
                edge_hidden=2 * pair,
                global_hidden=2 * width,
                atom_feed=atom,
                edge_feed=2 * pair,
                global_feed=width,
                pair_feed=settings.pair_feed * pair,
                heads=settings.atom_heads,
                n_features=settings.pair_features,
            )
        )
        index = {symbol: number for number, symbol in enumerate(_RELEASED.atom_symbols)}
        own = torch.tensor([index.get(symbol, len(index)) for symbol in HEAVY])
        self.register_buffer("vocabulary", own, persistent=False)

    def context(self, condition: Condition) -> KnownAtoms:
        """Everything that is the same for all steps and candidates; bits folded to 2048.

        Its atoms may come in any order; an element outside the authors' vocabulary is an error.
        """
        fingerprint = condition.bit_log_prob.new_zeros(len(condition.bit), _BITS)
        probability = condition.bit_log_prob.exp()
        fingerprint = fingerprint.scatter_reduce(1, condition.bit % _BITS, probability, "amax")
        atom_class = self.vocabulary[condition.atom_class]
        return KnownAtoms(atom_class, condition.atom_mask, fingerprint)

    def forward(self, bond_class: Tensor, t: Tensor, context: KnownAtoms) -> Tensor:
        """Logits of the clean bond classes, float32 (B, M, classes); see `Denoiser.forward`."""
        with torch.autocast(bond_class.device.type, enabled=False):
            time, known = t.float() / self.n_steps, (context.atom_class, context.atom_mask)
            graphs = with_features(_RELEASED, *known, bond_class, time, context.fingerprint)
        logits: Tensor = self.network(graphs)
        return logits.float()
