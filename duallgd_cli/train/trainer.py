"""One trainer for every task: interrupted or not, in one process or many, on disk or in memory.

All randomness of a step is a function of the seed, the step and the rank, so a resumed run needs
only weights, moments and the step number to go on to the same numbers.
"""

import copy
import json
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from duallgd_cli.checkpoint.format import Checkpoint, save, shapes_in
from duallgd_cli.config import dump
from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError, WorkerDiedError
from duallgd_cli.files import replaced
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.optimisers import learning_rate, optimisers, update_average
from duallgd_cli.train.prefetch import Task, batches, default_workers
from duallgd_cli.train.settings import TrainingSettings

_log = logging.getLogger(__name__)
STATE: Final = "state.pt"
MODEL: Final = "model.safetensors"
BEST: Final = "best.safetensors"  # the averaged model at the best look at held-out data
_ONE_REQUEST_S: Final = 1.0
# Of a model and a batch: the summed loss, and the number that it is to be divided by.
Loss = Callable[[Any, Any], tuple[Tensor, Tensor]]


class DivergenceError(DuallgdError):
    """The loss, or its gradient, is no longer a number."""


@contextmanager
def process_group(runtime: Runtime) -> Iterator[None]:
    """Join the processes that torchrun describes, unless they are joined or there is one."""
    if runtime.world_size == 1 or dist.is_initialized():
        yield
        return
    backend = "nccl" if runtime.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, rank=runtime.rank, world_size=runtime.world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def sum_over_ranks(runtime: Runtime, *values: Tensor) -> list[Tensor]:
    """Sums of scalars over all processes that train together."""
    packed = torch.stack([value.detach().double() for value in values])
    if runtime.world_size > 1:
        dist.all_reduce(packed)
    return list(packed)


