"""Arms of a study: networks trained on equal budgets by the ordinary loop, judged alike, resumable.

Each arm has a folder: ``plan.json`` (how many steps its budget buys, measured once),
``model.safetensors`` (a checkpoint that names its variant), ``metrics.jsonl`` and, when it is
finished, ``result.json``.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from duallgd_cli.bench.held_out import HeldOut
from duallgd_cli.bench.judging import finish_all, noise_levels
from duallgd_cli.checkpoint.format import load
from duallgd_cli.config import SamplingSettings, digest
from duallgd_cli.errors import UsageError
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.model.settings import AtomOrder
from duallgd_cli.predict.generate import ModelGenerator
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.run import RunSettings, TrainingRequest, run_training

PLAN: Final = "plan.json"
RESULT: Final = "result.json"
MODEL: Final = "model.safetensors"
STATE: Final = "state.safetensors"
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_WARM_STEPS, _TIMED_STEPS = 6, 24
_MANY: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """What every arm of a study may spend on training.

    Attributes:
        seconds: Processor time of the optimiser steps (by the clock on a GPU), or None.
        steps: Optimiser steps, or None.
    """

    seconds: float | None = None
    steps: int | None = None

    @classmethod
    def parse(cls, text: str | None, steps: int | None) -> "Budget":
        """Read ``5m``, ``300s`` or ``0.5h``, or take a number of steps instead.

        Raises:
            UsageError: Both are given, neither is, or the text is not of that form.
        """
        if (text is None) == (steps is None):
            raise UsageError("give either --budget, such as 5m, or --steps")
        if text is None:
            return cls(steps=steps)
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh])\s*", text)
        if match is None or float(match[1]) <= 0:
            raise UsageError(f"--budget {text!r} is not like 5m, 300s or 0.5h")
        return cls(seconds=float(match[1]) * _SECONDS[match[2]])

    def __str__(self) -> str:
        """As a table's caption says it."""
        if self.seconds is None:
            return f"{self.steps} steps"
        return f"{self.seconds / 60:g} minutes of processor time"


@dataclass(frozen=True)
class Arm:
    """One network of a study.

    Attributes:
        name: Of its folder.
        title: For tables.
        settings: Network and training; `training.steps` follows from the budget.
        data: Prepared structures.
        atom_order: In which it is trained.
        reads_order: Whether it is judged with atoms in the order that they are given in. Where not,
            they are sorted by element first, and every order is the same to it.
        init: Weights to start from, as in `TrainingRequest`.
    """

    name: str
    title: str
    settings: RunSettings
    data: Path
    atom_order: AtomOrder = "formula"
    reads_order: bool = False
    init: dict[str, Path] = field(default_factory=dict)

    def request(self, out: Path, steps: int) -> TrainingRequest:
        """The training of so many steps."""
        training = replace(
            self.settings.training,
            stage="decoder",
            steps=steps,
            validate_every=_MANY,
            checkpoint_every=250,
            log_every=20,
        )
        settings = replace(self.settings, training=training)
        return TrainingRequest(settings, out, self.data, init=self.init, atom_order=self.atom_order)


@dataclass(frozen=True)
class Judging:
    """How every arm is judged.

    Attributes:
        held_out: Molecules, and orders in which their atoms are listed.
        sampling: Steps and samples of each molecule.
        seed: Of the noise.
    """

    held_out: tuple[HeldOut, ...]
    sampling: SamplingSettings
    seed: int = 0


@dataclass(frozen=True)
class Watcher:
    """Who is told how a study goes.

    Attributes:
        arm: Told the title and the number of steps of an arm that starts.
        step: Told step and figures while it trains.
        judged: Told molecules done and all of them while it is judged.
    """

    arm: Callable[[str, int], None] = lambda title, steps: None
    step: Callable[[int, dict[str, float]], None] = lambda step, figures: None
    judged: Callable[[int, int], None] = lambda done, total: None


