"""Names of the authors' tensors and of ours, both ways, and the sizes that tensors show.

A template is a module's path or a tensor's; ``*`` stands for the number of a layer. Both sides of a
row have the same number of them, in the same order. Theirs are those of a fine-tuned system's file.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from torch import Tensor

from duallgd_cli.config import parse
from duallgd_cli.errors import WeightsError
from duallgd_cli.reference.settings import ReferenceDenoiserSettings, ReferenceEncoderSettings

_Table = tuple[tuple[str, str], ...]

_ATTENTION: Final = {
    "q": "query",
    "k": "key",
    "v": "value",
    "e_add": "edge_add",
    "e_mul": "edge_mul",
    "y_e_mul": "global_edge_mul",
    "y_e_add": "global_edge_add",
    "y_x_mul": "global_atom_mul",
    "y_x_add": "global_atom_add",
    "y_y": "global_global",
    "x_y.lin": "atom_global",
    "e_y.lin": "edge_global",
    "x_out": "atom_out",
    "e_out": "edge_out",
    "y_out.0": "global_out.inner",
    "y_out.2": "global_out.outer",
}
_PROJECTIONS: Final = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
_POST_NORM: Final = (("linX", "normX", "atoms"), ("linE", "normE", "edges"))

_DENOISER: Final[_Table] = (
    ("mlp_in_X.0", "atoms_in.inner"),
    ("mlp_in_X.2", "atoms_in.outer"),
    ("mlp_in_E.0", "edges_in.classes.inner"),
    ("mlp_in_E.2", "edges_in.classes.outer"),
    ("mlp_in_y.0", "global_in.perceptron.inner"),
    ("mlp_in_y.2", "global_in.perceptron.outer"),
    ("primal_struct_proj", "edges_in.structure"),
    ("dual_node_init.0", "pair_start.inner"),
    ("dual_node_init.2", "pair_start.outer"),
    ("film_primal.gamma", "film_atoms.gain"),
    ("film_primal.beta", "film_atoms.shift"),
    ("film_dual.gamma", "film_pairs.gain"),
    ("film_dual.beta", "film_pairs.shift"),
    *(
        (f"primal_layers.*.self_attn.{theirs}", f"layers.*.atoms.attention.{ours}")
        for theirs, ours in _ATTENTION.items()
    ),
    *(
        (f"primal_layers.*.{theirs}", f"layers.*.atoms.{stream}.{ours}")
        for linear, norm, stream in (*_POST_NORM, ("lin_y", "norm_y", "whole"))
        for theirs, ours in (
            (f"{linear}1", "up"),
            (f"{linear}2", "down"),
            (f"{norm}1", "norm_mixed"),
            (f"{norm}2", "norm_fed"),
        )
    ),
    *(
        (f"dual_layers.*.attn.{theirs}", f"layers.*.pairs.attention.{ours}")
        for theirs, ours in _PROJECTIONS.items()
    ),
    (
        "dual_layers.*.attn.feature_map.random_features",
        "layers.*.pairs.attention.kernel.projection",
    ),
    ("dual_layers.*.norm1", "layers.*.pairs.norm_attention"),
    ("dual_layers.*.norm2", "layers.*.pairs.norm_feed"),
    ("dual_layers.*.ffn.net.0", "layers.*.pairs.up"),
    ("dual_layers.*.ffn.net.3", "layers.*.pairs.down"),
    ("dual_layers.*.global_proj", "layers.*.pairs.to_global"),
    *(
        (f"{direction}.*.{theirs}", f"layers.*.synchronise.{target}.{ours}")
        for direction, target in (("p_from_d", "atoms"), ("d_from_p", "pairs"))
        for theirs, ours in _PROJECTIONS.items()
    ),
    ("global_fuse.*", "layers.*.fuse.linear"),
    ("global_norm.*", "layers.*.fuse.norm"),
    ("dual_out_E.0", "readout.inner"),
    ("dual_out_E.2", "readout.outer"),
    ("mlp_out_y.0", "global_readout.inner"),
    ("mlp_out_y.2", "global_readout.outer"),
)

_SPECTRUM: Final = "spectra_encoder.0"
_GROWING: Final = "spectra_encoder.2"
_ENCODER: Final[_Table] = (
    (f"{_SPECTRUM}.form_embedder_mod.int_to_feat_matrix", "counts.table"),
    (f"{_SPECTRUM}.form_embedder_mod._extra_embeddings", "counts.beyond"),
    (f"{_SPECTRUM}.instrument_embedder", "instrument"),
    (f"{_SPECTRUM}.intermediate_layer.input_layer", "peaks_in.inner"),
    (f"{_SPECTRUM}.intermediate_layer.layers.0", "peaks_in.outer"),
    (f"{_SPECTRUM}.pairwise_featurizer.input_layer", "differences_in.inner"),
    (f"{_SPECTRUM}.pairwise_featurizer.layers.0", "differences_in.outer"),
    *(
        (f"{_SPECTRUM}.peak_attn_layers.*.{theirs}", f"layers.*.{ours}")
        for theirs, ours in (
            ("self_attn.bias_u", "attention.content_bias"),
            ("self_attn.bias_v", "attention.difference_bias"),
            ("self_attn.in_proj_weight", "attention.qkv.weight"),
            ("self_attn.in_proj_bias", "attention.qkv.bias"),
            ("self_attn.out_proj", "attention.out"),
            ("linear1", "peaks.up"),
            ("linear2", "peaks.down"),
            ("norm1", "peaks.norm_mixed"),
            ("norm2", "peaks.norm_fed"),
        )
    ),
    ("spectra_encoder.1.0", "fragments"),
    (f"{_GROWING}.initial_predict.0", "first"),
    (f"{_GROWING}.predict_bricks.*.0", "growth.*.predict"),
    (f"{_GROWING}.gate_bricks.*.0", "growth.*.gate"),
)

TABLE: Final[_Table] = (
    *((f"decoder.{theirs}", f"denoiser.{ours}") for theirs, ours in _DENOISER),
    *((f"encoder.{theirs}", f"encoder.{ours}") for theirs, ours in _ENCODER),
    ("merge_function", "projection"),
)

# Sizes of a denoiser: each one's name in our settings -> a module whose weight has it, and whether
# that maps from it (columns) or to it (rows).
_ROWS, _COLUMNS = 0, 1
_SIZES: Final = {
    "atom_inputs": ("atoms_in.inner", _COLUMNS),
    "condition_width": ("global_readout.outer", _ROWS),
    "atom_width": ("atoms_in.outer", _ROWS),
    "edge_width": ("edges_in.classes.outer", _ROWS),
    "global_width": ("global_in.perceptron.outer", _ROWS),
    "atom_hidden": ("atoms_in.outer", _COLUMNS),
    "edge_hidden": ("edges_in.classes.outer", _COLUMNS),
    "global_hidden": ("global_in.perceptron.outer", _COLUMNS),
    "atom_feed": ("layers.0.atoms.atoms.up", _ROWS),
    "edge_feed": ("layers.0.atoms.edges.up", _ROWS),
    "global_feed": ("layers.0.atoms.whole.up", _ROWS),
}


def ours_of(names: Iterable[str], table: _Table = TABLE) -> dict[str, str | None]:
    """Our name of each of the authors' tensors; None where the table has none."""
    # What follows a template's layer numbers is what a tensor adds to a module.
    escaped = [re.escape(template).replace(r"\*", r"(\d+)") for template, _ in table]
    patterns = [re.compile(rf"{template}((?:\.weight|\.bias)?)") for template in escaped]
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in found:
        for pattern, (_, target) in zip(patterns, table, strict=True):
            if match := pattern.fullmatch(name):
                *numbers, tail = match.groups()
                pieces = zip(target.split("*"), [*numbers, tail], strict=True)
                found[name] = "".join(piece + filled for piece, filled in pieces)
                break
    return found


