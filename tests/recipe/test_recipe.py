"""A recipe from files of spectra and structures to a weights file that predicts."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml

from duallgd_cli.checkpoint.format import load
from duallgd_cli.config import dump, merge
from duallgd_cli.data.prepared import load_molecules, load_spectra, read_manifest
from duallgd_cli.errors import (
    ConfigError,
    DuallgdError,
    InterruptedRunError,
    MissingInputError,
    UsageError,
)
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.predict.model import load_model
from duallgd_cli.sources.collection import Collection, known_molecules
from duallgd_cli.train import recipe as recipe_module
from duallgd_cli.train.recipe import HASHES, NAMES, STAGES, follow
from duallgd_cli.train.run import PARTS
from duallgd_cli.train.settings import DrawSettings, RecipeSettings
from tests.made_training import cpu
from tests.recipe.conftest import SHORT, TINY, recipe_run

ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TINY.parents[1]), "PYTHONUNBUFFERED": "1"
}  # fmt: skip


def command(*arguments):
    """Run Python in a process of its own, which must not fail."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_tiny_recipe_makes_weights_that_predict(tmp_path):
    run = tmp_path / "run"
    weights = run / "duallgd.safetensors"
    made = command("-m", "duallgd_cli", "train", TINY, "-o", run, "--device", "cpu")
    assert "stage 16 of 16: card" in made.stderr
    assert f"done: weights are {weights}" in made.stderr

    info = command("-m", "duallgd_cli", "info", "--weights", weights).stdout
    command(
        "-m", "duallgd_cli", "predict", TINY.parent / "tiny" / "spectra.mgf", "--weights", weights,
        "--samples", "4", "-o", tmp_path / "out.csv",
    )  # fmt: skip

    for shown in ("recipe: tiny.yaml", "core_hours", "hold_outs", "spectra.msp", "cost"):
        assert shown in info
    assert (tmp_path / "out.csv").read_text().count(",ok,") > 60


@pytest.mark.slow
def test_the_record_says_what_the_weights_are_made_of_and_nothing_held_out_is(whole):
    record = load(whole / "duallgd.safetensors").record

    assert record["recipe"] == "tiny.yaml"
    assert record["made_by"]["decoder"]["training"]["steps"] == 4
    assert record["cost"].keys() == set(NAMES) - {"card"}
    assert 0 < record["core_hours"] < 1
    files = {"spectra.mgf", "spectra.msp", "structures.smi", "holdout.txt"}
    assert record["sources"].keys() == files
    assert record["data"].keys() == {"alike", "large"}
    assert record["encoder"]["data"].keys() == {"measured", "simulated", "alike"}
    card = (whole / "card.md").read_text().partition("\n")[2]
    assert yaml.safe_load(card)["recipe"] == "tiny.yaml"
    held = {key.encode() for key in (whole / "held-out.keys").read_text().split()}
    assert record["hold_outs"]["molecules"] == len(held) > 10
    assert read_manifest(whole / "measured")["holdout_keys"] == len(held)
    for name in ("structures", "alike", "large", "simulated", "measured"):
        molecules = load_molecules(whole / name)  # nothing of these is trained on
        assert not held & set(molecules.inchikey[molecules.in_folds("train")].tolist()), name
        assert name == "measured" or not held & set(molecules.inchikey.tolist()), name


@pytest.mark.slow
def test_later_stages_add_to_the_network_and_leave_it_as_it_is(whole):
    stages = {part: load(whole / stage / "model.safetensors") for stage, part in PARTS.items()}
    names = ("templates", "evidence", "fitted")
    known, scored, fitted = (load(whole / f"{name}.safetensors") for name in names)

    for after in (known, scored):
        for name, tensor in after.tensors.items():
            assert torch.equal(stages[name.partition(".")[0]].tensors[name], tensor)
    assert "nll_250" in known.record["validation"]  # of spectra that are held out
    assert known.settings.encoder == stages["encoder"].settings.encoder
    assert known.kernel.keys() == {"n_places", "place", "weight", "mixing"}
    templates = Collection.of(known.templates)
    measured, structures = (load_molecules(whole / name) for name in ("measured", "structures"))
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
    loaded = load_model(whole / "duallgd.safetensors", cpu())
    assert loaded.database.n_spectra > 0
    assert dump(loaded.membership) == fitted.membership != {}
    assert fitted.record["database_validation"]["n_spectra"] > 0
    listed = TrainingHashes.read(whole / "duallgd.train.hashes")
    assert listed.contains([key.decode() for key in trained]).all()
    assert not listed.contains((whole / "held-out.keys").read_text().split()).any()


