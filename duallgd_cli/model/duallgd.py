"""The whole network: spectrum encoder and denoiser, joined by the predicted fingerprint.

The denoiser gives clean-bond logits from a noisy bond graph, its noise level and the condition:
what is known about a spectrum before any noise is drawn. What a noisy graph shows at a glance
(hops, short walks, valences, cycles) are polynomials in the adjacency matrix: they need no
eigenvectors and are the same on every machine.

Letters: B graphs, N atoms, M pairs, K fingerprint bits kept.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad, relu

from duallgd_cli.chem.elements import LOWEST_VALENCES, N_BOND_CLASSES, N_ELEMENTS, N_HEAVY
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.layers import (
    DualStreamLayer,
    Fusion,
    LineGraph,
    Masks,
    endpoint_atoms,
    line_graph,
)
from duallgd_cli.model.settings import DenoiserSettings, ModelSettings
from duallgd_cli.model.tensors import Linear, Movable, constants, map_tensors

MAX_HOPS: Final = 6
N_PAIR_TOKENS: Final = N_BOND_CLASSES * (MAX_HOPS + 1)
N_WALKS: Final = 4
N_ATOM_FEATURES: Final = 8
N_GLOBAL_FEATURES: Final = 6

# Bond order of each class; an aromatic bond counts one and a half.
BOND_ORDERS: Final = (0.0, 1.0, 2.0, 3.0, 1.5)
# Usual valence of each heavy element, in the order of `chem.elements.HEAVY`.
USUAL_VALENCES: Final = tuple(float(valence) for valence in LOWEST_VALENCES[:N_HEAVY])


class GraphFeatures(NamedTuple):
    """Features of noisy graphs."""

    pair_token: Tensor  # bond class and hop distance as one index, int64 (B, M)
    walks: Tensor  # log(1 + number of walks of 2 to 5 steps) between the two atoms, (B, M, N_WALKS)
    # degree, valence, free valence, aromatic bonds, closed walks, (B, N, N_ATOM_FEATURES)
    atoms: Tensor
    # bonds, order, free valence against hydrogens, components, (B, N_GLOBAL_FEATURES)
    totals: Tensor


def graph_features(
    bond_class: Tensor, atom_class: Tensor, atom_mask: Tensor, hydrogens: Tensor, graph: LineGraph
) -> GraphFeatures:
    """Features of noisy classes, int64 (B, M); padded atoms have no bonds and count nowhere.

    Elements are int64 (B, N), the mask of real atoms bool (B, N), the formula's hydrogens (B,).
    """
    n = graph.n_atoms
    square = pad(bond_class, (0, 1))[:, graph.square].unflatten(1, (n, n))
    order = constants(BOND_ORDERS, bond_class.device)[square]
    aromatic = (square == N_BOND_CLASSES - 1).to(order.dtype)
    adjacency = (square != 0).to(order.dtype)
    powers = [adjacency]
    for _ in range(N_WALKS):
        powers.append(powers[-1] @ adjacency)
    hops = _hops(adjacency)
    degree, valence = adjacency.sum(2), order.sum(2)
    usual = constants(USUAL_VALENCES, order.device)[atom_class]
    free = (usual - valence) * atom_mask
    closed = [power.diagonal(dim1=1, dim2=2) for power in powers[2:]]
    closed.append((powers[2] * powers[2]).sum(2))
    atoms = torch.stack(
        [degree, valence, free, aromatic.sum(2), *(torch.log1p(c) for c in closed)], 2
    )
    low, high = graph.first, graph.second
    walks = torch.stack([torch.log1p(power[:, low, high]) for power in powers[1:]], 2)
    pair_token = bond_class * (MAX_HOPS + 1) + hops[:, low, high]
    n_real = atom_mask.sum(1).to(order.dtype)
    both = atom_mask[:, :, None] & atom_mask[:, None, :]
    totals = [
        adjacency.sum((1, 2)) / 2 / n_real,
        valence.sum(1) / 2 / n_real,
        (free.sum(1) - hydrogens) / n_real,
        free.clamp(max=0).sum(1) / n_real,
        ((hops >= MAX_HOPS) & both).sum((1, 2)) / n_real.square(),
        ((valence == 0) & atom_mask).sum(1) / n_real,
    ]
    return GraphFeatures(pair_token, walks, atoms, torch.stack(totals, 1))


def _hops(adjacency: Tensor) -> Tensor:
    """Hop distances, int64 (B, N, N), capped at MAX_HOPS; the diagonal is not used."""
    eye = torch.eye(adjacency.shape[1], device=adjacency.device)
    step = adjacency + eye
    reached = step
    hops = torch.full_like(adjacency, MAX_HOPS)
    hops -= adjacency * (MAX_HOPS - 1)
    for distance in range(2, MAX_HOPS):
        now = ((reached @ step) > 0).to(adjacency.dtype)
        hops -= (now - (reached > 0).to(adjacency.dtype)) * (MAX_HOPS - distance)
        reached = now
    return hops.long()


# Bits less likely than this say nothing that the formula does not.
MIN_PROBABILITY: Final = 0.02
_TIME_WAVES: Final = 32
_RELATIVE_WAVES: Final = 8


@dataclass(frozen=True, eq=False)
class Condition(Movable):
    """Formula and fingerprint of a batch; the atom list is a function of the formula alone."""

    atom_class: Tensor  # elements, sorted, int64 (B, N); 0 at padding
    atom_mask: Tensor  # real atoms, bool (B, N)
    formula: Tensor  # counts in the order of `chem.elements.SYMBOLS`, float (B, N_ELEMENTS)
    charge: Tensor  # net charge, float (B,)
    bit: Tensor  # fingerprint bits kept, int64 (B, K)
    bit_log_prob: Tensor  # log-probability of each, float (B, K); -inf at padding

    @property
    def hydrogens(self) -> Tensor:
        """Hydrogen atoms, float (B,)."""
        return self.formula[:, -1]


def keep_bits(probability: Tensor, n_bits: int) -> tuple[Tensor, Tensor]:
    """The most probable K bits of predicted fingerprints (B, F).

    Returns:
        Bits, int64 (B, K), and their log-probabilities (B, K), -inf below `MIN_PROBABILITY`.
    """
    value, bit = probability.topk(min(n_bits, probability.shape[1]), dim=1)
    log_prob = torch.where(value >= MIN_PROBABILITY, value.clamp_min(1e-6).log(), -torch.inf)
    return bit, log_prob


@dataclass(frozen=True, eq=False)
class Context:
    """What depends on the condition alone: computed once per spectrum, shared by all candidates."""

    condition: Condition  # as given
    atoms: Tensor  # embedded elements and positions within them, (B, N, atom_width)
    relative: Tensor  # embedded difference of positions, (B, M, pair_width)
    y: Tensor  # global state before time and noise are known, (B, global_width)
    # for each layer keys and values of the bits, (2, B or 1, H, K, D), or None
    memory: tuple[Tensor | None, ...]
    bit_log_prob: Tensor  # (B or 1, 1, 1, K)

    def expand(self, samples: int) -> "Context":
        """Repeat a context of one spectrum for several candidates, without copying.

        The fingerprint bits stay those of one spectrum, which all candidates look up together.
        """
        own = (self.condition, self.atoms, self.relative, self.y)
        repeated = map_tensors(own, lambda tensor: tensor.expand(samples, *tensor.shape[1:]))
        return Context(*repeated, self.memory, self.bit_log_prob)


class Denoiser(nn.Module):
    """Dual-stream line-graph denoiser (section 3 of the paper), for element-sorted atoms.

    Args:
        settings: Sizes.
        fingerprint_bits: Length of the fingerprint that conditions it.
        n_steps: T; time enters as t / T.
    """

    def __init__(self, settings: DenoiserSettings, fingerprint_bits: int, n_steps: int) -> None:
        super().__init__()
        self.settings = settings
        self.n_steps = n_steps
        atom, pair, width = settings.atom_width, settings.pair_width, settings.global_width
        self.bit_embedding = nn.Embedding(fingerprint_bits, atom)
        self.no_bit = nn.Parameter(torch.zeros(atom))
        self.element = nn.Embedding(N_HEAVY, atom)
        # "place": a position, as weights files name it.
        self.place = nn.Embedding(settings.position_limit, atom)
        self.place_from_end = nn.Embedding(settings.position_limit, atom)
        self.relative = Linear(2 * _RELATIVE_WAVES + 1, pair)
        self.formula_in = Linear(2 * N_ELEMENTS + 3, width)
        self.bits_in = Linear(atom, width)
        self.time_in = Linear(2 * _TIME_WAVES + N_GLOBAL_FEATURES, width)
        self.y_out = Linear(width, width)
        self.atom_features = Linear(N_ATOM_FEATURES, atom)
        self.pair_token = nn.Embedding(N_PAIR_TOKENS, pair)
        self.pair_walks = Linear(N_WALKS, pair)
        self.pair_sum = Linear(atom, pair)
        self.pair_product = Linear(atom, pair)
        self.pair_hidden = Linear(3 * pair, 2 * pair)
        self.pair_start = Linear(2 * pair, pair)
        self.layers = nn.ModuleList(DualStreamLayer(settings, k) for k in range(settings.layers))
        self.fusions = nn.ModuleList(Fusion(settings) for _ in range(settings.layers - 1))
        self.readout_norm = nn.LayerNorm(pair)
        self.readout_hidden = Linear(pair, 2 * pair)
        self.readout = Linear(2 * pair, N_BOND_CLASSES)

    def context(self, condition: Condition) -> Context:
        """Everything that is the same for all steps and candidates."""
        graph = line_graph(condition.atom_class.shape[1], condition.atom_class.device)
        log_prob = nn.functional.pad(condition.bit_log_prob, (1, 0))  # the bit that says "no bit"
        embedded = self.bit_embedding(condition.bit)
        bits = torch.cat([self.no_bit.expand(len(embedded), 1, -1), embedded], 1)
        weight = condition.bit_log_prob.exp().unsqueeze(-1)
        pooled = (embedded * weight).sum(1) * weight.sum(1).clamp_min(1).rsqrt()
        counts, n_hydrogens = condition.formula, condition.hydrogens[:, None] / 32
        n_heavy = condition.atom_mask.sum(1, keepdim=True).to(counts.dtype)
        sizes = [condition.charge[:, None], n_heavy / 32, n_hydrogens]
        known = torch.cat([torch.log1p(counts), counts / n_heavy, *sizes], 1)
        y = self.formula_in(known) + self.bits_in(pooled)
        index, from_end, fraction = _positions(condition)
        most = self.settings.position_limit - 1
        position = self.place(index.clamp_max(most)) + self.place_from_end(from_end.clamp_max(most))
        relative = self.relative(_relative_features(condition, index, fraction, graph))
        memory = tuple(
            None if layer.bit_attention is None else layer.bit_attention.memory(bits)
            for layer in self.layers
            if isinstance(layer, DualStreamLayer)
        )
        atoms = self.element(condition.atom_class) + position
        return Context(condition, atoms, relative, y, memory, log_prob[:, None, None])

    def forward(self, bond_class: Tensor, t: Tensor, context: Context) -> Tensor:
        """Logits of the clean bond classes, float32 (B, M, N_BOND_CLASSES); of no use at padding.

        From noisy classes, int64 (B, M), none at padded pairs, and noise steps t, int64 (B,).
        """
        known = context.condition
        graph = line_graph(known.atom_class.shape[1], bond_class.device)
        masks = Masks.of(known.atom_mask, graph)
        with torch.autocast(bond_class.device.type, enabled=False):
            seen = graph_features(
                bond_class, known.atom_class, known.atom_mask, known.hydrogens, graph
            )
        atoms = context.atoms + self.atom_features(seen.atoms)
        waves = time_waves(t.float() / self.n_steps)
        y = context.y + self.time_in(torch.cat([waves, seen.totals], 1))
        y = self.y_out(relu(y))
        edges = self.pair_token(seen.pair_token) + self.pair_walks(seen.walks) + context.relative
        # Pair tokens (equation 1), symmetric in the two atoms: their sum and their product.
        low, high = endpoint_atoms(self.pair_sum(atoms), graph).unbind(2)
        one, other = endpoint_atoms(self.pair_product(atoms), graph).unbind(2)
        hidden = torch.cat([edges.to(low.dtype), low + high, one * other], -1)
        pairs = self.pair_start(self.pair_hidden.relu(hidden))
        for number, layer in enumerate(self.layers):
            bits = context.memory[number]
            memory = None if bits is None else (bits, context.bit_log_prob)
            atoms, pairs = layer(atoms, pairs, y, memory, masks, graph)
            if number < len(self.fusions):
                y = self.fusions[number](y, atoms, pairs, masks)
        hidden = self.readout_hidden.relu(self.readout_norm(pairs))
        logits: Tensor = self.readout(hidden).float()
        return logits + one_hot(bond_class, N_BOND_CLASSES)  # equation 9


def time_waves(share: Tensor) -> Tensor:
    """Sines and cosines of t / T, (B,) to (B, 2 _TIME_WAVES)."""
    frequency = torch.exp(torch.linspace(0, math.log(1000), _TIME_WAVES, device=share.device))
    angle = share[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1)


def _positions(condition: Condition) -> tuple[Tensor, Tensor, Tensor]:
    """Index of each atom within its element, from the start and the end, and as a fraction."""
    counts = condition.formula[:, :N_HEAVY].long()
    start = counts.cumsum(1) - counts
    row = torch.arange(condition.atom_class.shape[1], device=counts.device)
    own = counts.gather(1, condition.atom_class)
    index = (row - start.gather(1, condition.atom_class)).clamp_min(0)
    from_end = (own - 1 - index).clamp_min(0)
    return index, from_end, (index + 0.5) / own.clamp_min(1)


def _relative_features(
    condition: Condition, index: Tensor, fraction: Tensor, graph: LineGraph
) -> Tensor:
    """Waves of the difference of positions (same element) or of fractions (different elements)."""
    low, high = graph.first, graph.second
    same = (condition.atom_class[:, low] == condition.atom_class[:, high]).float()
    steps = (index[:, high] - index[:, low]).abs().float()
    parts = (fraction[:, high] - fraction[:, low]).abs()
    number = torch.arange(1, _RELATIVE_WAVES + 1, device=index.device)
    near = torch.exp(-(steps[..., None] - number).square() / 2) * same[..., None]
    waves = torch.cos(math.pi * parts[..., None] * number) * (1 - same[..., None])
    return torch.cat([near, waves, same[..., None]], -1)


_LAYER_NUMBER: Final = re.compile(r"\.\d+(?=\.|$)")


class DualLGD(nn.Module):
    """Encoder and denoiser of one checkpoint."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        bits = settings.encoder.fingerprint_bits
        self.encoder = FormulaTransformer(settings.encoder)
        self.denoiser = Denoiser(settings.denoiser, bits, settings.diffusion.n_steps)


def parameter_counts(module: nn.Module, depth: int = 3) -> dict[str, int]:
    """Trainable parameters by part of a network, in its order, layers of one stack together.

    Of the names of parameters so many parts are told apart.
    """
    counts: Counter[str] = Counter()
    for name, parameter in module.named_parameters():
        parts = _LAYER_NUMBER.sub("", name).split(".")[:-1]
        counts[".".join(parts[:depth])] += parameter.numel()
    return dict(counts)
