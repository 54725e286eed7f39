"""Weights files of the reference network: the same layout as ours, marked ``preset: reference``.

Metadata keys: ``format_version``, ``preset``, ``settings``, ``record`` (where it came from).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn

from duallgd_cli.checkpoint import container
from duallgd_cli.checkpoint.format import FORMAT_VERSION, load_strictly
from duallgd_cli.checkpoint.outline import require_same_shapes, shapes_of
from duallgd_cli.config import dump, parse
from duallgd_cli.errors import ConfigError, WeightsError, clip
from duallgd_cli.reference.denoiser import ReferenceDenoiser, build
from duallgd_cli.reference.mist import ReferenceEncoder
from duallgd_cli.reference.network import ReferenceDualLGD
from duallgd_cli.reference.settings import ReferenceSettings

Network = TypeVar("Network", bound=nn.Module)

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
        return _loaded(lambda: ReferenceDualLGD(self.settings), self.tensors)

    def build_denoiser(self) -> ReferenceDenoiser:
        """The denoiser alone, in evaluation mode.

        Raises:
            WeightsError: There is none, or tensors do not fit.
        """
        return _loaded(lambda: build(self.settings.denoiser), self._part("denoiser"))

    def build_encoder(self) -> ReferenceEncoder:
        """The spectrum encoder alone, in evaluation mode.

        Raises:
            WeightsError: There is none, or tensors do not fit.
        """
        return _loaded(lambda: ReferenceEncoder(self.settings.encoder), self._part("encoder"))

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


def _loaded(make: Callable[[], Network], tensors: dict[str, Tensor]) -> Network:
    require_same_shapes(shapes_of(make), tensors)
    network = make()
    load_strictly(network, tensors)
    return network.eval()


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
    container.write(path, checkpoint.tensors, metadata)


def is_reference(path: Path) -> bool:
    """Whether a file's metadata say that it holds the reference network."""
    return container.read_metadata(path).get("preset") == PRESET


def load(path: Path) -> ReferenceCheckpoint:
    """Read a checkpoint of the reference network.

    Raises:
        WeightsError: No such file, not such a file, or of another format version.
    """
    tensors, metadata = container.read(path)
    if metadata.get("preset") != PRESET:
        raise WeightsError(f"weights {path} are not those of the reference network")
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise WeightsError(
            f"weights {path} have format version {clip(str(metadata.get('format_version')))}, this "
            f"version reads {FORMAT_VERSION}; convert them again with 'duallgd weights convert'"
        )
    try:
        settings = parse(ReferenceSettings, container.load_finite(metadata["settings"]))
        record = container.load_object(metadata["record"])
    except (KeyError, ValueError, ConfigError) as error:
        raise WeightsError(f"weights {path} have unreadable metadata: {error}") from None
    floats = {n: t.to(torch.float32) if t.is_floating_point() else t for n, t in tensors.items()}
    return ReferenceCheckpoint(settings, floats, record)
