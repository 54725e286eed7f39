"""`duallgd weights` on a checkpoint of the authors' structure."""

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.cli import app
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.reference.encoder import ReferenceEncoder
from duallgd_cli.reference.settings import ReferenceEncoderSettings
from tests.fuzz.weights import sound_weights
from tests.made_prepared import structures_folder
from tests.made_reference import theirs


@pytest.fixture
def encoder_file(tmp_path):
    settings = ReferenceEncoderSettings(width=8, heads=2, fragment_bits=4, fingerprint_sizes=(4, 8))
    path = tmp_path / "encoder.pt"
    torch.save(theirs(ReferenceEncoder(settings)), path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["weights", *map(str, arguments)], catch_exceptions=True)


def test_an_encoder_is_converted_and_verified(encoder_file, tmp_path):
    target = tmp_path / "out" / "encoder.safetensors"

    converted = run("convert", encoder_file, "-o", target)
    verified = run("verify", target)

    assert converted.exit_code == 0
    assert "tensors of encoder" in converted.stderr
    assert verified.exit_code == 0
    digest, path, *_ = verified.stdout.split()
    assert len(digest) == 64
    assert path == str(target)


def test_weights_of_which_a_part_was_never_trained_are_whole_and_said_to_be_of_no_use(tmp_path):
    path = sound_weights(tmp_path / "w.safetensors")
    record = {"training": {"stage": "decoder"}, "init": {}}
    save(path, replace(load(path), record=record))

    verified = run("verify", path)

    assert verified.exit_code == 0
    assert "the encoder of weights" in verified.stderr
    assert "was never trained" in verified.stderr
    assert "duallgd train --stage encoder" in verified.stderr


def test_the_molecules_of_fold_train_are_listed_as_hashes_and_more_are_added(tmp_path):
    structures_folder(tmp_path / "first", "CCO", "CCCCCC", "CCN", fold=[0, 0, 3])
    structures_folder(tmp_path / "next", "CCN", "CCO")
    ethanol, hexane, ethylamine = "LFQSCWFLJHTTHZ", "VLKZOEOYAKHREP", "QUSNBJAOOMFDIB"
    list_ = tmp_path / "w.train.hashes"

    listed = run("hashes", tmp_path / "first", "--max-atoms", "5", "-o", list_)
    first = TrainingHashes.read(list_).contains([ethanol, hexane, ethylamine])
    more = run("hashes", tmp_path / "next", "--also", list_, "-o", tmp_path / "both.hashes")
    both = TrainingHashes.read(tmp_path / "both.hashes").contains([ethanol, hexane, ethylamine])

    assert listed.exit_code == more.exit_code == 0
    assert more.stderr == f"2 molecules in {tmp_path / 'both.hashes'}\n"
    assert (first.tolist(), both.tolist()) == ([True, False, False], [True, False, True])
