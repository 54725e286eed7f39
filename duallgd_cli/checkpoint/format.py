"""The weights file: safetensors tensors, and JSON metadata that says what they are.

Tensors named ``evidence.*``, ``analogues.*``, ``kernel.*`` and ``contrast.*`` are no part of the
network. In files to be shipped the matrices of the networks take 8 bit, with a scale for each row.
Metadata keys: ``format_version``, ``settings`` (of the network), ``record`` (how it was trained),
``ranking`` and ``database`` (how candidates are scored and calibrated), ``membership`` (what says
whether the molecule is in a database).

A file is written whole, with a digest of all of it, and read only if it is as it was written.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from duallgd_cli.config import dump, flatten, parse
from duallgd_cli.errors import ConfigError, WeightsError, clip, quote
from duallgd_cli.files import replaced
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings, ModelSettings

FORMAT_VERSION: Final = 1
# Attributes of a checkpoint that are no part of the network, and the prefixes of their tensors.
_BESIDES: Final = {
    "reranker": "evidence.", "templates": "analogues.", "kernel": "kernel.", "contrast": "contrast."
}  # fmt: skip
_MAY_LACK: Final = "database", "membership"  # metadata that a file may be without
_IN_8_BIT: Final = ("denoiser.", "encoder.", "contrast.")
_FIRST: Final = "peak_in.weight"  # a tensor of an encoder's first layer
_SCALE: Final = ".scale"
_LARGEST: Final = 127
# How names of sizes end that arrays have.
_IN_SHAPES: Final = ("layers", "width", "feed", "features", "summary", "bits")
# How the bonds of a given core were marked, in files up to 0.1: networks are not told of any.
_OF_KNOWN_BONDS: Final = "denoiser.pair_known"
# What files up to 0.2 say and what is always so: positions never fade, jumps are quadratic.
_ALWAYS: Final[Mapping[str, Mapping[str, object]]] = {
    "denoiser": {"fade_from": -1, "fade_to": 0}, "diffusion": {"schedule": "quadratic"}
}  # fmt: skip
DIGEST: Final = "sha256"
_FOREIGN: Final = "preset"  # metadata that only files of other networks have: what it is called
_READABLE: Final = 0o644


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a weights file holds; dictionaries of tensors are by name."""

    settings: ModelSettings  # sizes of the network and the noise process
    tensors: dict[str, Tensor]  # parameters and persistent buffers
    record: dict[str, Any] = field(default_factory=dict)  # how it was trained, on what
    ranking: dict[str, Any] = field(default_factory=dict)  # values of a `RankingModel`
    reranker: dict[str, Tensor] = field(default_factory=dict)  # what `scores` are fitted from
    templates: dict[str, Tensor] = field(default_factory=dict)  # see `sources.collection`
    kernel: dict[str, Tensor] = field(default_factory=dict)  # see `model.fragment_kernel`
    contrast: dict[str, Tensor] = field(default_factory=dict)  # of `contrast_encoder`
    database: dict[str, Any] = field(default_factory=dict)  # a ranking of a database's structures
    membership: dict[str, Any] = field(default_factory=dict)  # values of a `Membership`

    def contrast_encoder(self) -> FormulaTransformer | None:
        """The second encoder, which tells isomers apart (see `train.encoder`), or None without."""
        if not self.contrast:
            return None
        if _FIRST not in self.contrast:  # its lower layers are those of the network's encoder
            lower = {n[8:]: t for n, t in self.tensors.items() if n.startswith("encoder.")}
            encoder = FormulaTransformer(self.settings.encoder)
            load_strictly(encoder, lower | self.contrast)
            return encoder.eval()
        tensors = self.contrast  # of files up to 0.2, of sizes of their own
        ends = {
            "width": "norm", "heads": "pool", "summary": "hidden", "fingerprint_bits": "fingerprint"
        }  # fmt: skip
        layers = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
        try:
            sizes = {name: len(tensors[f"{part}.bias"]) for name, part in ends.items()}
            encoder = FormulaTransformer(EncoderSettings(layers=len(layers), **sizes))
        except (KeyError, TypeError, ConfigError) as error:
            raise WeightsError(f"weights do not fit: no second encoder is so ({error})") from None
        load_strictly(encoder, tensors)
        return encoder.eval()

    def build(self) -> DualLGD:
        """The network in float32 with these weights, in evaluation mode; see `load_strictly`."""
        # Before memory is taken for the sizes that a broken file names: none is larger than what
        # the file holds.
        most = max((len(self.tensors), *(n for t in self.tensors.values() for n in t.shape)))
        for name, size in flatten(dump(self.settings)).items():
            if name.endswith(_IN_SHAPES) and size > most:
                raise WeightsError(f"weights do not fit: {name} is {size}, no array is so large")
        model = DualLGD(self.settings)
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

    Floating-point tensors are written as ``dtype``, matrices of the networks in 8 bit if their
    codes are to be short: not where training may go on from the file, which moves them by less than
    that rounds.
    """
    described = {
        "settings": dump(checkpoint.settings),
        "record": checkpoint.record,
        "ranking": checkpoint.ranking,
        **{name: values for name in _MAY_LACK if (values := getattr(checkpoint, name))},
    }
    metadata = {name: json.dumps(v, separators=(",", ":")) for name, v in described.items()}
    metadata["format_version"] = str(FORMAT_VERSION)
    tensors = dict(checkpoint.tensors)
    for part, prefix in _BESIDES.items():
        tensors |= {prefix + name: tensor for name, tensor in getattr(checkpoint, part).items()}
    for name in [n for n in tensors if short_codes and n.startswith(_IN_8_BIT)]:
        if tensors[name].dim() == 2:
            rows = tensors[name].float()
            scale = rows.abs().amax(1, keepdim=True).clamp_min(1e-6) / _LARGEST
            scale = scale.to(dtype).float()
            tensors[name] = (rows / scale).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
            tensors[name + _SCALE] = scale
    floats = {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}
    write_tensors(path, floats, metadata)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint, its floating-point tensors in float32; what is no such file is said."""
    with reading(path) as (tensors, metadata):
        if _FOREIGN in metadata:
            raise WeightsError(
                f"weights {path} hold the {clip(metadata[_FOREIGN])} network, which this command "
                "does not work on; 'duallgd predict', 'evaluate' and 'info' do"
            )
        sizes = load_finite(metadata["settings"])
        sizes.pop("variant", None)  # written up to 0.1
        for part, values in _ALWAYS.items():
            for name, value in values.items():
                if sizes.get(part, {}).get(name) == value:
                    del sizes[part][name]
        settings = parse(ModelSettings, sizes)
        record = load_object(metadata["record"])
        ranking = load_finite(metadata["ranking"])
        others = {name: load_finite(metadata.get(name, "{}")) for name in _MAY_LACK}
    tensors.pop(_OF_KNOWN_BONDS, None)
    besides = {
        part: {n.removeprefix(prefix): tensors.pop(n) for n in [*tensors] if n.startswith(prefix)}
        for part, prefix in _BESIDES.items()
    }
    return Checkpoint(settings, tensors, record, ranking, **besides, **others)