def stages_in(lines):
    return [line.partition(": ")[2] for line in lines if line.startswith("stage ")]


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_with_the_decoys_that_were_made(whole, tmp_path, monkeypatch):
    out, lines = tmp_path / "run", []
    shutil.copytree(whole, out)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("duallgd_cli.train.scorers.fit_evidence", stop)
        with pytest.raises(InterruptedRunError, match="stopped in stage evidence; run the same"):
            follow(recipe_run(out, lines=lines), until="evidence", first="decoys")
    follow(recipe_run(out, lines=lines), until="evidence")

    assert stages_in(lines) == ["decoys", "evidence", "evidence"]
    made, before = (load(folder / "evidence.safetensors") for folder in (out, whole))
    torch.testing.assert_close(made.reranker, before.reranker, rtol=0, atol=0)
    torch.testing.assert_close(made.contrast, before.contrast, rtol=0, atol=0)


@pytest.mark.slow
def test_finished_stages_are_skipped_and_damaged_or_unwanted_output_is_made_again(whole, tmp_path):
    out, lines = tmp_path / "run", []
    shutil.copytree(whole, out)
    peaks = out / "simulated" / "mz.npy"
    before = peaks.read_bytes()
    peaks.write_bytes(b"damaged")
    (out / "templates.safetensors").unlink()

    follow(recipe_run(out, lines=lines))

    assert stages_in(lines) == ["simulate", "templates"]
    assert f"{peaks} is missing or damaged; it is made again" in lines
    assert peaks.read_bytes() == before

    changed, lines = merge(SHORT, {"encoder": {"training": {"steps": 3}}}), []
    with pytest.raises(UsageError, match="begun with another recipe; give another folder, or"):
        follow(recipe_run(out, changed))
    follow(recipe_run(out, changed, lines), until="encoder", first="encoder")

    assert stages_in(lines) == ["encoder"]
    assert load(out / "encoder" / "model.safetensors").record["step"] == 3
    assert not (out / "decoder").exists()
    assert not (out / "duallgd.safetensors").exists()


@pytest.fixture
def acting(monkeypatch):
    """Stages that make nothing: a function of their name is called."""

    def replace_all(act):
        stages = (
            replace(stage, make=lambda _, name=stage.name: act(name), makes=()) for stage in STAGES
        )
        monkeypatch.setattr(recipe_module, "STAGES", tuple(stages))

    return replace_all


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("trouble", "error", "message"),
    [
        (KeyboardInterrupt(), InterruptedRunError, "stopped in stage {}; run the same command"),
        (OSError(errno.ENOSPC, "No space left"), DuallgdError, "is full in stage {}; free some"),
    ],
)
def test_a_stage_that_is_stopped_says_so_and_goes_on_later(
    tmp_path, acting, name, trouble, error, message
):
    done, troubles = [], [trouble]

    def act(stage):
        if stage == name and troubles:
            raise troubles.pop()
        done.append(stage)

    acting(act)

    with pytest.raises(error, match=message.format(name)):
        follow(recipe_run(tmp_path))
    follow(recipe_run(tmp_path))

    assert done == list(NAMES)
    assert json.loads((tmp_path / "cost.json").read_text()).keys() == set(NAMES)


@pytest.mark.parametrize(
    ("trouble", "free", "error", "message"),
    [
        (InterruptedRunError("stopped; go on"), 0, InterruptedRunError, "^stopped; go on$"),
        (ValueError("a bug"), 0, DuallgdError, "is full in stage spectra"),
        (ValueError("a bug"), 1 << 30, ValueError, "^a bug$"),
    ],
)
def test_the_disk_is_named_where_it_is_full_and_nobody_asked_to_stop(
    tmp_path, acting, monkeypatch, trouble, free, error, message
):
    def act(_):
        raise trouble

    acting(act)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    with pytest.raises(error, match=message):
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


