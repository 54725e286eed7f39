"""`duallgd train RECIPE`: spectra and structures to a whole weights file, stage by stage.

A stage is skipped where ``done/NAME.json`` says that its files were made and they are as they were;
one that trains goes on where it stopped, any other begins again. Under torchrun all processes train
together, and the first does the rest.
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
from duallgd_cli.train.settings import RecipeSettings
from duallgd_cli.train.stages import (
    COSTS,
    NAMES,
    STAGES,
    Displays,
    RecipeRun,
    RecipeStage,
    costs_of,
)
from duallgd_cli.train.trainer import process_group, sum_over_ranks

_LOOK_AGAIN_S: Final = 0.2
_NEARLY_FULL_BYTES: Final = 1 << 20


def read_recipe(
    path: Path, overrides: Mapping[str, Any], base: Path | None, out: Path, runtime: Runtime,
    shows: Displays,
) -> RecipeRun:  # fmt: skip
    """A recipe of a YAML file, with plain values laid over it, to be followed in a folder.

    Its files are named from the base, or its own folder.

    Raises:
        ConfigError: The file is missing or no such recipe.
    """
    plain = merge(read_mapping(path), overrides)
    seed = {"seed": plain["seed"]} if "seed" in plain else {}
    staged = {stage: {"training": {"stage": stage, **seed}} for stage in ("encoder", "decoder")}
    settings = parse(RecipeSettings, merge(plain, staged))
    return RecipeRun(path.name, plain, settings, base or path.parent, out, runtime, shows)


def follow(run: RecipeRun, until: str = NAMES[-1], first: str | None = None) -> None:
    """Follow a recipe, from the first stage that is not done to the last that is asked for.

    A stage may be made again with all after it, by this recipe.

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
        # All wait for that.
        sum_over_ranks(run.runtime, torch.zeros((), device=run.runtime.device))
        for number, stage in enumerate(STAGES[: NAMES.index(until) + 1], 1):
            if not stage.mark(run.out).is_file():
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
        stage.mark(run.out).unlink(missing_ok=True)
        for name in stage.makes:
            path = (run.out / name).parent if stage.together else run.out / name
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
    for stage in STAGES:
        mark = stage.mark(run.out)
        digests = json.loads(mark.read_text(encoding="utf-8")) if mark.is_file() else {}
        for path, digest in ((run.out / name, digest) for name, digest in digests.items()):
            if not path.is_file() or sha256(path) != digest:
                run.shows.say(f"{path} is missing or damaged; it is made again")
                mark.unlink()
                break


def _make(run: RecipeRun, stage: RecipeStage, title: str) -> None:
    """Make what a stage makes, or wait for the first process to do so."""
    mark, is_first = stage.mark(run.out), not run.runtime.rank
    if is_first:
        run.shows.say(title)
    if is_first or stage.together:
        with _accounted(run, stage.name):
            stage.make(run)
    if is_first:
        paths = [run.out / name for name in stage.makes]
        made = [one for path in paths for one in (path, *sorted(path.rglob("*"))) if one.is_file()]
        digests = {str(path.relative_to(run.out)): sha256(path) for path in made}
        write_atomically(mark, [json.dumps(digests, indent=1), "\n"])
        cost = costs_of(run.out)[stage.name]
        run.shows.say(f"{stage.name} took {cost['s']:.0f} s, {cost['core_s']:.0f} s of processors")
    while not mark.is_file():  # the first process writes for all
        time.sleep(_LOOK_AGAIN_S)


@contextmanager
def _accounted(run: RecipeRun, name: str) -> Iterator[None]:
    """Add what a try of a stage took to ``cost.json``; Ctrl-C and a full disk in one sentence.

    Raises:
        InterruptedRunError: Ctrl-C or a polite kill.
        DuallgdError: The disk is full.
    """
    again = "run the same command again to go on; what was finished is kept"
    started, before = time.monotonic(), os.times()
    try:
        yield
    except InterruptedRunError:
        raise
    except KeyboardInterrupt:
        raise InterruptedRunError(f"stopped in stage {name}; {again}") from None
    except Exception as error:
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if not is_full and shutil.disk_usage(run.out).free >= _NEARLY_FULL_BYTES:
            raise
        raise DuallgdError(
            f"the disk of {run.out} is full in stage {name}; free some space and {again}"
        ) from error
    finally:
        if not run.runtime.rank:
            costs, own = costs_of(run.out), {"s": 0.0, "core_s": 0.0}
            own |= costs.get(name, {})
            own["s"] = round(own["s"] + time.monotonic() - started, 1)
            own["core_s"] = round(own["core_s"] + sum(os.times()[:4]) - sum(before[:4]), 1)
            write_atomically(run.out / COSTS, [json.dumps(costs | {name: own}, indent=1), "\n"])
