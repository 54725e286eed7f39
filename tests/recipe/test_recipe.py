"""A recipe from files of spectra and structures to a weights file that predicts."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from duallgd_cli.checkpoint.format import load
from duallgd_cli.config import dump, merge
from duallgd_cli.data.prepared import load_molecules, load_spectra, read_manifest
from duallgd_cli.errors import ConfigError, DuallgdError, InterruptedRunError, UsageError
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.predict.model import load_model
from duallgd_cli.sources.collection import Collection, known_molecules
from duallgd_cli.train import recipe as recipe_module
from duallgd_cli.train.recipe import HASHES, NAMES, STAGES, follow, read_recipe
from duallgd_cli.train.run import Displays
from duallgd_cli.train.settings import DrawSettings, RecipeSettings
from tests.made_training import cpu

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "recipes" / "tiny.yaml"
# Steps that are enough to see that a stage was there.
SHORT = {
    "alike": {"limit": 20}, "large": {"limit": 5}, "cations": 4, "evidence_steps": 2,
    "contrast_steps": 2, "simulate": {"limit": 12, "steps": 2},
    "decoder": {"training": {"steps": 4}}, "encoder": {"training": {"steps": 4}},
    "draws": [{"samples": 4, "steps": 2}],
}  # fmt: skip


def told(lines):
    """Displays that keep what is said in a list."""

    @contextmanager
    def silent(_):
        yield lambda *_: None

    return Displays(lines.append, silent, silent)


def recipe_run(out, overrides=SHORT, lines=None, runtime=None):
    says = told([] if lines is None else lines)
    return read_recipe(TINY, overrides, None, out, runtime or cpu(), says)


def command(*arguments, **options):
    said = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=os.environ | said, capture_output=True,
        text=True, check=False, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A short run of the whole recipe, and what it said."""
    out, lines = tmp_path_factory.mktemp("whole") / "run", []
    follow(recipe_run(out, lines=lines))
    return out, lines


@pytest.mark.slow
def test_the_tiny_recipe_makes_weights_that_predict(tmp_path):
    run = tmp_path / "run"
    made = command("-m", "duallgd_cli", "train", TINY, "-o", run, "--device", "cpu")
    assert made.returncode == 0, made.stderr
    assert "stage 15 of 15: card" in made.stderr
    assert f"done: weights are {run / 'duallgd.safetensors'}" in made.stderr
    weights = run / "duallgd.safetensors"

    info = command("-m", "duallgd_cli", "info", "--weights", weights)
    predicted = command(
        "-m", "duallgd_cli", "predict", TINY.parent / "tiny" / "spectra.mgf", "--weights", weights,
        "--samples", "4", "-o", tmp_path / "out.csv",
    )  # fmt: skip

    assert "recipe: tiny.yaml" in info.stdout
    for shown in ("core_hours", "hold_outs", "spectra.msp", "cost"):
        assert shown in info.stdout
    assert predicted.returncode == 0, predicted.stderr
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert sum(",ok," in row for row in rows) > 60


@pytest.mark.slow
def test_the_record_says_what_the_weights_are_made_of_and_nothing_held_out_is(whole):
    out, _ = whole

    record = load(out / "duallgd.safetensors").record

    assert record["recipe"] == "tiny.yaml"
    assert record["made_by"]["decoder"]["training"]["steps"] == 4
    assert record["cost"].keys() == set(NAMES) - {"card"}
    assert 0 < record["core_hours"] < 1
    assert record["sources"].keys() == {
        "spectra.mgf",
        "spectra.msp",
        "structures.smi",
        "holdout.txt",
    }
    held = set((out / "held-out.keys").read_text().split())
    assert record["hold_outs"]["molecules"] == len(held) > 10
    assert record["data"].keys() == {"alike", "large", "cations"}
    assert record["encoder"]["data"].keys() == {"measured", "simulated", "alike"}
    assert yaml.safe_load((out / "card.md").read_text().partition("\n")[2])["recipe"] == "tiny.yaml"
    held = {key.encode() for key in held}  # nothing of these is trained on
    for name in ("structures", "alike", "large", "cations", "simulated"):
        assert not held & set(load_molecules(out / name).inchikey.tolist()), name
    molecules = load_spectra(out / "measured").molecules
    assert not held & set(molecules.inchikey[molecules.in_folds("train")].tolist())
    assert read_manifest(out / "measured")["holdout_keys"] == len(held)


