"""`duallgd config`: the file of settings that it writes is one that the commands read."""

import pytest
import yaml

from duallgd_cli.config import flatten, parse
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.train.settings import run_settings


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ((), PredictSettings()),
        (("train",), run_settings(None, [])),
    ],
)
def test_settings_read_back_as_the_defaults(duallgd, command, defaults):
    done = duallgd("config", *command)

    assert done.code == 0
    assert parse(type(defaults), yaml.safe_load(done.out)) == defaults


def test_a_recipe_without_a_setting_that_it_needs_is_told_which(duallgd, tmp_path):
    (tmp_path / "recipe.yaml").write_text("spectra: [own.tsv]\nvalidation: 0.1\n")

    done = duallgd("train", "recipe.yaml", "-o", "run")

    assert done.code == 2
    assert "structures is missing; add a line 'structures: ...'" in done.err


def test_every_setting_stands_below_what_it_does(duallgd):
    text = duallgd("config", "predict").out
    lines = text.splitlines()

    for name in (path.rpartition(".")[2] for path in flatten(yaml.safe_load(text))):
        found = [i for i, one in enumerate(lines) if one.strip().startswith(f"{name}:")]
        assert found
        assert all(lines[line - 1].strip().startswith("# ") for line in found), name
