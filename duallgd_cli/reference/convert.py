"""Converts the authors' Lightning checkpoints to self-contained weights files.

Every tensor of the source is taken or the conversion fails; nothing in the source is run. What the
authors' files leave out, the random features of the bond stream, is drawn from a recorded seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from duallgd_cli.errors import WeightsError, clip
from duallgd_cli.files import sha256
from duallgd_cli.reference import denoiser as reference_denoiser
from duallgd_cli.reference.features import N_ATOM_FEATURES, N_GRAPH_FEATURES
from duallgd_cli.reference.kernels import draw_projection
from duallgd_cli.reference.mist import ReferenceEncoder
from duallgd_cli.reference.recorded_settings import Protocol, protocol_of
from duallgd_cli.reference.recorded_sizes import denoiser_settings, encoder_settings, variant_of
from duallgd_cli.reference.settings import (
    ReferenceDenoiserSettings,
    ReferenceEncoderSettings,
    ReferenceSettings,
)
from duallgd_cli.reference.tensor_names import DENOISER, ENCODER, Table, ours_of, theirs_of
from duallgd_cli.reference.unpickle import read
from duallgd_cli.reference.weights_file import ReferenceCheckpoint

DEFAULT_SEED: Final = 20260701
_PROJECTION: Final[Table] = (("merge_function", "projection"),)
_BETAS: Final = "noise_schedule.betas"
# How names begin in the authors' files, which part that is, and what its key table keeps.
_PREFIXES: Final = (
    ("decoder.", "denoiser", ""),
    ("model.", "denoiser", ""),
    ("encoder.spectra_encoder.", "encoder", "spectra_encoder."),
    ("spectra_encoder.", "encoder", "spectra_encoder."),
    ("merge_function.", "projection", "merge_function."),
)
# A second name that compiled copies of the decoder get; the tensors are the same.
_COMPILED: Final = "_compiled_decoder._orig_mod."
_KERNEL_BUFFER: Final = "pairs.attention.kernel.projection"
_LISTED: Final = 12


@dataclass(frozen=True, eq=False)
class _Source:
    """Tensors of one of the authors' files, by part and by their names within it."""

    parts: dict[str, dict[str, Tensor]]
    n_steps: int | None


def convert(source: Path, seed: int = DEFAULT_SEED) -> ReferenceCheckpoint:
    """Read one of the authors' files: fine-tuned system, pre-trained decoder or encoder.

    Args:
        source: Their .ckpt or .pt file.
        seed: Of the random features, which their files do not hold.

    Raises:
        WeightsError: Not such a file, a tensor is missing or left over (all are listed), or the
            network is one that is not built here.
    """
    content = read(source)
    split = _split(_tensors(content.get("state_dict", content)))
    protocol = protocol_of(content) if "denoiser" in split.parts else Protocol()
    settings = _settings(split, protocol)
    tensors: dict[str, Tensor] = {}
    for part, own in split.parts.items():
        tensors |= _PART_READERS[part](own, settings, seed)
    record = {
        "source": source.name,
        "source_sha256": sha256(source),
        "parts": sorted(split.parts),
        "feature_seed": seed,
        "switches": protocol.switches,
        "epoch": content.get("epoch"),
        "global_step": content.get("global_step"),
    }
    return ReferenceCheckpoint(
        settings, tensors, {k: v for k, v in record.items() if v is not None}
    )


def _tensors(state: object) -> dict[str, Tensor]:
    if not isinstance(state, Mapping) or not state:
        raise WeightsError("the checkpoint has no state_dict with weights")
    # An encoder's file may hold Lightning's version beside its tensors.
    values = {n: v for n, v in state.items() if not str(n).startswith("pytorch-lightning_version")}
    strange = [str(name) for name, value in values.items() if not isinstance(value, Tensor)]
    if strange:
        raise WeightsError(f"the checkpoint holds values that are no tensors: {_listed(strange)}")
    return {str(n): t.float() if t.is_floating_point() else t for n, t in values.items()}


def _split(state: dict[str, Tensor]) -> _Source:
    """Sort tensors into parts by the prefixes of the three kinds of file."""
    parts: dict[str, dict[str, Tensor]] = {}
    foreign = []
    for name, tensor in state.items():
        found = next((row for row in _PREFIXES if name.startswith(row[0])), None)
        if found is not None:
            prefix, part, kept = found
            parts.setdefault(part, {})[kept + name.removeprefix(prefix)] = tensor
        elif name != _BETAS and not _is_copy(name, state):
            foreign.append(name)
    if foreign:
        raise WeightsError(
            f"the checkpoint holds {len(foreign)} unknown tensors: {_listed(foreign)}"
        )
    if not parts:
        raise WeightsError("the checkpoint holds neither a decoder nor an encoder")
    betas = state.get(_BETAS)
    return _Source(parts, None if betas is None else len(betas) - 1)


