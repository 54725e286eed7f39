"""Settings of `duallgd predict`: the file that `duallgd config` writes, and presets.

Everything else wins over a preset, one word for samples and steps.
"""

import json

import pytest
import yaml

from duallgd_cli.config import flatten, parse
from duallgd_cli.predict.settings import PredictSettings
from tests.made_spectra import ASPIRIN, block, mgf


@pytest.mark.parametrize(("command", "settings"), [("predict", PredictSettings()), ("train", None)])
def test_settings_are_read_back_and_stand_below_what_they_do(duallgd, command, settings):
    text = duallgd("config", command).out
    lines = text.splitlines()

    assert settings is None or parse(type(settings), yaml.safe_load(text)) == settings
    for name in (path.rpartition(".")[2] for path in flatten(yaml.safe_load(text))):
        found = [i for i, one in enumerate(lines) if one.strip().startswith(f"{name}:")]
        assert found
        assert all(lines[line - 1].strip().startswith("# ") for line in found), name


@pytest.mark.parametrize(
    ("options", "samples", "steps"),
    [
        ((), 100, 10),
        (("--preset", "fast"), 30, 6),
        (("--preset", "thorough"), 300, 20),
        (("--preset", "thorough", "--steps", "3", "--set", "sampling.samples=5"), 5, 3),
        (("--preset", "fast", "--config", "settings.yaml"), 30, 9),
    ],
)
def test_what_is_said_of_samples_and_steps_wins_over_the_preset(
    duallgd, tmp_path, options, samples, steps
):
    (tmp_path / "settings.yaml").write_text("sampling: {steps: 9}\n")
    spectra = mgf(tmp_path / "in.mgf", block(ASPIRIN, pepmass="300.1"))  # nothing is drawn

    done = duallgd("predict", spectra, "-o", "out.csv", *options)

    assert done.code == 0, done.err
    record = json.loads((tmp_path / "out.csv.run.json").read_text())
    sampling = record["settings"]["sampling"]
    assert (sampling["samples"], sampling["steps"]) == (samples, steps)
    assert "preset" not in json.dumps(record)
