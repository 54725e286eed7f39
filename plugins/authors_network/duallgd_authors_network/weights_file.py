"""Weights files of the reference network: the same layout as ours, marked ``preset: reference``.

Metadata keys: ``format_version``, ``preset``, ``settings``, ``record`` (where it came from).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from duallgd_authors_network.core import (
    ADDUCTS,
    FORMAT_VERSION,
    ConfigError,
    WeightsError,
    dump,
    load_finite,
    load_object,
    parameter_counts,
    parse,
    reading,
    require_same_shapes,
    sha256,
    shapes_in,
    write_tensors,
)
from duallgd_authors_network.denoiser import ReferenceDenoiser
from duallgd_authors_network.encoder import ADDUCT_INDEX, FormulaPeaks, ReferenceEncoder
from duallgd_authors_network.settings import ReferenceSettings

PARTS: Final = ("denoiser", "encoder", "projection")
NETWORK: Final = "reference"  # what the metadata call it


class ReferenceDualLGD(nn.Module):
    """The authors' fine-tuned system, or some parts of it: the others are not there."""

    encoder: ReferenceEncoder
    projection: nn.Linear
    denoiser: ReferenceDenoiser

    def __init__(self, settings: ReferenceSettings, parts: Sequence[str] = PARTS) -> None:
        super().__init__()
        self.settings = settings
        if "encoder" in parts:
            self.encoder = ReferenceEncoder(settings.encoder)
        if "projection" in parts:
            bits = settings.encoder.fingerprint_sizes[-1]
            self.projection = nn.Linear(bits, settings.denoiser.condition_width)
        if "denoiser" in parts:
            self.denoiser = ReferenceDenoiser(settings.denoiser)

    def condition(self, peaks: FormulaPeaks) -> Tensor:
        """What conditions the denoiser, (B, condition_width), from annotated spectra.

        Called `downproject_4096` in the authors' settings: probabilities of all bits through one
        linear layer, without an activation.
        """
        return self.projection(self.encoder(peaks))


@dataclass(frozen=True, eq=False)
class ReferenceCheckpoint:
    """What a weights file of the reference network holds."""

    settings: ReferenceSettings
    tensors: dict[str, Tensor]  # parameters and persistent buffers by name, of some parts or all
    # source file and its digest, seed of the random features, the authors' switches
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """Which of `PARTS` it holds."""
        present = {name.partition(".")[0] for name in self.tensors}
        return tuple(part for part in PARTS if part in present)

    @property
    def parameters(self) -> dict[str, int]:
        """How many numbers the authors' modules hold, by part; frozen ones too, as they count."""
        with torch.device("meta"):  # shapes alone: no memory, no time
            return parameter_counts(ReferenceDualLGD(self.settings, self.parts), depth=2)

    def build(self, parts: Sequence[str] = PARTS) -> ReferenceDualLGD:
        """The system, or some parts of it, in evaluation mode.

        Raises:
            WeightsError: A part is absent, or tensors do not fit.
        """
        absent = [part for part in parts if part not in self.parts]
        if absent:
            raise WeightsError(
                f"these weights hold no {' and no '.join(absent)}, so they cannot predict; convert "
                "the checkpoint of a fine-tuned system"
            )
        own = {n: t for n, t in self.tensors.items() if n.partition(".")[0] in parts}
        require_same_shapes(shapes_of(self.settings, parts), own)
        network = ReferenceDualLGD(self.settings, parts)
        network.load_state_dict(own)
        return network.eval()


def shapes_of(settings: ReferenceSettings, parts: Sequence[str]) -> dict[str, torch.Size]:
    """Shape of each tensor of the system, without memory for them."""
    with torch.device("meta"):
        return shapes_in(ReferenceDualLGD(settings, parts).state_dict())


def save(path: Path, checkpoint: ReferenceCheckpoint) -> None:
    """Write a checkpoint in float32; the file appears only when it is complete."""
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "preset": NETWORK,
        "settings": json.dumps(dump(checkpoint.settings)),
        "record": json.dumps(checkpoint.record),
    }
    write_tensors(path, checkpoint.tensors, metadata)


def load(path: Path) -> ReferenceCheckpoint:
    """Read a checkpoint of the reference network.

    Raises:
        WeightsError: No such file, not such a file, or of another format version.
    """
    with reading(path) as (tensors, metadata):
        if metadata.get("preset") != NETWORK:
            raise WeightsError(f"weights {path} are not those of the reference network")
        try:
            settings = parse(ReferenceSettings, load_finite(metadata["settings"]))
        except ConfigError as error:
            raise WeightsError(
                f"weights {path} were converted by another version ({error}); convert the authors' "
                "checkpoint again with 'python -m duallgd_authors_network convert'"
            ) from None
        return ReferenceCheckpoint(settings, tensors, load_object(metadata["record"]))


def describe(path: Path) -> dict[str, Any]:
    """What `duallgd info` prints of a file, be it of the whole system or of a part.

    Raises:
        WeightsError: No such file, or a tensor is missing, left over or of another shape.
    """
    checkpoint = load(path)
    checkpoint.build(checkpoint.parts)
    settings = checkpoint.settings
    return {
        "weights": {
            "name": path.name,
            "sha256": sha256(path),
            "network": f"the authors' {', '.join(checkpoint.parts)}",
            "conversion": dict(checkpoint.record),
        },
        "elements": " ".join(dict.fromkeys((*settings.atom_symbols, "H"))),
        "heavy atoms": f"up to {settings.max_atoms}",
        "adducts": " ".join(adduct.name for adduct in ADDUCTS if adduct in ADDUCT_INDEX),
        "parameters": checkpoint.parameters,
    }