def require_trained(record: Mapping[str, Any], source: object) -> None:
    """Refuse weights for prediction whose encoder or denoiser was never trained.

    A record that says nothing of it is believed; the message names the weights as they are called.
    """
    names = record.get("trained", ("denoiser", "encoder"))
    for part in ("encoder", "denoiser"):
        if not isinstance(names, list | tuple) or part not in names:
            raise WeightsError(
                f"the {part} of weights {source} was never trained, so they cannot predict from "
                "spectra; use duallgd.safetensors, which 'duallgd train RECIPE' makes at its end"
            )


@contextmanager
def reading(path: Path) -> Iterator[tuple[dict[str, Tensor], dict[str, str]]]:
    """Tensors of a file, in float32 but for integers, and its metadata, to be read in the block.

    Whatever is wrong with the file or found wrong in the block is a WeightsError.
    """
    tensors, metadata = read_tensors(path)
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise WeightsError(
            f"weights {path} have format version {clip(str(metadata.get('format_version')))}, this "
            f"version reads {FORMAT_VERSION}; use weights made by 'duallgd train'"
        )
    floats = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
    try:
        for name in [name for name in floats if name.endswith(_SCALE)]:
            scale, codes = floats.pop(name), floats.get(name.removesuffix(_SCALE))
            if codes is None or codes.dim() != 2 or scale.shape != (len(codes), 1):
                raise ValueError(f"{clip(name)} fits no matrix")
            floats[name.removesuffix(_SCALE)] = codes * scale
        yield floats, metadata
    except (KeyError, ValueError, ConfigError) as error:
        raise WeightsError(f"weights {path} have unreadable metadata: {error}") from None


