"""What the layers do for speed."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from duallgd_cli.model import layers
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
