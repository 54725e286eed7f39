"""One trainer for every task: interrupted or not, in one process or many, on disk or in memory.

All randomness of a step is a function of the seed, the step and the rank, so a resumed run needs
only weights, moments and the step number to go on to the same numbers; which process makes a batch,
and when, changes none.
"""

import atexit
import copy
import json
import logging
import math
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset

from duallgd_cli.checkpoint.format import Checkpoint, save, shapes_in
from duallgd_cli.config import dump
from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError, WorkerDiedError
from duallgd_cli.files import replaced
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.tensors import map_tensors
from duallgd_cli.runtime import Runtime, available_cores
from duallgd_cli.train.optimisers import learning_rate, optimisers, update_average
from duallgd_cli.train.settings import TrainingSettings

_log = logging.getLogger(__name__)
STATE: Final = "state.pt"
MODEL: Final = "model.safetensors"
BEST: Final = "best.safetensors"  # the averaged model at the best look at held-out data
_ONE_REQUEST_S: Final = 1.0
_AHEAD: Final = 2  # batches under way for each process that makes them
_MOST_BY_DEFAULT: Final = 8  # such processes
# Of a model and a batch: the summed loss, and the number that it is to be divided by.
Loss = Callable[[Any, Any], tuple[Tensor, Tensor]]


class DivergenceError(DuallgdError):
    """The loss, or its gradient, is no longer a number."""


class Task(Protocol):
    """What is trained: batches, their loss, and what is looked at."""

    def plan(self, first_step: int) -> Iterator[Any]:
        """What each step is trained on, from a step on, for ever; cheap."""

    def collate(self, planned: Any, step: int) -> Any:  # noqa: ANN401
        """The batch of one step, on the CPU, with the number of its cases as ``n_samples``."""

    def loss(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Summed loss and the number it is to be divided by, both scalars."""

    def validate(self, model: Any) -> dict[str, float]:  # noqa: ANN401
        """Figures on held-out data."""


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

    Of the settings seed, steps and optimiser count. Figures that are no numbers are a
    `DivergenceError`.
    """
    steps = _Steps(model, settings, Runtime(torch.device("cpu"), None, compile=False, threads=1))
    for step in range(settings.steps):
        steps.take(step, loss, batch_of(step))
        steps.settle(step + 1)
        advance(1)
    model.eval()


@dataclass
class _Progress:
    """How far a run has come."""

    step: int = 0
    seconds: float = 0.0  # spent on steps
    samples: int = 0  # of all ranks, repeats counted
    validation: dict[str, float] = field(default_factory=dict)  # the latest figures
    best: float | None = None  # the least `verdict` on such so far


class Run(_Steps):
    """Steps with an average of the weights, figures, looks at held-out data and saved states.

    It goes on from the folder's `STATE` if it is there. The model is on its device and changed in
    place; the folder gets ``metrics.jsonl``, `BEST` and `MODEL`, with the record. The callback is
    told step and figures after each logged step.
    """

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
        out.mkdir(parents=True, exist_ok=True)
        self.sizes, self.out, self.on_step, self.record = model.settings, out, on_step, record
        # The weights that get saved as the model: a moving average.
        self.averaged = copy.deepcopy(model).requires_grad_(False).eval()
        self.progress = self._resumed()
        self.window: list[list[float]] = []  # figures of the steps since the last line of the log
        self.window_start_s = self.progress.seconds

    def train(self, task: Task) -> Checkpoint:
        """Train until the last step; returns what is `MODEL` then.

        Raises:
            DivergenceError: Loss or gradient became NaN or infinite; the last good state is kept.
            InterruptedRunError: Ctrl-C or a polite kill; the state is saved first.
            WorkerDiedError: A process that makes batches was killed.
        """
        workers = self.settings.data.workers
        workers = default_workers(self.runtime) if workers is None else workers
        with interruptible() as asked:
            made = batches(task, self.progress.step, self.runtime.device, workers)
            try:
                while self.progress.step < self.settings.steps:
                    self._advance(task, made)
                    if asked.is_set():
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                self.save()
                raise InterruptedRunError(
                    f"stopped at step {self.progress.step} of {self.settings.steps}; run the same "
                    f"command to go on, weights so far are {self.out / MODEL}"
                ) from None
            except RuntimeError as error:
                if not str(error).startswith("DataLoader worker"):  # torch says so in any loop
                    raise
                raise WorkerDiedError(
                    "a process that makes batches was ended from outside, probably for want of "
                    "memory; the same command goes on, with fewer by --set "
                    f"{self.settings.stage}.training.data.workers=1"
                ) from None
            finally:
                made.close()
        return self.save()

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
        if earlier["data"].get("shuffle_share") == 0:  # as in most states up to 0.2
            del earlier["data"]["shuffle_share"]
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

    def _advance(self, task: Task, made: Iterator[Any]) -> None:
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

    KeyboardInterrupt comes anywhere, and half-way through an optimiser's step no state is worth
    saving. Asked again a second later, it is raised all the same.
    """
    asked, first_s = threading.Event(), math.inf

    def ask(*_: object) -> None:
        nonlocal first_s
        now_s = time.monotonic()
        if now_s - first_s > _ONE_REQUEST_S:  # `timeout` and terminals send one more than once
            raise KeyboardInterrupt
        asked.set()
        first_s = min(first_s, now_s)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Batches(Dataset[bytes]):
    """Batches by step and plan."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __getitem__(self, item: tuple[int, Any]) -> bytes:
        step, planned = item
        # As bytes: torch's own way between processes needs shared memory, which containers lack.
        return pickle.dumps(self.task.collate(planned, step), pickle.HIGHEST_PROTOCOL)


def default_workers(runtime: Runtime) -> int:
    """Processes that make batches by default: none on a CPU, which has better to do."""
    cores = available_cores() // runtime.world_size
    return max(1, min(_MOST_BY_DEFAULT, cores - 1)) if runtime.device.type == "cuda" else 0


def batches(
    task: Task, first_step: int, device: torch.device, workers: int = 0
) -> Generator[Any, None, None]:
    """Batches on the device, from a step on, for ever; close the iterator to end the processes.

    So many processes make them ahead, in the order of their steps; without one, each is made when
    it is asked for.
    """
    workers = workers if hasattr(os, "fork") else 0
    with warnings.catch_warnings():
        # Of forking beside threads (none of ours holds a lock between two steps), and of more
        # processes than cores.
        warnings.simplefilter("ignore")
        loader = DataLoader(
            _Batches(task),
            batch_size=None,
            sampler=enumerate(task.plan(first_step), first_step),
            num_workers=workers,
            prefetch_factor=_AHEAD if workers else None,
            multiprocessing_context="fork" if workers else None,  # shares the mapped data
            worker_init_fn=_leave_signals_to_parent,
            generator=torch.Generator(),  # not the global one
        )
        made = iter(loader)
    # Without it PyTorch asks processes to stop at the end, to which they do not listen, and waits.
    end = getattr(made, "_shutdown_workers", lambda: None)
    atexit.register(end)
    try:
        for pickled in made:
            batch = pickle.loads(pickled)  # from our own
            if device.type == "cuda":
                # From pinned memory a copy is queued like a kernel, and the loop goes on.
                batch = map_tensors(batch, lambda x: x.pin_memory().to(device, non_blocking=True))
            elif device.type != "cpu":
                batch = map_tensors(batch, lambda x: x.to(device))
            yield batch
    finally:
        end()
        atexit.unregister(end)


def _leave_signals_to_parent(_: int) -> None:
    """Ctrl-C, and a polite kill of the whole group, are for the parent to answer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
