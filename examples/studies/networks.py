"""The networks of the studies: the default one without one of its parts, and the published one.

Every variant starts as the default network; parts that both have keep their names and their first
weights. What no logit depends on any more is left out, so that gradients reach every parameter.
A weights file names its variant, and only `build` makes it: the tool itself refuses such a file.

Letters: B graphs, N atoms, M pairs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import torch
from plain import attend
from torch import Tensor, nn

from duallgd_cli.errors import UsageError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.layers import DualStreamLayer, Masks
from duallgd_cli.model.line_graph import LineGraph, endpoint_atoms
from duallgd_cli.model.settings import FULL, DenoiserSettings, ModelSettings

Memory = tuple[Tensor, Tensor] | None


class EdgesFromAttention(nn.Module):
    """Change of edges by the products of their atoms' queries and keys, channel by channel.

    This is how edges learn of atoms in graph transformers without a bond stream (DiGress, DiffMS);
    summed over both directions, as our pairs have none.
    """

    def __init__(self, settings: DenoiserSettings) -> None:
        super().__init__()
        atom, pair = settings.atom_width, settings.pair_width
        self.scale = (atom // settings.atom_heads) ** -0.5
        self.norm_atoms = nn.LayerNorm(atom)
        self.norm_pairs = nn.LayerNorm(pair)
        self.query_key = nn.Linear(atom, 2 * atom)
        self.gain_shift = nn.Linear(pair, 2 * atom)
        self.out = nn.Linear(atom, pair)

    def forward(self, atoms: Tensor, pairs: Tensor, graph: LineGraph) -> Tensor:
        """Change of the edges, (B, M, pair_width)."""
        ends = endpoint_atoms(self.query_key(self.norm_atoms(atoms)), graph)
        query, key = ends.chunk(2, -1)  # each (B, M, 2, atom_width)
        score = (query * key.flip(2)).sum(2) * self.scale
        gain, shift = self.gain_shift(self.norm_pairs(pairs)).chunk(2, -1)
        return self.out(torch.addcmul(shift, 1 + gain, score))


class SingleStreamLayer(DualStreamLayer):
    """Without line graph: bonds are edge states of the atom stream and never see each other."""

    def __init__(self, settings: DenoiserSettings, layer: int) -> None:
        super().__init__(settings, layer)
        _drop(self, "pair_attention", "atoms_from_pairs", "pairs_from_atoms")
        _drop(self, "cross_norm_atoms", "cross_norm_pairs")
        self.edges = EdgesFromAttention(settings)

    def forward(
        self,
        atoms: Tensor,
        pairs: Tensor,
        y: Tensor,
        memory: Memory,
        masks: Masks,
        graph: LineGraph,
    ) -> tuple[Tensor, Tensor]:
        """New atoms and edges, as `DualStreamLayer.forward`."""
        atoms = self.film_atoms(atoms, y)
        pairs = self.film_pairs(pairs, y)
        if self.bit_attention is not None and memory is not None:
            atoms = atoms + self.bit_attention(atoms, *memory)
        atoms = atoms + self.atom_attention(atoms, pairs, masks, graph)
        atoms = atoms + self.atom_feed(atoms)
        pairs = pairs + self.edges(atoms, pairs, graph)
        return atoms, pairs + self.pair_feed(pairs)


class PartlyToldLayer(DualStreamLayer):
    """One stream is told of the other and nothing goes back, or neither is told.

    Without cross-attention bond states still shift the atoms' attention scores, in place of the
    paper's edge states.

    Args:
        settings: Sizes.
        layer: Number of the layer, from 0.
        told: The attention that is left, ``atoms_from_pairs`` or ``pairs_from_atoms``; "" for none.
    """

    def __init__(self, settings: DenoiserSettings, layer: int, told: str = "") -> None:
        super().__init__(settings, layer)
        self.told = told
        _drop(self, *{"atoms_from_pairs", "pairs_from_atoms"} - {told})
        if not told:
            _drop(self, "cross_norm_atoms", "cross_norm_pairs")

    def synchronise(
        self, atoms: Tensor, pairs: Tensor, masks: Masks, graph: LineGraph
    ) -> tuple[Tensor, Tensor]:
        """New states of the stream that is told, and the same of the other."""
        if not self.told:
            return atoms, pairs
        normed_atoms, normed_pairs = self.cross_norm_atoms(atoms), self.cross_norm_pairs(pairs)
        if self.told == "pairs_from_atoms":
            return atoms, pairs + self.pairs_from_atoms(normed_pairs, normed_atoms, graph)
        change = self.atoms_from_pairs(normed_atoms, normed_pairs, masks.incident, graph)
        return atoms + change, pairs


class NoIncidenceMaskLayer(DualStreamLayer):
    """Every atom attends to every pair and every pair to every atom; all else is the same.

    The released code also changes the update and its scale in this ablation; this one does not.
    """

    def synchronise(
        self, atoms: Tensor, pairs: Tensor, masks: Masks, graph: LineGraph
    ) -> tuple[Tensor, Tensor]:
        """New atoms and pairs."""
        del graph
        normed = self.cross_norm_pairs(pairs)
        query = self.cross_norm_atoms(atoms)
        atoms = atoms + attend(self.atoms_from_pairs, query, normed, masks.pairs.unsqueeze(1))
        source, seen = self.cross_norm_atoms(atoms), masks.atoms.unsqueeze(1)
        return atoms, pairs + attend(self.pairs_from_atoms, normed, source, seen)


class PairsAloneLayer(DualStreamLayer):
    """The last layer where nothing goes from atoms to bonds: its atoms would reach no logit."""

    def __init__(self, settings: DenoiserSettings, layer: int) -> None:
        super().__init__(settings, layer)
        self.bit_attention = None
        _drop(self, "film_atoms", "atom_attention", "atom_feed", "atoms_from_pairs")
        _drop(self, "pairs_from_atoms", "cross_norm_atoms", "cross_norm_pairs")

    def forward(
        self,
        atoms: Tensor,
        pairs: Tensor,
        y: Tensor,
        memory: Memory,
        masks: Masks,
        graph: LineGraph,
    ) -> tuple[Tensor, Tensor]:
        """The same atoms and new pairs."""
        del memory, graph
        pairs = self.film_pairs(pairs, y)
        pairs = pairs + self.pair_attention(pairs, masks)
        return atoms, pairs + self.pair_feed(pairs)


class ZeroEmbedding(nn.Module):
    """Stands where an embedding was, and says nothing.

    Args:
        width: Channels of what it replaces.
        inputs: Dimensions of an input that it would have consumed.
    """

    def __init__(self, width: int, inputs: int) -> None:
        super().__init__()
        self.width, self.inputs = width, inputs

    def forward(self, x: Tensor) -> Tensor:
        """Zeros, (..., width)."""
        kept = x.shape[: x.dim() - self.inputs]
        return torch.zeros(*kept, self.width, device=x.device)


def build(settings: ModelSettings) -> DualLGD:
    """The network that settings name, with untrained weights.

    Args:
        settings: Sizes and variant.

    Raises:
        UsageError: There is no such variant.
    """
    if settings.variant not in VARIANTS:
        raise UsageError(f"no network {settings.variant!r}; there are {', '.join(VARIANTS)}")
    model = DualLGD(replace(settings, variant=FULL))
    VARIANTS[settings.variant](model)
    model.settings = settings
    return model


def _replace_layers(
    model: DualLGD,
    layer_class: Callable[[DenoiserSettings, int], DualStreamLayer],
    last: Callable[[DenoiserSettings, int], DualStreamLayer] | None = None,
) -> None:
    layers = model.denoiser.layers
    for number, old in enumerate(layers):
        chosen = last if last is not None and number == len(layers) - 1 else layer_class
        new = chosen(model.settings.denoiser, number)
        shared = new.state_dict().keys() & old.state_dict().keys()
        first = {name: tensor for name, tensor in old.state_dict().items() if name in shared}
        new.load_state_dict(first, strict=False)
        layers[number] = new


def _without_bit_attention(model: DualLGD) -> None:
    denoiser = model.denoiser
    for layer in denoiser.layers:
        assert isinstance(layer, DualStreamLayer)
        layer.bit_attention = None
    _drop(denoiser, "no_bit")
    denoiser.register_buffer(
        "no_bit", torch.zeros(model.settings.denoiser.atom_width), persistent=False
    )


def _without_positions(model: DualLGD) -> None:
    denoiser, sizes = model.denoiser, model.settings.denoiser
    denoiser.add_module("place", ZeroEmbedding(sizes.atom_width, inputs=0))
    denoiser.add_module("place_from_end", ZeroEmbedding(sizes.atom_width, inputs=0))
    denoiser.add_module("relative", ZeroEmbedding(sizes.pair_width, inputs=1))


def _as_published(model: DualLGD) -> None:
    from published import OrderReadingDenoiser  # needs a plug-in that the other variants do not

    sizes, process = model.settings.denoiser, model.settings.diffusion
    model.add_module("denoiser", OrderReadingDenoiser(sizes, process.n_steps))


VARIANTS: Final[Mapping[str, Callable[[DualLGD], None]]] = {
    FULL: lambda model: None,
    "single-stream": partial(_replace_layers, layer_class=SingleStreamLayer),
    "no-cross-attention": partial(
        _replace_layers, layer_class=PartlyToldLayer, last=PairsAloneLayer
    ),
    "atoms-to-bonds": partial(
        _replace_layers, layer_class=partial(PartlyToldLayer, told="pairs_from_atoms")
    ),
    "bonds-to-atoms": partial(
        _replace_layers,
        layer_class=partial(PartlyToldLayer, told="atoms_from_pairs"),
        last=PairsAloneLayer,
    ),
    "no-incidence-mask": partial(_replace_layers, layer_class=NoIncidenceMaskLayer),
    "no-bit-attention": _without_bit_attention,
    "no-positions": _without_positions,
    "published": _as_published,
}


def _drop(module: nn.Module, *names: str) -> None:
    for name in names:
        delattr(module, name)
