"""Arms of a study: networks trained on equal budgets by the ordinary loop, judged alike, resumable.

Each arm has a folder: ``plan.json`` (how many steps its budget buys, measured once),
``model.safetensors`` (a checkpoint that names its variant), ``metrics.jsonl`` and, when it is
finished, ``result.json``.
"""

import csv
import hashlib
import io
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from atom_orders import AtomOrder, load_in_order
from command import say, show, typed
from duallgd_cli.generator.network import ModelGenerator
from judging import COLUMNS, HeldOut, bond_marginal, finish_all, noise_levels
from networks import build
from rich.table import Table

from duallgd_cli import __version__
from duallgd_cli.bench.machine import describe
from duallgd_cli.checkpoint.format import load
from duallgd_cli.config import SamplingSettings, dump
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.intervals import Estimate, means
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.run import TrainingRequest, run_training
from duallgd_cli.train.settings import RunSettings

Result = Mapping[str, Any]
MODEL: Final = "model.safetensors"
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_WARM_STEPS, _TIMED_STEPS = 6, 24
_MANY: Final = 1_000_000
_SHARES: Final = ("top_1", "top_10", "any_sample", "valid")


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
        name: Its name, and that of its folder.
        title: Its name in tables.
        settings: Network and training; `training.steps` follows from the budget.
        data: Prepared structures.
        atom_order: In which it is trained. Unless it is the formula's, the arm is judged with atoms
            in the order that they are given in. Else they are sorted by element first, and every
            order is the same to it.
        init: Weights to start from, as in `TrainingRequest`.
    """

    name: str
    title: str
    settings: RunSettings
    data: Path
    atom_order: AtomOrder = "formula"
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
        return TrainingRequest(
            settings,
            out,
            self.data,
            init=self.init,
            atom_order=self.atom_order,
            read=partial(load_in_order, order=self.atom_order, seed=training.seed),
            network=build,
        )


@dataclass(frozen=True)
class Study:
    """What all arms have in common.

    Attributes:
        output: Folder of the study.
        budget: What each arm may spend.
        settings: Network and training, before an arm changes them.
        sampling: Steps and samples of each molecule that is judged by.
        molecules: Number of those.
        runtime: Device and precision.
    """

    output: Path
    budget: Budget
    settings: RunSettings
    sampling: SamplingSettings
    molecules: int
    runtime: Runtime

    @property
    def max_atoms(self) -> int:
        """Heavy atoms of the largest molecules that are trained on and judged by."""
        return self.settings.training.data.max_atoms

    def settings_of(self, data: Path) -> RunSettings:
        """The settings with the bond marginal of prepared structures."""
        model = self.settings.model
        process = replace(model.diffusion, marginal=bond_marginal(data, self.max_atoms))
        return replace(self.settings, model=replace(model, diffusion=process))

    def caption(self, result: Result) -> str:
        """How the study was run, in sentences."""
        (judged, *_) = result["orders"].values()
        seed, processor = self.settings.training.seed, describe(self.runtime)["cpu"]
        return (
            f"`{typed()}`: {self.budget} an arm ({self.runtime}, {processor}, torch "
            f"{torch.__version__}), one training seed ({seed}). Judged by "
            f"{len(judged['molecules'])} molecules of at most {self.max_atoms} heavy atoms that "
            f"none was trained on, given their true fingerprints, {self.sampling.samples} samples "
            f"of {self.sampling.steps} steps each, candidates ranked by frequency; 95 % bootstrap "
            "intervals over molecules."
        )

    def record(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Contents of results.json."""
        return {
            "duallgd": __version__,
            "command": typed(),
            "budget": str(self.budget),
            "runtime": str(self.runtime),
            "processor": describe(self.runtime)["cpu"],
            "torch": torch.__version__,
            "seed": self.settings.training.seed,
            "samples": self.sampling.samples,
            "steps": self.sampling.steps,
            "rows": list(rows),
        }

    def run(self, arm: Arm, held_out: Sequence[HeldOut]) -> dict[str, Any]:
        """Train and judge an arm, or read what an earlier run found.

        Args:
            arm: What to train.
            held_out: Molecules that it is judged by, in one or more orders of their atoms.

        Returns:
            The contents of ``result.json``.

        Raises:
            UsageError: The folder holds an arm of another study.
            InterruptedRunError: Ctrl-C; the same command goes on.
        """
        folder = self.output / arm.name
        identity = self._identity(arm, held_out)
        found = _read(folder / "result.json", identity)
        if found is not None:
            return found
        plan = _read(folder / "plan.json", identity)
        if plan is None:
            steps, step_s = self.budget.steps, None
            if self.budget.seconds is not None:
                step_s = seconds_per_step(arm, self.runtime)
                steps = max(1, round(self.budget.seconds / step_s))
            plan = {"identity": identity, "steps": steps, "seconds_per_step": step_s}
            _write(folder / "plan.json", plan)
        say(f"{arm.title}: {plan['steps']} steps")
        started = clock_s(self.runtime)
        run_training(arm.request(folder, plan["steps"]), self.runtime, _say_loss)
        spent = clock_s(self.runtime) - started
        result = {**plan, "arm": arm.name, "title": arm.title, "seconds_this_run": round(spent, 1)}
        result |= self._judged(arm, held_out, folder)
        _write(folder / "result.json", result)
        (folder / "state.pt").unlink(missing_ok=True)  # nothing is left to resume
        return result

    def _judged(self, arm: Arm, held_out: Sequence[HeldOut], folder: Path) -> dict[str, Any]:
        """Figures for every order, and the size of the network."""
        model = load(folder / MODEL).build(build).to(self.runtime.device)
        generator = ModelGenerator(model, self.runtime)
        shown: dict[str, dict[str, Any]] = {}
        orders: dict[str, dict[str, Any]] = {}
        for one in held_out:
            order: AtomOrder = "formula" if arm.atom_order == "formula" else one.order
            if order not in shown:
                known = replace(one, order=order).structures()
                shown[order] = {
                    "noise_levels": noise_levels(generator, known),
                    "molecules": [molecule.block for molecule in known],
                    "finished": finish_all(generator, known, self.sampling, 0, _say_judged),
                }
            orders[one.order] = shown[order]
        parameters = sum(p.numel() for p in model.denoiser.parameters())
        return {"parameters": parameters, "orders": orders}

    def _identity(self, arm: Arm, held_out: Sequence[HeldOut]) -> str:
        """One digest of everything that a result depends on, the machine's speed left out."""
        manifests = [
            folder / "manifest.json" for folder in (arm.data, *(h.folder for h in held_out))
        ]
        parts = (
            f"{arm.name} {arm.atom_order} {sorted(arm.init)}",
            *(sha256(path) if path.is_file() else "absent" for path in manifests),
            f"{self.sampling} {self.budget} {self.runtime.autocast_dtype}",
            *(f"{h.fold} {h.limit} {h.max_atoms} {h.order}" for h in held_out),
        )
        text = json.dumps({"settings": dump(arm.settings), "parts": parts}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def seconds_per_step(arm: Arm, runtime: Runtime) -> float:
    """What a step costs, from the first steps of a run that is thrown away."""
    marks: dict[int, float] = {}
    last = _WARM_STEPS + _TIMED_STEPS
    with tempfile.TemporaryDirectory() as folder:
        request = arm.request(Path(folder), _MANY)
        training = replace(request.settings.training, log_every=1, checkpoint_every=_MANY)
        settings = replace(request.settings, training=training)
        request = replace(request, settings=settings, stop_after=last)
        run_training(request, runtime, lambda step, figures: marks.update({step: clock_s(runtime)}))
    return (marks[last] - marks[_WARM_STEPS]) / _TIMED_STEPS


def clock_s(runtime: Runtime) -> float:
    """Processor time of this process; on a GPU the clock, as the processor only waits there."""
    return time.process_time() if runtime.device.type == "cpu" else time.perf_counter()


def estimates(sides: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, Estimate]:
    """Means with 95 % intervals over molecules, of one side or of the first less the second."""
    tables = [np.array([side[name] for name in COLUMNS]).T for side in sides]
    values = tables[0] - tables[1] if len(tables) > 1 else tables[0]
    return dict(zip(COLUMNS, means(values.astype(np.float64), range(len(values))), strict=True))


def interval(found: Mapping[str, Estimate], name: str) -> str:
    """A mean with its interval as a cell; per cent where it is a share."""
    one = found[name]
    if math.isnan(one.mean):
        return "-"
    digits, scale = (1, 100.0) if name in _SHARES else (3, 1.0)
    low, mean, high = (f"{scale * part:.{digits}f}" for part in (one.low, one.mean, one.high))
    return f"{mean} ({low} to {high})"


def at_step(levels: Sequence[Mapping[str, float]], t: int, name: str) -> str:
    """A figure at a noise step as a cell, empty where there is no such step."""
    return next((f"{level[name]:.3f}" for level in levels if level["t"] == t), "")


def plain(found: Mapping[str, Estimate]) -> dict[str, dict[str, float]]:
    """Estimates as results.json holds them."""
    return {name: asdict(one) for name, one in found.items()}


def write_table(
    path: Path,
    heading: tuple[str, str],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    narrow: Callable[[Sequence[str]], Sequence[str]],
    record: Mapping[str, Any],
) -> None:
    """Write a table as CSV and Markdown, and results.json; print what a terminal has room for.

    Args:
        path: Without its ending.
        heading: Title and caption.
        header: Titles of the columns.
        rows: Cells.
        narrow: Picks the columns to print.
        record: Everything behind the table, for results.json.
    """
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    lines = [header, ["---"] * len(header), *rows]
    body = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    title, caption = heading
    write_atomically(path.with_suffix(".csv"), [stream.getvalue()])
    write_atomically(path.with_suffix(".md"), [f"# {title}\n\n{caption}\n\n{body}\n"])
    write_atomically(path.with_name("results.json"), [json.dumps(record, indent=1) + "\n"])
    shown = Table(*narrow(header))
    for cells in rows:
        shown.add_row(*narrow(cells))
    show(shown, caption)
    say(f"-> {path.parent}")


def _say_loss(step: int, figures: Mapping[str, float]) -> None:
    if step % 200 == 0 and "loss" in figures:
        say(f"  step {step}  loss {figures['loss']:.4f}")


def _say_judged(done: int, total: int) -> None:
    if done == total:
        say(f"  {total} molecules judged")


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


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, [json.dumps(values) + "\n"])
