"""`duallgd train RECIPE`: spectra and structures to a whole weights file, stage by stage.

A stage is a function that makes files in the run's folder. It is skipped where ``done/NAME.json``
says that they were made and they are as they were; a training stage goes on where it stopped, any
other begins again. Under torchrun all processes train together, and the first does the rest.
Libraries of chemistry load where a stage needs them: machines with GPUs may have none.
"""

import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
import yaml

from duallgd_cli.config import SamplingSettings, merge, parse, read_mapping
from duallgd_cli.errors import DuallgdError, InterruptedRunError, UnreadableError, UsageError
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import Runtime, available_cores
from duallgd_cli.train.run import run_training
from duallgd_cli.train.settings import DrawSettings, RecipeSettings, RunSettings
from duallgd_cli.train.trainer import process_group, sum_over_ranks

WEIGHTS: Final = "duallgd.safetensors"
HASHES: Final = "duallgd.train.hashes"
_COSTS: Final = "cost.json"
_HELD_OUT: Final = "held-out.keys"
_TABLE: Final = "measured.tsv"
_SIMULATOR: Final = "simulator.safetensors"
_LOOK_AGAIN_S: Final = 0.2
_NEARLY_FULL_BYTES: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class Displays:
    """What prints a line; counts what it is told of; shows figures, of so many steps."""

    say: Callable[[str], None]
    counting: Callable[[str], AbstractContextManager[Callable[[int], None]]]
    training: Callable[[int], AbstractContextManager[Callable[[int, dict[str, float]], None]]]


@dataclass(frozen=True, eq=False)
class RecipeRun:
    """A recipe, as read and as checked, and the folder in which it is followed.

    Its files are named from ``base``.
    """

    name: str
    plain: dict[str, Any]
    settings: RecipeSettings
    base: Path
    out: Path
    runtime: Runtime
    shows: Displays

    def inputs(self, *names: str) -> list[Path]:
        """Files of the recipe."""
        return [self.base / name for name in names]

    def held_out(self) -> frozenset[str]:
        """First blocks of the InChIKeys of all molecules that must not be trained on."""
        from duallgd_cli.data.structures import read_holdout

        return read_holdout([self.out / _HELD_OUT])


def _spectra(run: RecipeRun) -> None:
    """Every labelled spectrum of folds train and val, and the molecules that are held out."""
    from duallgd_cli.data.gather import gather_spectra
    from duallgd_cli.data.spectra import prepare_spectra
    from duallgd_cli.data.structures import read_holdout

    settings, table = run.settings, run.out / _TABLE
    counts = gather_spectra(
        run.inputs(*settings.spectra), table, run.out / _HELD_OUT,
        holdout=read_holdout(run.inputs(*settings.holdout)), validation=settings.validation,
        seed=settings.seed,
    )  # fmt: skip
    run.shows.say(", ".join(f"{count} {what}" for what, count in counts.items()))
    if not counts.get("val"):
        raise UnreadableError(
            "no spectrum is of fold val, which ranking and confidence are fitted on; give the "
            "recipe validation: 0.1"
        )
    with run.shows.counting("spectra") as advance:
        prepare_spectra(
            table, run.out / "measured", holdout=run.held_out(), workers=available_cores(),
            advance=advance,
        )  # fmt: skip


def _structures(run: RecipeRun) -> None:
    """Structures for the decoder, none of them held out."""
    from duallgd_cli.data.structures import prepare_structures

    with run.shows.counting("structures") as advance:
        prepare_structures(
            run.inputs(*run.settings.structures), run.out / "structures", holdout=run.held_out(),
            workers=available_cores(), advance=advance,
        )  # fmt: skip