@pytest.fixture
def train(tmp_path):
    """Arguments of Python to follow the short recipe in a folder of its own."""
    settings = yaml.safe_dump(merge(yaml.safe_load(TINY.read_text()), SHORT))
    (tmp_path / "recipe.yaml").write_text(settings)
    return [
        "-m", "duallgd_cli", "train", str(tmp_path / "recipe.yaml"), "--data", str(TINY.parent),
        "-o", str(tmp_path / "run"), "--device", "cpu",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_polite_kill_in_a_stage_loses_nothing(whole, tmp_path, train):
    shutil.copytree(whole, tmp_path / "run")
    patient = (
        "from duallgd_cli import __main__, stopping; stopping._ENDING_S = 3600; __main__.run()"
    )
    begun = [sys.executable, "-c", patient, *train[2:], "--from", "encoder", "--until", "encoder"]
    with subprocess.Popen(begun, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        next(line for line in process.stderr if line.startswith("stage "))
        process.send_signal(signal.SIGTERM)
        ended = process.stderr.read()

    command(*train, "--until", "encoder")

    assert process.returncode in (130, 0), ended
    assert "Traceback" not in ended
    assert not process.returncode or "run the same command" in ended.splitlines()[-1]


@pytest.mark.slow
def test_two_ranks_follow_a_recipe_together(tmp_path, train):
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

    command(*ranks, *train, "--threads", "1")

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
        (
            {"encoder": {"training": {"steps": 0}}},
            "keeps the weights of encoder_start; name a",
        ),
        ({"decoder": {"training": {"data": {"max_atoms": 9}}}}, "large.min_atoms must .* 9"),
        ({"draws": [{"samples": 0}]}, r"draws\[0\]: samples must be at least 1"),
        ({"draws": []}, "draws must hold a run"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        recipe_run(tmp_path, overrides)
    with pytest.raises(UsageError, match="no stage is called encode; the stages are spectra, "):
        follow(recipe_run(tmp_path), until="encode")


@pytest.mark.parametrize("start", ["start", "encoder_start"])
def test_weights_to_start_from_and_their_list_are_missed_before_the_first_stage(
    tmp_path, acting, start
):
    done = []
    acting(done.append)
    run = recipe_run(tmp_path / "run", SHORT | {start: str(tmp_path / "before.safetensors")})
    for missing in ("before.safetensors", "before.train.hashes"):
        with pytest.raises(MissingInputError, match=f"{missing} does not exist; weights that a re"):
            follow(run)
        assert done == []
        (tmp_path / missing).touch()

    follow(run)
    (tmp_path / "before.safetensors").unlink()  # on another machine, once it was used
    follow(run)
    with pytest.raises(MissingInputError):
        follow(run, first="encoder")  # and nothing of it is thrown away

    follow(run)
    assert done == list(NAMES)


@pytest.mark.parametrize(
    "given", [{"spectra": ["measured.tsv"]}, {"structures": ["structures/all.smi"]}]
)
def test_what_a_recipe_reads_is_not_overwritten_by_the_run(tmp_path, acting, given):
    recipe = tmp_path / "recipe-of-mine.yaml"
    plain = {"spectra": ["other.mgf"], "structures": ["other.smi"]} | given
    recipe.write_text(yaml.safe_dump(plain))

    with pytest.raises(UsageError, match=r"would be overwritten by the run; name another folder"):
        follow(recipe_run(tmp_path, {}, path=recipe))

    assert [path.name for path in tmp_path.iterdir()] == ["recipe-of-mine.yaml"]


def test_without_held_out_spectra_the_recipe_says_what_to_do(tmp_path):
    text = (TINY.parent / "tiny" / "spectra.mgf").read_text().replace("FOLD=val", "FOLD=train")
    (tmp_path / "in.mgf").write_text(text)
    drawn = {"spectra": [str(tmp_path / "in.mgf")]}

    with pytest.raises(DuallgdError, match=r"give the recipe validation: 0\.1"):
        follow(recipe_run(tmp_path / "run", drawn), "spectra")
    follow(recipe_run(tmp_path / "run2", drawn | {"validation": 0.2}), "spectra")

    folds = load_spectra(tmp_path / "run2" / "measured").spectrum_fold
    assert 0 < int((folds == 1).sum()) < len(folds) / 2


@pytest.mark.parametrize("path", sorted(TINY.parent.glob("*.yaml")), ids=lambda path: path.name)
def test_every_recipe_in_the_repository_is_sound(path, tmp_path):
    assert isinstance(recipe_run(tmp_path, {}, path=path).settings, RecipeSettings)
