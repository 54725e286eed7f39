"""The state a run resumes from, in one safetensors file."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from duallgd_cli.config import dump
from duallgd_cli.errors import UsageError
from duallgd_cli.files import replaced
from duallgd_cli.train.optimiser import Optimisers
from duallgd_cli.train.settings import TrainingSettings

_MOMENTS = ("exp_avg", "exp_avg_sq", "step", "momentum_buffer")


@dataclass
class TrainingProgress:
    """How far a run has come.

    Attributes:
        step: Optimiser steps done.
        seconds: Spent on them, looks at held-out data left out.
        samples: Graphs or spectra trained on, of all ranks, repeats counted.
        validation: Latest figures on held-out data.
    """

    step: int = 0
    seconds: float = 0.0
    samples: int = 0
    validation: dict[str, float] = field(default_factory=dict)


def save_state(
    path: Path,
    model: nn.Module,
    optimisers: Optimisers,
    average: dict[str, Tensor],
    settings: TrainingSettings,
    progress: TrainingProgress,
) -> None:
    """Write weights, moments and average; the file is replaced only when complete."""
    tensors = {f"model/{name}": p.detach() for name, p in model.named_parameters()}
    tensors |= {f"average/{name}": value for name, value in average.items()}
    for name, parameter, optimiser in _owned(model, optimisers):
        moments = optimiser.state.get(parameter, {})
        tensors |= {f"{moment}/{name}": value for moment, value in moments.items()}
    metadata = {
        "progress": json.dumps(asdict(progress)),
        "settings": json.dumps(dump(settings), sort_keys=True),
    }
    on_host = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    with replaced(path) as temporary:
        save_file(on_host, temporary, metadata)


@torch.no_grad()
def load_state(
    path: Path,
    model: nn.Module,
    optimisers: Optimisers,
    average: dict[str, Tensor],
    settings: TrainingSettings,
) -> TrainingProgress:
    """Restore a run; its very beginning where there is none.

    Raises:
        UsageError: The state is broken, or was written with other settings or another network.
    """
    if not path.is_file():
        return TrainingProgress()
    try:
        opened = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise UsageError(f"{path} is broken ({error}); use another output folder") from None
    with opened as stream:
        metadata: dict[str, str] = stream.metadata()
        if _that_matter(json.loads(metadata["settings"])) != _that_matter(dump(settings)):
            raise UsageError(
                f"{path} belongs to a run with other settings; use another output folder"
            )
        names = set(stream.keys())
        shapes = {n: stream.get_slice(n).get_shape() for n in names if n.startswith("model/")}
        if shapes != {f"model/{n}": list(p.shape) for n, p in model.named_parameters()}:
            raise UsageError(
                f"{path} belongs to a run with another network; use another output folder"
            )
        for name, parameter in model.named_parameters():
            parameter.copy_(stream.get_tensor(f"model/{name}"))
            average[name].copy_(stream.get_tensor(f"average/{name}"))
        for name, parameter, optimiser in _owned(model, optimisers):
            optimiser.state[parameter] = {
                moment: stream.get_tensor(f"{moment}/{name}").to(parameter.device)
                for moment in _MOMENTS
                if f"{moment}/{name}" in names
            }
    if "progress" not in metadata:  # as written before samples were counted
        return TrainingProgress(int(metadata["step"]), float(metadata["seconds"]))
    return TrainingProgress(**json.loads(metadata["progress"]))


def _owned(
    model: nn.Module, optimisers: Optimisers
) -> Iterator[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
    """Parameters by name, with what updates them."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            yield from ((names[p], p, optimiser) for p in group["params"])


def _that_matter(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that change no number."""
    data = {name: value for name, value in settings["data"].items() if name != "workers"}
    return settings | {"data": json.loads(json.dumps(data))}
