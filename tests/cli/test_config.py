"""`duallgd config`: the file of settings that it writes is one that the commands read."""

import yaml

from duallgd_cli.config import flatten, parse
from duallgd_cli.predict.settings import PredictSettings


def test_settings_are_read_back_and_stand_below_what_they_do(duallgd):
    text = duallgd("config").out
    lines = text.splitlines()

    assert parse(PredictSettings, yaml.safe_load(text)) == PredictSettings()
    for name in (path.rpartition(".")[2] for path in flatten(yaml.safe_load(text))):
        found = [i for i, one in enumerate(lines) if one.strip().startswith(f"{name}:")]
        assert found
        assert all(lines[line - 1].strip().startswith("# ") for line in found), name
