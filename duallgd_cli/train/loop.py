"""One training loop for every stage, one process or many, interrupted or not.

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
from torch.optim import AdamW

from duallgd_cli.checkpoint.format import Checkpoint, save, shapes_in
from duallgd_cli.config import dump
from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError, WorkerDiedError
from duallgd_cli.files import replaced
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.prefetch import Stage, batches, default_workers
from duallgd_cli.train.settings import OptimiserSettings, TrainingSettings

_log = logging.getLogger(__name__)
STATE: Final = "state.pt"
BEST: Final = "best.safetensors"  # the averaged model at the best look at held-out data
_ONE_REQUEST_S: Final = 1.0


@contextmanager
def process_group(runtime: Runtime) -> Iterator[None]:
    """Join the processes that torchrun describes; alone, or where they are joined, do nothing."""
    if runtime.world_size == 1 or dist.is_initialized():
        yield
        return
    backend = "nccl" if runtime.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, rank=runtime.rank, world_size=runtime.world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def sum_over_ranks(*values: Tensor) -> list[Tensor]:
    """Sums over all processes of scalars; of one process the values themselves."""
    packed = torch.stack([value.detach().double() for value in values])
    if dist.is_initialized():
        dist.all_reduce(packed)
    return list(packed)


def sum_gradients(model: nn.Module) -> None:
    """Add up gradients; losses were divided by the global count before, so this is the mean."""
    if not dist.is_initialized():
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


@dataclass(frozen=True, eq=False)
class Hooks:
    """What the caller adds to the loop.

    Attributes:
        on_step: Told step and metrics after each logged step.
        record: Kept in every checkpoint: data, hold-outs, machine.
        stop_after: Step to stop at although the schedule goes on, or None.
        minutes: Minutes of this command to stop after although the schedule goes on, checked
            whenever figures are logged, or None.
    """

    on_step: Callable[[int, dict[str, float]], None]
    record: dict[str, Any]
    stop_after: int | None = None
    minutes: float | None = None


@dataclass
class TrainingProgress:
    """How far a run has come.

    Attributes:
        step: Optimiser steps done.
        seconds: Spent on them, looks at held-out data left out.
        samples: Graphs or spectra trained on, of all ranks, repeats counted.
        validation: Latest figures on held-out data.
        best: Least `verdict` on them so far, or None.
    """

    step: int = 0
    seconds: float = 0.0
    samples: int = 0
    validation: dict[str, float] = field(default_factory=dict)
    best: float | None = None


class DivergenceError(DuallgdError):
    """The loss, or its gradient, is no longer a number."""


def train(
    model: DualLGD,
    stage: Stage,
    settings: TrainingSettings,
    out: Path,
    runtime: Runtime,
    hooks: Hooks,
) -> Checkpoint:
    """Train until the last step, going on from ``state.pt`` if it is there.

    Args:
        model: On its device; changed in place.
        stage: Batches and losses.
        settings: Settings of the run.
        out: Folder for ``metrics.jsonl``, ``state.pt``, ``model.safetensors`` and `BEST`.
        runtime: Precision, and which of the processes that train together this one is.
        hooks: Callbacks, and when to stop before the schedule's end.

    Returns:
        The checkpoint with averaged weights, as written to ``model.safetensors``.

    Raises:
        DivergenceError: Loss or gradient became NaN or infinite; the last good state is kept.
        InterruptedRunError: Ctrl-C or a polite kill; the state is saved first.
        WorkerDiedError: A process that makes batches was killed.
    """
    out.mkdir(parents=True, exist_ok=True)
    run, workers = _Run(model, settings, out, runtime, hooks), settings.data.workers
    workers = default_workers(runtime) if workers is None else workers
    with interruptible() as asked:
        made = batches(stage, run.progress.step, runtime.device, workers)
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
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker"):  # torch says so wherever the loop is
                raise
            raise WorkerDiedError(
                "a process that makes batches was ended from outside, probably for want of memory; "
                "the same command goes on, with fewer --set training.data.workers"
            ) from None
        finally:
            made.close()
    return run.save()


class _Run:
    """Model, moments, average and progress of a run."""

    def __init__(
        self, model: DualLGD, settings: TrainingSettings, out: Path, runtime: Runtime, hooks: Hooks
    ) -> None:
        self.model, self.settings, self.out = model, settings, out
        self.runtime, self.hooks = runtime, hooks
        self.optimisers = optimisers(model, settings.optimiser)
        # The weights that get saved as the model: a moving average.
        self.averaged = copy.deepcopy(model).requires_grad_(False).eval()
        self.progress = self._resumed()
        self.started = time.perf_counter()
        # Figures of each step: on the device until somebody reads them, for reading waits for it.
        self.pending: list[Tensor] = []
        self.window: list[list[float]] = []
        self.window_start_s = self.progress.seconds
        model.train()

    def _resumed(self) -> TrainingProgress:
        """Take up the state in the run's folder, if there is one.

        Raises:
            UsageError: It is broken, or was written with other settings or another network.
        """
        path = self.out / STATE
        if not path.is_file():
            return TrainingProgress()
        try:
            state = torch.load(path, "cpu", weights_only=True)  # noqa: TID251 - not weights alone
        except Exception as error:  # noqa: BLE001 - a damaged pickle can fail in any way
            raise UsageError(f"{path} is broken ({error}); use another output folder") from None
        if _that_matter(state["settings"]) != _that_matter(dump(self.settings)):
            raise UsageError(
                f"{path} belongs to a run with other settings; use another output folder"
            )
        if shapes_in(state["model"]) != shapes_in(self.model.state_dict()):
            raise UsageError(
                f"{path} belongs to a run with another network; use another output folder"
            )
        self.model.load_state_dict(state["model"])
        self.averaged.load_state_dict(state["averaged"])
        for optimiser, moments in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(moments)
        return TrainingProgress(**state["progress"])

    def is_over(self) -> bool:
        """Whether the last step, or a limit, has been reached."""
        step, settings, hooks = self.progress.step, self.settings, self.hooks
        if step >= min(settings.steps, hooks.stop_after or settings.steps):
            return True
        if hooks.minutes is None or step % settings.log_every:
            return False
        late = time.perf_counter() - self.started > 60 * hooks.minutes
        (ranks,) = sum_over_ranks(torch.tensor(float(late), device=self.runtime.device))
        return bool(ranks)  # what one rank decides binds all

    def advance(self, stage: Stage, made: Iterator[Any]) -> None:
        """One optimiser step and what is due after it."""
        started, progress = time.perf_counter(), self.progress
        batch = next(made)
        rate = learning_rate(progress.step, self.settings.steps, self.settings.optimiser)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
        # Dropout draws from torch's global generator: seeded by step, a resumed run draws the same.
        parts = self.settings.seed, progress.step, self.runtime.rank
        torch.manual_seed(int(np.random.SeedSequence(parts).generate_state(1)[0]))
        with self.runtime.autocast():
            summed, count = stage.loss(self.model, batch)
        n_samples = summed.detach().new_full((), batch.n_samples)
        total, number, samples = sum_over_ranks(summed, count, n_samples)
        number = number.clamp_min(1)  # a batch of cores that are molecules leaves nothing to guess
        self.model.zero_grad(set_to_none=True)
        (summed / number).backward()
        sum_gradients(self.model)
        norm = clip_grad_norm_(self.model.parameters(), self.settings.optimiser.clip)
        for optimiser in self.optimisers:
            optimiser.step()
        update_average(self.averaged, self.model, self.settings.optimiser.ema, progress.step)
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
                if not math.isfinite(value):
                    raise DivergenceError(
                        f"the {name} became {value} at step {step}; lower optimiser.learning_rate "
                        f"and run again: the last good state is in {self.out}"
                    )
            self.progress.samples += round(row[3])
        self.window += rows

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
            with self.runtime.autocast():
                progress.validation = stage.validate(self.averaged)
            self._log(progress.validation)
            judged, best = verdict(progress.validation), progress.best
            if judged is not None and (best is None or judged < best):
                progress.best = judged
                if not self.runtime.rank:
                    save(self.out / BEST, self._checkpoint(), torch.float16)
        if progress.step % settings.checkpoint_every == 0:
            self.save()

    def _log(self, figures: dict[str, float]) -> None:
        if self.runtime.rank or not figures:
            return
        self.hooks.on_step(self.progress.step, figures)
        with (self.out / "metrics.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": self.progress.step, **figures}) + "\n")

    def _checkpoint(self) -> Checkpoint:
        """The averaged model, and how far it has come."""
        progress = self.progress
        record = self.hooks.record | asdict(progress) | {"seconds": round(progress.seconds, 1)}
        return Checkpoint(self.model.settings, dict(self.averaged.state_dict()), record)

    def save(self) -> Checkpoint:
        """Write the state to resume from and the averaged model.

        Raises:
            DivergenceError: There is nothing worth saving.
        """
        self._settle()
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
            save(self.out / "model.safetensors", checkpoint, torch.float16)
            _log.info("saved step %d in %s", self.progress.step, self.out)
        return checkpoint


def verdict(figures: dict[str, float]) -> float | None:
    """One number that says how good a network is on held-out data, the less the better; or None.

    That is the mean cross entropy of bonds, from predicted fingerprints where there is such, or
    that of the fingerprint.
    """
    for name in ("predicted_nll", "nll", "fp_bce"):
        values = [value for figure, value in figures.items() if figure.startswith(name)]
        if values:
            return sum(values) / len(values)
    return None


def _that_matter(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that change no number."""
    data = {name: value for name, value in settings["data"].items() if name != "workers"}
    return settings | {"data": data}


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


