"""Small training runs on made molecules, without chemistry, so that processes start fast."""

import json
from contextlib import nullcontext, suppress
from dataclasses import replace

import torch

from duallgd_cli.errors import InterruptedRunError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.decoder import DecoderStage
from duallgd_cli.train.settings import OptimiserSettings, TrainingData, TrainingSettings
from duallgd_cli.train.trainer import STATE, Run
from tests.made_graphs import made_molecules, small_settings

FOLDS = [0] * 40 + [3] * 5
MODEL, METRICS = "model.safetensors", "metrics.jsonl"


def made_settings(**changes):
    """Settings of a run of twelve steps."""
    return replace(
        TrainingSettings(
            steps=12,
            optimiser=OptimiserSettings(learning_rate=3e-3, ema=0.9),
            data=TrainingData(pairs_per_batch=120),
            checkpoint_every=5,
            validate_every=6,
            log_every=1,
        ),
        **changes,
    )


def decoder_stage(settings, rank=0, world_size=1):
    """The decoder stage on 45 made molecules."""
    molecules = made_molecules(len(FOLDS), fold=FOLDS)
    return DecoderStage(molecules, settings, (rank, world_size))


def small_model(seed=1):
    torch.manual_seed(seed)
    return DualLGD(small_settings(layers=1))


def cpu():
    return Runtime(torch.device("cpu"), None, compile=False, threads=1)


def run(out, settings=None, *, stage=None, model=None, runtime=None, until=None, told=None):
    """Train in a folder, going on with what is there; returns the checkpoint.

    Until a step, if one is given: the run is interrupted then. What it tells is added to a list.
    """

    def on_step(step, figures):
        if told is not None:
            told.append({"step": step, **figures})
        if step == until:
            raise KeyboardInterrupt

    settings = settings or made_settings()
    whole = Run(model or small_model(), settings, out, runtime or cpu(), on_step, {})
    with nullcontext() if until is None else suppress(InterruptedRunError):
        return whole.train(stage or decoder_stage(settings))


def figures(out, name):
    """One figure of each step that has it, by step."""
    lines = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
    return {line["step"]: line[name] for line in lines if name in line}


def state(out):
    """Tensors of the state to resume from: weights, averages, and moments by their kind."""
    kept = torch.load(out / STATE, weights_only=True)
    tensors = {f"{part}/{n}": t for part in ("model", "averaged") for n, t in kept[part].items()}
    for optimiser in kept["optimisers"]:
        for group in optimiser["param_groups"]:
            for index, name in zip(group["params"], group["param_names"], strict=True):
                moments = optimiser["state"].get(index, {})
                tensors |= {f"{moment}/{name}": value for moment, value in moments.items()}
    return tensors