def _select(run: RecipeRun) -> None:
    """Structures that are like measured ones, large ones besides, and cations made of them."""
    from duallgd_cli.data.alike import select_alike
    from duallgd_cli.data.cations import cations
    from duallgd_cli.data.structures import prepare_structures

    settings, source, like = run.settings, run.out / "structures", run.out / "measured"
    for name, sizes in (("alike", settings.alike), ("large", settings.large)):
        if sizes is not None:
            select_alike(
                source, run.out / name, like, sizes.limit, min_atoms=sizes.min_atoms,
                max_atoms=sizes.max_atoms, with_measured=name == "large", seed=settings.seed,
            )  # fmt: skip
    if settings.cations:
        listed, (first, *_) = run.out / "cations.smi", run.inputs(*settings.structures)
        made = cations(first, settings.cations, settings.seed)
        write_atomically(listed, (f"{smiles} {kind}\n" for smiles, kind in made))
        prepare_structures(listed, run.out / "cations", holdout=run.held_out())


def _simulate(run: RecipeRun) -> None:
    """A fragment model fitted to the measured spectra, and spectra that it draws."""
    from duallgd_cli.data.prepared import load_spectra
    from duallgd_cli.data.simulation import Selection, prepare_simulated
    from duallgd_cli.train.simulator import fit_simulator, load_simulator, save_simulator

    settings, spectra = run.settings.simulate, load_spectra(run.out / "measured")
    if not (run.out / _SIMULATOR).is_file():
        with run.shows.counting("steps of the fragment model") as advance:
            fitted, record = fit_simulator(spectra, settings.steps, run.settings.seed, advance)
        save_simulator(run.out / _SIMULATOR, fitted.model, record)
    simulator, record = load_simulator(run.out / _SIMULATOR, spectra)
    # Spectra that the encoder has not seen tell the denoiser how far to trust it.
    folders = {"simulated": settings.limit, "simulated-joint": settings.joint_limit}
    for number, (name, limit) in enumerate(folders.items()):
        with run.shows.counting("spectra") as advance:
            prepare_simulated(
                run.out / "alike", simulator, run.out / name, record,
                Selection(limit, settings.max_atoms, run.settings.seed + number),
                workers=available_cores(), advance=advance,
            )  # fmt: skip


def _train(run: RecipeRun, stage: str, settings: RunSettings, data: str, **given: Any) -> None:  # noqa: ANN401
    """One stage of training, on the data of a folder."""
    with run.shows.training(settings.training.steps) as on_step:
        run_training(
            _of_stage(run.plain, stage),
            run.out / data,
            run.out / stage,
            run.runtime,
            on_step,
            **given,
        )


def _decoder(run: RecipeRun) -> None:
    """The denoiser, on true fingerprints."""
    start = run.settings.start
    init = {"denoiser": run.base / start} if start else {}
    _train(run, "decoder", run.settings.decoder, "structures", init=init)


def _encoder(run: RecipeRun) -> None:
    """The encoder, on measured and simulated spectra."""
    settings, simulated = run.settings.encoder, run.out / "simulated"
    _train(run, "encoder", settings, "measured", simulated=simulated)


def _joint(run: RecipeRun) -> None:
    """Both together."""
    folders = tuple(run.out / name for name in ("alike", "large", "cations"))
    parts = {"denoiser": "decoder", "encoder": "encoder"}
    _train(
        run, "joint", run.settings.joint, "measured", simulated=run.out / "simulated-joint",
        structures=tuple(folder for folder in folders if folder.is_dir()),
        init={part: run.out / stage / "model.safetensors" for part, stage in parts.items()},
    )  # fmt: skip


def _templates(run: RecipeRun) -> None:
    """Known molecules, their building blocks and their spectra."""
    from duallgd_cli.train.additions import add_templates

    add_templates(
        run.out / "joint" / "model.safetensors", run.out / "measured",
        run.out / "templates.safetensors", run.shows.counting, structures=run.out / "alike",
    )  # fmt: skip