def sum_gradients(model: nn.Module) -> None:
    """Add up gradients; losses were divided by the global count before, so this is the mean."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    present = [float(p.grad is not None) for p in parameters]
    flat = torch.cat([*(g.flatten() for g in grads), grads[0].new_tensor(present)])
    dist.all_reduce(flat)
    *parts, ranks = flat.split([*(g.numel() for g in grads), len(grads)])
    for parameter, part, n_ranks in zip(parameters, parts, ranks.tolist(), strict=True):
        # What no rank used this step stays without a gradient, and so without an update.
        parameter.grad = part.view_as(parameter) if n_ranks else None


class _Steps:
    """A model, what updates it, and the figures of its steps."""

    def __init__(self, model: nn.Module, settings: TrainingSettings, runtime: Runtime) -> None:
        self.model, self.settings, self.runtime = model, settings, runtime
        self.optimisers = optimisers(model, settings.optimiser)
        # Figures of each step: on the device until somebody reads them, for reading waits for it.
        self.pending: list[Tensor] = []
        model.train()

    def take(self, step: int, loss: Loss, batch: Any) -> None:  # noqa: ANN401
        """One optimiser step down the summed loss, divided by the number beside it."""
        settings = self.settings
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, settings.steps, settings.optimiser)
        # Dropout draws from torch's global generator: seeded by step, a resumed run draws the same.
        seeds = np.random.SeedSequence((settings.seed, step, self.runtime.rank))
        torch.manual_seed(int(seeds.generate_state(1)[0]))
        with self.runtime.autocast():
            summed, count = loss(self.model, batch)
        n_samples = summed.detach().new_full((), getattr(batch, "n_samples", 1))
        total, number, samples = sum_over_ranks(self.runtime, summed, count, n_samples)
        number = number.clamp_min(1)  # a batch of cores that are molecules leaves nothing to guess
        self.model.zero_grad(set_to_none=True)
        (summed / number).backward()
        if self.runtime.world_size > 1:
            sum_gradients(self.model)
        norm = clip_grad_norm_(self.model.parameters(), settings.optimiser.clip)
        for optimiser in self.optimisers:
            optimiser.step()
        self.pending.append(torch.stack([total / number, norm.double(), number, samples]))

    def settle(self, step: int) -> list[list[float]]:
        """Loss, norm, count and samples of all steps since the last time; all are numbers."""
        rows = torch.stack(self.pending).tolist() if self.pending else []
        self.pending.clear()
        for number, row in enumerate(rows, step - len(rows)):
            for name, value in zip(("loss", "gradient"), row, strict=False):
                if not math.isfinite(value):
                    raise DivergenceError(
                        f"the {name} became {value} at step {number}; lower "
                        "optimiser.learning_rate and run again: the last good state is kept"
                    )
        return rows


def fit(
    model: nn.Module,
    batch_of: Callable[[int], Any],
    loss: Loss,
    settings: TrainingSettings,
    advance: Callable[[int], None],
) -> None:
    """Train a small model in memory on the CPU, in place; it is in evaluation mode then.

    Of the settings seed, steps and optimiser count.

    Raises:
        DivergenceError: Loss or gradient became NaN or infinite.
    """
    steps = _Steps(model, settings, Runtime(torch.device("cpu"), None, compile=False, threads=1))
    for step in range(settings.steps):
        steps.take(step, loss, batch_of(step))
        steps.settle(step + 1)
        advance(1)
    model.eval()


def train(
    model: DualLGD,
    task: Task,
    settings: TrainingSettings,
    out: Path,
    runtime: Runtime,
    on_step: Callable[[int, dict[str, float]], None],
    record: dict[str, Any],
) -> Checkpoint:
    """Train until the last step, going on from the folder's `STATE` if it is there.

    The model is on its device and changed in place; the folder gets ``metrics.jsonl``, `MODEL` and
    `BEST`, too. The callback is told step and figures after each logged step. The record is kept in
    every checkpoint.

    Returns:
        The checkpoint with averaged weights, as written to `MODEL`.

    Raises:
        DivergenceError: Loss or gradient became NaN or infinite; the last good state is kept.
        InterruptedRunError: Ctrl-C or a polite kill; the state is saved first.
        WorkerDiedError: A process that makes batches was killed.
    """
    out.mkdir(parents=True, exist_ok=True)
    run, workers = _Run(model, settings, out, runtime, on_step, record), settings.data.workers
    workers = default_workers(runtime) if workers is None else workers
    with interruptible() as asked:
        made = batches(task, run.progress.step, runtime.device, workers)
        try:
            while run.progress.step < settings.steps:
                run.advance(task, made)
                if asked.is_set():
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            run.save()
            raise InterruptedRunError(
                f"stopped at step {run.progress.step} of {settings.steps}; "
                f"run the same command to go on, weights so far are {out / MODEL}"
            ) from None
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker"):  # torch says so wherever the loop is
                raise
            raise WorkerDiedError(
                "a process that makes batches was ended from outside, probably for want of memory; "
                "the same command goes on, with fewer by --set "
                f"{settings.stage}.training.data.workers=1"
            ) from None
        finally:
            made.close()
    return run.save()


@dataclass
class _Progress:
    """How far a run has come."""

    step: int = 0
    seconds: float = 0.0  # spent on steps
    samples: int = 0  # of all ranks, repeats counted
    validation: dict[str, float] = field(default_factory=dict)  # the latest figures
    best: float | None = None  # the least `verdict` on such so far


class _Run(_Steps):
    """Steps with an average of the weights, figures, looks at held-out data and saved states."""

    def __init__(
        self,
        model: DualLGD,
        settings: TrainingSettings,
        out: Path,
        runtime: Runtime,
        on_step: Callable[[int, dict[str, float]], None],
        record: dict[str, Any],
    ) -> None:
        super().__init__(model, settings, runtime)
        self.sizes, self.out, self.on_step, self.record = model.settings, out, on_step, record
        # The weights that get saved as the model: a moving average.
        self.averaged = copy.deepcopy(model).requires_grad_(False).eval()
        self.progress = self._resumed()
        self.window: list[list[float]] = []  # figures of the steps since the last line of the log
        self.window_start_s = self.progress.seconds

    def _resumed(self) -> _Progress:
        """Take up the state in the run's folder, if there is one, of this run and whole."""
        path = self.out / STATE
        if not path.is_file():
            return _Progress()
        try:
            state = torch.load(path, "cpu", weights_only=True)  # noqa: TID251 - not weights alone
        except Exception as error:  # noqa: BLE001 - a damaged pickle can fail in any way
            raise UsageError(f"{path} is broken ({error}); use another output folder") from None
        earlier, now = state["settings"], dump(self.settings)
        earlier["data"]["workers"] = now["data"]["workers"]  # it changes no number
        for what, is_other in (
            ("other settings", earlier != now),
            ("another network", shapes_in(state["model"]) != shapes_in(self.model.state_dict())),
        ):
            if is_other:
                raise UsageError(f"{path} belongs to a run with {what}; use another output folder")
        self.model.load_state_dict(state["model"])
        self.averaged.load_state_dict(state["averaged"])
        for optimiser, moments in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(moments)
        return _Progress(**state["progress"])

    def advance(self, task: Task, made: Iterator[Any]) -> None:
        """One optimiser step and what is due after it."""
        started, progress, settings = time.perf_counter(), self.progress, self.settings
        self.take(progress.step, task.loss, next(made))
        update_average(self.averaged, self.model, settings.optimiser.ema, progress.step)
        progress.step += 1
        is_last = progress.step == settings.steps
        is_logged, is_looked_at, is_saved = (
            progress.step % every == 0
            for every in (settings.log_every, settings.validate_every, settings.checkpoint_every)
        )
        if is_logged or is_looked_at or is_saved or is_last:
            self._collect()
        progress.seconds += time.perf_counter() - started
        if is_logged:
            n, spent = len(self.window), progress.seconds - self.window_start_s
            loss, norm, number, samples = (sum(column) for column in zip(*self.window, strict=True))
            self.window, self.window_start_s = [], progress.seconds
            rate = learning_rate(progress.step - 1, settings.steps, settings.optimiser)
            figures = {"loss": loss / n, "norm": norm / n, "count": number / n, "rate": rate}
            speed = samples / max(spent, 1e-9)
            self._log(figures | {"samples_per_s": speed, "s": progress.seconds})
        if is_looked_at or is_last:
            with self.runtime.autocast():
                progress.validation = task.validate(self.averaged)
            self._log(progress.validation)
            judged, best = verdict(progress.validation), progress.best
            if judged is not None and (best is None or judged < best):
                progress.best = judged
                if not self.runtime.rank:
                    save(self.out / BEST, self._checkpoint(), torch.float16)
        if is_saved:
            self.save()

    def _collect(self) -> None:
        """Fetch the figures of all steps; comes before every save, for weights that are numbers."""
        rows = self.settle(self.progress.step)
        self.progress.samples += round(sum(row[-1] for row in rows))
        self.window += rows

    def _log(self, figures: dict[str, float]) -> None:
        """Tell the caller and the file, where there is anything to tell."""
        if self.runtime.rank or not figures:
            return
        with (self.out / "metrics.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": self.progress.step, **figures}) + "\n")
        self.on_step(self.progress.step, figures)

    def _checkpoint(self) -> Checkpoint:
        """The averaged model, and how far it has come."""
        progress = self.progress
        record = self.record | asdict(progress) | {"seconds": round(progress.seconds, 1)}
        return Checkpoint(self.sizes, dict(self.averaged.state_dict()), record)

    def save(self) -> Checkpoint:
        """Write the state to resume from and the averaged model."""
        self._collect()
        checkpoint = self._checkpoint()
        if not self.runtime.rank:
            state = {
                "model": self.model.state_dict(),
                "averaged": checkpoint.tensors,
                "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
                "settings": dump(self.settings),
                "progress": asdict(self.progress),
            }
            with replaced(self.out / STATE) as temporary:
                torch.save(state, temporary)
            save(self.out / MODEL, checkpoint, torch.float16)
            _log.info("saved step %d in %s", self.progress.step, self.out)
        return checkpoint


def verdict(figures: dict[str, float]) -> float | None:
    """How good a network is on held-out data, the less the better; None where nothing says it.

    That is the mean cross entropy of bonds, or that of the fingerprint.
    """
    for name in ("nll", "fp_bce"):
        values = [value for figure, value in figures.items() if figure.startswith(name)]
        if values:
            return sum(values) / len(values)
    return None


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Take SIGINT and SIGTERM as requests to stop; yields what is set once somebody asked.

    Python raises KeyboardInterrupt anywhere, and half-way through an optimiser's step there is no
    state worth saving. Asked again a second later, it is raised all the same. Outside the main
    thread signals are left alone.
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
