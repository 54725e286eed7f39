"""Weights files of the reference network: the same layout as ours, marked ``preset: reference``.

Metadata keys: ``format_version``, ``preset``, ``settings``, ``record`` (where it came from). Counts
its parameters by the authors' parts, too, beside what the paper says: it counts the denoiser alone
(its table of parameter counts, label ``tab:params``).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from duallgd_cli.checkpoint.format import (
    FORMAT_VERSION,
    REFERENCE,
    load_finite,
    load_object,
    reading,
    require_same_shapes,
    shapes_of,
    write_tensors,
)
from duallgd_cli.config import dump, parse
from duallgd_cli.errors import ConfigError, WeightsError
from duallgd_cli.model.duallgd import parameter_counts
from duallgd_cli.reference.denoiser import ReferenceDenoiser
from duallgd_cli.reference.encoder import FormulaPeaks, ReferenceEncoder
from duallgd_cli.reference.settings import ReferenceDenoiserSettings, ReferenceSettings

PARTS: Final = ("denoiser", "encoder", "projection")
# Row of the table -> the authors' modules in it, and the paper's count in millions, if any.
_ROWS: Final[dict[str, tuple[tuple[str, ...], float | None]]] = {
    "atom stream": (("primal_layers",), None),
    "bond stream": (("dual_layers",), 0.58),
    "cross-attention": (("p_from_d", "d_from_p"), 1.03),
    "global fusion": (("global_fuse",), 12.13),
    "global fusion norms": (("global_norm",), None),
    "bond stream start": (("dual_node_init",), None),
    "modulation": (("film_primal", "film_dual"), None),
    "inputs": (("mlp_in_X", "mlp_in_E", "mlp_in_y", "primal_struct_proj"), None),
    "bond readout": (("dual_out_E",), None),
    "global readout": (("mlp_out_y",), None),
}
_PAPER_TOTAL: Final = 67.56
# The other rows of the paper's table, in millions.
PAPER_OTHERS: Final = {"DiffMS": 53.18, "MBGen": 62.38}


class ReferenceDualLGD(nn.Module):
    """The authors' fine-tuned system: encoder, projection of its fingerprint, denoiser.

    Args:
        settings: Sizes and process.
        parts: Which of `PARTS` it has; the others are not there.
    """

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
        require_same_shapes(shapes_of(lambda: ReferenceDualLGD(self.settings, parts)), own)
        network = ReferenceDualLGD(self.settings, parts)
        network.load_state_dict(own)
        return network.eval()


def save(path: Path, checkpoint: ReferenceCheckpoint) -> None:
    """Write a checkpoint in float32; the file appears only when it is complete.

    Args:
        path: Ends in .safetensors.
        checkpoint: To write.
    """
    metadata = {
        "format_version": str(FORMAT_VERSION),
        "preset": REFERENCE,
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
        if metadata.get("preset") != REFERENCE:
            raise WeightsError(f"weights {path} are not those of the reference network")
        try:
            settings = parse(ReferenceSettings, load_finite(metadata["settings"]))
        except ConfigError as error:
            raise WeightsError(
                f"weights {path} were converted by another version ({error}); convert the authors' "
                "checkpoint again with 'duallgd weights convert'"
            ) from None
        return ReferenceCheckpoint(settings, tensors, load_object(metadata["record"]))


def count_by_module(
    settings: ReferenceDenoiserSettings | None = None,
) -> dict[str, tuple[int, float | None]]:
    """Parameters of the reference denoiser by part, and of all of it.

    Args:
        settings: Sizes and variant; the released ones if None. Only for these does the paper give
            counts.

    Returns:
        Trainable numbers, and what the paper says in millions or None where it says nothing: in the
        order of `_ROWS`, as far as the variant has them, then of "all".
    """
    released = settings in (None, ReferenceDenoiserSettings())
    with torch.device("meta"):  # shapes alone: no memory, no time
        network = ReferenceDenoiser(settings or ReferenceDenoiserSettings())
    by_module = parameter_counts(network, depth=1)
    rows: dict[str, tuple[int, float | None]] = {}
    for name, (modules, paper) in _ROWS.items():
        if count := sum(by_module.get(module, 0) for module in modules):
            rows[name] = (count, paper if released else None)
    return rows | {"all": (sum(by_module.values()), _PAPER_TOTAL if released else None)}


def count_beside(settings: ReferenceSettings | None = None) -> dict[str, int]:
    """Parameters of the parts that the paper does not count: spectrum encoder and projection.

    The encoder's frozen table is counted, as the authors do.

    Args:
        settings: Sizes; those of the smaller release (NPLIB1) if None.
    """
    with torch.device("meta"):
        network = ReferenceDualLGD(settings or ReferenceSettings(), ("encoder", "projection"))
    return parameter_counts(network, depth=1)
