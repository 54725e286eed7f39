"""`duallgd train` and `duallgd config train`: recipes, by the command line."""

import json

import pytest

from duallgd_cli.config import parse, read_mapping
from duallgd_cli.train.settings import RecipeSettings


@pytest.mark.slow
def test_the_figures_of_a_run_are_drawn(duallgd, tmp_path):
    (tmp_path / "run" / "decoder").mkdir(parents=True)
    rows = [{"step": step, "loss": 1 / step, "norm": 1.0, "nll_50": 0.1} for step in (1, 2, 3)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "run" / "decoder" / "metrics.jsonl").write_text("\n".join([*lines, lines[0][:9]]))

    done = duallgd("train", "--plot", "run")

    assert (done.code, done.err.splitlines()[-1]) == (0, "1 stage in run/plots")
    assert (tmp_path / "run" / "plots" / "decoder.png").stat().st_size > 10_000


def test_every_setting_of_a_recipe_is_shown_and_read_back(duallgd, tmp_path):
    shown = duallgd("config", "train").out

    (tmp_path / "recipe.yaml").write_text(shown)
    done = duallgd("train", "recipe.yaml", "-o", "run")

    assert "Files of measured spectra" in shown
    expected = RecipeSettings(("spectra.mgf",), ("structures.tsv",))
    assert parse(RecipeSettings, read_mapping(tmp_path / "recipe.yaml")) == expected
    assert "stage 1 of 15: spectra" in done.err
    assert "spectra.mgf does not exist; check the paths of the recipe" in done.err


def test_a_recipe_without_a_setting_that_it_needs_is_told_which(duallgd, tmp_path):
    (tmp_path / "recipe.yaml").write_text("spectra: [own.tsv]\nvalidation: 0.1\n")

    done = duallgd("train", "recipe.yaml", "-o", "run")

    assert done.code == 2
    assert "structures is missing; add a line 'structures: ...'" in done.err
