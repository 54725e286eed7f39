"""What each stage of a recipe does; `train.recipe` follows them.

Libraries of chemistry load where a stage needs them: machines with GPUs may have none.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
import yaml

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UnreadableError
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import Runtime, available_cores
from duallgd_cli.train.run import TrainingRequest, run_training
from duallgd_cli.train.settings import DrawSettings, RecipeSettings, RunSettings

WEIGHTS: Final = "duallgd.safetensors"
HASHES: Final = "duallgd.train.hashes"
COSTS: Final = "cost.json"
_LISTED: Final = "held-out.keys"
_TABLE: Final = "measured.tsv"
_SIMULATOR: Final = "simulator.safetensors"


@dataclass(frozen=True, eq=False)
class Displays:
    """What shows how far a recipe is.

    Attributes:
        say: Prints a line.
        counting: Shows a count of what it is given the name of, while its block runs.
        training: Shows steps and figures, of as many steps as it is told.
    """

    say: Callable[[str], None]
    counting: Callable[[str], AbstractContextManager[Callable[[int], None]]]
    training: Callable[[int], AbstractContextManager[Callable[[int, dict[str, float]], None]]]


@dataclass(frozen=True, eq=False)
class RecipeRun:
    """A recipe and the folder in which it is followed.

    Attributes:
        name: Of the recipe.
        plain: The recipe as read, with what was set besides.
        settings: The same, checked.
        base: Folder that the files of the recipe are named from.
        out: Folder of the run.
        runtime: Device, precision and ranks.
        shows: Displays.
    """

    name: str
    plain: dict[str, Any]
    settings: RecipeSettings
    base: Path
    out: Path
    runtime: Runtime
    shows: Displays

    def inputs(self, names: Sequence[str]) -> list[Path]:
        """Files of the recipe."""
        return [self.base / name for name in names]

    @property
    def start(self) -> Path | None:
        """Weights that the decoder starts from."""
        return self.base / self.settings.start if self.settings.start else None


def _spectra(run: RecipeRun) -> None:
    """Every labelled spectrum of folds train and val, and the molecules that are held out."""
    from duallgd_cli.data.gather import gather_spectra
    from duallgd_cli.data.spectra import prepare_spectra
    from duallgd_cli.data.structures import read_holdout

    settings, table, keys = run.settings, run.out / _TABLE, run.out / _LISTED
    listed = read_holdout(run.inputs(settings.holdout))
    counts = gather_spectra(
        run.inputs(settings.spectra), table, keys,
        holdout=listed, validation=settings.validation, seed=settings.seed,
    )  # fmt: skip
    run.shows.say(", ".join(f"{count} {what}" for what, count in counts.items()))
    if not counts.get("val"):
        raise UnreadableError(
            "no spectrum is of fold val, which ranking and confidence are fitted on; give the "
            "recipe validation: 0.1"
        )
    with run.shows.counting("spectra") as advance:
        held, workers = read_holdout([keys]), available_cores()
        prepare_spectra(table, run.out / "measured", holdout=held, workers=workers, advance=advance)


def _structures(run: RecipeRun) -> None:
    """Structures for the decoder, none of them held out."""
    from duallgd_cli.data.structures import prepare_structures, read_holdout

    with run.shows.counting("structures") as advance:
        prepare_structures(
            run.inputs(run.settings.structures), run.out / "structures",
            holdout=read_holdout([run.out / _LISTED]), workers=available_cores(), advance=advance,
        )  # fmt: skip


def _select(run: RecipeRun) -> None:
    """Structures that are like measured ones, large ones besides, and cations made of them."""
    from duallgd_cli.data.alike import select_alike
    from duallgd_cli.data.cations import cations
    from duallgd_cli.data.structures import prepare_structures, read_holdout

    settings, source, like = run.settings, run.out / "structures", run.out / "measured"
    for name, sizes in (("alike", settings.alike), ("large", settings.large)):
        if sizes is not None:
            select_alike(
                source, run.out / name, like, sizes.limit, min_atoms=sizes.min_atoms,
                max_atoms=sizes.max_atoms, with_measured=name == "large", seed=settings.seed,
            )  # fmt: skip
    if settings.cations:
        listed, held = run.out / "cations.smi", read_holdout([run.out / _LISTED])
        made = cations(run.inputs(settings.structures)[0], settings.cations, settings.seed)
        write_atomically(listed, (f"{smiles} {kind}\n" for smiles, kind in made))
        prepare_structures(listed, run.out / "cations", holdout=held)


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
    folders = {} if settings.beside else {"simulated": settings.limit}
    folders["simulated-joint"] = settings.joint_limit
    for number, (name, limit) in enumerate(folders.items()):
        selection = Selection(limit, settings.max_atoms, run.settings.seed + number)
        with run.shows.counting("spectra") as advance:
            prepare_simulated(
                run.out / "alike", simulator, run.out / name, record, selection,
                workers=available_cores(), advance=advance,
            )  # fmt: skip


def _train(run: RecipeRun, stage: str, own: RunSettings, data: str, **given: Any) -> None:  # noqa: ANN401
    request = TrainingRequest(
        own, run.out / stage, run.out / data,
        said=run.plain.get(stage, {}).get("model", {}), **given,
    )  # fmt: skip
    with run.shows.training(own.training.steps) as on_step:
        run_training(request, run.runtime, on_step)


def _decoder(run: RecipeRun) -> None:
    init = {} if run.start is None else {"denoiser": run.start}
    _train(run, "decoder", run.settings.decoder, "structures", init=init)


def _encoder(run: RecipeRun) -> None:
    given: dict[str, Any] = {"simulated": run.out / "simulated"}
    if run.settings.simulate.beside:
        given = {"structures": (run.out / "alike",), "simulator": run.out / _SIMULATOR}
    _train(run, "encoder", run.settings.encoder, "measured", **given)


def _joint(run: RecipeRun) -> None:
    folders = tuple(run.out / name for name in ("alike", "large", "cations"))
    parts = {"denoiser": "decoder", "encoder": "encoder"}
    _train(
        run, "joint", run.settings.joint, "measured", simulated=run.out / "simulated-joint",
        structures=tuple(folder for folder in folders if folder.is_dir()),
        init={part: run.out / stage / "model.safetensors" for part, stage in parts.items()},
    )  # fmt: skip


def _templates(run: RecipeRun) -> None:
    from duallgd_cli.train.additions import add_templates

    add_templates(
        run.out / "joint" / "model.safetensors", run.out / "measured",
        run.out / "templates.safetensors", run.shows.counting, structures=run.out / "alike",
    )  # fmt: skip


def _evidence(run: RecipeRun) -> None:
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

    names = ("measured", "structures", "alike", "large", "cations")
    folders = [run.out / name for name in names if (run.out / name).is_dir()]
    also = [] if run.start is None else [run.start.with_suffix(".train.hashes")]
    training_molecules(folders, also=also).write(run.out / HASHES)


def _draw(run: RecipeRun, weights: str, index: int, draw: DrawSettings) -> Path:
    """Predict fold val, one spectrum a molecule; the folder of the run."""
    from duallgd_cli.evaluate.run import evaluate
    from duallgd_cli.evaluate.settings import EvaluateSettings
    from duallgd_cli.predict.settings import PredictSettings

    sampling = SamplingSettings(samples=draw.samples, steps=draw.steps)
    folder, seed = run.out / f"draws-{weights}" / str(index), run.settings.seed
    with run.shows.counting("spectra of fold val") as advance:
        evaluate(
            EvaluateSettings(
                benchmark=str(run.out / _TABLE), fold="val", spectra_per_molecule="1",
                limit=draw.limit, out=folder, mces=False, drop_leaked=True,
                prediction=PredictSettings(seed=seed, sampling=sampling),
                train_hashes=run.out / HASHES, weights=str(run.out / f"{weights}.safetensors"),
                device=str(run.runtime.device), precision=run.runtime.precision,
                threads=run.runtime.threads, resume=True, force=True,
            ),
            lambda stage, n_spectra, result: advance(n_spectra),
        )  # fmt: skip
    return folder


def _draws(run: RecipeRun) -> None:
    _draw(run, "evidence", 0, run.settings.draws[0])


def _ranking(run: RecipeRun) -> None:
    from duallgd_cli.evaluate.fitting import fit_weights_file

    folder = run.out / "draws-evidence" / "0"
    runs, truth = [folder / "predictions.csv"], folder / "truth.tsv"
    fit_weights_file(run.out / "evidence.safetensors", runs, truth, run.out / "ranked.safetensors")


def _confidence(run: RecipeRun) -> None:
    """Probabilities from every draw, each made with the ranking."""
    from duallgd_cli.evaluate.fitting import fit_weights_file

    folders = [_draw(run, "ranked", *item) for item in enumerate(run.settings.draws)]
    _, held = fit_weights_file(
        run.out / "ranked.safetensors", [folder / "predictions.csv" for folder in folders],
        folders[0] / "truth.tsv", run.out / "fitted.safetensors", keep_ranking=True,
    )  # fmt: skip
    run.shows.say(f"fold val, cross-validated: top-1 {held.top1:.3f}, top-10 {held.top10:.3f}")


def _card(run: RecipeRun) -> None:
    """The file itself: recipe, commit, digests, hold-outs and cost go on its record."""
    from duallgd_cli.checkpoint.format import load, save

    settings, fitted, costs = run.settings, load(run.out / "fitted.safetensors"), costs_of(run.out)
    files = run.inputs((*settings.spectra, *settings.structures, *settings.holdout))
    keys = run.out / _LISTED
    record = {
        "recipe": run.name,
        "commit": _commit(),
        "made_by": run.plain,
        "core_hours": round(sum(cost["core_s"] for cost in costs.values()) / 3600, 3),
        "cost": costs,
        "sources": {path.name: sha256(path) for path in files if path.is_file()},
        "hold_outs": {"molecules": len(keys.read_text().split()), "sha256": sha256(keys)},
        "table_sha256": sha256(run.out / _TABLE),
    }
    made = replace(fitted, record=fitted.record | record)
    save(run.out / WEIGHTS, made, torch.float16, short_codes=True)
    shown = {name: value for name, value in record.items() if name != "made_by"}
    lines = (f"# {WEIGHTS}\n", "\n", yaml.safe_dump(shown, sort_keys=False))
    write_atomically(run.out / "card.md", lines)


def costs_of(out: Path) -> dict[str, dict[str, float]]:
    """Seconds and processor seconds of each stage of a run so far, every try counted."""
    path = out / COSTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _commit() -> str:
    """The commit of a clone; "" of an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


