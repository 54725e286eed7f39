"""A stage that trains: its data, network and task, for the trainer."""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch

from duallgd_cli import __version__
from duallgd_cli.checkpoint.format import Checkpoint, load, load_strictly, trained_parts
from duallgd_cli.config import dump, merge, parse
from duallgd_cli.data.imitation import load_neighbours
from duallgd_cli.data.prepared import load_molecules, load_spectra, read_manifest
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime, device_name
from duallgd_cli.train.decoder import DecoderStage, JointStage
from duallgd_cli.train.encoder import EncoderStage, begin_with_frequencies
from duallgd_cli.train.kernel_fit import kernel_beside
from duallgd_cli.train.prefetch import Task
from duallgd_cli.train.settings import RunSettings, TrainingSettings
from duallgd_cli.train.trainer import process_group, train

# What a record keeps of the manifests of the data.
_KEPT: Final = ("kind", "source", "molecules", "spectra", "holdout_keys", "holdout_removed")


def run_training(
    plain: Mapping[str, Any],
    data: Path,
    out: Path,
    runtime: Runtime,
    on_step: Callable[[int, dict[str, float]], None] = lambda step, figures: None,
    *,
    structures: Sequence[Path] = (),
    simulated: Path | None = None,
    init: Mapping[str, Path] = MappingProxyType({}),
) -> Checkpoint:
    """Train as asked, going on with an interrupted run in the same folder.

    Args:
        plain: What was said of `RunSettings`; what it says of ``model``, such as ``{"denoiser":
            {"fade_to": 0}}``, holds for weights to start from, too.
        data: Prepared spectra (encoder, joint) or molecules (decoder).
        out: Folder of the run.
        runtime: Device, precision and ranks.
        on_step: Told step and figures.
        structures: Folders of prepared structures beside spectra, for the joint stage.
        simulated: Prepared simulated spectra beside measured ones, or None.
        init: Weights that ``encoder`` and ``denoiser`` start from, which bring their sizes.

    Returns:
        The averaged weights, also written to ``model.safetensors`` in the run's folder.

    Raises:
        ConfigError: A setting is unknown or wrong.
        UsageError: Stage and data do not fit together.
        MissingInputError: No prepared data there.
        WeightsError: Weights to start from are missing or do not fit.
    """
    run = parse(RunSettings, plain)
    settings, starts = run.training, {part: load(path) for part, path in init.items()}
    torch.manual_seed(settings.seed)
    model = _network(run.model, plain.get("model", {}), starts, init)
    trains = {
        "encoder": settings.stage != "decoder" and not settings.freeze_encoder,
        "denoiser": settings.stage != "encoder",
    }
    for part, is_trained in trains.items():  # others keep their weights and get no moments
        model.get_submodule(part).requires_grad_(is_trained)
    before = {part for part in starts if part in trained_parts(starts[part].record)}
    record = {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "runtime": str(runtime),
        "device": device_name(runtime.device),
        "training": dump(settings),
        "trained": sorted(part for part in trains if trains[part] or part in before),
        "data": _sources({"data": data, "simulated": simulated, "structures": structures}),
    }
    ranks = runtime.rank, runtime.world_size
    with process_group(runtime):
        if settings.stage == "decoder":
            task: Task = _decoder(data, settings, runtime)
        else:
            spectra = load_spectra(data)
            drawn = None if simulated is None else load_spectra(simulated)
        if settings.stage == "encoder":
            if "encoder" not in init:
                begin_with_frequencies(model.encoder, spectra.molecules)
            task = EncoderStage(spectra, drawn, settings, ranks)
        elif settings.stage == "joint":
            kernel = None
            if settings.freeze_encoder:
                kernel = kernel_beside(model.encoder.eval(), spectra).to(runtime.device)
            decoders = [_decoder(folder, settings, runtime) for folder in structures]
            task = JointStage(spectra, decoders, drawn, settings, ranks, kernel)
        model.to(runtime.device)
        if runtime.compile:
            compile_layers(model)
        return train(model, task, settings, out, runtime, on_step, record)


def _decoder(folder: Path, settings: TrainingSettings, runtime: Runtime) -> DecoderStage:
    """Generation of a folder's structures, with the neighbours that predictions are made of."""
    molecules = load_molecules(folder)
    alike = load_neighbours(folder, molecules, runtime.device)
    return DecoderStage(molecules, settings, (runtime.rank, runtime.world_size), alike)


def compile_layers(model: DualLGD, backend: str = "inductor") -> None:
    """Compile the layers of encoder and denoiser in place; parameters keep their names.

    The layers are where the time goes, and alike: compiling the layer rather than the network takes
    seconds instead of minutes and serves every layer and size at once.
    """
    for layer in (*model.denoiser.layers, *model.encoder.layers):
        layer.compile(backend=backend)


def _network(
    settings: ModelSettings,
    said: Mapping[str, Any],
    starts: Mapping[str, Checkpoint],
    paths: Mapping[str, Path],
) -> DualLGD:
    """The network to train, with the weights that its parts start from."""
    for part, checkpoint in starts.items():
        names = (part,) if part == "encoder" else (part, "diffusion", "memory_bits")
        own: dict[str, Any] = {name: getattr(checkpoint.settings, name) for name in names}
        settings = replace(settings, **own)
    model = DualLGD(parse(ModelSettings, merge(dump(settings), said), "model."))
    for part, checkpoint in starts.items():
        tensors = {
            name.removeprefix(f"{part}."): tensor
            for name, tensor in checkpoint.tensors.items()
            if name.startswith(f"{part}.")
        }
        try:
            load_strictly(model.get_submodule(part), tensors)
        except WeightsError as error:
            raise WeightsError(
                f"the {part} of {paths[part]} is not the one asked for: {error}; "
                "leave its sizes out of the recipe"
            ) from None
    return model


def _sources(folders: Mapping[str, Path | Sequence[Path] | None]) -> dict[str, Any]:
    """Where prepared data came from, what was held out of them, and a digest of the arrays."""
    described: dict[str, Any] = {}
    for name, own in folders.items():
        listed = [own] if isinstance(own, Path) else own or ()
        for number, folder in enumerate(listed, 1):
            manifest = read_manifest(folder)
            arrays = sorted((n, array["sha256"]) for n, array in manifest["arrays"].items())
            digest = hashlib.sha256(json.dumps(arrays).encode()).hexdigest()
            kept = {n: manifest[n] for n in _KEPT if n in manifest} | {"sha256": digest}
            described[name if number == 1 else f"{name}-{number}"] = kept
    return described