@pytest.mark.slow
def test_later_stages_add_to_the_network_and_leave_it_as_it_is(whole):
    out, _ = whole
    parts = {"encoder": "encoder", "decoder": "denoiser"}
    stages = {part: load(out / stage / "model.safetensors") for stage, part in parts.items()}
    known, scored, fitted = (
        load(out / f"{name}.safetensors") for name in ("templates", "evidence", "fitted")
    )

    for after in (known, scored):
        for name, tensor in after.tensors.items():
            assert torch.equal(stages[name.partition(".")[0]].tensors[name], tensor)
    assert "nll_250" in known.record["validation"]  # of spectra that are held out
    assert known.settings.encoder == stages["encoder"].settings.encoder
    assert known.kernel.keys() == {"n_places", "place", "weight", "mixing"}
    templates = Collection.of(known.templates)
    measured, structures = load_molecules(out / "measured"), load_molecules(out / "structures")
    trained = set(measured.inchikey[measured.in_folds("train")].tolist())
    assert set(templates.molecules.inchikey.tolist()) == trained
    # Building blocks of structures count with those of the templates.
    own = known_molecules(measured, 100, None).blocks
    assert set(own.smiles) <= set(templates.blocks.smiles)
    assert own.seen.sum() < templates.blocks.seen.sum()
    assert scored.record["evidence"]["structures"] == int(structures.in_folds("train").sum())
    assert scored.reranker["log_prevalence"].shape == (4096,)
    assert (scored.reranker["log_prevalence"] <= 0).all()
    assert (scored.ranking, bool(fitted.ranking)) == ({}, True)
    assert fitted.tensors.keys() == known.tensors.keys()
    loaded = load_model(out / "duallgd.safetensors", cpu())
    assert loaded.database.n_spectra > 0
    assert dump(loaded.membership) == fitted.membership != {}
    assert fitted.record["database_validation"]["n_spectra"] > 0
    listed = TrainingHashes.read(out / "duallgd.train.hashes")
    assert listed.contains([key.decode() for key in trained]).all()
    held = (out / "held-out.keys").read_text().split()
    assert not listed.contains(held).any()


@pytest.mark.slow
def test_finished_stages_are_skipped_and_damaged_output_is_made_again(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    before = (out / "simulated" / "mz.npy").read_bytes()
    (out / "simulated" / "mz.npy").write_bytes(b"damaged")
    (out / "templates.safetensors").unlink()
    lines = []

    follow(recipe_run(out, lines=lines))

    stages = [line.partition(": ")[2] for line in lines if line.startswith("stage ")]
    assert stages == ["simulate", "templates"]
    assert f"{out / 'simulated' / 'mz.npy'} is missing or damaged; it is made again" in lines
    assert (out / "simulated" / "mz.npy").read_bytes() == before


@pytest.mark.slow
def test_from_makes_a_stage_again_by_a_changed_recipe_and_until_stops(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    changed = merge(SHORT, {"encoder": {"training": {"steps": 3}}})
    lines = []

    with pytest.raises(UsageError, match="begun with another recipe; give another folder, or"):
        follow(recipe_run(out, changed))
    follow(recipe_run(out, changed, lines), until="encoder", first="encoder")

    assert [line for line in lines if line.startswith("stage ")] == ["stage 5 of 15: encoder"]
    assert load(out / "encoder" / "model.safetensors").record["step"] == 3
    assert not (out / "decoder").exists()
    assert not (out / "duallgd.safetensors").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("trouble", "error", "message"),
    [
        (KeyboardInterrupt(), InterruptedRunError, "stopped in stage {}; run the same command"),
        (OSError(errno.ENOSPC, "No space left"), DuallgdError, "is full in stage {}; free some"),
    ],
)
def test_a_stage_that_is_stopped_says_so_and_goes_on_later(
    tmp_path, monkeypatch, name, trouble, error, message
):
    done, troubles = [], [trouble]

    def act(stage):
        def make(_):
            if stage == name and troubles:
                raise troubles.pop()
            done.append(stage)

        return make

    acting = tuple(replace(stage, make=act(stage.name), makes=()) for stage in STAGES)
    monkeypatch.setattr(recipe_module, "STAGES", acting)

    with pytest.raises(error, match=message.format(name)):
        follow(recipe_run(tmp_path))
    follow(recipe_run(tmp_path))

    assert done == list(NAMES)
    assert json.loads((tmp_path / "cost.json").read_text()).keys() == set(NAMES)


def test_who_stops_a_stage_on_a_full_disk_is_not_told_of_the_disk(tmp_path, monkeypatch):
    def stopped(_):
        raise InterruptedRunError("stopped; go on")

    acting = tuple(replace(stage, make=stopped, makes=()) for stage in STAGES)
    monkeypatch.setattr(recipe_module, "STAGES", acting)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))

    with pytest.raises(InterruptedRunError, match=r"^stopped; go on$"):
        follow(recipe_run(tmp_path))


