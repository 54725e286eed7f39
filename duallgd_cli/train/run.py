"""What stages do with a network: train it, with data and a task, and predict known molecules."""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch

from duallgd_cli import __version__
from duallgd_cli.checkpoint.format import Checkpoint, load, load_strictly
from duallgd_cli.config import dump, merge, parse
from duallgd_cli.data.imitation import load_neighbours
from duallgd_cli.data.prepared import load_molecules, load_spectra, read_manifest
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.runtime import Runtime, device_name
from duallgd_cli.train.decoder import DecoderStage, InTurns
from duallgd_cli.train.encoder import EncoderStage, begin_with_frequencies
from duallgd_cli.train.settings import DrawSettings, RunSettings
from duallgd_cli.train.trainer import Run, Task, process_group

if TYPE_CHECKING:
    from duallgd_cli.evaluate.calibrate import Validation
    from duallgd_cli.predict.settings import PredictSettings

# The part of the network that each stage trains.
PARTS: Final = {"encoder": "encoder", "decoder": "denoiser"}
# What `predict_known` leaves in a folder; of `evaluate.run`, which needs chemistry.
PREDICTIONS, TRUTH = "predictions.csv", "truth.tsv"
# What a record keeps of the manifests of the data.
_KEPT: Final = ("kind", "source", "molecules", "spectra", "holdout_keys", "holdout_removed")


@dataclass(frozen=True, eq=False)
class Displays:
    """What prints a line; counts what it is told of; shows figures, of so many steps."""

    say: Callable[[str], None]
    counting: Callable[[str], AbstractContextManager[Callable[[int], None]]]
    training: Callable[[int], AbstractContextManager[Callable[[int, dict[str, float]], None]]]


def run_training(
    run: RunSettings,
    data: Path,
    out: Path,
    runtime: Runtime,
    on_step: Callable[[int, dict[str, float]], None] = lambda step, figures: None,
    *,
    structures: Sequence[Path] = (),
    simulated: Path | None = None,
    held_out: Path | None = None,
    start: Path | None = None,
    sizes: Mapping[str, Any] = MappingProxyType({}),
) -> Checkpoint:
    """Train as asked, going on with an interrupted run in the same folder; see `trainer.Run`.

    The encoder is trained on prepared spectra, beside simulated ones and structures that molecules
    are told from, if there are any; the decoder on prepared molecules, with which those of further
    folders take turns, and judged by those held out where the first have no fold val. Weights to
    start from bring their sizes, but for those that are given.
    """
    settings, part = run.training, PARTS[run.training.stage]
    torch.manual_seed(settings.seed)
    model = _network(run.model, sizes, part, start)
    model.requires_grad_(False).get_submodule(part).requires_grad_()
    folders = (data, *structures, *([simulated] if simulated else []))
    record = {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "runtime": str(runtime),
        "device": device_name(runtime.device),
        "training": dump(settings),
        "trained": [part],
        "data": {folder.name: _described(folder) for folder in folders},
    }
    ranks = runtime.rank, runtime.world_size
    with process_group(runtime):
        if not settings.steps:  # the weights that it starts from
            return Run(model, settings, out, runtime, on_step, record).save()
        if settings.stage == "decoder":
            judges = None if held_out is None else load_molecules(held_out)
            stages = []
            for folder in (data, *structures):
                molecules = load_molecules(folder)
                alike = load_neighbours(folder, molecules, runtime.device)
                stages.append(DecoderStage(molecules, settings, ranks, alike, judges))
            task: Task = InTurns(stages)
        else:
            spectra = load_spectra(data)
            drawn = None if simulated is None else load_spectra(simulated)
            if start is None:
                begin_with_frequencies(model.encoder, spectra.molecules)
            known = load_molecules(structures[0]) if structures else None
            task = EncoderStage(spectra, drawn, settings, ranks, known)
        model.to(runtime.device)
        if runtime.compile:
            compile_layers(model)
        return Run(model, settings, out, runtime, on_step, record).train(task)


