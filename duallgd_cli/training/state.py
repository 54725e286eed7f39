"""The state a run resumes from, in one safetensors file."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from duallgd_cli.config import dump
from duallgd_cli.errors import UsageError
from duallgd_cli.training.settings import TrainingSettings

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def save_state(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: dict[str, Tensor],
    settings: TrainingSettings,
    *,
    step: int,
    seconds: float,
) -> None:
    """Write weights, moments and average; the file is replaced only when complete."""
    tensors = {f"model/{name}": p.detach() for name, p in model.named_parameters()}
    tensors |= {f"average/{name}": value for name, value in average.items()}
    for name, parameter in model.named_parameters():
        for moment, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{moment}/{name}"] = value
    metadata = {
        "step": str(step),
        "seconds": str(seconds),
        "settings": json.dumps(dump(settings), sort_keys=True),
    }
    temporary = path.with_name(path.name + ".tmp")
    save_file({n: t.detach().cpu().contiguous() for n, t in tensors.items()}, temporary, metadata)
    temporary.replace(path)


@torch.no_grad()
def load_state(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: dict[str, Tensor],
    settings: TrainingSettings,
) -> tuple[int, float]:
    """Restore a run; (0, 0.0) where there is none.

    Raises:
        UsageError: The state is broken, or was written with other settings or another network.
    """
    if not path.is_file():
        return 0, 0.0
    try:
        opened = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise UsageError(f"{path} is broken ({error}); use another output folder") from None
    with opened as stream:
        metadata: dict[str, str] = stream.metadata()
        if metadata["settings"] != json.dumps(dump(settings), sort_keys=True):
            raise UsageError(
                f"{path} belongs to a run with other settings; use another output folder"
            )
        if _shapes(stream) != {f"model/{n}": list(p.shape) for n, p in model.named_parameters()}:
            raise UsageError(
                f"{path} belongs to a run with another network; use another output folder"
            )
        for name, parameter in model.named_parameters():
            parameter.copy_(stream.get_tensor(f"model/{name}"))
            average[name].copy_(stream.get_tensor(f"average/{name}"))
            optimiser.state[parameter] = _moments(stream, name, parameter)
    return int(metadata["step"]), float(metadata["seconds"])


def _shapes(stream: Any) -> dict[str, list[int]]:  # noqa: ANN401
    names = [name for name in stream.keys() if name.startswith("model/")]  # noqa: SIM118
    return {name: stream.get_slice(name).get_shape() for name in names}


def _moments(stream: Any, name: str, parameter: Tensor) -> dict[str, Tensor]:  # noqa: ANN401
    present = {key for key in _MOMENTS if f"{key}/{name}" in stream.keys()}  # noqa: SIM118
    return {key: stream.get_tensor(f"{key}/{name}").to(parameter.device) for key in sorted(present)}
