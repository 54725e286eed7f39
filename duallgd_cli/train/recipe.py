"""`duallgd train RECIPE`: spectra and structures to a whole weights file, stage by stage.

A stage is a function that makes files in the run's folder. It is skipped where ``done/NAME.json``
says that they were made and they are as they were; one that trains goes on where it stopped, any
other begins again. Under torchrun all processes train together, and the first does the rest.

Libraries of chemistry load where a stage needs them: machines with GPUs may have none.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import yaml

from duallgd_cli.checkpoint.format import load, read_tensors, save, write_tensors
from duallgd_cli.config import SamplingSettings, merge, parse, read_mapping
from duallgd_cli.data.prepared import load_decoys, load_molecules, load_spectra
from duallgd_cli.errors import (
    DuallgdError,
    InterruptedRunError,
    MissingInputError,
    UnreadableError,
    UsageError,
)
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import Runtime, available_cores, commit
from duallgd_cli.train.run import (
    PREDICTIONS,
    TRUTH,
    Displays,
    both_parts,
    fit_known,
    predict_known,
    run_training,
)
from duallgd_cli.train.settings import DrawSettings, RecipeSettings, RunSettings
from duallgd_cli.train.trainer import MODEL, process_group, sum_over_ranks

WEIGHTS: Final = "duallgd.safetensors"
HASHES_ENDING: Final = ".train.hashes"
HASHES: Final = f"duallgd{HASHES_ENDING}"
LARGEST_TEMPLATE: Final = 100  # heavy atoms of a template
_COSTS: Final = "cost.json"
_HELD_OUT: Final = "held-out.keys"
_TABLE: Final = "measured.tsv"
_SIMULATOR: Final = "simulator.safetensors"
_LOOK_AGAIN_S: Final = 0.2
_NEARLY_FULL_BYTES: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class RecipeRun:
    """A recipe, as read and as checked, and the folder in which it is followed."""

    name: str
    plain: dict[str, Any]
    settings: RecipeSettings
    base: Path  # that its files are named from
    out: Path
    runtime: Runtime
    shows: Displays

    def inputs(self, *names: str) -> list[Path]:
        """Files of the recipe."""
        return [self.base / name for name in names]

    @property
    def files(self) -> list[Path]:
        """Spectra, structures and lists of what is held out."""
        settings = self.settings
        return self.inputs(*settings.spectra, *settings.structures, *settings.holdout)

    @property
    def starts(self) -> dict[str, Path]:
        """Weights to start from, by the stage that does."""
        named = {"encoder": self.settings.encoder_start, "decoder": self.settings.start}
        return {stage: self.base / name for stage, name in named.items() if name}

    def held_out(self) -> frozenset[str]:
        """First blocks of all molecules that must not be trained on."""
        from duallgd_cli.data.structures import read_holdout

        return read_holdout([self.out / _HELD_OUT])


def _spectra(run: RecipeRun) -> None:
    """Every labelled spectrum of folds train and val, and the molecules that are held out."""
    from duallgd_cli.data.spectra import gather_spectra, prepare_spectra
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
        prepare_spectra(table, run.out / "measured", run.held_out(), advance)


def _structures(run: RecipeRun) -> None:
    """Structures for the decoder, none of them held out."""
    from duallgd_cli.data.structures import prepare_structures

    with run.shows.counting("structures") as advance:
        files = run.inputs(*run.settings.structures)
        prepare_structures(files, run.out / "structures", run.held_out(), advance)


def _select(run: RecipeRun) -> None:
    """Structures that are like measured ones, and large ones besides."""
    from duallgd_cli.data.alike import select_alike

    settings, source, like = run.settings, run.out / "structures", run.out / "measured"
    for name, sizes in (("alike", settings.alike), ("large", settings.large)):
        if sizes is not None:
            select_alike(
                source, run.out / name, like, sizes.limit, min_atoms=sizes.min_atoms,
                max_atoms=sizes.max_atoms, with_measured=name == "large", seed=settings.seed,
            )  # fmt: skip


def _simulate(run: RecipeRun) -> None:
    """A fragment model fitted to the measured spectra, and spectra that it draws."""
    from duallgd_cli.data.simulation import prepare_simulated
    from duallgd_cli.train.scorers import fit_simulator, simulator_of

    settings, spectra = run.settings.simulate, load_spectra(run.out / "measured")
    kept = run.out / _SIMULATOR
    if not kept.is_file():  # the stage may have been stopped later
        with run.shows.counting("steps of the fragment model") as advance:
            model, record = fit_simulator(spectra, settings.steps, run.settings.seed, advance)
        write_tensors(kept, model.state_dict(), {"record": json.dumps(record)})
    tensors, metadata = read_tensors(kept)
    simulator, record = simulator_of(tensors, spectra), json.loads(metadata["record"])
    with run.shows.counting("spectra") as advance:
        prepare_simulated(
            run.out / "alike", simulator, run.out / "simulated", record, limit=settings.limit,
            max_atoms=settings.max_atoms, seed=run.settings.seed, advance=advance,
        )  # fmt: skip


def _train(run: RecipeRun, settings: RunSettings, data: str, **given: Any) -> None:  # noqa: ANN401
    """One stage of training, on the data of a folder, from its weights to start from if any."""
    stage = settings.training.stage
    sizes = (run.plain.get(stage) or {}).get("model", {})
    with run.shows.training(settings.training.steps) as on_step:
        run_training(
            settings, run.out / data, run.out / stage, run.runtime, on_step, sizes=sizes,
            start=run.starts.get(stage), **given,
        )  # fmt: skip


def _encoder(run: RecipeRun) -> None:
    """The encoder, on measured and simulated spectra, beside structures of their formulas."""
    structures, simulated = [run.out / "alike"], run.out / "simulated"
    _train(run, run.settings.encoder, "measured", simulated=simulated, structures=structures)


def _decoder(run: RecipeRun) -> None:
    """The denoiser, on fingerprints as an encoder would predict them."""
    # A machine with a GPU may have been given structures alone.
    measured, large = run.out / "measured", run.out / "large"
    _train(
        run, run.settings.decoder, "alike", structures=[large] if large.is_dir() else [],
        held_out=measured if measured.is_dir() else None,
    )  # fmt: skip


def _templates(run: RecipeRun) -> None:
    """Both parts of the network; known molecules, their building blocks and their spectra."""
    from duallgd_cli.sources.collection import known_molecules
    from duallgd_cli.train.encoder import fit_kernel

    spectra = load_spectra(run.out / "measured")
    checkpoint = both_parts(run.out / "encoder" / MODEL, run.out / "decoder" / MODEL)
    with run.shows.counting("molecules cut into building blocks") as advance:
        others = load_molecules(run.out / "alike")
        known = known_molecules(
            spectra.molecules, LARGEST_TEMPLATE, others, advance, available_cores()
        )
    kernel = fit_kernel(checkpoint.build().encoder, spectra, known.molecules)
    added = replace(checkpoint, templates=known.tensors(), kernel=kernel)
    save(run.out / "templates.safetensors", added)


def _decoys(run: RecipeRun) -> None:
    """What molecules of fold train are to be told from."""
    from duallgd_cli.train.scorers import prepare_decoys

    weights, spectra = run.out / "templates.safetensors", load_spectra(run.out / "measured")
    with run.shows.counting("molecules with their decoys") as advance:
        prepare_decoys(
            spectra, load(weights).build().encoder, weights, run.out / "decoys", run.settings.seed,
            available_cores(), advance,
        )  # fmt: skip


def _evidence(run: RecipeRun) -> None:
    """Scores beside the network, fitted to fold train."""
    from duallgd_cli.scores import environments, known_environments
    from duallgd_cli.sources.collection import of_each
    from duallgd_cli.train.encoder import fit_isomer_encoder
    from duallgd_cli.train.scorers import fit_evidence

    settings, seed, counting = run.settings, run.settings.seed, run.shows.counting
    checkpoint, cores = load(run.out / "templates.safetensors"), available_cores()
    structures, spectra = load_molecules(run.out / "structures"), load_spectra(run.out / "measured")
    decoys = load_decoys(run.out / "decoys", len(spectra.molecules))
    with counting("steps of the contrastive encoder") as advance:
        contrast, isomers = fit_isomer_encoder(
            checkpoint.build().encoder, spectra, decoys, seed, advance,
            steps=settings.contrast_steps,
        )  # fmt: skip
    with counting("structures") as advance:
        rows = np.flatnonzero(structures.in_folds("train"))
        known = known_environments(of_each(environments, structures, rows, cores, advance))
    with counting("steps of the fragment model") as advance:
        tensors, fitted = fit_evidence(
            structures, known, spectra, decoys, settings.evidence_steps, seed, advance, cores
        )
    record = {**checkpoint.record, "evidence": {**fitted, **isomers}}
    scored = replace(checkpoint, reranker=tensors, contrast=contrast, record=record)
    save(run.out / "evidence.safetensors", scored)


def _hashes(run: RecipeRun) -> None:
    """All that was trained on, so that evaluations find overlap."""
    from duallgd_cli.evaluate.leakage import TrainingHashes

    folders = (run.out / n for n in ("measured", "structures", "alike", "large"))
    known = [load_molecules(folder) for folder in folders if folder.is_dir()]
    trained = (molecules.inchikey[molecules.in_folds("train")].tolist() for molecules in known)
    listed = TrainingHashes.of(key.decode("ascii") for keys in trained for key in keys)
    for start in run.starts.values():
        listed = listed.joined(TrainingHashes.read(start.with_suffix(HASHES_ENDING)))
    listed.write(run.out / HASHES)


def _draw(
    run: RecipeRun, weights: str, out: str, draw: DrawSettings, share: float | None = None
) -> None:
    """Predict fold val into a folder, by a belief in a database that holds its molecules."""
    from duallgd_cli.predict.settings import PredictSettings

    databases, prediction = list[Path](), PredictSettings(seed=run.settings.seed)
    if share is not None:
        databases = [*run.inputs(*run.settings.structures), run.out / _TABLE]
        sampling = replace(prediction.sampling, database_share=share)
        prediction = replace(prediction, sampling=sampling)
    predict_known(
        run.out / _TABLE, "val", run.out / f"{weights}.safetensors", run.out / out, draw,
        prediction, run.runtime, run.shows, run.out / HASHES, databases,
    )  # fmt: skip


def _fit(run: RecipeRun, old: str, new: str, *draws: str, keep_ranking: bool = False) -> None:
    """Fit the ranking of weights on draws of fold val, or where it is fitted its probabilities."""
    before, folders = load(run.out / f"{old}.safetensors"), [run.out / draw for draw in draws]
    fitted, held = fit_known(before, folders, keep_ranking=keep_ranking)
    save(run.out / f"{new}.safetensors", fitted, torch.float16, short_codes=True)
    run.shows.say(f"fold val, {held}")


def _draws(run: RecipeRun) -> None:
    """What ranking and confidence are fitted on."""
    for place, draw in enumerate(run.settings.draws):
        _draw(run, "evidence", f"draws/{place}", draw)


def _ranking(run: RecipeRun) -> None:
    """The order of candidates, by the first draws."""
    _fit(run, "evidence", "ranked", "draws/0")


def _database(run: RecipeRun) -> None:
    """The order of structures of a database, which are those of the recipe and the measured ones.

    The truth is among them: confidence is for that case.
    """
    _draw(run, "ranked", "chosen", DrawSettings(), share=1.0)
    _fit(run, "ranked", "chosen", "chosen")


def _membership(run: RecipeRun) -> None:
    """What says whether the truth is in a database, in one list with generated molecules."""
    from duallgd_cli.evaluate.membership import fit_membership

    share = SamplingSettings().database_share
    _draw(run, "chosen", "together", run.settings.membership, share)
    before, after = (run.out / f"{name}.safetensors" for name in ("chosen", "member"))
    drawn = run.out / "together"
    fit_membership(before, drawn / PREDICTIONS, drawn / TRUTH, after)


def _confidence(run: RecipeRun) -> None:
    """Probabilities from all draws, whose candidates the ranking orders."""
    draws = (f"draws/{place}" for place in range(len(run.settings.draws)))
    _fit(run, "member", "fitted", *draws, keep_ranking=True)


def _card(run: RecipeRun) -> None:
    """The file itself: recipe, commit, digests, hold-outs and cost go on its record."""
    fitted, costs = load(run.out / "fitted.safetensors"), costs_of(run.out)
    record = {
        "recipe": run.name,
        "commit": commit(),
        "made_by": run.plain,
        "core_hours": round(sum(cost["core_s"] for cost in costs.values()) / 3600, 3),
        "cost": costs,
        "sources": {path.name: sha256(path) for path in run.files if path.is_file()},
        "hold_outs": {"molecules": len(run.held_out()), "sha256": sha256(run.out / _HELD_OUT)},
        "table_sha256": sha256(run.out / _TABLE),
    }
    made = replace(fitted, record=fitted.record | record)
    save(run.out / WEIGHTS, made, torch.float16, short_codes=True)
    del record["made_by"]
    lines = (f"# {WEIGHTS}\n", "\n", yaml.safe_dump(record, sort_keys=False))
    write_atomically(run.out / "card.md", lines)


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
    RecipeStage("select", _select, ("alike", "large")),
    RecipeStage("simulate", _simulate, (_SIMULATOR, "simulated")),
    RecipeStage("encoder", _encoder, ("encoder/model.safetensors",), together=True),
    RecipeStage("decoder", _decoder, ("decoder/model.safetensors",), together=True),
    RecipeStage("templates", _templates, ("templates.safetensors",)),
    RecipeStage("decoys", _decoys, ("decoys",)),
    RecipeStage("evidence", _evidence, ("evidence.safetensors",)),
    RecipeStage("hashes", _hashes, (HASHES,)),
    RecipeStage("draws", _draws, ("draws",)),
    RecipeStage("ranking", _ranking, ("ranked.safetensors",)),
    RecipeStage("database", _database, ("chosen.safetensors", "chosen")),
    RecipeStage("membership", _membership, ("member.safetensors", "together")),
    RecipeStage("confidence", _confidence, ("fitted.safetensors",)),
    RecipeStage("card", _card, (WEIGHTS, "card.md")),
)
NAMES: Final = tuple(stage.name for stage in STAGES)


def read_recipe(
    path: Path, overrides: Mapping[str, Any], base: Path | None, out: Path, runtime: Runtime,
    shows: Displays,
) -> RecipeRun:  # fmt: skip
    """A recipe of a YAML file, with plain values laid over it, to be followed in a folder.

    Its files are named from the base, or its own folder.
    """
    plain = merge(read_mapping(path), overrides)
    seed = {"seed": plain["seed"]} if "seed" in plain else {}
    staged = {stage: {"training": {"stage": stage, **seed}} for stage in ("encoder", "decoder")}
    settings = parse(RecipeSettings, merge(plain, staged))
    return RecipeRun(path.name, plain, settings, base or path.parent, out, runtime, shows)


def follow(run: RecipeRun, until: str = NAMES[-1], first: str | None = None) -> None:
    """Follow a recipe, from the first stage that is not done to the last that is asked for.

    A stage may be made again with all after it, by this recipe. Where one is stopped or cannot do
    its work, those before it stay done.
    """
    for name in (until, first):
        if name is not None and name not in NAMES:
            raise UsageError(f"no stage is called {name}; the stages are {', '.join(NAMES)}")
    with process_group(run.runtime):
        if not run.runtime.rank:
            _require_inputs(run, until, first)
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


def _require_inputs(run: RecipeRun, until: str, first: str | None) -> None:
    """Refuse to begin what would end hours later for want of weights, or replace what it reads."""
    own = {run.out / name for stage in STAGES for name in (*stage.makes, "report.tsv")}
    places = {path.resolve() for path in own}
    for path in (*run.files, *run.starts.values()):
        if places & {path.resolve(), *path.resolve().parents}:
            raise UsageError(f"{path} would be overwritten by the run; name another folder with -o")
    again = NAMES[NAMES.index(first) :] if first else ()
    asked = STAGES[: NAMES.index(until) + 1]
    waiting = {s.name for s in asked if s.name in again or not s.mark(run.out).is_file()}
    for stage, weights in run.starts.items():
        needed = {stage: weights, "hashes": weights.with_suffix(HASHES_ENDING)}
        for path in (path for user, path in needed.items() if user in waiting):
            if not path.is_file():
                raise MissingInputError(
                    f"{path} does not exist; weights that a recipe starts from need their list of "
                    f"training molecules, NAME{HASHES_ENDING}, beside them"
                )


def _make(run: RecipeRun, stage: RecipeStage, title: str) -> None:
    """Make what a stage makes, or wait for the first process to do so.

    What each try took goes to ``cost.json``; Ctrl-C and a full disk are said in one sentence.
    """
    mark, is_first = stage.mark(run.out), not run.runtime.rank
    again = "run the same command again to go on; what was finished is kept"
    started, before = time.monotonic(), os.times()
    try:
        if is_first:
            run.shows.say(title)
        if is_first or stage.together:
            stage.make(run)
    except InterruptedRunError:
        raise
    except KeyboardInterrupt:
        raise InterruptedRunError(f"stopped in stage {stage.name}; {again}") from None
    except Exception as error:
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if not is_full and shutil.disk_usage(run.out).free >= _NEARLY_FULL_BYTES:
            raise
        raise DuallgdError(
            f"the disk of {run.out} is full in stage {stage.name}; free some space and {again}"
        ) from error
    finally:
        if is_first:
            costs = costs_of(run.out)
            cost = {"s": 0.0, "core_s": 0.0} | costs.get(stage.name, {})
            cost["s"] = round(cost["s"] + time.monotonic() - started, 1)
            cost["core_s"] = round(cost["core_s"] + sum(os.times()[:4]) - sum(before[:4]), 1)
            costs[stage.name] = cost
            write_atomically(run.out / _COSTS, [json.dumps(costs, indent=1), "\n"])
    if is_first:
        paths = [run.out / name for name in stage.makes]
        made = [one for path in paths for one in (path, *sorted(path.rglob("*"))) if one.is_file()]
        digests = {str(path.relative_to(run.out)): sha256(path) for path in made}
        write_atomically(mark, [json.dumps(digests, indent=1), "\n"])
        run.shows.say(f"{stage.name} took {cost['s']:.0f} s, {cost['core_s']:.0f} s of processors")
    while not mark.is_file():  # the first process writes for all
        time.sleep(_LOOK_AGAIN_S)


def costs_of(out: Path) -> dict[str, dict[str, float]]:
    """Seconds and processor seconds of each stage of a run so far, every try counted."""
    path = out / _COSTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
