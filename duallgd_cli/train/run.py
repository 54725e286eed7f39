"""A whole training run: data, network, stage, loop; what `duallgd train` calls."""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch

from duallgd_cli import __version__
from duallgd_cli.checkpoint.format import Checkpoint, load, load_strictly
from duallgd_cli.checkpoint.lineage import lineage
from duallgd_cli.config import dump, merge, parse
from duallgd_cli.data.prepared import PreparedSpectra, load_molecules, load_spectra, read_manifest
from duallgd_cli.errors import UsageError, WeightsError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime, available_cores, device_name
from duallgd_cli.train.beside import Pool, simulated_beside, simulated_molecules
from duallgd_cli.train.decoder import DecoderStage, JointStage
from duallgd_cli.train.encoder import EncoderStage, begin_with_frequencies
from duallgd_cli.train.known_spectra import kernel_beside
from duallgd_cli.train.loop import Hooks, process_group, train
from duallgd_cli.train.prefetch import Stage
from duallgd_cli.train.settings import RunSettings
from duallgd_cli.train.simulator import fit_simulator, load_simulator, save_simulator

_SPECTRA_TO_BEGIN_WITH: Final = 20_000


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
        minutes: Time after which to stop although the schedule goes on, or None.
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
    minutes: float | None = None


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
    model, origin = _network(request)
    # Parts that a stage does not train keep their weights and get no moments.
    model.encoder.requires_grad_(settings.stage != "decoder" and not settings.freeze_encoder)
    model.denoiser.requires_grad_(settings.stage != "encoder")
    with process_group(runtime), ExitStack() as stack:
        stage = _stage(request, model, runtime, stack)
        model.to(runtime.device)
        if runtime.compile:
            compile_layers(model)
        record = _record(request, runtime, origin)
        hooks = Hooks(on_step, record, request.stop_after, request.minutes)
        return train(model, stage, settings, request.out, runtime, hooks)


def compile_layers(model: DualLGD, backend: str = "inductor") -> None:
    """Compile the layers of encoder and denoiser in place; parameters keep their names.

    The layers are where the time goes, and alike: compiling the layer rather than the network takes
    seconds instead of minutes and serves every layer and size at once. The first sizes are compiled
    as they are, the second as any size.

    Args:
        model: Changed in place.
        backend: Backend of `torch.compile`.
    """
    for layer in (*model.denoiser.layers, *model.encoder.layers):
        layer.compile(backend=backend)


def _network(request: TrainingRequest) -> tuple[DualLGD, dict[str, Any]]:
    """The network to train, and the records of the weights it starts from."""
    parts = {name: load(path) for name, path in request.init.items()}
    settings = request.settings.model
    for name, checkpoint in parts.items():
        own = {name: getattr(checkpoint.settings, name)}
        if name == "denoiser":
            own["diffusion"] = checkpoint.settings.diffusion
            own["memory_bits"] = checkpoint.settings.memory_bits
        settings = replace(settings, **own)
    settings = parse(ModelSettings, merge(dump(settings), request.said), "model.")
    model = DualLGD(settings)
    for name, checkpoint in parts.items():
        prefix = f"{name}."
        own_tensors = {
            key.removeprefix(prefix): tensor
            for key, tensor in checkpoint.tensors.items()
            if key.startswith(prefix)
        }
        try:
            load_strictly(model.get_submodule(name), own_tensors)
        except WeightsError as error:
            raise WeightsError(
                f"the {name} of {request.init[name]} is not the one asked for: {error}; "
                "leave its sizes out of --set and --config"
            ) from None
    return model, {name: checkpoint.record for name, checkpoint in parts.items()}


def _stage(request: TrainingRequest, model: DualLGD, runtime: Runtime, stack: ExitStack) -> Stage:
    """What is trained on; the model is still on the CPU."""
    settings, ranks = request.settings.training, (runtime.rank, runtime.world_size)
    _refuse_unused(request)
    if settings.stage == "decoder":
        return DecoderStage(load_molecules(request.data), settings, ranks)
    spectra = load_spectra(request.data)
    simulated = None if request.simulated is None else load_spectra(request.simulated)
    if settings.stage == "encoder":
        if "encoder" not in request.init:
            begin_with_frequencies(model.encoder, spectra.molecules)
        beside = _beside(request, spectra, runtime, stack) if request.structures else None
        return EncoderStage(spectra, simulated, settings, ranks, beside)
    structures = [load_molecules(folder) for folder in request.structures]
    kernel = None
    if settings.freeze_encoder:
        kernel = kernel_beside(model.encoder.eval(), spectra).to(runtime.device)
    return JointStage(spectra, structures, simulated, settings, ranks, kernel)


def _beside(
    request: TrainingRequest, spectra: PreparedSpectra, runtime: Runtime, stack: ExitStack
) -> Pool:
    """Spectra of the structures, simulated in other processes until the stack is closed."""
    (structures,), settings = request.structures, request.settings.training
    path = request.simulator or request.out / "simulator.safetensors"
    if not path.is_file():
        fitted, record = fit_simulator(spectra, seed=settings.seed)
        save_simulator(path, fitted.model, record)
    simulator, _ = load_simulator(path, spectra)
    molecules = load_molecules(structures)
    simulated_molecules(molecules)  # that there are any is said here, and not by each process
    cores = available_cores() // runtime.world_size
    processes = settings.data.simulators or max(1, cores - 2)
    pool = Pool(molecules, request.out / f"pool-{runtime.rank}", settings.data.pool)
    seed, first = settings.seed + runtime.rank, min(settings.data.pool // 2, _SPECTRA_TO_BEGIN_WITH)
    return stack.enter_context(
        simulated_beside(structures, simulator, pool, processes, seed, first)
    )


def _refuse_unused(request: TrainingRequest) -> None:
    """Data that a stage would not look at are a mistake, and must not be on its record."""
    stage = request.settings.training.stage
    if stage == "decoder" and request.simulated is not None:
        raise UsageError("stage decoder trains on structures alone; leave --simulated out")
    if stage == "decoder" and request.structures:
        raise UsageError("stage decoder trains on the structures of --data; leave --structures out")
    if stage == "encoder" and len(request.structures) + (request.simulated is not None) > 1:
        raise UsageError(
            "stage encoder takes simulated spectra by --simulated, or one folder of --structures "
            "that are simulated as it learns; give one of them"
        )


def _record(request: TrainingRequest, runtime: Runtime, origin: dict[str, Any]) -> dict[str, Any]:
    folders = {"data": request.data, "simulated": request.simulated}
    for number, folder in enumerate(request.structures, 1):
        folders["structures" if number == 1 else f"structures-{number}"] = folder
    return {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "runtime": str(runtime),
        "device": device_name(runtime.device),
        "training": dump(request.settings.training),
        "data": {name: _source(path) for name, path in folders.items() if path is not None},
        **lineage(origin),
    }


def _source(folder: Path) -> dict[str, Any]:
    """Where prepared data came from, what was held out of them, and a digest of the arrays."""
    manifest = read_manifest(folder)
    kept = (
        "kind", "source", "molecules", "spectra", "holdout_keys", "holdout_removed", "packed",
    )  # fmt: skip
    arrays = sorted((name, array["sha256"]) for name, array in manifest["arrays"].items())
    digest = hashlib.sha256(json.dumps(arrays).encode()).hexdigest()
    return {name: manifest[name] for name in kept if name in manifest} | {"sha256": digest}
