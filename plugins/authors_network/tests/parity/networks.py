"""Reference networks of a parity folder; every size is read from its files."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_authors_network.convert import denoiser_settings, variant_of
from duallgd_authors_network.denoiser import NO_CLASS, NoisyGraphs, ReferenceDenoiser
from duallgd_cli.model.layers import line_graph, to_square


def recipe(names_and_shapes, seed, sums, given=None):
    """Weights of the full configuration, by the recipe of the parity folder's README.

    Each is checked against its stored sums, those that are `given` too.
    """
    weights = {}
    for name, shape in names_and_shapes.items():
        generator = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode()) + seed))
        z = generator.standard_normal(shape)
        if name.endswith("weight") and len(shape) == 2:
            z = z / np.sqrt(shape[1])
        elif name.endswith("weight") and "norm" in name.split(".")[-2]:
            z = 1 + 0.1 * z
        else:
            z = 0.05 * z
        weights[name] = torch.from_numpy(z.astype(np.float32))
    weights |= given or {}
    assert weights.keys() == sums.keys()
    for name, tensor in weights.items():
        assert checksums(tensor) == pytest.approx(sums[name], rel=1e-6, abs=1e-4), name
    return weights


def checksums(tensor):
    return [tensor.double().sum().item(), tensor.double().abs().sum().item()]


def denoiser(weights, projections, overrides):
    """A denoiser from the authors' tensors; what its variant does not have is left out.

    Returns:
        The network, and the names of the tensors that it took.
    """
    n_features, width = projections[0].shape
    heads = weights["mlp_in_E.2.weight"].shape[0] // width
    settings = denoiser_settings(weights, heads, n_features, variant_of(overrides))
    model = ReferenceDenoiser(settings)
    drawn = {
        f"dual_layers.{layer}.attn.feature_map.random_features": projection
        for layer, projection in enumerate(projections)
    }
    own = model.state_dict().keys()
    model.load_state_dict({name: (weights | drawn)[name] for name in own})
    return model.eval(), own - drawn.keys()


def graphs(X, E, y, mask, condition_width):
    """Inputs from the folder's dense arrays."""
    n = mask.shape[1]
    line = line_graph(n, E.device)
    square = torch.where(E.any(-1), E.argmax(-1), NO_CLASS)
    on_diagonal = square.diagonal(dim1=1, dim2=2)[mask].unique().tolist()
    assert len(on_diagonal) == 1
    bond_class = square[:, line.first, line.second].masked_fill(
        ~(mask[:, line.first] & mask[:, line.second]), 0
    )
    condition, whole = y.split([condition_width, y.shape[1] - condition_width], 1)
    return NoisyGraphs(X, bond_class, condition, whole, mask, on_diagonal[0])


def in_double(seen):
    """The same graphs with every number in double precision."""
    names = ("atoms", "condition", "whole")
    return replace(seen, **{name: getattr(seen, name).double() for name in names})


def off_diagonal(logits):
    """Our logits (B, M, C) as (B, N, N, C), and where the reference has such logits."""
    n = round((1 + (1 + 8 * logits.shape[1]) ** 0.5) / 2)
    return to_square(logits, line_graph(n, logits.device)), ~torch.eye(n, dtype=torch.bool)
