"""The safetensors file that holds weights: written whole, with a digest; read only if it is sound.

The digest covers names, types, shapes and bytes of all tensors and the other metadata, so that a
byte that flipped on a disk or on the way is noticed. Files written before there was one have none.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from duallgd_cli.errors import WeightsError, clip
from duallgd_cli.files import replaced

DIGEST: Final = "sha256"
# The preset that metadata name where a file holds the authors' network.
REFERENCE: Final = "reference"
_READABLE: Final = 0o644


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata with their digest; the file appears only when it is complete."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    described = dict(metadata) | {DIGEST: _digest(stored, metadata)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as temporary:
        save_file(stored, temporary, described)
        temporary.chmod(_READABLE)


def read_metadata(path: Path) -> dict[str, str]:
    """Metadata alone, its digest included.

    Raises:
        WeightsError: There is no such file, or it is no safetensors file.
    """
    if not path.is_file():
        raise WeightsError(f"weights {path} do not exist; give a .safetensors file with --weights")
    try:
        with safe_open(path, framework="pt") as stream:
            return dict(stream.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise _broken(path, error) from None


def is_reference(path: Path) -> bool:
    """Whether a file holds the authors' network; `reference.weights_file` reads it then.

    Raises:
        WeightsError: There is no such file, or it is no safetensors file.
    """
    return read_metadata(path).get("preset") == REFERENCE


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors as they are stored, and the metadata without their digest.

    Raises:
        WeightsError: There is no such file, it is no safetensors file, its digest differs, or a
            tensor holds what is no number.
    """
    metadata = read_metadata(path)
    try:
        with safe_open(path, framework="pt") as stream:
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _broken(path, error) from None
    digest = metadata.pop(DIGEST, None)
    if digest is not None and digest != _digest(tensors, metadata):
        raise _broken(path, "their content does not match their digest")
    for name, tensor in tensors.items():
        if tensor.is_complex() or not torch.isfinite(tensor.float()).all():
            raise _broken(path, f"{clip(name)} holds values that are no finite numbers")
    return tensors, metadata


def load_object(text: str) -> dict[str, Any]:
    """A JSON object of the metadata.

    Raises:
        ValueError: It is none, or nested too deeply.
    """
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"a mapping was expected, not {type(values).__name__}")  # noqa: TRY004
    return values


def load_finite(text: str) -> dict[str, Any]:
    """A JSON object all of whose numbers are finite.

    Raises:
        ValueError: It is none.
    """
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