_NARROW: Final = 16


def optimisers(module: nn.Module, settings: OptimiserSettings) -> tuple[torch.optim.Optimizer, ...]:
    """What updates the parameters, each of them once; weight decay is on matrices alone."""
    decayed = {
        f"{name}.weight" for name, part in module.named_modules() if isinstance(part, nn.Linear)
    }
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    matrices = [(n, p) for n, p in named if n in decayed]
    rest = [(n, p) for n, p in named if n not in decayed]
    if settings.matrices == "adamw":
        return (_adamw(settings, (matrices, settings.weight_decay), (rest, 0.0)),)
    # An orthogonal step makes little sense where one side holds a handful of numbers.
    narrow = [(n, p) for n, p in matrices if min(p.shape) < _NARROW]
    wide = [(n, p) for n, p in matrices if min(p.shape) >= _NARROW]
    muon = _Muon(
        wide,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adjust_lr_fn="match_rms_adamw",  # one learning rate does for both
    )
    return muon, _adamw(settings, (narrow, settings.weight_decay), (rest, 0.0))


class _Muon(torch.optim.Muon):
    """Muon that makes all matrices of a shape orthogonal in one batch on a GPU.

    One by one, the small matrices of a denoiser are some 4,000 kernels a step, and launching them
    takes longer than the network. Settings and state are those of the class above.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; on a CPU that of the class above."""
        if all(p.device.type == "cpu" for group in self.param_groups for p in group["params"]):
            return super().step(closure)  # type: ignore[no-any-return,no-untyped-call]
        for group in self.param_groups:
            self._step_by_shape(group)
        return None

    def _step_by_shape(self, group: dict[str, Any]) -> None:
        parameters: list[Tensor] = []
        gradients: list[Tensor] = []
        momenta: list[Tensor] = []
        self._init_group(group, parameters, gradients, momenta)
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, group["momentum"])  # Nesterov's
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        by_shape: dict[torch.Size, list[int]] = {}
        for number, parameter in enumerate(parameters):
            by_shape.setdefault(parameter.shape, []).append(number)
        for shape, members in by_shape.items():
            stacked = torch.stack([updates[number] for number in members])
            steps = orthogonal(stacked, group["ns_coefficients"], group["ns_steps"], group["eps"])
            rate = 0.2 * math.sqrt(max(shape)) * group["lr"]  # match_rms_adamw
            own = [parameters[number] for number in members]
            torch._foreach_add_(own, list(steps.to(own[0].dtype).unbind()), alpha=-rate)


