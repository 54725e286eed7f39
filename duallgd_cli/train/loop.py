"""One training loop for every stage, one process or many, interrupted or not.

All randomness of a step is a function of the seed, the step and the rank, so a resumed run needs
only weights, moments and the step number to go on to the same numbers.
"""

import json
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.errors import DuallgdError, InterruptedRunError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.train.optimiser import learning_rate, optimisers, update_average
from duallgd_cli.train.prefetch import Stage, batches, refuse_if_worker_died
from duallgd_cli.train.settings import TrainingSettings
from duallgd_cli.train.state import load_state, save_state

_log = logging.getLogger(__name__)
_ONE_REQUEST_S: Final = 1.0


@dataclass(frozen=True)
class Group:
    """The processes that train together; of one process every sum is the value itself."""

    rank: int = 0
    world_size: int = 1

    def sum(self, *values: Tensor) -> list[Tensor]:
        """Sums over ranks of scalars."""
        packed = torch.stack([value.detach().double() for value in values])
        if self.world_size > 1:
            dist.all_reduce(packed)
        return list(packed)

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up gradients; losses were divided by the global count before, so this is the mean."""
        if self.world_size == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        present = [float(p.grad is not None) for p in parameters]
        flat = torch.cat([*(g.flatten() for g in grads), grads[0].new_tensor(present)])
        dist.all_reduce(flat)
        *parts, ranks = flat.split([*(g.numel() for g in grads), len(grads)])
        for parameter, part, n_ranks in zip(parameters, parts, ranks.tolist(), strict=True):
            # What no rank used this step stays without a gradient, and so without an update.
            parameter.grad = part.view_as(parameter) if n_ranks else None


@contextmanager
def process_group(rank: int, world_size: int, backend: str) -> Iterator[Group]:
    """Join the group that torchrun describes in the environment; alone, do nothing."""
    if world_size == 1:
        yield Group()
        return
    dist.init_process_group(backend, rank=rank, world_size=world_size)
    try:
        yield Group(rank, world_size)
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True, eq=False)
class Hooks:
    """What the caller adds to the loop.

    Attributes:
        autocast: Context for forward passes.
        on_step: Told step and metrics after each logged step.
        record: Kept in every checkpoint: data, hold-outs, machine.
        workers: Processes that make batches where the settings leave it open.
        stop_after: Step to stop at although the schedule goes on, or None.
        minutes: Minutes of this command to stop after although the schedule goes on, checked
            whenever figures are logged, or None.
    """

    autocast: Callable[[], AbstractContextManager[Any]]
    on_step: Callable[[int, dict[str, float]], None]
    record: dict[str, Any]
    workers: int = 0
    stop_after: int | None = None
    minutes: float | None = None


class DivergenceError(DuallgdError):
    """The loss, or its gradient, is no longer a number."""


def train(
    model: DualLGD,
    stage: Stage,
    settings: TrainingSettings,
    out: Path,
    group: Group,
    hooks: Hooks,
) -> Checkpoint:
    """Train until the last step, going on from ``state.safetensors`` if it is there.

    Args:
        model: On its device; changed in place.
        stage: Batches and losses.
        settings: Settings of the run.
        out: Folder for ``metrics.jsonl``, ``state.safetensors`` and ``model.safetensors``.
        group: Processes that train together.
        hooks: Callbacks, and when to stop before the schedule's end.

    Returns:
        The checkpoint with averaged weights, as written to ``model.safetensors``.

    Raises:
        DivergenceError: Loss or gradient became NaN or infinite; the last good state is kept.
        InterruptedRunError: Ctrl-C or a polite kill; the state is saved first.
        WorkerDiedError: A process that makes batches was killed.
    """
    out.mkdir(parents=True, exist_ok=True)
    run = _Run(model, settings, out, group, hooks)
    with interruptible() as asked:
        made = batches(stage, run.progress.step, run.device, run.workers)
        try:
            while not run.is_over():
                run.advance(stage, made)
                if asked.is_set():
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            run.save()
            raise InterruptedRunError(
                f"stopped at step {run.progress.step} of {settings.steps}; "
                f"run the same command to go on, weights so far are {out / 'model.safetensors'}"
            ) from None
        except RuntimeError as error:  # torch raises it wherever the loop is
            refuse_if_worker_died(error)
            raise
        finally:
            made.close()
    return run.save()


class _Run:
    """Model, moments, average and progress of a run."""

    def __init__(
        self, model: DualLGD, settings: TrainingSettings, out: Path, group: Group, hooks: Hooks
    ) -> None:
        self.model, self.settings, self.out = model, settings, out
        self.group, self.hooks = group, hooks
        self.device = next(model.parameters()).device
        workers = settings.data.workers
        self.workers = hooks.workers if workers is None else workers
        self.optimisers = optimisers(model, settings.optimiser)
        self.average = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.progress = load_state(
            out / "state.safetensors", model, self.optimisers, self.average, settings
        )
        self.started = time.perf_counter()
        # Figures of each step: on the device until somebody reads them, for reading waits for it.
        self.pending: list[Tensor] = []
        self.window: list[list[float]] = []
        self.window_start_s = self.progress.seconds
        model.train()

    def is_over(self) -> bool:
        """Whether the last step, or a limit, has been reached."""
        step, settings, hooks = self.progress.step, self.settings, self.hooks
        if step >= min(settings.steps, hooks.stop_after or settings.steps):
            return True
        if hooks.minutes is None or step % settings.log_every:
            return False
        late = time.perf_counter() - self.started > 60 * hooks.minutes
        (ranks,) = self.group.sum(torch.tensor(float(late), device=self.device))
        return bool(ranks)  # what one rank decides binds all

    def advance(self, stage: Stage, made: Iterator[Any]) -> None:
        """One optimiser step and what is due after it."""
        started = time.perf_counter()
        progress = self.progress
        batch = next(made)
        rate = learning_rate(progress.step, self.settings.steps, self.settings.optimiser)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
        # Dropout draws from torch's global generator: seeded by step, a resumed run draws the same.
        parts = self.settings.seed, progress.step, self.group.rank
        torch.manual_seed(int(np.random.SeedSequence(parts).generate_state(1)[0]))
        with self.hooks.autocast():
            summed, count = stage.loss(self.model, batch)
        n_samples = summed.detach().new_full((), batch.n_samples)
        total, number, samples = self.group.sum(summed, count, n_samples)
        self.model.zero_grad(set_to_none=True)
        (summed / number).backward()
        self.group.sum_gradients(self.model)
        norm = clip_grad_norm_(self.model.parameters(), self.settings.optimiser.clip)
        for optimiser in self.optimisers:
            optimiser.step()
        update_average(self.average, self.model, self.settings.optimiser.ema, progress.step)
        self.pending.append(torch.stack([total / number, norm.double(), number, samples]))
        progress.step += 1
        settings = self.settings
        every = settings.log_every, settings.validate_every, settings.checkpoint_every
        if any(progress.step % n == 0 for n in every):
            self._settle()
        progress.seconds += time.perf_counter() - started
        self._report(stage, rate)

    def _settle(self) -> None:
        """Fetch the figures of all steps since the last time; none may be NaN.

        Comes before every save, so that weights that are no numbers are never saved.
        """
        if not self.pending:
            return
        rows = torch.stack(self.pending).tolist()
        first = self.progress.step - len(rows)
        self.pending.clear()
        for step, row in enumerate(rows, first):
            for name, value in zip(("loss", "gradient"), row, strict=False):
                self._require_finite(name, value, step)
            self.progress.samples += round(row[3])
        self.window += rows

    def _require_finite(self, name: str, value: float, step: int) -> None:
        if not math.isfinite(value):
            raise DivergenceError(
                f"the {name} became {value} at step {step}; lower optimiser.learning_rate and "
                f"run again: the last good state is in {self.out}"
            )

    def _report(self, stage: Stage, rate: float) -> None:
        settings, progress = self.settings, self.progress
        if progress.step % settings.log_every == 0:
            loss, norm, number, samples = (sum(v) for v in zip(*self.window, strict=True))
            n, spent = len(self.window), progress.seconds - self.window_start_s
            self.window, self.window_start_s = [], progress.seconds
            figures = {"loss": loss / n, "norm": norm / n, "count": number / n, "rate": rate}
            speed = samples / max(spent, 1e-9)
            self._log(figures | {"samples_per_s": speed, "s": progress.seconds})
        if progress.step % settings.validate_every == 0 or progress.step == settings.steps:
            self._settle()
            progress.validation = self._validate(stage)
            self._log(progress.validation)
        if progress.step % settings.checkpoint_every == 0:
            self.save()

    def _validate(self, stage: Stage) -> dict[str, float]:
        """Figures of the averaged weights."""
        own = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        _copy(self.average, self.model)
        self.model.eval()
        # Compiled code is for the training step's shapes; a look now and then is not worth more.
        with self.hooks.autocast(), torch.compiler.set_stance("force_eager"):
            figures = stage.validate(self.model)
        _copy(own, self.model)
        self.model.train()
        return figures

    def _log(self, figures: dict[str, float]) -> None:
        if self.group.rank or not figures:
            return
        self.hooks.on_step(self.progress.step, figures)
        with (self.out / "metrics.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": self.progress.step, **figures}) + "\n")

    def save(self) -> Checkpoint:
        """Write the state to resume from and the averaged model.

        Raises:
            DivergenceError: There is nothing worth saving.
        """
        self._settle()
        progress = self.progress
        tensors = dict(self.model.state_dict()) | self.average
        record = self.hooks.record | asdict(progress) | {"seconds": round(progress.seconds, 1)}
        checkpoint = Checkpoint(self.model.settings, tensors, record)
        if not self.group.rank:
            state = (self.model, self.optimisers, self.average, self.settings, progress)
            save_state(self.out / "state.safetensors", *state)
            save(self.out / "model.safetensors", checkpoint, torch.float16)
            _log.info("saved step %d in %s", progress.step, self.out)
        return checkpoint


@torch.no_grad()
def _copy(values: dict[str, Tensor], model: DualLGD) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Take SIGINT and SIGTERM as requests to stop; asked again a second later, stop at once.

    Python raises KeyboardInterrupt anywhere, and half-way through an optimiser's step there is no
    state worth saving. Outside the main thread signals are left alone.

    Yields:
        Set once somebody asked.
    """
    asked, first_s = threading.Event(), 0.0
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        nonlocal first_s
        # `timeout` and terminals send one request more than once.
        if asked.is_set() and time.monotonic() - first_s > _ONE_REQUEST_S:
            raise KeyboardInterrupt
        if not asked.is_set():
            asked.set()
            first_s = time.monotonic()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
