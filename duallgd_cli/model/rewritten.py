"""The denoiser rewritten for inference on a CPU: the same function in fewer passes over memory.

A CPU spends most of an evaluation on moving pair states about. So scales and shifts of norms and
constant factors stand in the weights, residuals are added by the product before them, keys and
values that would be as many as atoms and pairs are never made, and nothing is masked, as all
samples have the formula of one spectrum. The definition is `model.layers`, part by part; logits
agree to rounding.

Letters: S samples of one spectrum, N atoms, M pairs, A and P channels of an atom and a pair, H
heads of D channels, R random features of a head, K fingerprint bits.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, one_hot, pad

from duallgd_cli.chem.elements import N_BOND_CLASSES
from duallgd_cli.model import layers
from duallgd_cli.model.duallgd import Context, Denoiser, DualLGD, graph_features, time_waves
from duallgd_cli.model.layers import AtomsFromPairs, LineGraph, PairsFromAtoms, line_graph
from duallgd_cli.model.tensors import (
    LARGEST_EXPONENT,
    LEAST_TOTAL,
    Denoise,
    constants,
    linear,
    projection,
    same_head,
)
from duallgd_cli.runtime import Runtime

# exp(x) = exp2(x log2 e), and exp2 is the faster.
_LOG2_E: Final = 1 / math.log(2)
# PyTorch's softmax over fewer columns than a register holds takes ten times as long.
_REGISTER: Final = 16


class _Map:
    """A linear map, made in float32 and kept in the precision of products."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        # Detached: a parameter that is cast afterwards would be cast here too.
        self.weight, self.bias = weight.detach().to(dtype).contiguous(), bias.detach().to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x.to(self.weight.dtype), self.weight, self.bias)

    def relu(self, x: Tensor) -> Tensor:
        """The map followed by ReLU."""
        return linear(x.to(self.weight.dtype), self.weight, self.bias, relu=True)

    def onto(self, x: Tensor, rest: Tensor) -> Tensor:
        """The map added to `rest`, in the precision of that."""
        if rest.dtype != self.weight.dtype:
            return rest + self(x)
        return linear(x, self.weight, self.bias, onto=rest)


def _plain(layer: nn.Linear, dtype: torch.dtype) -> _Map:
    return _Map(layer.weight, layer.bias, dtype)