@pytest.mark.parametrize("share", [None, 0.6, 1.0])
def test_no_molecule_of_the_weights_a_run_starts_from_is_predicted(tmp_path, monkeypatch, share):
    asked = []
    monkeypatch.setattr(
        "duallgd_cli.evaluate.run.evaluate", lambda settings, _: asked.append(settings)
    )

    recipe_module._draw(recipe_run(tmp_path), "ranked", "drawn", DrawSettings(7, 3), share)

    (settings,) = asked
    sampling = settings.prediction.sampling
    assert settings.train_hashes == tmp_path / HASHES
    assert (sampling.samples, sampling.steps, bool(settings.databases)) == (7, 3, share is not None)
    assert share is None or sampling.database_share == share


@pytest.mark.slow
def test_a_polite_kill_in_a_stage_loses_nothing(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    said = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    settings = yaml.safe_dump(merge(yaml.safe_load(TINY.read_text()), SHORT))
    (tmp_path / "recipe.yaml").write_text(settings)
    program = (
        "from duallgd_cli import __main__, stopping; stopping._ENDING_S = 3600; __main__.run()"
    )
    arguments = ["-c", program, "train", tmp_path / "recipe.yaml", "--data", TINY.parent]
    arguments += ["-o", out, "--device", "cpu", "--from", "encoder", "--until", "encoder"]
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=os.environ | said,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        next(line for line in process.stderr if line.startswith("stage "))
        process.send_signal(signal.SIGTERM)
        ended = process.stderr.read()

    again = command(*arguments[:-4], "--until", "encoder")

    assert process.returncode in (130, 0), ended
    assert "Traceback" not in ended
    if process.returncode:
        assert "run the same command" in ended.splitlines()[-1]
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_two_ranks_follow_a_recipe_together(tmp_path):
    settings = merge(yaml.safe_load(TINY.read_text()), SHORT)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings))

    done = command(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "duallgd_cli",
        "train", tmp_path / "recipe.yaml", "--data", TINY.parent, "-o", tmp_path / "run",
        "--device", "cpu", "--threads", "1",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    record = load(tmp_path / "run" / "duallgd.safetensors").record
    assert "rank 0 of 2" in record["runtime"]
    lines = (tmp_path / "run" / "encoder" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"spectra": []}, "spectra must name a file"),
        ({"structures": []}, "structures must name a file"),
        ({"validation": 1.5}, "validation must be"),
        ({"decoder": {"training": {"stpes": 4}}}, "unknown setting decoder.training.stpes"),
        ({"joint": {"training": {"steps": 4}}}, "unknown setting joint"),
        ({"decoder": {"training": {"data": {"max_atoms": 9}}}}, "large.min_atoms must .* 9"),
        ({"draws": [{"samples": 0}]}, r"draws\[0\]: samples must be at least 1"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        recipe_run(tmp_path, overrides)
    with pytest.raises(UsageError, match="no stage is called encode; the stages are spectra, "):
        follow(recipe_run(tmp_path), until="encode")


def test_without_held_out_spectra_the_recipe_says_what_to_do(tmp_path):
    text = (TINY.parent / "tiny" / "spectra.mgf").read_text().replace("FOLD=val", "FOLD=train")
    (tmp_path / "in.mgf").write_text(text)

    with pytest.raises(DuallgdError, match=r"give the recipe validation: 0\.1"):
        follow(recipe_run(tmp_path / "run", {"spectra": [str(tmp_path / "in.mgf")]}), "spectra")
    drawn = {"spectra": [str(tmp_path / "in.mgf")], "validation": 0.2}
    follow(recipe_run(tmp_path / "run2", drawn), "spectra")

    folds = load_spectra(tmp_path / "run2" / "measured").spectrum_fold
    assert 0 < int((folds == 1).sum()) < len(folds) / 2


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.name)
def test_every_recipe_in_the_repository_is_sound(path, tmp_path):
    run = read_recipe(path, {}, None, tmp_path, cpu(), told([]))

    assert isinstance(run.settings, RecipeSettings)
