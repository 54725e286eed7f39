"""Names of the authors' tensors and of ours, template by template, both ways.

A template is a module's path or a tensor's; ``*`` stands for the number of a layer. Both sides of a
row have the same number of them, in the same order.
"""

import re
from collections.abc import Iterable
from typing import Final

Table = tuple[tuple[str, str], ...]

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

DENOISER: Final[Table] = (
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
ENCODER: Final[Table] = (
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


def ours_of(names: Iterable[str], table: Table) -> dict[str, str | None]:
    """Our name of each of the authors' tensors; None where the table has none."""
    return _translated(names, table)


def theirs_of(names: Iterable[str], table: Table) -> dict[str, str | None]:
    """The authors' name of each of our tensors; None where the table has none."""
    return _translated(names, tuple((ours, theirs) for theirs, ours in table))


def _translated(names: Iterable[str], table: Table) -> dict[str, str | None]:
    patterns = [(_pattern(source), target) for source, target in table]
    return {name: _translate(name, patterns) for name in names}


def _translate(name: str, patterns: list[tuple[re.Pattern[str], str]]) -> str | None:
    for pattern, target in patterns:
        match = pattern.fullmatch(name)
        if match is not None:
            *numbers, tail = match.groups()
            pieces = target.split("*")
            filled = "".join(p + n for p, n in zip(pieces, [*numbers, ""], strict=True))
            return filled + tail
    return None


def _pattern(template: str) -> re.Pattern[str]:
    """A template as an expression: its layer numbers, then what a tensor adds to a module."""
    escaped = re.escape(template).replace(r"\*", r"(\d+)")
    return re.compile(escaped + r"((?:\.weight|\.bias)?)")
