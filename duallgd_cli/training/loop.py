"""One training loop for every stage, one process or many, interrupted or not.

All randomness of a step is a function of the seed, the step and the rank, so a resumed run needs
only weights, moments and the step number to go on to the same numbers.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.errors import DuallgdError, InterruptedRunError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.training.distributed import Group
from duallgd_cli.training.optimiser import adamw, learning_rate, update_average
from duallgd_cli.training.settings import TrainingSettings
from duallgd_cli.training.state import load_state, save_state

_log = logging.getLogger(__name__)


class Stage(Protocol):
    """What differs between the stages: batches, their loss, and what is looked at."""

    def batches(self, first_step: int) -> Iterator[Any]:
        """Batches from a step on, for ever."""

    def loss(self, model: DualLGD, batch: Any, step: int) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Summed loss and the number it is to be divided by, both scalars."""

    def validate(self, model: DualLGD) -> dict[str, float]:
        """Figures on held-out data."""


@dataclass(frozen=True, eq=False)
class Hooks:
    """What the caller adds to the loop.

    Attributes:
        autocast: Context for forward passes.
        on_step: Told step and metrics after each logged step.
        record: Kept in every checkpoint: data, hold-outs, machine.
    """

    autocast: Callable[[], AbstractContextManager[Any]]
    on_step: Callable[[int, dict[str, float]], None]
    record: dict[str, Any]


class DivergenceError(DuallgdError):
    """The loss, or its gradient, is no longer a number."""


def train(
    model: DualLGD,
    stage: Stage,
    settings: TrainingSettings,
    out: Path,
    group: Group,
    hooks: Hooks,
    stop_after: int | None = None,
) -> Checkpoint:
    """Train until the last step, going on from ``state.safetensors`` if it is there.

    Args:
        model: On its device; changed in place.
        stage: Batches and losses.
        settings: Of the run.
        out: Folder for ``metrics.jsonl``, ``state.safetensors`` and ``model.safetensors``.
        group: Processes that train together.
        hooks: Callbacks.
        stop_after: Stop at this step although the schedule goes on; None runs to its end.

    Returns:
        The checkpoint with averaged weights, as written to ``model.safetensors``.

    Raises:
        DivergenceError: Loss or gradient became NaN or infinite; the last good state is kept.
        InterruptedRunError: Ctrl-C; the state is saved first.
    """
    out.mkdir(parents=True, exist_ok=True)
    run = _Run(model, settings, out, group, hooks)
    try:
        batches = stage.batches(run.step)
        while run.step < min(settings.steps, stop_after or settings.steps):
            run.advance(stage, next(batches))
    except KeyboardInterrupt:
        run.save()
        raise InterruptedRunError(
            f"stopped at step {run.step} of {settings.steps}; run the same command to go on"
        ) from None
    return run.save()


class _Run:
    """Model, moments, average and step of a run in progress."""

    def __init__(
        self, model: DualLGD, settings: TrainingSettings, out: Path, group: Group, hooks: Hooks
    ) -> None:
        self.model, self.settings, self.out = model, settings, out
        self.group, self.hooks = group, hooks
        self.optimiser = adamw(model, settings.optimiser)
        self.average = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.step, self.seconds = load_state(
            out / "state.safetensors", model, self.optimiser, self.average, settings
        )
        self.recent: list[tuple[float, float, float]] = []

    def advance(self, stage: Stage, batch: object) -> None:
        """One optimiser step and what is due after it."""
        started = time.perf_counter()
        rate = learning_rate(self.step, self.settings.steps, self.settings.optimiser)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.model.train()
        # Dropout draws from torch's global generator: seeded by step, a resumed run draws the same.
        torch.manual_seed(self._step_seed())
        with self.hooks.autocast():
            summed, count = stage.loss(self.model, batch, self.step)
        total, number = self.group.sum(summed.detach(), count)
        loss = float(total / number)
        self._require_finite("loss", loss)
        self.optimiser.zero_grad(set_to_none=True)
        (summed / number).backward()
        self.group.sum_gradients(self.model)
        clip = self.settings.optimiser.clip
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip))
        self._require_finite("gradient", norm)  # else the weights would be saved as no numbers
        self.optimiser.step()
        update_average(self.average, self.model, self.settings.optimiser.ema, self.step)
        self.step += 1
        self.seconds += time.perf_counter() - started
        self.recent.append((loss, norm, float(number)))
        self._report(stage, rate)

    def _step_seed(self) -> int:
        parts = (self.settings.seed, self.step, self.group.rank)
        return int(np.random.SeedSequence(parts).generate_state(1)[0])

    def _require_finite(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            raise DivergenceError(
                f"the {name} became {value} at step {self.step}; lower optimiser.learning_rate and "
                f"run again: the last good state is in {self.out}"
            )

    def _report(self, stage: Stage, rate: float) -> None:
        settings = self.settings
        if self.step % settings.log_every == 0:
            loss, norm, number = (sum(v) / len(v) for v in zip(*self.recent, strict=True))
            self.recent.clear()
            self._log(
                {"loss": loss, "norm": norm, "count": number, "rate": rate, "s": self.seconds}
            )
        if self.step % settings.validate_every == 0 or self.step == settings.steps:
            self._log(self._validate(stage))
        if self.step % settings.checkpoint_every == 0:
            self.save()

    def _validate(self, stage: Stage) -> dict[str, float]:
        """Figures of the averaged weights."""
        own = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        _copy(self.average, self.model)
        self.model.eval()
        with self.hooks.autocast():
            figures = stage.validate(self.model)
        _copy(own, self.model)
        return figures

    def _log(self, figures: dict[str, float]) -> None:
        if self.group.rank or not figures:
            return
        self.hooks.on_step(self.step, figures)
        with (self.out / "metrics.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": self.step, **figures}) + "\n")

    def save(self) -> Checkpoint:
        """Write the state to resume from and the averaged model."""
        tensors = dict(self.model.state_dict()) | self.average
        record = {**self.hooks.record, "step": self.step, "seconds": round(self.seconds, 1)}
        checkpoint = Checkpoint(self.model.settings, tensors, record)
        if not self.group.rank:
            state = (self.model, self.optimiser, self.average, self.settings)
            save_state(self.out / "state.safetensors", *state, step=self.step, seconds=self.seconds)
            save(self.out / "model.safetensors", checkpoint, torch.float16)
            _log.info("saved step %d in %s", self.step, self.out)
        return checkpoint


@torch.no_grad()
def _copy(values: dict[str, Tensor], model: DualLGD) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])