def both_parts(encoder: Path, decoder: Path) -> Checkpoint:
    """The network of what the two stages made, with both records."""
    trained = {stage: load(path) for stage, path in (("encoder", encoder), ("decoder", decoder))}
    settings = replace(trained["decoder"].settings, encoder=trained["encoder"].settings.encoder)
    tensors = {
        f"{part}.{name}": tensor
        for stage, part in PARTS.items()
        for name, tensor in _of_part(trained[stage], part).items()
    }
    both = {"trained": sorted(PARTS.values()), "encoder": trained["encoder"].record}
    return Checkpoint(settings, tensors, trained["decoder"].record | both)


def compile_layers(model: DualLGD, backend: str = "inductor") -> None:
    """Compile the layers of encoder and denoiser in place; parameters keep their names.

    They are where the time goes, and alike: one takes seconds instead of minutes and serves all.
    """
    for layer in (*model.denoiser.layers, *model.encoder.layers):
        layer.compile(backend=backend)


def _network(
    settings: ModelSettings, said: Mapping[str, Any], part: str, start: Path | None
) -> DualLGD:
    """The network to train, with the weights that its part starts from, if any."""
    checkpoint = None if start is None else load(start)
    if checkpoint is not None:
        names = (part,) if part == "encoder" else (part, "diffusion", "memory_bits")
        brought: dict[str, Any] = {name: getattr(checkpoint.settings, name) for name in names}
        settings = replace(settings, **brought)
    model = DualLGD(parse(ModelSettings, merge(dump(settings), said), "model."))
    if checkpoint is not None:
        try:
            load_strictly(model.get_submodule(part), _of_part(checkpoint, part))
        except WeightsError as error:
            raise WeightsError(
                f"the {part} of {start} is not the one asked for: {error}; "
                "leave its sizes out of the recipe"
            ) from None
    return model


def _of_part(checkpoint: Checkpoint, part: str) -> dict[str, torch.Tensor]:
    """Tensors of a part of the network, by their names in it."""
    own, before = checkpoint.tensors, f"{part}."
    return {n.removeprefix(before): own[n] for n in own if n.startswith(before)}


def _described(folder: Path) -> dict[str, Any]:
    """Where prepared data came from, what was held out of them, and a digest of the arrays."""
    manifest = read_manifest(folder)
    arrays = sorted((name, array["sha256"]) for name, array in manifest["arrays"].items())
    digest = hashlib.sha256(json.dumps(arrays).encode()).hexdigest()
    return {name: manifest[name] for name in _KEPT if name in manifest} | {"sha256": digest}


def predict_known(
    table: Path,
    fold: str,
    weights: Path,
    out: Path,
    draw: DrawSettings,
    prediction: "PredictSettings",
    runtime: Runtime,
    shows: Displays,
    hashes: Path | None = None,
    databases: Sequence[Path] = (),
) -> None:
    """Predict a fold of a table into a folder, one spectrum a molecule, for `fit_known`.

    What weights were trained on is left out, by the list of hashes or the one beside the weights.
    """
    from duallgd_cli.evaluate.run import evaluate
    from duallgd_cli.evaluate.settings import EvaluateSettings

    sampling = replace(prediction.sampling, samples=draw.samples, steps=draw.steps)
    settings = EvaluateSettings(
        benchmark=table, fold=fold, spectra_per_molecule="1", limit=draw.limit, out=out,
        mces=False, weights=str(weights), train_hashes=hashes,
        prediction=replace(prediction, sampling=sampling), device=str(runtime.device),
        precision=runtime.precision, threads=runtime.threads, resume=True, force=True,
        databases=tuple(map(str, databases)),
    )  # fmt: skip
    with shows.counting(f"spectra of fold {fold}") as advance:
        evaluate(settings, lambda stage, n_spectra, result: advance(n_spectra))


def fit_known(
    checkpoint: Checkpoint, drawn: Sequence[Path], *, keep_ranking: bool = False
) -> tuple[Checkpoint, "Validation"]:
    """The network with its ranking fitted on folders of `predict_known`; how well that holds."""
    from duallgd_cli.evaluate.calibrate import fit_checkpoint, truths_of
    from duallgd_cli.predict.journal import read

    runs = [read([folder / PREDICTIONS], partial=True) for folder in drawn]
    truths = truths_of(*(folder / TRUTH for folder in drawn))  # each has the molecules of its limit
    fitted, _, held = fit_checkpoint(checkpoint, runs, truths, keep_ranking=keep_ranking)
    return fitted, held