def _after(norm: nn.LayerNorm, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer that is given rows without the scale and shift of their norm."""
    return layer.weight * norm.weight, layer.bias + layer.weight @ norm.bias


def _normed(x: Tensor) -> Tensor:
    """Rows of mean 0 and variance 1."""
    width = x.shape[-1]  # without a weight PyTorch takes twice the time
    one, zero = (constants((value,) * width, x.device) for value in (1.0, 0.0))
    return layer_norm(x, (width,), one, zero)


def _softmax(score: Tensor) -> Tensor:
    """Over the last dimension, computed in float32."""
    columns = score.shape[-1]
    if columns >= _REGISTER:
        return torch.softmax(score, -1, dtype=torch.float32).to(score.dtype)
    padded = pad(score, (0, _REGISTER - columns), value=-torch.inf)
    return torch.softmax(padded, -1, dtype=torch.float32)[..., :columns].to(score.dtype)


def _by_head(weight: Tensor, heads: int) -> Tensor:
    """Transposed maps of each head, (H D, L) to the block-diagonal (H L, H D)."""
    blocks: Tensor = torch.block_diag(*(part.T for part in weight.chunk(heads)))
    return blocks


class _Modulation:
    """`layers.Film` of both streams: one map of the global state."""

    def __init__(self, atoms: layers.Film, pairs: layers.Film, dtype: torch.dtype) -> None:
        maps = (atoms.linear, pairs.linear)
        one = [torch.arange(len(m.bias)) < len(m.bias) // 2 for m in maps]  # gamma comes first
        bias = [m.bias + first for m, first in zip(maps, one, strict=True)]
        self.map = _Map(torch.cat([m.weight for m in maps]), torch.cat(bias), dtype)
        self.sizes = [len(m.bias) // 2 for m in maps for _ in range(2)]

    def __call__(self, y: Tensor, atoms: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift, pair_scale, pair_shift = self.map(y).unsqueeze(1).split(self.sizes, -1)
        return torch.addcmul(shift, scale, atoms), torch.addcmul(pair_shift, pair_scale, pairs)


class _BitLookup:
    """`layers.BitAttention`: p exp(s) in place of exp(s + log p), its sum one more value."""

    def __init__(self, part: layers.BitAttention, dtype: torch.dtype) -> None:
        weight, bias = _after(part.norm, part.query)
        scale = (len(bias) // part.heads) ** -0.5
        self.query, self.out = _Map(weight * scale, bias * scale, dtype), _plain(part.out, dtype)
        self.heads, self.dtype = part.heads, dtype

    def memory(self, memory: Tensor, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (H, D, K') and values (H, K', D + 1) of the bits that are not left out.

        The memory of a spectrum is (2, 1, H, K, D), its log-probabilities (1, 1, 1, K) are -inf for
        those left out.
        """
        kept = torch.isfinite(log_prob.flatten())
        key, value = memory[:, 0, :, kept].float()
        prob = log_prob[..., kept].exp().view(1, -1, 1).expand(len(value), -1, -1)
        values = torch.cat([value * prob, prob], -1).to(self.dtype)
        return key.transpose(1, 2).to(self.dtype).contiguous(), values

    def __call__(self, atoms: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query = self.query(_normed(atoms)).flatten(0, 1).unflatten(1, (self.heads, -1))
        weight = torch.softmax(torch.bmm(query.transpose(0, 1), key), -1)
        mixed = torch.bmm(weight, value)  # (H, S N, D + 1)
        shares = mixed[..., :-1] / mixed[..., -1:]
        return self.out.onto(shares.transpose(0, 1).reshape(atoms.shape), atoms)


class _AtomMixing:
    """`layers.AtomAttention`."""

    def __init__(self, part: layers.AtomAttention, dtype: torch.dtype) -> None:
        weight, bias = _after(part.norm, part.qkv)
        width = len(bias) // 3
        scale = torch.ones_like(bias)
        scale[:width] = (width // part.heads) ** -0.5
        self.qkv = _Map(weight * scale[:, None], bias * scale, dtype)
        self.bias, self.out = _plain(part.bias, dtype), _plain(part.out, dtype)
        self.heads = part.heads

    def __call__(self, atoms: Tensor, pairs: Tensor, graph: LineGraph) -> Tensor:
        samples, n, width = atoms.shape
        qkv = self.qkv(_normed(atoms)).view(samples, n, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).reshape(3, samples * self.heads, n, -1)
        bias = pad(self.bias(pairs), (0, 0, 0, 1)).index_select(1, graph.square)  # (S, N N, H)
        bias = bias.transpose(1, 2).reshape(-1, n, n)
        weight = _softmax(torch.baddbmm(bias, query, key.transpose(1, 2)))
        mixed = torch.bmm(weight, value).view(samples, self.heads, n, -1)
        return self.out.onto(mixed.transpose(1, 2).reshape(samples, n, width), atoms)


class _Feed:
    """`layers.FeedForward`."""

    def __init__(self, part: layers.FeedForward, dtype: torch.dtype) -> None:
        self.up, self.down = _Map(*_after(part.norm, part.up), dtype), _plain(part.down, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down.onto(self.up.relu(_normed(x)), x)


class _PairMixing:
    """`layers.PairAttention` with random features, equation 2.

    Keys become exponents within their own map, half their norm is subtracted by a product, and the
    map of what is mixed is applied to the R D sums of a head in place of the M mixed rows.
    """

    def __init__(self, part: layers.PairAttention, dtype: torch.dtype) -> None:
        heads, features, width = part.features.shape
        (query, key, value), biases = (x.chunk(3) for x in _after(part.norm, part.qkv))
        project = projection(part.features, torch.float32) * _LOG2_E
        like = (project.device, torch.float32)
        own = same_head(heads, features, width, *like)
        self.query = _Map(project @ query, project @ biases[0], dtype)
        self.exponent = _Map(project @ key, project @ biases[1], dtype)
        self.key, self.value = _Map(key, biases[1], dtype), _Map(value, biases[2], dtype)
        half_norm = own * (-_LOG2_E / 2 * width**-0.5)
        self.half_norm = _Map(half_norm, half_norm.new_zeros(len(own)), dtype)
        self.own = own.to(dtype)
        self.together = same_head(heads, features, features, *like).to(dtype)
        self.out = part.out.weight.T.to(dtype).contiguous()
        self.shift = part.out.bias.detach().to(dtype)

    def __call__(self, pairs: Tensor) -> Tensor:
        normed = _normed(pairs)
        key = self.half_norm.onto(self.key(normed).square_(), self.exponent(normed)).exp2_()
        summed = torch.bmm(key.transpose(1, 2), self.value(normed)) * self.own  # (S, H R, H D)
        total = key.sum(1).unsqueeze(-1) * self.together  # (S, H R, H R)
        query = self.query(normed).clamp_max_(LARGEST_EXPONENT * _LOG2_E).exp2_()
        query.div_(torch.bmm(query, total).add_(LEAST_TOTAL))
        return torch.baddbmm(pairs, query, summed @ self.out).add_(self.shift)


class _AtomsAsk:
    """`layers.AtomsFromPairs`, equations 4 and 5.

    An atom's query goes back through the key map, so that it meets the normed pairs themselves; the
    value map follows their weighted mean. What a key's bias adds is alike for all pairs of an atom.
    """

    def __init__(
        self, part: AtomsFromPairs, own: nn.LayerNorm, other: nn.LayerNorm, dtype: torch.dtype
    ) -> None:
        weight, bias = _after(own, part.query)
        scale = (part.heads / len(bias)) ** 0.5
        self.query = _Map(weight * scale, bias * scale, dtype)
        key = _by_head(_after(other, part.key)[0], part.heads)
        self.key = _Map(key, key.new_zeros(len(key)), dtype)
        value, shift = _after(other, part.value)
        self.value = _Map(_by_head(value, part.heads).T, shift, dtype)
        self.out, self.heads = _plain(part.out, dtype), part.heads

    def __call__(self, atoms: Tensor, near: Tensor) -> Tensor:
        """New atoms (S, N, A) from the normed pairs at each, (S N, N - 1, P)."""
        query = self.key(self.query(_normed(atoms))).view(near.shape[0], self.heads, -1)
        weight = _softmax(torch.bmm(query, near.transpose(1, 2)))  # (S N, H, N - 1)
        mean = torch.bmm(weight, near).view(*atoms.shape[:2], -1)
        return self.out.onto(self.value(mean), atoms)


class _PairsAsk:
    """`layers.PairsFromAtoms`, equation 6.

    Each atom meets its pairs with its key taken back through the query map, and gives them its
    value taken on through the output map; a pair adds up what its two atoms give.
    """

    def __init__(
        self, part: PairsFromAtoms, own: nn.LayerNorm, other: nn.LayerNorm, dtype: torch.dtype
    ) -> None:
        heads, (key, key_bias) = part.heads, _after(other, part.key)
        value, value_bias = _after(other, part.value)
        both = torch.cat([key, value]), torch.cat([key_bias, value_bias])
        self.key_value, self.heads = _Map(*both, dtype), heads
        query, bias = (x * (heads / len(key)) ** 0.5 for x in _after(own, part.query))
        by_channel = _by_head(query, heads).unflatten(0, (heads, -1)).transpose(0, 1).flatten(0, 1)
        rows = torch.cat([by_channel, _by_head(bias[:, None], heads)])  # (P H + H, H D)
        self.query = _Map(rows, rows.new_zeros(len(rows)), dtype)
        # The shares of a pair's two atoms add up to one in each of the heads.
        shift = (part.out.bias / heads).repeat(heads)
        self.out = _Map(_by_head(part.out.weight.T, heads), shift, dtype)

    def __call__(self, pairs: Tensor, near: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """New pairs (S, M, P); `near` as above."""
        samples, width = pairs.shape[0], pairs.shape[-1]
        key, value = self.key_value(_normed(atoms)).chunk(2, -1)
        asked, told = self.query(key).flatten(0, 1), self.out(value).view(near.shape[0], -1, width)
        asked, bias = asked.split((width * self.heads, self.heads), -1)
        score = torch.baddbmm(bias.unsqueeze(1), near, asked.view(-1, width, self.heads))
        score = score.view(samples, -1, self.heads)  # (S, N (N - 1), H)
        above = score.index_select(1, graph.at[0]) - score.index_select(1, graph.at[1])
        first = torch.sigmoid(above)
        shares = torch.stack([first, 1 - first], 2).view(samples, -1, self.heads)
        shares = shares.index_select(1, graph.endpoint.flatten()).view(*near.shape[:2], -1)
        given = torch.bmm(shares, told).view(samples, -1, width)  # (S, N (N - 1), P)
        one, other = (given.index_select(1, at) for at in graph.at)
        return pairs + one.add_(other)


class _BothStreams:
    """`layers.DualStreamLayer`."""

    def __init__(self, layer: layers.DualStreamLayer, dtype: torch.dtype) -> None:
        bits, atom, pair = layer.bit_attention, layer.cross_norm_atoms, layer.cross_norm_pairs
        self.modulate = _Modulation(layer.film_atoms, layer.film_pairs, dtype)
        self.bits = None if bits is None else _BitLookup(bits, dtype)
        self.mix_atoms = _AtomMixing(layer.atom_attention, dtype)
        self.feed_atoms = _Feed(layer.atom_feed, dtype)
        self.mix_pairs = _PairMixing(layer.pair_attention, dtype)
        self.feed_pairs = _Feed(layer.pair_feed, dtype)
        self.atoms_ask = _AtomsAsk(layer.atoms_from_pairs, atom, pair, dtype)
        self.pairs_ask = _PairsAsk(layer.pairs_from_atoms, pair, atom, dtype)

    def __call__(
        self,
        atoms: Tensor,
        pairs: Tensor,
        y: Tensor,
        memory: tuple[Tensor, Tensor] | None,
        graph: LineGraph,
    ) -> tuple[Tensor, Tensor]:
        atoms, pairs = self.modulate(y, atoms, pairs)
        if self.bits is not None and memory is not None:
            atoms = self.bits(atoms, *memory)
        atoms = self.feed_atoms(self.mix_atoms(atoms, pairs, graph))
        pairs = self.feed_pairs(self.mix_pairs(pairs))
        normed = _normed(pairs)
        at_atoms = (atoms.shape[0] * atoms.shape[1], -1, pairs.shape[-1])
        near = normed.index_select(1, graph.incident).view(at_atoms)
        atoms = self.atoms_ask(atoms, near)
        return atoms, self.pairs_ask(pairs, near, atoms, graph)


class _Fused:
    """`layers.Fusion`, equation 7."""

    def __init__(self, part: layers.Fusion, dtype: torch.dtype) -> None:
        self.inner, self.outer = _plain(part.inner, dtype), _plain(part.outer, dtype)
        self.norm = part.norm

    def __call__(self, y: Tensor, atoms: Tensor, pairs: Tensor) -> Tensor:
        means = [atoms.mean(1), pairs.sum(1).float() / pairs.shape[1]]
        changed: Tensor = self.norm(y + self.outer(self.inner.relu(torch.cat([y, *means], -1))))
        return changed


class Rewritten:
    """A denoiser with random features, rewritten; its weights are copied.

    It is in float32 and evaluation mode, on the CPU; products and pair states have a precision.
    """

    @torch.inference_mode()
    def __init__(self, denoiser: Denoiser, dtype: torch.dtype) -> None:
        self.settings, self.n_steps, self.dtype = denoiser.settings, denoiser.n_steps, dtype
        self.time_in = _plain(denoiser.time_in, dtype)
        self.y_out = _plain(denoiser.y_out, dtype)
        self.atom_features = _plain(denoiser.atom_features, dtype)
        self.pair_token = denoiser.pair_token.weight.to(dtype)
        self.pair_walks = _plain(denoiser.pair_walks, dtype)
        ends = (denoiser.pair_sum, denoiser.pair_product)
        weight, bias = torch.cat([m.weight for m in ends]), torch.cat([m.bias for m in ends])
        self.pair_ends = _Map(weight, bias, dtype)
        self.pair_hidden = _plain(denoiser.pair_hidden, dtype)
        self.pair_start = _plain(denoiser.pair_start, dtype)
        streams = [part for part in denoiser.layers if isinstance(part, layers.DualStreamLayer)]
        self.layers = [_BothStreams(part, dtype) for part in streams]
        fusions = [part for part in denoiser.fusions if isinstance(part, layers.Fusion)]
        self.fusions = [_Fused(part, dtype) for part in fusions]
        hidden = _after(denoiser.readout_norm, denoiser.readout_hidden)
        self.readout_hidden = _Map(*hidden, dtype)
        self.readout = _plain(denoiser.readout, dtype)

    def bound(self, context: Context, samples: int) -> Denoise:
        """The denoiser of S samples of a spectrum, none of whose atoms is padding.

        Returns:
            Noisy classes (S, M) and a step to float32 logits (S, M, N_BOND_CLASSES).
        """
        condition = context.expand(samples).condition
        atom_class, atom_mask = condition.atom_class, condition.atom_mask
        graph = line_graph(atom_class.shape[1], atom_class.device)
        memory = [
            None
            if layer.bits is None or bits is None
            else layer.bits.memory(bits, context.bit_log_prob)
            for layer, bits in zip(self.layers, context.memory, strict=True)
        ]

        def denoise(bond_class: Tensor, t: int) -> Tensor:
            seen = graph_features(bond_class, atom_class, atom_mask, condition.hydrogens, graph)
            atoms = context.atoms + self.atom_features(seen.atoms)
            waves = time_waves(torch.full((1,), t / self.n_steps)).expand(samples, -1)
            y = context.y + self.time_in(torch.cat([waves, seen.totals], 1))
            y = self.y_out(torch.relu(y)).float()
            edges = self.pair_walks(seen.walks).add_(self.pair_token[seen.pair_token])
            edges.add_(context.relative)
            # Pair tokens, equation 1.
            ends, width = self.pair_ends(atoms), edges.shape[-1]
            low, high = (ends.index_select(1, end) for end in (graph.first, graph.second))
            added = low[..., :width] + high[..., :width]
            hidden = [edges, added, low[..., width:] * high[..., width:]]
            pairs = self.pair_start(self.pair_hidden.relu(torch.cat(hidden, -1)))
            for number, layer in enumerate(self.layers):
                atoms, pairs = layer(atoms, pairs, y, memory[number], graph)
                if number < len(self.fusions):
                    y = self.fusions[number](y, atoms, pairs)
            logits = self.readout(self.readout_hidden.relu(_normed(pairs)))
            return logits.float() + one_hot(bond_class, N_BOND_CLASSES)  # equation 9

        return denoise


def for_inference(model: DualLGD, runtime: Runtime) -> DualLGD:
    """The network where it runs, all that depends on its weights alone computed once.

    In lower precision its linear maps are cast. It gives the same numbers as without either.
    """
    model = model.to(runtime.device)
    if runtime.autocast_dtype is not None:
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.to(runtime.autocast_dtype)
    for module in model.modules():
        if isinstance(module, layers.PairAttention):
            module.prepare()
    return model


def rewritten_for(model: DualLGD, runtime: Runtime) -> Rewritten | None:
    """The denoiser rewritten from its weights in float32; None where it runs as it stands."""
    if runtime.device.type != "cpu" or not model.settings.denoiser.pair_features:
        return None
    return Rewritten(model.denoiser, runtime.autocast_dtype or torch.float32)