def _is_copy(name: str, state: dict[str, Tensor]) -> bool:
    """Whether a tensor is the one that a compiled decoder shares with the decoder."""
    original = state.get(f"decoder.{name.removeprefix(_COMPILED)}")
    return name.startswith(_COMPILED) and original is not None and original.equal(state[name])


def _settings(source: _Source, protocol: Protocol) -> ReferenceSettings:
    denoiser, encoder = ReferenceDenoiserSettings(), ReferenceEncoderSettings()
    if "denoiser" in source.parts:
        denoiser = denoiser_settings(
            _renamed(source.parts["denoiser"], DENOISER),
            protocol.heads,
            protocol.n_features,
            variant_of(protocol.switches),
        )
        atoms = len(protocol.atom_symbols) + N_ATOM_FEATURES
        if denoiser.atom_inputs != atoms or denoiser.global_inputs != N_GRAPH_FEATURES:
            raise WeightsError(
                f"the decoder reads {denoiser.atom_inputs} features of an atom and "
                f"{denoiser.global_inputs} of a graph, expected {atoms} and {N_GRAPH_FEATURES}; "
                "only networks with all extra features are supported"
            )
    if "encoder" in source.parts:
        encoder = encoder_settings(_renamed(source.parts["encoder"], ENCODER))
    steps = source.n_steps or protocol.n_steps
    if steps != protocol.n_steps:
        raise WeightsError(
            f"the noise schedule has {steps} steps, the settings say {protocol.n_steps}"
        )
    return ReferenceSettings(
        denoiser, encoder, steps, protocol.marginal, protocol.max_atoms, protocol.atom_symbols
    )


def _denoiser(
    tensors: dict[str, Tensor], settings: ReferenceSettings, seed: int
) -> dict[str, Tensor]:
    network = reference_denoiser.build(settings.denoiser)
    kernels = sorted(name for name in network.state_dict() if name.endswith(_KERNEL_BUFFER))
    theirs = theirs_of(kernels, DENOISER)
    drawn = {}
    for name in kernels:
        layer = int(name.split(".")[1])
        generator = torch.Generator().manual_seed(seed + layer)
        width = settings.denoiser.edge_width // settings.denoiser.heads
        drawn[str(theirs[name])] = draw_projection(settings.denoiser.n_features, width, generator)
    return _prefixed("denoiser", _fitted(network, {**drawn, **tensors}, DENOISER))


def _encoder(tensors: dict[str, Tensor], settings: ReferenceSettings, _: int) -> dict[str, Tensor]:
    network = ReferenceEncoder(settings.encoder)
    return _prefixed("encoder", _fitted(network, tensors, ENCODER))


def _projection(
    tensors: dict[str, Tensor], settings: ReferenceSettings, _: int
) -> dict[str, Tensor]:
    bits = settings.encoder.fingerprint_sizes[-1]
    network = nn.ModuleDict({"projection": nn.Linear(bits, settings.denoiser.condition_width)})
    return _fitted(network, tensors, _PROJECTION)


_PART_READERS: Final = {"denoiser": _denoiser, "encoder": _encoder, "projection": _projection}


def _fitted(network: nn.Module, tensors: dict[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Tensors under our names, if they are exactly those of the network."""
    own = network.state_dict()
    theirs = theirs_of(own, table)
    missing = sorted(str(theirs[name]) for name in own if theirs[name] not in tensors)
    unused = sorted(tensors.keys() - set(theirs.values()))
    shapes = [
        f"{theirs[n]} {tuple(tensors[str(theirs[n])].shape)} for {tuple(own[n].shape)}"
        for n in own
        if theirs[n] in tensors and tensors[str(theirs[n])].shape != own[n].shape
    ]
    if missing or unused or shapes:
        raise WeightsError(
            f"the checkpoint does not fit: {len(missing)} tensors missing ({_listed(missing)}), "
            f"{len(unused)} unused ({_listed(unused)}), "
            f"{len(shapes)} of another shape ({_listed(shapes)})"
        )
    return {name: tensors[str(theirs[name])] for name in own}


def _renamed(tensors: dict[str, Tensor], table: Table) -> dict[str, Tensor]:
    names = ours_of(tensors, table)
    return {ours: tensors[theirs] for theirs, ours in names.items() if ours is not None}


def _prefixed(part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}.{name}": tensor for name, tensor in tensors.items()}


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(clip, names[:_LISTED]))
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown
