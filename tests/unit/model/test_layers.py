"""What the layers do for speed, and that it changes no number."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from duallgd_cli.model import layers
from duallgd_cli.model.layers import Masks, PairAttention
from duallgd_cli.model.line_graph import line_graph
from duallgd_cli.model.tensors import cast_once
from tests.made_graphs import condition, noisy_bonds, small_settings, stirred


@torch.no_grad()
def test_the_bias_of_the_atoms_attention_is_contiguous(monkeypatch):
    """Else CUDA's fused kernels do not take it."""
    seen = []

    def spy(*parts, attn_mask):
        seen.append(attn_mask)
        return scaled_dot_product_attention(*parts, attn_mask=attn_mask)

    monkeypatch.setattr(layers, "scaled_dot_product_attention", spy)
    net, known = stirred(small_settings()).denoiser, condition(["C9H8O4"])

    net(noisy_bonds(13)[None], torch.tensor([100]), net.context(known))

    assert [bias.shape for bias in seen] == [(1, 4, 13, 13)] * 2
    assert all(bias.is_contiguous() for bias in seen)


@pytest.mark.parametrize("pair_features", [8, 0])
@torch.no_grad()
def test_random_features_are_projected_once_where_weights_are_prepared(monkeypatch, pair_features):
    settings = small_settings(pair_features=pair_features).denoiser
    attention = PairAttention(settings, layer=0).eval()
    pairs = torch.randn(2, 21, settings.pair_width, generator=torch.Generator().manual_seed(1))
    masks = Masks.of(torch.ones(2, 7, dtype=torch.bool), line_graph(7, pairs.device))
    expected = attention(pairs, masks)

    attention.prepare()
    monkeypatch.setattr(layers, "projection", None)

    assert torch.equal(attention(pairs, masks), expected)
    assert attention.prepared is None or not any(part.requires_grad for part in attention.prepared)


def test_inputs_of_several_maps_are_cast_under_autocast_and_without_gradients_alone():
    x = torch.ones(3)

    with torch.autocast("cpu", torch.bfloat16):
        trained = cast_once(x)
        with torch.no_grad():
            cast = cast_once(x)
    with torch.no_grad():
        plain = cast_once(x)

    assert cast.dtype == torch.bfloat16
    assert trained is x
    assert plain is x