def theirs_of(names: Iterable[str]) -> dict[str, str | None]:
    """The authors' name of each of our tensors; None where the table has none."""
    return ours_of(names, tuple((ours, theirs) for theirs, ours in TABLE))


def denoiser_settings(
    tensors: Mapping[str, Tensor], heads: int, n_features: int, variant: Mapping[str, Any]
) -> ReferenceDenoiserSettings:
    """Settings of the denoiser that fits tensors of our names.

    Args:
        tensors: Of one denoiser.
        heads: Attention heads, which no shape shows.
        n_features: Random features of a head, which no shape shows.
        variant: As from `variant_of`.

    Raises:
        WeightsError: A tensor that every denoiser has is missing.
    """
    sizes = {name: _size(tensors, f"{m}.weight", side) for name, (m, side) in _SIZES.items()}
    inputs = _size(tensors, "global_in.perceptron.inner.weight", _COLUMNS)
    sizes |= {
        "layers": _count(tensors, r"layers\.(\d+)\."),
        "global_inputs": inputs - sizes["condition_width"],
        "heads": heads,
        "n_features": n_features,
    }
    if "layers.0.pairs.up.weight" in tensors:  # absent without a bond stream
        sizes["pair_feed"] = _size(tensors, "layers.0.pairs.up.weight")
    return parse(ReferenceDenoiserSettings, {**sizes, **variant})


def encoder_settings(tensors: Mapping[str, Tensor]) -> ReferenceEncoderSettings:
    """Settings of the spectrum encoder that fits tensors of our names.

    Raises:
        WeightsError: A tensor that every encoder has is missing.
    """
    grown = (f"growth.{n}.predict" for n in range(_count(tensors, r"growth\.(\d+)\.")))
    return ReferenceEncoderSettings(
        layers=_count(tensors, r"layers\.(\d+)\."),
        width=_size(tensors, "peaks_in.outer.weight"),
        heads=_size(tensors, "layers.0.attention.content_bias"),
        fragment_bits=_size(tensors, "fragments.weight"),
        fingerprint_sizes=tuple(_size(tensors, f"{name}.weight") for name in ("first", *grown)),
    )


def _size(tensors: Mapping[str, Tensor], name: str, side: int = _ROWS) -> int:
    if name not in tensors or tensors[name].dim() != 2:
        raise WeightsError(
            f"the weights hold no matrix {name}; they are not those of such a network"
        )
    return tensors[name].shape[side]


def _count(tensors: Mapping[str, Tensor], pattern: str) -> int:
    numbers = (re.match(pattern, name) for name in tensors)
    return 1 + max((int(match[1]) for match in numbers if match), default=-1)
