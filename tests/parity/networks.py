"""Reference networks of a parity folder; every size is read from its files."""

import zlib
from dataclasses import replace

import numpy as np
import torch

from duallgd_cli.model.line_graph import line_graph, to_square
from duallgd_cli.reference.convert import variant_of
from duallgd_cli.reference.denoiser import NO_CLASS, NoisyGraphs, ReferenceDenoiser
from duallgd_cli.reference.tensor_names import denoiser_settings, ours_of, theirs_of


def recipe(names_and_shapes, seed):
    """Weights of the full configuration, by the recipe of the parity folder's README."""
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
    return weights


def checksums(tensor):
    return [tensor.double().sum().item(), tensor.double().abs().sum().item()]


def denoiser(weights, projections, overrides):
    """A denoiser from the authors' tensors; what its variant does not have is left out.

    Returns:
        The network, and the authors' names of the tensors that it took.
    """
    tensors = renamed(weights, "denoiser")
    tensors.pop(None, None)
    n_features, width = projections[0].shape
    heads = tensors["edges_in.classes.outer.weight"].shape[0] // width
    settings = denoiser_settings(tensors, heads, n_features, variant_of(overrides))
    model = ReferenceDenoiser(settings)
    for number, projection in enumerate(projections):
        tensors[f"layers.{number}.pairs.attention.kernel.projection"] = projection
    own = model.state_dict()
    model.load_state_dict({name: tensors[name] for name in own})
    taken = [name for name in own if not name.endswith("projection")]
    return model.eval(), set(their_names(taken, "denoiser").values())


def renamed(weights, part):
    """The authors' tensors of one part by our names in it; what its table lacks under None."""
    prefix = {"denoiser": "decoder.", "encoder": "encoder."}[part]
    found = ours_of(prefix + name for name in weights)
    return {
        ours and ours.removeprefix(f"{part}."): weights[theirs.removeprefix(prefix)]
        for theirs, ours in found.items()
    }


def their_names(names, part):
    """The authors' names of tensors of one part."""
    found = theirs_of(f"{part}.{name}" for name in names)
    return {o.removeprefix(f"{part}."): t and t.partition(".")[2] for o, t in found.items()}


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