def _evidence(run: RecipeRun) -> None:
    """Scores beside the network."""
    from duallgd_cli.train.additions import add_reranker

    add_reranker(
        run.out / "templates.safetensors", run.out / "structures", run.out / "measured",
        run.out / "evidence.safetensors", run.shows.counting,
        steps=run.settings.evidence_steps, contrast_steps=run.settings.contrast_steps,
        seed=run.settings.seed,
    )  # fmt: skip


def _hashes(run: RecipeRun) -> None:
    """All that was trained on, so that evaluations find overlap."""
    from duallgd_cli.train.additions import training_molecules

    names, start = ("measured", "structures", "alike", "large", "cations"), run.settings.start
    folders = [run.out / name for name in names if (run.out / name).is_dir()]
    also = [(run.base / start).with_suffix(".train.hashes")] if start else []
    training_molecules(folders, also=also).write(run.out / HASHES)


def predict_known(
    table: Path,
    fold: str,
    weights: Path,
    out: Path,
    draw: DrawSettings,
    seed: int,
    runtime: Runtime,
    advance: Callable[[int], None],
    hashes: Path | None = None,
) -> tuple[Path, Path]:
    """Predict a fold of a table, one spectrum a molecule; the predictions, and the truth."""
    from duallgd_cli.evaluate.run import evaluate
    from duallgd_cli.evaluate.settings import EvaluateSettings
    from duallgd_cli.predict.settings import PredictSettings

    sampling = SamplingSettings(samples=draw.samples, steps=draw.steps)
    evaluate(
        EvaluateSettings(
            benchmark=table, fold=fold, spectra_per_molecule="1", limit=draw.limit, out=out,
            mces=False, train_hashes=hashes, weights=str(weights),
            prediction=PredictSettings(seed=seed, sampling=sampling), device=str(runtime.device),
            precision=runtime.precision, threads=runtime.threads, resume=True, force=True,
        ),
        lambda stage, n_spectra, result: advance(n_spectra),
    )  # fmt: skip
    return out / "predictions.csv", out / "truth.tsv"


def _draw(run: RecipeRun, weights: str, index: int, draw: DrawSettings) -> tuple[Path, Path]:
    """Predict fold val; the predictions and the truth."""
    folder, file = run.out / f"draws-{weights}" / str(index), run.out / f"{weights}.safetensors"
    with run.shows.counting("spectra of fold val") as advance:
        return predict_known(
            run.out / _TABLE, "val", file, folder, draw, run.settings.seed, run.runtime, advance,
            run.out / HASHES,
        )  # fmt: skip


def _ranking(run: RecipeRun) -> None:
    """The order of candidates."""
    from duallgd_cli.evaluate.fitting import fit_weights_file

    folder = run.out / "draws-evidence" / "0"
    runs, truth = [folder / "predictions.csv"], folder / "truth.tsv"
    fit_weights_file(run.out / "evidence.safetensors", runs, truth, run.out / "ranked.safetensors")


def _confidence(run: RecipeRun) -> None:
    """Probabilities from every draw, each made with the ranking."""
    from duallgd_cli.evaluate.fitting import fit_weights_file

    drawn = [_draw(run, "ranked", *item) for item in enumerate(run.settings.draws)]
    _, held = fit_weights_file(
        run.out / "ranked.safetensors", [predictions for predictions, _ in drawn], drawn[0][1],
        run.out / "fitted.safetensors", keep_ranking=True,
    )  # fmt: skip
    run.shows.say(f"fold val, cross-validated: top-1 {held.top1:.3f}, top-10 {held.top10:.3f}")


