"""`duallgd train RECIPE`: spectra and structures to a whole weights file, stage by stage.

A stage is a function that makes files in the run's folder. It is skipped where ``done/NAME.json``
says that they were made and they are as they were; a training stage goes on where it stopped, any
other begins again. Under torchrun all processes train together, and the first does the rest.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import yaml

from duallgd_cli.config import merge, parse, read_mapping
from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.loop import process_group, sum_over_ranks
from duallgd_cli.train.settings import RecipeSettings
from duallgd_cli.train.stages import COSTS, STAGES, Displays, RecipeRun, RecipeStage, costs_of

NAMES: Final = tuple(stage.name for stage in STAGES)
_LOOK_AGAIN_S: Final = 0.2
_NEARLY_FULL_BYTES: Final = 1 << 20


def read_recipe(
    path: Path, overrides: Mapping[str, Any], base: Path | None, out: Path, runtime: Runtime,
    shows: Displays,
) -> RecipeRun:  # fmt: skip
    """A recipe, ready to be followed.

    Args:
        path: YAML file of `RecipeSettings`.
        overrides: Plain values that are laid over it.
        base: Folder that its files are named from; None for that of the recipe.
        out: Folder of the run.
        runtime: Device, precision and ranks.
        shows: Displays.

    Raises:
        ConfigError: The file is missing or no such recipe.
    """
    plain = merge(read_mapping(path), overrides)
    seed = {"seed": plain["seed"]} if "seed" in plain else {}
    staged = {
        name: {"training": {"stage": name, **seed}} for name in ("decoder", "encoder", "joint")
    }
    settings = parse(RecipeSettings, merge(plain, staged))
    return RecipeRun(path.name, plain, settings, base or path.parent, out, runtime, shows)


def follow(run: RecipeRun, until: str = NAMES[-1], first: str | None = None) -> None:
    """Follow a recipe, from the first stage that is not done to the last that is asked for.

    Args:
        run: Recipe and folder.
        until: Last stage.
        first: Stage that is made again with all after it, by this recipe; None makes none again.

    Raises:
        UsageError: No stage is called so, or the folder belongs to another recipe.
        InterruptedRunError: Ctrl-C or a polite kill.
        DuallgdError: A stage cannot do its work; those before it stay done.
    """
    for name in (until, first):
        if name is not None and name not in NAMES:
            raise UsageError(f"no stage is called {name}; the stages are {', '.join(NAMES)}")
    with process_group(run.runtime):
        if not run.runtime.rank:
            _take_up(run, first)
        sum_over_ranks(torch.zeros((), device=run.runtime.device))  # all wait for that
        for number, stage in enumerate(STAGES[: NAMES.index(until) + 1], 1):
            mark = _mark(run.out, stage)
            if not mark.is_file():
                _make(run, stage, f"stage {number} of {len(STAGES)}: {stage.name}")


def _take_up(run: RecipeRun, first: str | None) -> None:
    """Look at what is done already: only what is whole and of this recipe stays so."""
    kept = run.out / "recipe.yaml"
    if kept.is_file() and first is None and read_mapping(kept) != run.plain:
        raise UsageError(
            f"{run.out} was begun with another recipe; give another folder, or --from the first "
            "stage that is to be made by the new one"
        )
    (run.out / "done").mkdir(parents=True, exist_ok=True)
    write_atomically(kept, [yaml.safe_dump(run.plain, sort_keys=False)])
    for stage in STAGES[NAMES.index(first) :] if first else ():
        _mark(run.out, stage).unlink(missing_ok=True)
        for name in stage.makes:
            path = run.out / name
            own = path.parent if stage.together else path
            if own.is_dir():
                shutil.rmtree(own)
            own.unlink(missing_ok=True)
    for stage in STAGES:
        mark = _mark(run.out, stage)
        if mark.is_file():
            digests = json.loads(mark.read_text(encoding="utf-8"))
            changed = [name for name, own in digests.items() if _digest(run.out / name) != own]
            if changed:
                run.shows.say(f"{run.out / changed[0]} is missing or damaged; it is made again")
                mark.unlink()


def _make(run: RecipeRun, stage: RecipeStage, title: str) -> None:
    mark, is_first = _mark(run.out, stage), not run.runtime.rank
    if is_first:
        run.shows.say(title)
    if is_first or stage.together:
        with _worded(run, stage.name), _timed(run, stage.name):
            stage.make(run)
    if is_first:
        made = [path for name in stage.makes for path in _files(run.out / name)]
        digests = {str(path.relative_to(run.out)): sha256(path) for path in made}
        write_atomically(mark, [json.dumps(digests, indent=1), "\n"])
        cost = costs_of(run.out)[stage.name]
        run.shows.say(f"{stage.name} took {cost['s']:.0f} s, {cost['core_s']:.0f} s of processors")
    while not mark.is_file():  # the first process writes for all
        time.sleep(_LOOK_AGAIN_S)


@contextmanager
def _worded(run: RecipeRun, name: str) -> Iterator[None]:
    """Ctrl-C and a full disk in one sentence; what was finished stays.

    Raises:
        InterruptedRunError: Ctrl-C or a polite kill.
        DuallgdError: The disk is full.
    """
    again = "run the same command again to go on; what was finished is kept"
    try:
        yield
    except InterruptedRunError:
        raise
    except KeyboardInterrupt:
        raise InterruptedRunError(f"stopped in stage {name}; {again}") from None
    except Exception as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if not full and shutil.disk_usage(run.out).free >= _NEARLY_FULL_BYTES:
            raise
        raise DuallgdError(
            f"the disk of {run.out} is full in stage {name}; free some space and {again}"
        ) from error


@contextmanager
def _timed(run: RecipeRun, name: str) -> Iterator[None]:
    """Add what a try of a stage took, however it ends, to ``cost.json``."""
    started, before = time.monotonic(), os.times()
    try:
        yield
    finally:
        if not run.runtime.rank:
            spent = time.monotonic() - started, sum(os.times()[:4]) - sum(before[:4])
            costs = costs_of(run.out)
            earlier = costs.get(name, {"s": 0.0, "core_s": 0.0})
            added = zip(earlier.items(), spent, strict=True)
            costs[name] = {what: round(old + new, 1) for (what, old), new in added}
            write_atomically(run.out / COSTS, [json.dumps(costs, indent=1), "\n"])


def _mark(out: Path, stage: RecipeStage) -> Path:
    return out / "done" / f"{stage.name}.json"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def _digest(path: Path) -> str:
    return sha256(path) if path.is_file() else ""
