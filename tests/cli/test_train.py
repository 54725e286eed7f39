"""`duallgd data` and `duallgd train`: from text files to weights, by the command line alone."""

import json
import re
from pathlib import Path

import pytest

from duallgd_cli.checkpoint.format import load
from duallgd_cli.data.prepared import load_molecules, load_spectra
from duallgd_cli.train.settings import preset_names
from tests.made_prepared import SMILES, spectra_folder, structures_folder, verify

SHORT = [
    "--device", "cpu", "--threads", "1", "--set", "training.steps=4",
    "--set", "training.log_every=2", "--set", "training.data.pairs_per_batch=200",
    "--set", "training.data.spectra_per_batch=4",
]  # fmt: skip
TINY = ["--config", "tiny", "--set", "model.denoiser.layers=1", *SHORT]
TRAINING = Path(__file__).parents[2] / "docs/training.md"


@pytest.fixture
def structures(tmp_path):
    return structures_folder(tmp_path / "structures")


def test_structures_and_spectra_are_prepared_and_rejects_are_listed(duallgd, tmp_path):
    (tmp_path / "structures.smi").write_text("\n".join([*SMILES, "no_molecule"]) + "\n")
    spectra_folder(tmp_path / "spectra")

    structures = duallgd("data", "structures", "structures.smi", "-o", "made", "--workers", "1")
    spectra = duallgd("data", "spectra", "spectra.tsv", "-o", "again", "--workers", "1")

    assert (structures.code, structures.out, spectra.code) == (0, "", 0)
    assert "12 molecules in made; see report.tsv there" in structures.err
    verify(tmp_path / "made")
    assert len(load_molecules(tmp_path / "made")) == 12
    report = (tmp_path / "made" / "report.tsv").read_text()
    assert "13\tno_molecule\tnot a molecule" in report
    assert "7 spectra of 5 molecules in again" in spectra.err
    assert len(load_spectra(tmp_path / "again")) == 7


def test_a_run_says_how_far_it_is_and_leaves_weights_a_state_and_figures(
    duallgd, structures, tmp_path
):
    command = ("train", "--data", structures, "-o", "run", *TINY)

    first = duallgd(*command, "--stop-after", "2", "--set", "training.data.workers=1")
    done = duallgd(*command)
    first, rest = first.err.splitlines(), done.err.splitlines()

    assert (done.code, done.out) == (0, "")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "metrics.jsonl", "model.safetensors", "state.pt",
    }  # fmt: skip
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4]
    assert re.match(r"step 2 of 4, \d+:\d\d:\d\d left  loss ", first[-2])
    assert first[-1] == (
        "stopped at step 2 of 4 as asked; weights so far are run/model.safetensors, "
        "and the same command without that limit goes on"
    )
    assert "step 4 of 4, 0:00:00 left  " in rest[-2]
    assert re.match(r"done: 4 steps in \d+:\d\d:\d\d; weights are run/model\.safetens", rest[-1])


def test_help_and_documents_say_what_each_preset_is_for(duallgd):
    text = " ".join(duallgd("train", "--help").out.replace("│", " ").split())

    assert preset_names() == ["massspecgym", "nplib1", "pretrain", "tiny"]
    for preset in preset_names():
        assert re.search(rf"\b{preset} \(", text)
        assert re.search(rf"^\| `{preset}` \| .+ \|$", TRAINING.read_text(), re.MULTILINE)


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("command", "work", "said"),
    [
        (
            ["data", "structures", "a.smi"], "data.structures.prepare_structures",
            "before made was whole; run the same command with --force to begin again",
        ),
        (
            ["train", *TINY, "--data", "a"], "train.run.run_training",
            "before a step was made; nothing is lost: run the same command again",
        ),
    ],
)  # fmt: skip
def test_ctrl_c_says_what_there_is_and_how_to_go_on(duallgd, monkeypatch, command, work, said):
    monkeypatch.setattr(f"duallgd_cli.{work}", interrupted)

    done = duallgd(*command, "-o", "made")

    assert (done.code, done.err.splitlines()[-1]) == (130, f"error: stopped {said}")


def test_a_file_of_settings_holds_for_weights_to_start_from(duallgd, structures, tmp_path):
    (tmp_path / "fade.yaml").write_text("model: {denoiser: {fade_from: 100, fade_to: 250}}")
    (tmp_path / "deep.yaml").write_text("model: {denoiser: {layers: 3}}")
    first = duallgd("train", "--data", structures, "-o", "first", *TINY, "--quiet")
    on = ["train", "--data", structures, "--init-denoiser", "first"]

    fading = duallgd(*on, "-o", "fading", "--config", "fade.yaml", *SHORT)
    deeper = duallgd(*on, "-o", "deeper", "--config", "deep.yaml", *SHORT)

    assert (first.code, first.out, first.err) == (0, "", "")
    assert fading.code == 0, fading.err
    settings = load(tmp_path / "fading" / "model.safetensors").settings.denoiser
    assert (settings.fade_to, settings.layers) == (250, 1)
    assert deeper.code == 69
    assert "leave its sizes out of --set and --config" in deeper.err


@pytest.mark.slow
def test_the_figures_of_a_run_are_drawn(duallgd, tmp_path):
    (tmp_path / "run" / "decoder").mkdir(parents=True)
    rows = [{"step": step, "loss": 1 / step, "norm": 1.0, "nll_50": 0.1} for step in (1, 2, 3)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "run" / "decoder" / "metrics.jsonl").write_text("\n".join([*lines, lines[0][:9]]))

    done = duallgd("train", "--plot", "run")
    missing = duallgd("train", "--plot", ".")

    assert (done.code, done.err.splitlines()[-1]) == (0, "1 stage in run/plots")
    assert (tmp_path / "run" / "plots" / "decoder.png").stat().st_size > 10_000
    assert missing.code == 66
    assert "holds no metrics.jsonl; give the folder of a run of duallgd train" in missing.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "run"], "nothing to train on; give a recipe, or --stage and --data"),
        (["--data", "a"], "no folder for the run; name one with -o"),
        (["--data", "a", "-o", "run", "--until", "joint"], "--until and --from are for a recipe"),
        (["a.yaml", "-o", "run", "--stage", "joint"], "--stage is for one stage; a recipe says it"),
        (["none.yaml", "-o", "run"], "none.yaml does not exist; check the path"),
    ],
)
def test_a_recipe_and_one_stage_are_told_apart(duallgd, tmp_path, arguments, said):
    (tmp_path / "a.yaml").write_text("spectra: [a.mgf]\nstructures: [b.smi]\n")

    done = duallgd("train", *arguments)

    assert done.code in {2, 66}
    assert said in done.err


def test_every_setting_of_a_recipe_is_shown_and_read_back(duallgd, tmp_path):
    shown = duallgd("config", "recipe").out

    (tmp_path / "recipe.yaml").write_text(shown)
    done = duallgd("train", "recipe.yaml", "-o", "run")

    assert "draws:" in shown
    assert "Files of measured spectra" in shown
    assert "spectra.mgf does not exist; check the paths of the recipe" in done.err
