"""Weights files of the reference network: the same layout as ours, marked ``preset: reference``.

Metadata keys: ``format_version``, ``preset``, ``settings``, ``record`` (where it came from).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from duallgd_cli.checkpoint.format import FORMAT_VERSION, load_strictly
from duallgd_cli.config import dump, parse
from duallgd_cli.errors import ConfigError, WeightsError
from duallgd_cli.files import replaced
from duallgd_cli.reference.denoiser import ReferenceDenoiser, build
from duallgd_cli.reference.mist import ReferenceEncoder
from duallgd_cli.reference.network import ReferenceDualLGD
from duallgd_cli.reference.settings import ReferenceSettings

PRESET: Final = "reference"
PARTS: Final = ("denoiser", "encoder", "projection")


@dataclass(frozen=True, eq=False)
class ReferenceCheckpoint:
    """What a weights file of the reference network holds.

    Attributes:
        settings: Sizes, variant and noise process.
        tensors: Parameters and persistent buffers by name, of all parts or of some.
        record: Source file and its digest, seed of the random features, the authors' switches.
    """

    settings: ReferenceSettings
    tensors: dict[str, Tensor]
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """Which of `PARTS` it holds."""
        present = {name.partition(".")[0] for name in self.tensors}
        return tuple(part for part in PARTS if part in present)

    def build(self) -> ReferenceDualLGD:
        """The whole system in evaluation mode.

        Raises:
            WeightsError: A part is absent, or tensors do not fit.
        """
        absent = [part for part in PARTS if part not in self.parts]
        if absent:
            raise WeightsError(
                f"these weights hold no {' and no '.join(absent)}, so they cannot predict; convert "
                "the checkpoint of a fine-tuned system"
            )
        network = ReferenceDualLGD(self.settings)
        load_strictly(network, self.tensors)
        return network.eval()

    def build_denoiser(self) -> ReferenceDenoiser:
        """The denoiser alone, in evaluation mode.

        Raises:
            WeightsError: There is none, or tensors do not fit.
        """
        network = build(self.settings.denoiser)
        load_strictly(network, self._part("denoiser"))
        return network.eval()

    def build_encoder(self) -> ReferenceEncoder:
        """The spectrum encoder alone, in evaluation mode.

        Raises:
            WeightsError: There is none, or tensors do not fit.
        """
        network = ReferenceEncoder(self.settings.encoder)
        load_strictly(network, self._part("encoder"))
        return network.eval()

    def check(self) -> None:
        """Find out whether the parts present fit their settings.

        Raises:
            WeightsError: One does not.
        """
        if self.parts == PARTS:
            self.build()
            return
        builders = {"denoiser": self.build_denoiser, "encoder": self.build_encoder}
        for part in self.parts:
            if part in builders:
                builders[part]()

    def _part(self, part: str) -> dict[str, Tensor]:
        prefix = f"{part}."
        found = {n.removeprefix(prefix): t for n, t in self.tensors.items() if n.startswith(prefix)}
        if not found:
            raise WeightsError(f"these weights hold no {part}")
        return found


def save(path: Path, checkpoint: ReferenceCheckpoint) -> None:
    """Write a checkpoint in float32; the file appears only when it is complete.

    Args:
        path: Ends in .safetensors.
        checkpoint: To write.
    """
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "preset": PRESET,
        "settings": json.dumps(dump(checkpoint.settings)),
        "record": json.dumps(checkpoint.record),
    }
    tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as temporary:
        save_file(tensors, temporary, metadata)


def is_reference(path: Path) -> bool:
    """Whether a file's metadata say that it holds the reference network."""
    return _metadata(path).get("preset") == PRESET


def load(path: Path) -> ReferenceCheckpoint:
    """Read a checkpoint of the reference network.

    Raises:
        WeightsError: No such file, not such a file, or of another format version.
    """
    metadata = _metadata(path)
    if metadata.get("preset") != PRESET:
        raise WeightsError(f"weights {path} are not those of the reference network")
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise WeightsError(
            f"weights {path} have format version {metadata.get('format_version')}, this version "
            f"reads {FORMAT_VERSION}; convert them again with 'duallgd weights convert'"
        )
    try:
        values, record = (json.loads(metadata[name]) for name in ("settings", "record"))
        if not isinstance(values, dict) or not isinstance(record, dict):
            raise TypeError("not all of them are mappings")
        settings = parse(ReferenceSettings, values)
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise WeightsError(f"weights {path} have unreadable metadata: {error}") from None
    with safe_open(path, framework="pt") as stream:
        tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    floats = {n: t.to(torch.float32) if t.is_floating_point() else t for n, t in tensors.items()}
    return ReferenceCheckpoint(settings, floats, record)


def _metadata(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise WeightsError(f"weights {path} do not exist; give a .safetensors file")
    try:
        with safe_open(path, framework="pt") as stream:
            return dict(stream.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"weights {path} are broken ({error}); fetch or convert them again"
        ) from None