def load_strictly(module: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load tensors into a module, every one of them and no other; see `require_same_shapes`."""
    require_same_shapes(shapes_in(module.state_dict()), tensors)
    module.load_state_dict(tensors)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata with their digest; the file appears only when it is complete."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    described = dict(metadata) | {DIGEST: _digest(stored, metadata)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as temporary:
        save_file(stored, temporary, described)
        temporary.chmod(_READABLE)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of tensors, of which what is broken is said in words."""
    if not path.is_file():
        raise WeightsError(f"weights {path} do not exist; give a .safetensors file with --weights")
    try:
        with safe_open(path, framework="pt") as stream:
            yield stream
    except (SafetensorError, OSError) as error:
        raise _broken(path, error) from None


def foreign_network(path: Path) -> str | None:
    """What a file calls its network where that is not ours: a plug-in reads it then."""
    with _opened(path) as stream:
        metadata: dict[str, str] = stream.metadata() or {}
    return metadata.get(_FOREIGN)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors as they are stored, and the metadata without their digest; WeightsError if broken."""
    with _opened(path) as stream:
        metadata = dict(stream.metadata() or {})
        tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    if DIGEST not in metadata:
        raise WeightsError(
            f"weights {path} have no digest, so nobody can tell whether they are whole; use those "
            "that 'duallgd train' makes"
        )
    if metadata.pop(DIGEST) != _digest(tensors, metadata):
        raise _broken(path, "their content does not match their digest")
    for name, tensor in tensors.items():
        if tensor.is_complex() or not torch.isfinite(tensor.float()).all():
            raise _broken(path, f"{clip(name)} holds values that are no finite numbers")
    return tensors, metadata


def load_object(text: str) -> dict[str, Any]:
    """A JSON object of the metadata; ValueError if it is none, or nested too deeply."""
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"a mapping was expected, not {type(values).__name__}")  # noqa: TRY004
    return values


def load_finite(text: str) -> dict[str, Any]:
    """A JSON object all of whose numbers are finite, as `load_object`."""
    values = load_object(text)
    json.dumps(values, allow_nan=False)
    return values


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    total = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _broken(path: Path, reason: object) -> WeightsError:
    return WeightsError(
        f"weights {path} are broken ({clip(str(reason))}); fetch or copy them again"
    )


def shapes_in(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    """Shape of each tensor."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def require_same_shapes(shapes: Mapping[str, torch.Size], tensors: Mapping[str, Tensor]) -> None:
    """Compare tensors with the names and shapes of a network; WeightsError lists what differs."""
    missing = sorted(shapes.keys() - tensors.keys())
    unused = sorted(tensors.keys() - shapes.keys())
    other = sorted(n for n in shapes.keys() & tensors.keys() if shapes[n] != tensors[n].shape)
    if missing or unused or other:
        raise WeightsError(
            f"weights do not fit: {len(missing)} missing {quote(missing[:3])}, {len(unused)} "
            f"unused {quote(unused[:3])}, {len(other)} of another shape {quote(other[:3])}"
        )
