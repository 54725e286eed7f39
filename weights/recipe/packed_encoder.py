"""The formula transformer on batches without padding, each of its layers one compiled function.

Letters: B spectra, P peak rows of them all, T tokens (B + P), W channels, H heads, F bits.
"""

from collections.abc import Callable
from typing import Final

import torch
from device_examples import PackedBatch
from torch import Tensor, nn
from torch.nn.functional import (
    dropout,
    layer_norm,
    linear,
    one_hot,
    relu,
    scaled_dot_product_attention,
)
from torch.nn.utils.rnn import pad_sequence

from duallgd_cli.data.peaks import MAX_ROWS
from duallgd_cli.model.encoder import FormulaTransformer, count_features, peak_features

Layer = Callable[..., Tensor]

_MOST: Final = 1 + MAX_ROWS  # tokens of a spectrum


def packed_logits(model: FormulaTransformer, batch: PackedBatch, layer: Layer) -> Tensor:
    """What `model` says of each spectrum, (B, F).

    Args:
        model: In training or evaluation mode.
        batch: Spectra.
        layer: `packed_layer`, compiled or not.
    """
    parent = model.parent_out(relu(model.parent_in(count_features(batch.parent))))
    parent = parent + model.adduct(batch.adduct) + model.instrument(batch.instrument)
    rows = model.peak_out(relu(model.peak_in(peak_features(batch.rows)[:, 0])))
    # The gradient of a product is one; that of an embedding sorts all rows by their three carriers.
    carrier = one_hot(batch.rows.carrier[:, 0], model.carrier.num_embeddings)
    rows = rows + carrier.to(rows.dtype) @ model.carrier.weight
    tokens = torch.cat([parent, rows.to(parent.dtype)]).index_select(0, batch.order)
    for own in model.layers:
        for tensor in (tokens, batch.start):  # of another length in every batch
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        share = own.dropout.p if model.training else 0.0
        tokens = layer(tokens, batch.start, model.heads, share, *_numbers(own))
    summary = _summary(model, model.norm(tokens), batch)
    return model.fingerprint(model.dropout(relu(model.hidden(summary))))


def _summary(model: FormulaTransformer, tokens: Tensor, batch: PackedBatch) -> Tensor:
    """Whole ion, and all tokens by how much they count, (B, 2 W)."""
    n_spectra = len(batch.parent)
    each = torch.arange(n_spectra, device=tokens.device)
    spectrum = torch.cat([each, batch.spectrum])[batch.order]
    score = model.pool(tokens).float()
    most = score.new_full((n_spectra, model.heads), -torch.inf)
    of_head = spectrum[:, None].expand(-1, model.heads)
    most = most.scatter_reduce(0, of_head, score.detach(), "amax")
    weight = torch.exp(score - most[spectrum])
    total = weight.new_zeros(n_spectra, model.heads).index_add(0, spectrum, weight)
    weight = weight / total.index_select(0, spectrum)
    mean = (weight[..., None] * tokens.unflatten(-1, (model.heads, -1))).float().flatten(1)
    mean = mean.new_zeros(n_spectra, mean.shape[1]).index_add(0, spectrum, mean)
    return torch.cat([tokens[batch.start[:-1].long()].float(), mean], -1)


def _numbers(layer: nn.Module) -> list[Tensor]:
    """Weights of a layer by themselves, so that all layers are one compiled function."""
    parts = (layer.attention_norm, layer.qkv, layer.out, layer.feed_norm, layer.up, layer.down)
    return [tensor for part in parts for tensor in (part.weight, part.bias)]


def packed_layer(
    tokens: Tensor, start: Tensor, heads: int, share: float, *numbers: Tensor
) -> Tensor:
    """A layer of the encoder, (T, W) to (T, W); it drops a share of what it adds."""
    norm, norm_bias, qkv, qkv_bias, out, out_bias, *feed = numbers
    feed_norm, feed_norm_bias, up, up_bias, down, down_bias = feed
    width = tokens.shape[1:]
    x = linear(layer_norm(tokens, width, norm, norm_bias), qkv, qkv_bias)
    query, key, value = x.unflatten(-1, (3, heads, -1)).unbind(1)
    mixed = attended(query, key, value, start)
    tokens = tokens + dropout(linear(mixed.flatten(1), out, out_bias), share)
    hidden = relu(linear(layer_norm(tokens, width, feed_norm, feed_norm_bias), up, up_bias))
    return tokens + dropout(linear(hidden, down, down_bias), share)


def attended(query: Tensor, key: Tensor, value: Tensor, start: Tensor) -> Tensor:
    """Attention within each spectrum, (T, H, W / H) each."""
    if query.device.type == "cuda":
        from torch.nn.attention.varlen import varlen_attn

        # Half precision alone; what the rest is computed in is the caller's.
        own = [one.bfloat16() for one in (query, key, value)]
        return varlen_attn(*own, start, start, _MOST, _MOST).to(value.dtype)
    sizes = start.diff().tolist()
    padded = [
        pad_sequence(one.split(sizes), batch_first=True).transpose(1, 2)
        for one in (query, key, value)
    ]
    there = torch.arange(max(sizes)) < start.diff()[:, None]
    mixed = scaled_dot_product_attention(*padded, attn_mask=there[:, None, None])
    return mixed.transpose(1, 2)[there]