def orthogonal(
    matrices: Tensor, coefficients: tuple[float, float, float], steps: int, least: float
) -> Tensor:
    """Matrices brought near to orthogonal ones by Newton and Schulz's iteration.

    Args:
        matrices: (k, m, n).
        coefficients: Of X, X X^T X and (X X^T)^2 X.
        steps: Iterations.
        least: Norm below which a matrix counts as zero.

    Returns:
        bfloat16 (k, m, n), all singular values about one.
    """
    a, b, c = coefficients
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if is_tall else matrices).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(least)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


def _adamw(
    settings: OptimiserSettings, *groups: tuple[list[tuple[str, nn.Parameter]], float]
) -> AdamW:
    chosen = [{"params": parameters, "weight_decay": decay} for parameters, decay in groups]
    return AdamW(chosen, lr=settings.learning_rate, betas=(0.9, settings.beta2), fused=True)


def learning_rate(step: int, steps: int, settings: OptimiserSettings) -> float:
    """One cycle: linear up, level for a while, cosine down to a share of the peak."""
    warmup = max(1, round(steps * settings.warmup_share))
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    level = warmup + round(steps * settings.hold_share)
    progress = min(1.0, max(0, step - level) / max(1, steps - level))
    low = settings.final_share
    return settings.learning_rate * (low + (1 - low) * (1 + math.cos(math.pi * progress)) / 2)


@torch.no_grad()
def update_average(averaged: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move the average towards the weights; the decay grows from 0 so that early steps count."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)