def run_arm(
    arm: Arm, budget: Budget, judging: Judging, folder: Path, runtime: Runtime, watcher: Watcher
) -> dict[str, Any]:
    """Train and judge an arm, or read what an earlier run found.

    Args:
        arm: What to train.
        budget: For its training.
        judging: How it is judged.
        folder: Its own.
        runtime: Device and precision.
        watcher: Told how it goes.

    Returns:
        The contents of ``result.json``.

    Raises:
        UsageError: The folder holds an arm of another study.
        InterruptedRunError: Ctrl-C; the same command goes on.
    """
    identity = _identity(arm, budget, judging, runtime)
    found = _read(folder / RESULT, identity)
    if found is not None:
        return found
    plan = _read(folder / PLAN, identity) or _plan(arm, budget, identity, runtime)
    _write(folder / PLAN, plan)
    watcher.arm(arm.title, plan["steps"])
    started = _clock(runtime)
    run_training(arm.request(folder, plan["steps"]), runtime, watcher.step)
    spent = _clock(runtime) - started
    result = {**plan, "arm": arm.name, "title": arm.title, "seconds_this_run": round(spent, 1)}
    result |= _judged(arm, judging, folder, runtime, watcher)
    _write(folder / RESULT, result)
    (folder / STATE).unlink(missing_ok=True)  # there is nothing left to resume
    return result


def _plan(arm: Arm, budget: Budget, identity: str, runtime: Runtime) -> dict[str, Any]:
    """How many steps the budget buys."""
    if budget.seconds is None:
        return {"identity": identity, "steps": budget.steps, "seconds_per_step": None}
    step_s = _seconds_per_step(arm, runtime)
    steps = max(1, round(budget.seconds / step_s))
    return {"identity": identity, "steps": steps, "seconds_per_step": step_s}


def _judged(
    arm: Arm, judging: Judging, folder: Path, runtime: Runtime, watcher: Watcher
) -> dict[str, Any]:
    """Figures for every order, and the size of the network."""
    model = load(folder / MODEL).build().to(runtime.device)
    generator = ModelGenerator(model, runtime)
    shown: dict[str, dict[str, Any]] = {}
    orders: dict[str, dict[str, Any]] = {}
    for held_out in judging.held_out:
        order: AtomOrder = held_out.order if arm.reads_order else "formula"
        if order not in shown:
            known = replace(held_out, order=order).structures()
            shown[order] = {
                "noise_levels": [asdict(level) for level in noise_levels(generator, known)],
                "molecules": [one.block for one in known],
                "finished": finish_all(
                    generator, known, judging.sampling, judging.seed, watcher.judged
                ),
            }
        orders[held_out.order] = shown[order]
    parameters = sum(p.numel() for p in model.denoiser.parameters())
    return {"parameters": parameters, "orders": orders}


def _seconds_per_step(arm: Arm, runtime: Runtime) -> float:
    """What a step costs, from the first steps of a run that is thrown away."""
    marks: dict[int, float] = {}
    last = _WARM_STEPS + _TIMED_STEPS

    def on_step(step: int, figures: dict[str, float]) -> None:
        del figures
        marks[step] = _clock(runtime)

    with tempfile.TemporaryDirectory() as folder:
        request = arm.request(Path(folder), _MANY)
        training = replace(request.settings.training, log_every=1, checkpoint_every=_MANY)
        settings = replace(request.settings, training=training)
        run_training(replace(request, settings=settings, stop_after=last), runtime, on_step)
    return (marks[last] - marks[_WARM_STEPS]) / _TIMED_STEPS


def _clock(runtime: Runtime) -> float:
    """Processor time of this process; on a GPU the clock, as the processor only waits there."""
    return time.process_time() if runtime.device.type == "cpu" else time.perf_counter()


def _identity(arm: Arm, budget: Budget, judging: Judging, runtime: Runtime) -> str:
    """One digest of everything that a result depends on, the machine's speed left out."""
    return digest(
        _Identity(
            settings=digest(arm.settings),
            arm=f"{arm.name} {arm.atom_order} {arm.reads_order} {sorted(arm.init)}",
            data=tuple(_data_digest(folder) for folder in (arm.data, *_folders(judging))),
            judging=f"{judging.sampling} {judging.seed} "
            + " ".join(f"{h.fold} {h.limit} {h.max_atoms} {h.order}" for h in judging.held_out),
            budget=f"{budget} {runtime.autocast}",
        )
    )


@dataclass(frozen=True)
class _Identity:
    settings: str
    arm: str
    data: tuple[str, ...]
    judging: str
    budget: str


def _folders(judging: Judging) -> list[Path]:
    return [held_out.folder for held_out in judging.held_out]


def _data_digest(folder: Path) -> str:
    path = folder / "manifest.json"
    return sha256(path) if path.is_file() else "absent"


def _read(path: Path, identity: str) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found.get("identity") != identity:
        raise UsageError(
            f"{path.parent} holds an arm of another study (other data, budget, sizes or judging); "
            "use another output folder"
        )
    return found


def _write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, [json.dumps(values) + "\n"])
