"""A whole training run: data, network, stage, trainer; what `duallgd train` calls."""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from duallgd_cli import __version__
from duallgd_cli.checkpoint.format import Checkpoint, load, load_strictly, trained_parts
from duallgd_cli.config import dump, merge, parse
from duallgd_cli.data.prepared import load_molecules, load_spectra, read_manifest
from duallgd_cli.errors import UsageError, WeightsError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime, available_cores, device_name
from duallgd_cli.train.beside import Pool, simulated_beside
from duallgd_cli.train.decoder import DecoderStage, JointStage
from duallgd_cli.train.encoder import EncoderStage, begin_with_frequencies
from duallgd_cli.train.kernel_fit import kernel_beside
from duallgd_cli.train.prefetch import Task
from duallgd_cli.train.settings import RunSettings
from duallgd_cli.train.simulator import fit_simulator, load_simulator, save_simulator
from duallgd_cli.train.trainer import process_group, train


@dataclass(frozen=True)
class TrainingRequest:
    """What `duallgd train` was asked for.

    Attributes:
        settings: Settings of network and run.
        out: Folder of the run.
        data: Prepared spectra (encoder, joint) or molecules (decoder).
        structures: Folders of prepared structures beside spectra: for the joint stage, or one that
            is simulated while the encoder stage goes on.
        simulated: Prepared simulated spectra beside measured ones, or None.
        simulator: Fragment model for that, fitted and written where there is none; None for the
            one in the folder of the run.
        init: Weights to start from, part by part: ``encoder``, ``denoiser``. Their settings of that
            part go before those of `settings`.
        said: What was said of ``model``, such as ``{"denoiser": {"fade_to": 0}}``, which holds for
            them, too.
        stop_after: Step at which to stop although the schedule goes on, or None.
    """

    settings: RunSettings
    out: Path
    data: Path
    structures: tuple[Path, ...] = ()
    simulated: Path | None = None
    simulator: Path | None = None
    init: dict[str, Path] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)
    stop_after: int | None = None


def run_training(
    request: TrainingRequest,
    runtime: Runtime,
    on_step: Callable[[int, dict[str, float]], None] = lambda step, figures: None,
) -> Checkpoint:
    """Train as asked, going on with an interrupted run in the same folder.

    Args:
        request: Data, settings, places.
        runtime: Device, precision and ranks.
        on_step: Told step and figures.

    Returns:
        The averaged weights, also written to ``model.safetensors`` in the run's folder.

    Raises:
        UsageError: Stage and data do not fit together.
        MissingInputError: No prepared data there.
        WeightsError: Weights to start from are missing or do not fit.
    """
    settings = request.settings.training
    torch.manual_seed(settings.seed)
    starts = {part: load(path) for part, path in request.init.items()}
    model = _network(request, starts)
    # Parts that a stage does not train keep their weights and get no moments.
    model.encoder.requires_grad_(settings.stage != "decoder" and not settings.freeze_encoder)
    model.denoiser.requires_grad_(settings.stage != "encoder")
    with process_group(runtime), ExitStack() as stack:
        task = _task(request, model, runtime, stack)
        model.to(runtime.device)
        if runtime.compile:
            compile_layers(model)
        record = _record(request, runtime)
        record["trained"] = sorted(
            part
            for part in ("denoiser", "encoder")
            if next(model.get_submodule(part).parameters()).requires_grad
            or (part in starts and part in trained_parts(starts[part].record))
        )
        return train(
            model, task, settings, request.out, runtime, on_step, record, request.stop_after
        )


def compile_layers(model: DualLGD, backend: str = "inductor") -> None:
    """Compile the layers of encoder and denoiser in place; parameters keep their names.

    The layers are where the time goes, and alike: compiling the layer rather than the network takes
    seconds instead of minutes and serves every layer and size at once. The first sizes are compiled
    as they are, the second as any size.
    """
    for layer in (*model.denoiser.layers, *model.encoder.layers):
        layer.compile(backend=backend)


def _network(request: TrainingRequest, starts: Mapping[str, Checkpoint]) -> DualLGD:
    """The network to train, with the weights that its parts start from."""
    settings = request.settings.model
    for part, checkpoint in starts.items():
        names = (part,) if part == "encoder" else (part, "diffusion", "memory_bits")
        own = {name: getattr(checkpoint.settings, name) for name in names}
        settings = replace(settings, **own)
    model = DualLGD(parse(ModelSettings, merge(dump(settings), request.said), "model."))
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
                f"the {part} of {request.init[part]} is not the one asked for: {error}; "
                "leave its sizes out of --set and --config"
            ) from None
    return model


def _task(request: TrainingRequest, model: DualLGD, runtime: Runtime, stack: ExitStack) -> Task:
    """What is trained on; the model is still on the CPU.

    Raises:
        UsageError: There are data that the stage would not look at.
    """
    settings, ranks = request.settings.training, (runtime.rank, runtime.world_size)
    if settings.stage == "decoder":
        for given, option in ((request.simulated, "simulated"), (request.structures, "structures")):
            if given:
                raise UsageError(
                    f"stage decoder trains on the structures of --data; leave --{option} out"
                )
        return DecoderStage(load_molecules(request.data), settings, ranks)
    spectra = load_spectra(request.data)
    simulated = None if request.simulated is None else load_spectra(request.simulated)
    if settings.stage == "joint":
        structures = [load_molecules(folder) for folder in request.structures]
        kernel = None
        if settings.freeze_encoder:
            kernel = kernel_beside(model.encoder.eval(), spectra).to(runtime.device)
        return JointStage(spectra, structures, simulated, settings, ranks, kernel)
    if len(request.structures) + (simulated is not None) > 1:
        raise UsageError(
            "stage encoder takes simulated spectra by --simulated, or one folder of --structures "
            "that are simulated as it learns; give one of them"
        )
    if "encoder" not in request.init:
        begin_with_frequencies(model.encoder, spectra.molecules)
    pool = None
    if request.structures:
        path = request.simulator or request.out / "simulator.safetensors"
        if not path.is_file():
            fitted, record = fit_simulator(spectra, seed=settings.seed)
            save_simulator(path, fitted.model, record)
        simulator, _ = load_simulator(path, spectra)
        pool = Pool(request.out / f"pool-{runtime.rank}", settings.data.pool)
        cores = available_cores() // runtime.world_size
        processes = settings.data.simulators or max(1, cores - 2)
        seed = settings.seed + runtime.rank
        beside = simulated_beside(request.structures[0], simulator, pool, processes, seed)
        stack.enter_context(beside)
    return EncoderStage(spectra, simulated, settings, ranks, pool)


def _record(request: TrainingRequest, runtime: Runtime) -> dict[str, Any]:
    """Versions, machine and settings, and where the prepared data came from."""
    folders: dict[str, Path | None] = {"data": request.data, "simulated": request.simulated}
    for number, own in enumerate(request.structures, 1):
        folders["structures" if number == 1 else f"structures-{number}"] = own
    kept = (
        "kind", "source", "molecules", "spectra", "holdout_keys", "holdout_removed", "packed",
    )  # fmt: skip
    data: dict[str, Any] = {}
    for name, folder in folders.items():
        if folder is not None:
            manifest = read_manifest(folder)
            arrays = sorted((n, array["sha256"]) for n, array in manifest["arrays"].items())
            digest = hashlib.sha256(json.dumps(arrays).encode()).hexdigest()
            data[name] = {n: manifest[n] for n in kept if n in manifest} | {"sha256": digest}
    return {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "runtime": str(runtime),
        "device": device_name(runtime.device),
        "training": dump(request.settings.training),
        "data": data,
    }
