"""The judge of encoders: surer or less sure is no better, and differences are by molecule."""

import numpy as np
import torch
from typer import Typer
from typer.testing import CliRunner

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.model.duallgd import DualLGD
from tests.made_graphs import small_settings
from tests.made_prepared import spectra_folder
from weights.recipe.judge_encoders import difference, entropy, main, scaled


def test_logits_that_differ_by_a_factor_alone_are_as_good():
    generator = torch.Generator().manual_seed(1)
    truth = (torch.rand(50, 40, generator=generator) < 0.3).float()
    logits = truth - 0.7 + torch.randn(50, 40, generator=generator)

    best, less = (float(entropy(scaled(z, truth), truth).mean()) for z in (logits, 0.95 * logits))

    assert best < float(entropy(logits, truth).mean())
    assert abs(best - less) < 0.05


def test_spectra_of_one_molecule_count_once():
    change, error = difference(
        torch.tensor([1.0, 1.0, 1.0, 3.0]), torch.zeros(4), np.array([7, 7, 7, 9])
    )

    assert (change, error) == (2.0, 1.0)


def test_an_encoder_is_no_better_than_itself(tmp_path):
    weights = tmp_path / "w.safetensors"
    torch.manual_seed(1)
    settings = small_settings(layers=1)
    save(weights, Checkpoint(settings, dict(DualLGD(settings).state_dict())))
    app = Typer()
    app.command()(main)
    data = spectra_folder(tmp_path / "spectra")

    done = CliRunner().invoke(app, [str(weights), "--data", str(data)])

    assert done.exit_code == 0, done.output
    _, alone, together = (line.split("\t") for line in done.stdout.splitlines())
    assert alone[3] == together[3] == "+0.00"
    assert alone[1:3] == together[1:3]