def _card(run: RecipeRun) -> None:
    """The file itself: recipe, commit, digests, hold-outs and cost go on its record."""
    from duallgd_cli.checkpoint.format import load, save

    settings, fitted, costs = run.settings, load(run.out / "fitted.safetensors"), _costs(run.out)
    files = run.inputs(*settings.spectra, *settings.structures, *settings.holdout)
    try:  # the commit of a clone; "" of an installed package
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        commit = done.stdout.strip()
    except OSError:
        commit = ""
    record = {
        "recipe": run.name,
        "commit": commit,
        "made_by": run.plain,
        "core_hours": round(sum(cost["core_s"] for cost in costs.values()) / 3600, 3),
        "cost": costs,
        "sources": {path.name: sha256(path) for path in files if path.is_file()},
        "hold_outs": {
            "molecules": len(run.held_out()),
            "sha256": sha256(run.out / _HELD_OUT),
        },
        "table_sha256": sha256(run.out / _TABLE),
    }
    made = replace(fitted, record=fitted.record | record)
    save(run.out / WEIGHTS, made, torch.float16, short_codes=True)
    del record["made_by"]
    lines = (f"# {WEIGHTS}\n", "\n", yaml.safe_dump(record, sort_keys=False))
    write_atomically(run.out / "card.md", lines)


def _costs(out: Path) -> dict[str, dict[str, float]]:
    """Seconds and processor seconds of each stage of a run so far, every try counted."""
    path = out / _COSTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@dataclass(frozen=True)
class RecipeStage:
    """A stage: its name, what makes it, what it makes, whether all ranks take part."""

    name: str
    make: Callable[[RecipeRun], object]
    makes: tuple[str, ...]
    together: bool = False

    def mark(self, out: Path) -> Path:
        """The file that says that the stage is done in a run's folder."""
        return out / "done" / f"{self.name}.json"


STAGES: Final = (
    RecipeStage("spectra", _spectra, (_TABLE, _HELD_OUT, "measured")),
    RecipeStage("structures", _structures, ("structures",)),
    RecipeStage("select", _select, ("alike", "large", "cations")),
    RecipeStage("simulate", _simulate, (_SIMULATOR, "simulated", "simulated-joint")),
    RecipeStage("decoder", _decoder, ("decoder/model.safetensors",), together=True),
    RecipeStage("encoder", _encoder, ("encoder/model.safetensors",), together=True),
    RecipeStage("joint", _joint, ("joint/model.safetensors",), together=True),
    RecipeStage("templates", _templates, ("templates.safetensors",)),
    RecipeStage("evidence", _evidence, ("evidence.safetensors",)),
    RecipeStage("hashes", _hashes, (HASHES,)),
    RecipeStage(
        "draws", lambda run: _draw(run, "evidence", 0, run.settings.draws[0]), ("draws-evidence",)
    ),
    RecipeStage("ranking", _ranking, ("ranked.safetensors",)),
    RecipeStage("confidence", _confidence, ("fitted.safetensors", "draws-ranked")),
    RecipeStage("card", _card, (WEIGHTS, "card.md")),
)
NAMES: Final = tuple(stage.name for stage in STAGES)


def _of_stage(plain: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """What a recipe says of one of the stages that train."""
    seed = {"seed": plain["seed"]} if "seed" in plain else {}
    told: dict[str, Any] = merge(plain, {stage: {"training": {"stage": stage, **seed}}})[stage]
    return told


def read_recipe(
    path: Path, overrides: Mapping[str, Any], base: Path | None, out: Path, runtime: Runtime,
    shows: Displays,
) -> RecipeRun:  # fmt: skip
    """A recipe of a YAML file, with plain values laid over it, ready to be followed in a folder.

    Its files are named from another folder than its own where one is given.

    Raises:
        ConfigError: The file is missing or no such recipe.
    """
    plain = merge(read_mapping(path), overrides)
    staged = {name: _of_stage(plain, name) for name in ("decoder", "encoder", "joint")}
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
        cost = _costs(run.out)[stage.name]
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
            costs, own = _costs(run.out), {"s": 0.0, "core_s": 0.0}
            own |= costs.get(name, {})
            own["s"] = round(own["s"] + time.monotonic() - started, 1)
            own["core_s"] = round(own["core_s"] + sum(os.times()[:4]) - sum(before[:4]), 1)
            write_atomically(run.out / _COSTS, [json.dumps(costs | {name: own}, indent=1), "\n"])
