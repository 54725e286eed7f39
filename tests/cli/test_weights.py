"""`duallgd weights`: files checked, molecules listed."""

from dataclasses import replace

from typer.testing import CliRunner

from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.cli import app
from duallgd_cli.evaluate.leakage import TrainingHashes
from tests.fuzz.weights import sound_weights
from tests.made_prepared import structures_folder


def run(*arguments):
    return CliRunner().invoke(app, ["weights", *map(str, arguments)], catch_exceptions=True)


def test_weights_that_a_plug_in_reads_are_verified_by_it(made_plugin):
    verified = run("verify", made_plugin)

    assert verified.exit_code == 0
    assert verified.stdout.split(maxsplit=2)[1:] == [str(made_plugin), "made of text\n"]


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
