"""The weights file: safetensors tensors, and JSON metadata that says what they are.

Tensors named ``evidence.*`` and ``analogues.*`` are no part of the network. In files to be shipped
the codes of the fingerprint bits, which training hardly moves, take 8 bit, with a scale for each.
Metadata keys: ``format_version``, ``settings`` (of the network), ``record`` (how it was trained),
``ranking`` (how candidates are scored and calibrated), and ``ancestors``: the records of earlier
runs, which repeat each other and grow long, as base64 of zlib of JSON.
"""

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from duallgd_cli.checkpoint import container
from duallgd_cli.checkpoint.outline import require_same_shapes, shapes_of
from duallgd_cli.config import dump, parse
from duallgd_cli.errors import ConfigError, WeightsError, clip
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import ModelSettings

FORMAT_VERSION: Final = 1
# Attributes of a checkpoint that are no part of the network, and the prefixes of their tensors.
_BESIDES: Final = {"reranker": "evidence.", "templates": "analogues."}
_IN_8_BIT: Final = frozenset({"denoiser.bit_embedding.weight"})
_SCALE: Final = ".scale"
_LARGEST: Final = 127
_FEATURES: Final = ".pair_attention.features"
_MOST_UNPACKED_BYTES: Final = 16 << 20


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a weights file holds.

    Attributes:
        settings: Sizes of the network and the noise process.
        tensors: Parameters and persistent buffers by name.
        record: How it was trained: data, hold-outs, steps, seed, compute.
        ranking: Values of the ranking and calibration models, by name.
        reranker: Arrays of the fragment model and the substructure prior, by name; see
            `predict.reranker`. They fit the data, not the network, and most files hold none.
        templates: Known molecules to start samples from, by name; see `predict.templates`. Most
            files hold none.
    """

    settings: ModelSettings
    tensors: dict[str, Tensor]
    record: dict[str, Any] = field(default_factory=dict)
    ranking: dict[str, Any] = field(default_factory=dict)
    reranker: dict[str, Tensor] = field(default_factory=dict)
    templates: dict[str, Tensor] = field(default_factory=dict)

    def build(self, make: Callable[[ModelSettings], DualLGD] | None = None) -> DualLGD:
        """The network in float32 with these weights, in evaluation mode.

        Args:
            make: What builds the network of a study; None for the default network.

        Raises:
            WeightsError: A tensor is missing, unknown or of another shape; the message lists them.
                Or the network is that of a study, and `make` was not given.
        """
        if make is None:
            _require_fit(self.settings, self.tensors)
        model = (make or DualLGD)(self.settings)
        load_strictly(model, self.tensors)
        return model.eval()


def save(
    path: Path,
    checkpoint: Checkpoint,
    dtype: torch.dtype = torch.float32,
    *,
    short_codes: bool = False,
) -> None:
    """Write a checkpoint; the file appears only when it is complete.

    Args:
        path: Ends in .safetensors.
        checkpoint: To write.
        dtype: Of floating-point tensors in the file.
        short_codes: Whether the codes of the fingerprint bits take 8 bit. Not where training may
            go on from the file: it moves them by less than that rounds.
    """
    record = dict(checkpoint.record)
    ancestors = record.pop("ancestors", None)
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "settings": _compact(dump(checkpoint.settings)),
        "record": _compact(record),
        "ranking": _compact(checkpoint.ranking),
    }
    if ancestors is not None:
        metadata["ancestors"] = _packed(ancestors)
    tensors = dict(checkpoint.tensors)
    for part, prefix in _BESIDES.items():
        tensors |= {prefix + name: tensor for name, tensor in getattr(checkpoint, part).items()}
    if short_codes:
        tensors = _with_8_bit(tensors, dtype)
    floats = {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}
    container.write(path, floats, metadata)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; floating-point tensors come back in float32.

    Raises:
        WeightsError: No such file, not such a file, or of another format version.
    """
    tensors, metadata = container.read(path)
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise WeightsError(
            f"weights {path} have format version {clip(str(metadata.get('format_version')))}, this "
            f"version reads {FORMAT_VERSION}; use weights made by 'duallgd train' or "
            "'duallgd weights'"
        )
    if "preset" in metadata:
        raise WeightsError(
            f"weights {path} hold the {clip(metadata['preset'])} network, which this command does "
            "not work on; 'duallgd predict', 'evaluate', 'info' and 'weights verify' do"
        )
    try:
        settings = parse(ModelSettings, container.load_finite(metadata["settings"]))
        record = container.load_object(metadata["record"])
        ranking = container.load_finite(metadata["ranking"])
        if "ancestors" in metadata:
            record["ancestors"] = _unpacked(metadata["ancestors"])
        floats = _from_8_bit(tensors)
    except (KeyError, ValueError, zlib.error, ConfigError) as error:
        raise WeightsError(f"weights {path} have unreadable metadata: {error}") from None
    besides = [_popped(floats, prefix) for prefix in _BESIDES.values()]
    return Checkpoint(settings, floats, record, ranking, *besides)


