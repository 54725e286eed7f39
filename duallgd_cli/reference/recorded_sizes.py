"""Sizes of the authors' network from its tensors, and its variant from their switches."""

import re
from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor

from duallgd_cli.config import parse
from duallgd_cli.errors import WeightsError
from duallgd_cli.reference.settings import ReferenceDenoiserSettings, ReferenceEncoderSettings

RELEASED_HEADS: Final = ReferenceDenoiserSettings().heads
RELEASED_FEATURES: Final = ReferenceDenoiserSettings().n_features

# The authors' switches: name -> their value -> what it means for our settings. A switch that is
# absent has the released value, which is the first.
_SWITCHES: Final[dict[str, dict[object, dict[str, str]]]] = {
    "use_dual_stream": {True: {}, False: {"streams": "atoms", "readout": "edges"}},
    "use_cross_attention": {True: {}, False: {"synchronisation": "none"}},
    "cross_attention_mode": {
        "bidirectional": {},
        "both": {},
        "none": {"synchronisation": "none"},
        "dual_to_primal": {"synchronisation": "atoms"},
        "primal_to_dual": {"synchronisation": "pairs"},
    },
    "cross_attention_use_incidence_mask": {True: {}, False: {"synchronisation": "unmasked"}},
    "edge_readout_source": {"dual": {}, "primal": {"readout": "edges"}},
    "linear_attention_type": {
        "performer": {},
        "elu_plus_one": {"kernel": "elu"},
        "softmax": {"kernel": "softmax"},
    },
    "performer_kernel": {"positive": {}, "sincos": {"kernel": "waves"}},
    "performer_feature_type": {"orthogonal": {}, "iid": {}},
    "use_linear_dual_attention": {True: {}},
    "use_primal_stream": {True: {}},
    "edge_diffusion_only": {True: {}},
}
SWITCHES: Final = tuple(_SWITCHES)


def variant_of(switches: Mapping[str, object]) -> dict[str, Any]:
    """Settings that the authors' switches ask for, where they differ from the released ones.

    Args:
        switches: Values by the authors' names; others than `SWITCHES` are ignored.

    Raises:
        WeightsError: A value whose network is not built here: dense bond layers, a network without
            an atom stream, diffusion over atoms.
    """
    variant: dict[str, Any] = {}
    for name, meanings in _SWITCHES.items():
        value = switches.get(name, next(iter(meanings)))
        if value not in meanings:
            known = ", ".join(map(str, meanings))
            raise WeightsError(
                f"the weights were trained with {name}={value}, which is not supported; "
                f"supported values are {known}"
            )
        variant |= meanings[value]
    return variant


def denoiser_settings(
    tensors: Mapping[str, Tensor], heads: int, n_features: int, variant: Mapping[str, Any]
) -> ReferenceDenoiserSettings:
    """Settings of the denoiser that fits tensors of our names.

    Args:
        tensors: Of one denoiser.
        heads: Attention heads, which no shape shows.
        n_features: Random features of a head, likewise.
        variant: As from `variant_of`.

    Raises:
        WeightsError: A tensor that every denoiser has is missing.
    """

    def shape(name: str) -> tuple[int, int]:
        rows, columns = _shape(tensors, f"{name}.weight")
        return rows, columns

    atom_width, atom_hidden = shape("atoms_in.outer")
    edge_width, edge_hidden = shape("edges_in.classes.outer")
    global_width, global_hidden = shape("global_in.perceptron.outer")
    condition_width = shape("global_readout.outer")[0]
    sizes = {
        "layers": _count(tensors, r"layers\.(\d+)\."),
        "atom_inputs": shape("atoms_in.inner")[1],
        "condition_width": condition_width,
        "global_inputs": shape("global_in.perceptron.inner")[1] - condition_width,
        "atom_width": atom_width,
        "edge_width": edge_width,
        "global_width": global_width,
        "atom_hidden": atom_hidden,
        "edge_hidden": edge_hidden,
        "global_hidden": global_hidden,
        "atom_feed": shape("layers.0.atoms.atoms.up")[0],
        "edge_feed": shape("layers.0.atoms.edges.up")[0],
        "global_feed": shape("layers.0.atoms.whole.up")[0],
        "heads": heads,
        "n_features": n_features,
    }
    if "layers.0.pairs.up.weight" in tensors:  # absent without a bond stream
        sizes["pair_feed"] = shape("layers.0.pairs.up")[0]
    return parse(ReferenceDenoiserSettings, {**sizes, **variant})


def encoder_settings(tensors: Mapping[str, Tensor]) -> ReferenceEncoderSettings:
    """Settings of the spectrum encoder that fits tensors of our names.

    Raises:
        WeightsError: A tensor that every encoder has is missing.
    """
    sizes = [_shape(tensors, "first.weight")[0]]
    bricks = range(_count(tensors, r"growth\.(\d+)\."))
    sizes += [_shape(tensors, f"growth.{brick}.predict.weight")[0] for brick in bricks]
    return ReferenceEncoderSettings(
        layers=_count(tensors, r"layers\.(\d+)\."),
        width=_shape(tensors, "peaks_in.outer.weight")[0],
        heads=_shape(tensors, "layers.0.attention.content_bias")[0],
        fragment_bits=_shape(tensors, "fragments.weight")[0],
        fingerprint_sizes=tuple(sizes),
    )


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    if name not in tensors:
        raise WeightsError(f"the weights hold no {name}; they are not those of such a network")
    return tuple(tensors[name].shape)


def _count(tensors: Mapping[str, Tensor], pattern: str) -> int:
    numbers = (re.match(pattern, name) for name in tensors)
    return 1 + max((int(match[1]) for match in numbers if match), default=-1)