@dataclass(frozen=True)
class RecipeStage:
    """A stage: its name, what makes it, what it makes, whether all ranks take part."""

    name: str
    make: Callable[[RecipeRun], None]
    makes: tuple[str, ...]
    together: bool = False


def _weights_of(name: str) -> tuple[str, ...]:
    return (f"{name}.safetensors",)


STAGES: Final = (
    RecipeStage("spectra", _spectra, (_TABLE, _LISTED, "measured")),
    RecipeStage("structures", _structures, ("structures",)),
    RecipeStage("select", _select, ("alike", "large", "cations")),
    RecipeStage("simulate", _simulate, (_SIMULATOR, "simulated", "simulated-joint")),
    RecipeStage("decoder", _decoder, _weights_of("decoder/model"), together=True),
    RecipeStage("encoder", _encoder, _weights_of("encoder/model"), together=True),
    RecipeStage("joint", _joint, _weights_of("joint/model"), together=True),
    RecipeStage("templates", _templates, _weights_of("templates")),
    RecipeStage("evidence", _evidence, _weights_of("evidence")),
    RecipeStage("hashes", _hashes, (HASHES,)),
    RecipeStage("draws", _draws, ("draws-evidence",)),
    RecipeStage("ranking", _ranking, _weights_of("ranked")),
    RecipeStage("confidence", _confidence, (*_weights_of("fitted"), "draws-ranked")),
    RecipeStage("card", _card, (WEIGHTS, "card.md")),
)