def _from_8_bit(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All in float32 that are no integers, those in 8 bit times their scale.

    Raises:
        ValueError: A scale belongs to no matrix, or does not fit it.
    """
    floats = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
    for name in [name for name in floats if name.endswith(_SCALE)]:
        scale, codes = floats.pop(name), floats.get(name.removesuffix(_SCALE))
        if codes is None or codes.dim() != 2 or scale.shape != (len(codes), 1):
            raise ValueError(f"{clip(name)} fits no matrix")
        floats[name.removesuffix(_SCALE)] = codes * scale
    return floats


def _with_8_bit(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The same, but some matrices in 8 bit, with a scale in `dtype` for each row."""
    smaller = dict(tensors)
    for name in _IN_8_BIT & tensors.keys():
        rows = tensors[name].float()
        scale = rows.abs().amax(1, keepdim=True).clamp_min(1e-6) / _LARGEST
        scale = scale.to(dtype).float()
        smaller[name] = (rows / scale).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
        smaller[name + _SCALE] = scale
    return smaller


def _popped(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Taken out of them: those whose names begin so, without that."""
    named = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in named}


def _compact(values: object) -> str:
    return json.dumps(values, separators=(",", ":"))


def _packed(values: object) -> str:
    return base64.b64encode(zlib.compress(_compact(values).encode(), 9)).decode("ascii")


def _unpacked(text: str) -> dict[str, Any]:
    inflate = zlib.decompressobj()
    unpacked = inflate.decompress(base64.b64decode(text, validate=True), _MOST_UNPACKED_BYTES)
    if not inflate.eof:
        most = _MOST_UNPACKED_BYTES >> 20
        raise ValueError(f"the records of earlier runs are cut short or longer than {most} MiB")
    return container.load_object(unpacked.decode())


def load_strictly(module: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load tensors into a module, every one of them and no other.

    Raises:
        WeightsError: Names or shapes differ; the message lists the first of them.
    """
    require_same_shapes({n: t.shape for n, t in module.state_dict().items()}, tensors)
    module.load_state_dict(tensors)


def _require_fit(settings: ModelSettings, tensors: Mapping[str, Tensor]) -> None:
    """Compare names and shapes before memory is taken for the sizes that the settings name."""
    sizes = settings.denoiser
    # Random features are computed when a layer is made; their shape is known without.
    drawn = torch.Size(
        (sizes.pair_heads, sizes.pair_features, sizes.pair_width // sizes.pair_heads)
    )
    outline = replace(settings, denoiser=replace(sizes, pair_features=0))
    shapes = shapes_of(lambda: DualLGD(outline))
    features = dict.fromkeys((name for name in shapes if name.endswith(_FEATURES)), drawn)
    require_same_shapes(shapes | features, tensors)
