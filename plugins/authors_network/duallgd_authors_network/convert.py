"""Converts the authors' Lightning checkpoints to self-contained weights files.

Every tensor of the source is taken or the conversion fails; nothing in the source is run. Sizes
follow from the tensors; noise process, vocabulary and switches lie in pickled settings and data-set
statistics, which arrive as inert records. What the files leave out, the random features of the bond
stream, is drawn from a recorded seed.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from duallgd_authors_network.core import (
    WeightsError,
    parse,
    quote,
    require_same_shapes,
    sha256,
)
from duallgd_authors_network.features import N_ATOM_FEATURES, N_GRAPH_FEATURES
from duallgd_authors_network.settings import (
    ReferenceDenoiserSettings,
    ReferenceEncoderSettings,
    ReferenceSettings,
)
from duallgd_authors_network.unpickle import InertRecord, read
from duallgd_authors_network.weights_file import (
    PARTS,
    ReferenceCheckpoint,
    shapes_of,
)

DEFAULT_SEED: Final = 20260701
_RELEASED: Final = ReferenceSettings()
_BETAS: Final = "noise_schedule.betas"
# How names begin in the authors' files, of the whole system and of parts, and here.
_PREFIXES: Final = {
    "decoder.": "denoiser.",
    "model.": "denoiser.",
    "spectra_encoder.": "encoder.spectra_encoder.",
    "merge_function.": "projection.",
}
# A second name that compiled copies of the decoder get; the tensors are the same.
_COMPILED: Final = "_compiled_decoder._orig_mod."
# The random features of a layer, which their files do not hold.
_FEATURES: Final = "denoiser.dual_layers.{}.attn.feature_map.random_features"
# Sizes that tensors show: name in the settings -> a linear map, and which side of its weight: that
# which it maps to (rows) or from (columns).
_ROWS, _COLUMNS = 0, 1
_DENOISER_SIZES: Final = {
    "atom_inputs": ("mlp_in_X.0", _COLUMNS),
    "condition_width": ("mlp_out_y.2", _ROWS),
    "atom_width": ("mlp_in_X.2", _ROWS),
    "edge_width": ("mlp_in_E.2", _ROWS),
    "global_width": ("mlp_in_y.2", _ROWS),
    "atom_hidden": ("mlp_in_X.2", _COLUMNS),
    "edge_hidden": ("mlp_in_E.2", _COLUMNS),
    "global_hidden": ("mlp_in_y.2", _COLUMNS),
    "atom_feed": ("primal_layers.0.linX1", _ROWS),
    "edge_feed": ("primal_layers.0.linE1", _ROWS),
    "global_feed": ("primal_layers.0.lin_y1", _ROWS),
}
_PAIR_FEED: Final = "dual_layers.0.ffn.net.0"  # absent without a bond stream
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
# What the noise process and the features are called in their settings, where they are those here.
_PROCESS: Final = {
    "transition": "marginal",
    "diffusion_noise_schedule": "cosine",
    "extra_features": "all",
}
_HEADS: Final = ("primal_heads", "dual_heads", "cross_heads")
_DEPTH: Final = 50


def convert(source: Path, seed: int = DEFAULT_SEED) -> ReferenceCheckpoint:
    """Read one of the authors' files: fine-tuned system, pre-trained decoder or encoder.

    The random features, which their files do not hold, are drawn from the seed.

    Raises:
        WeightsError: Not such a file, a tensor is missing or left over (all are listed), or the
            network is one that is not built here.
    """
    content = read(source)
    tensors = _tensors(content.get("state_dict", content))
    betas = tensors.pop(_BETAS, None)
    parts = [part for part in PARTS if _of_part(tensors, part)]
    if not parts:
        raise WeightsError("the checkpoint holds neither a decoder nor an encoder")
    settings = _RELEASED
    switches: dict[str, object] = {}
    if "denoiser" in parts:
        settings, switches = _of_denoiser(content, _of_part(tensors, "denoiser"))
        tensors = _drawn(settings, seed, switches) | tensors
    if "encoder" in parts:
        own = encoder_settings(_of_part(tensors, "encoder"))
        settings = replace(settings, encoder=own)
    if betas is not None and len(betas) - 1 != settings.n_steps:
        raise WeightsError(
            f"the noise schedule has {len(betas) - 1} steps, the settings say {settings.n_steps}"
        )
    record = {
        "source": source.name,
        "source_sha256": sha256(source),
        "parts": sorted(parts),
        "feature_seed": seed,
        "switches": switches,
        "epoch": content.get("epoch"),
        "global_step": content.get("global_step"),
    }
    known = {name: value for name, value in record.items() if value is not None}
    require_same_shapes(shapes_of(settings, parts), tensors)
    return ReferenceCheckpoint(settings, tensors, known)


def _tensors(state: object) -> dict[str, Tensor]:
    """Tensors of a file, by the names that they have here."""
    if not isinstance(state, Mapping) or not state:
        raise WeightsError("the checkpoint has no state_dict with weights")
    # An encoder's file may hold Lightning's version beside its tensors.
    values = {n: v for n, v in state.items() if not str(n).startswith("pytorch-lightning_version")}
    strange = [str(name) for name, value in values.items() if not isinstance(value, Tensor)]
    if strange:
        raise WeightsError(f"the checkpoint holds values that are no tensors: {quote(strange[:3])}")
    tensors: dict[str, Tensor] = {}
    for given, tensor in values.items():
        name = str(given)
        original = values.get(f"decoder.{name.removeprefix(_COMPILED)}")
        if name.startswith(_COMPILED) and original is not None and original.equal(tensor):
            continue
        begins = next((start for start in _PREFIXES if name.startswith(start)), "")
        own = _PREFIXES.get(begins, "") + name.removeprefix(begins)
        tensors[own] = tensor.float() if tensor.is_floating_point() else tensor
    return tensors


def _of_part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Tensors of one part, by their names in it."""
    prefix = f"{part}."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _of_denoiser(
    content: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[ReferenceSettings, dict[str, object]]:
    """Settings of a system with a decoder, and the authors' switches that they follow from."""
    given: Any = plain(content.get("hyper_parameters"))
    if not isinstance(given, Mapping):
        raise WeightsError(
            "the checkpoint has no hyper_parameters, which alone hold the bond marginals and the "
            "largest atom count; convert the Lightning checkpoint, not bare weights"
        )
    try:
        statistics, model = given["dataset_infos"], given["cfg"]["model"]
        chosen = model.get("duallgd") or {}
        switches = {name: chosen[name] for name in _SWITCHES if name in chosen}
        # Reference: single precision first, then the sum, as the authors do it.
        counts = statistics["edge_types"].float()
        values: dict[str, Any] = {
            "n_steps": int(model.get("diffusion_steps", _RELEASED.n_steps)),
            "marginal": tuple((counts / counts.sum()).tolist()),
            "max_atoms": int(statistics["max_n_nodes"]),
            "atom_symbols": tuple(map(str, statistics["atom_decoder"])),
        }
        n_features = int(chosen.get("performer_num_features", _RELEASED.denoiser.n_features))
        heads = _heads(model, chosen)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise WeightsError(
            "the checkpoint's hyper_parameters hold no bond marginals, atoms and settings as the "
            f"authors have them ({type(error).__name__}: {error})"
        ) from None
    for name, value in _PROCESS.items():
        if model.get(name, value) != value:
            raise WeightsError(
                f"the weights were trained with {name}={model[name]}; only {value} is known"
            )
    sizes = denoiser_settings(tensors, heads, n_features, variant_of(switches))
    settings = replace(_RELEASED, denoiser=sizes, **values)
    atoms, inputs = len(settings.atom_symbols) + N_ATOM_FEATURES, settings.denoiser
    if inputs.atom_inputs != atoms or inputs.global_inputs != N_GRAPH_FEATURES:
        raise WeightsError(
            f"the decoder reads {inputs.atom_inputs} features of an atom and "
            f"{inputs.global_inputs} of a graph, expected {atoms} and {N_GRAPH_FEATURES}; "
            "only networks with all extra features are supported"
        )
    return settings, switches


def plain(value: object, depth: int = 0) -> object:
    """Plain values of nested records: settings trees as mappings, other objects as attributes."""
    if depth > _DEPTH:
        return None
    if isinstance(value, InertRecord):
        # A settings tree keeps children in `_content` and each value in `_val`.
        inner = (value[name] for name in ("_content", "_val") if name in value)
        return plain(next(inner, value.contents or dict(value)), depth + 1)
    if isinstance(value, Mapping):
        return {str(k): plain(v, depth + 1) for k, v in value.items() if k != "_parent"}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return value


def variant_of(switches: Mapping[str, object]) -> dict[str, Any]:
    """Settings that the authors' switches ask for, where they differ from the released ones.

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
    """Settings of the denoiser that fits some tensors; no shape shows heads and features.

    Raises:
        WeightsError: A tensor that every denoiser has is missing.
    """
    sizes = {name: _size(tensors, f"{m}.weight", of) for name, (m, of) in _DENOISER_SIZES.items()}
    inputs = _size(tensors, "mlp_in_y.0.weight", _COLUMNS)
    sizes |= {
        "layers": _count(tensors, r"primal_layers\.(\d+)\."),
        "global_inputs": inputs - sizes["condition_width"],
        "heads": heads,
        "n_features": n_features,
    }
    if f"{_PAIR_FEED}.weight" in tensors:
        sizes["pair_feed"] = _size(tensors, f"{_PAIR_FEED}.weight")
    return parse(ReferenceDenoiserSettings, {**sizes, **variant})


def encoder_settings(tensors: Mapping[str, Tensor]) -> ReferenceEncoderSettings:
    """Settings of the spectrum encoder that fits some tensors.

    Raises:
        WeightsError: A tensor that every encoder has is missing.
    """
    peaks, grow = "spectra_encoder.0.", "spectra_encoder.2."
    later = _count(tensors, rf"{re.escape(grow)}predict_bricks\.(\d+)\.")
    steps = [f"{grow}initial_predict", *(f"{grow}predict_bricks.{n}" for n in range(later))]
    return ReferenceEncoderSettings(
        layers=_count(tensors, rf"{re.escape(peaks)}peak_attn_layers\.(\d+)\."),
        width=_size(tensors, f"{peaks}intermediate_layer.layers.0.weight"),
        heads=_size(tensors, f"{peaks}peak_attn_layers.0.self_attn.bias_u"),
        fragment_bits=_size(tensors, "spectra_encoder.1.0.weight"),
        fingerprint_sizes=tuple(_size(tensors, f"{step}.0.weight") for step in steps),
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


def _drawn(
    settings: ReferenceSettings, seed: int, switches: Mapping[str, object]
) -> dict[str, Tensor]:
    """Random features of every layer that has some."""
    sizes = settings.denoiser
    if sizes.kernel not in ("positive", "waves") or sizes.streams == "atoms":
        return {}
    orthogonal = switches.get("performer_feature_type") != "iid"
    drawn = {}
    for layer in range(sizes.layers):
        generator = torch.Generator().manual_seed(seed + layer)
        shape = sizes.n_features, sizes.edge_width // sizes.heads
        drawn[_FEATURES.format(layer)] = draw_projection(*shape, generator, orthogonal=orthogonal)
    return drawn


def draw_projection(
    n_features: int, width: int, generator: torch.Generator, *, orthogonal: bool = True
) -> Tensor:
    """Random rows at the reference's scale: orthogonal blocks, the whole divided once more.

    Reference: its rows have norm 1/4 (for 128 features of width 8) instead of about sqrt(width),
    which makes the kernel nearly independent of the query. Weights trained with it need it.

    Without `orthogonal` they are plain Gaussian ones, which the authors call "iid".

    Returns:
        float32 (n_features, width).
    """
    if not orthogonal:
        return torch.randn(n_features, width, generator=generator)
    whole, rest = divmod(n_features, width)
    blocks = []
    for _ in range(whole + (rest > 0)):
        direction, _ = torch.linalg.qr(torch.randn(width, width, generator=generator))
        blocks.append(direction.T)
    return torch.cat(blocks)[:n_features] / math.sqrt(whole + rest / width)


def _heads(model: Mapping[str, Any], switches: Mapping[str, Any]) -> int:
    default = (model.get("hidden_dims") or {}).get("n_head", _RELEASED.denoiser.heads)
    heads = {int(switches.get(name, default)) for name in _HEADS}
    if len(heads) != 1:
        raise WeightsError(f"the streams have different numbers of heads, {sorted(heads)}")
    return heads.pop()
