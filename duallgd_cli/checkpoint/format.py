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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from duallgd_cli.config import dump, parse
from duallgd_cli.errors import ConfigError, WeightsError
from duallgd_cli.files import replaced
from duallgd_cli.model.ablations import build
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import ModelSettings

FORMAT_VERSION: Final = 1
_READABLE: Final = 0o644
# Attributes of a checkpoint that are no part of the network, and prefixes of their tensors.
_BESIDES: Final = ("evidence", "analogues")
_IN_8_BIT: Final = frozenset({"denoiser.bit_embedding.weight"})
_SCALE: Final = ".scale"
_LARGEST: Final = 127


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a weights file holds.

    Attributes:
        settings: Sizes of the network and the noise process.
        tensors: Parameters and persistent buffers by name.
        record: How it was trained: data, hold-outs, steps, seed, compute.
        ranking: Values of the ranking and calibration models, by name.
        evidence: What candidates are asked with besides, by name; see `predict.evidence`. It
            fits the data, not the network, and most files hold none.
        analogues: Known molecules to start samples from, likewise; see `predict.analogues`.
    """

    settings: ModelSettings
    tensors: dict[str, Tensor]
    record: dict[str, Any] = field(default_factory=dict)
    ranking: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Tensor] = field(default_factory=dict)
    analogues: dict[str, Tensor] = field(default_factory=dict)

    def build(self) -> DualLGD:
        """The network in float32 with these weights, in evaluation mode.

        Raises:
            WeightsError: A tensor is missing, unknown or of another shape; the message lists them.
        """
        model = build(self.settings)
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
    for part in _BESIDES:
        tensors |= {f"{part}.{name}": t for name, t in getattr(checkpoint, part).items()}
    if short_codes:
        tensors = _with_8_bit(tensors, dtype)
    tensors = {
        name: (t.to(dtype) if t.is_floating_point() else t).detach().cpu().contiguous()
        for name, t in tensors.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as temporary:
        save_file(tensors, temporary, metadata)
        temporary.chmod(_READABLE)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; floating-point tensors come back in float32.

    Raises:
        WeightsError: No such file, not such a file, or of another format version.
    """
    if not path.is_file():
        raise WeightsError(f"weights {path} do not exist; give a .safetensors file with --weights")
    try:
        with safe_open(path, framework="pt") as stream:
            metadata = stream.metadata() or {}
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"weights {path} are broken ({error}); fetch or copy them again"
        ) from None
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise WeightsError(
            f"weights {path} have format version {metadata.get('format_version')}, this version "
            f"reads {FORMAT_VERSION}; use weights made by 'duallgd train' or 'duallgd weights'"
        )
    if "preset" in metadata:
        raise WeightsError(
            f"weights {path} hold the {metadata['preset']} network, which this command does not "
            "work on; 'duallgd predict', 'evaluate', 'info' and 'weights verify' do"
        )
    try:
        values = [json.loads(metadata[name]) for name in ("settings", "record", "ranking")]
        packed = metadata.get("ancestors")
        ancestors = {} if packed is None else {"ancestors": _unpacked(packed)}
        if not all(isinstance(value, dict) for value in (*values, *ancestors.values())):
            raise ValueError("not all of them are mappings")
        settings = parse(ModelSettings, values[0])
    except (KeyError, ValueError, zlib.error, ConfigError) as error:
        raise WeightsError(f"weights {path} have unreadable metadata: {error}") from None
    floats = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
    for name in [name for name in floats if name.endswith(_SCALE)]:
        scale = floats.pop(name)
        floats[name.removesuffix(_SCALE)] = floats[name.removesuffix(_SCALE)] * scale
    besides = [_popped(floats, f"{part}.") for part in _BESIDES]
    return Checkpoint(settings, floats, values[1] | ancestors, values[2], *besides)


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


def _unpacked(text: str) -> object:
    return json.loads(zlib.decompress(base64.b64decode(text, validate=True)))


def load_strictly(module: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load tensors into a module, every one of them and no other.

    Raises:
        WeightsError: Names or shapes differ; the message lists the first of them.
    """
    own = module.state_dict()
    missing = sorted(own.keys() - tensors.keys())
    unused = sorted(tensors.keys() - own.keys())
    shape = [n for n in own.keys() & tensors.keys() if own[n].shape != tensors[n].shape]
    if missing or unused or shape:
        raise WeightsError(
            f"weights do not fit: {len(missing)} missing {missing[:3]}, {len(unused)} unused "
            f"{unused[:3]}, {len(shape)} of another shape {sorted(shape)[:3]}"
        )
    module.load_state_dict(tensors)
