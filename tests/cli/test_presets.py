"""`--preset` of `duallgd predict`: one word for samples and steps; everything else wins over it."""

import json

import pytest

from duallgd_cli import predict_spectra
from duallgd_cli.errors import UsageError
from tests.made_spectra import ASPIRIN, block, mgf
from tests.stub_model import stub_model


@pytest.mark.parametrize(
    ("options", "samples", "steps"),
    [
        ((), 100, 10),
        (("--preset", "default"), 100, 10),
        (("--preset", "fast"), 30, 6),
        (("--preset", "thorough"), 300, 20),
        (("--preset", "fast", "--samples", "7"), 7, 6),
        (("--preset", "thorough", "--steps", "3", "--set", "sampling.samples=5"), 5, 3),
        (("--preset", "fast", "--config", "settings.yaml"), 30, 9),
    ],
)
def test_what_is_said_of_samples_and_steps_wins_over_the_preset(
    duallgd, tmp_path, options, samples, steps
):
    (tmp_path / "settings.yaml").write_text("sampling: {steps: 9}\n")
    spectra = mgf(tmp_path / "in.mgf", block(ASPIRIN))

    done = duallgd("predict", spectra, "-o", "out.csv", *options)

    assert done.code == 0, done.err
    record = json.loads((tmp_path / "out.csv.run.json").read_text())
    sampling = record["settings"]["sampling"]
    assert (sampling["samples"], sampling["steps"]) == (samples, steps)
    assert "preset" not in json.dumps(record)


def test_presets_from_python(tmp_path):
    spectra = mgf(tmp_path / "in.mgf", block(ASPIRIN))

    (fast,) = predict_spectra(stub_model(), spectra, preset="fast")
    (own,) = predict_spectra(stub_model(), spectra, preset="fast", samples=4)

    drawn = [one.hypotheses[0].sampled for one in (fast, own)]
    assert drawn == [30, 4]
    with pytest.raises(UsageError, match="preset must be one of"):
        predict_spectra(stub_model(), spectra, preset="quick")
