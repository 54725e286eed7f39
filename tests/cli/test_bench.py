"""`duallgd bench` from outside: what it needs, what it writes, how it refuses."""

import json

import pytest

from tests.cli.conftest import command_without, python
from tests.made_runs import rows_of

WITHOUT = command_without(
    *("rdkit", "matplotlib", "matchms", "pyteomics", "lxml", "scipy", "pandas")
)


@pytest.mark.slow
def test_it_runs_with_torch_numpy_yaml_typer_and_rich_alone(tmp_path):
    options = "--atoms 5,6 --attention favor --repeats 1 --steps 2 --threads 1"

    done = python("-c", WITHOUT, "bench", *options.split(), "--device", "cpu", "-o", tmp_path)

    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "scaling.csv")
    assert {(row["atoms"], row["path"]) for row in rows} == {("5", "fast"), ("6", "fast")}
    assert "2 of 2: favor, 6 atoms done" in done.stderr
    assert "loop favor fast grows: time as N^" in done.stdout
    assert "exponentials_s" in done.stdout
    assert "weights duallgd.safetensors" in done.stdout


@pytest.mark.slow
def test_predict_measures_the_network_alone_where_nothing_makes_molecules(tmp_path):
    made = ["bench", "predict", "--atoms", "6", "--made", "2", "--samples", "2", "--steps", "1"]
    made += ["--device", "cpu", "--threads", "1"]

    done = python("-c", WITHOUT, *made, "-o", tmp_path / "out")

    assert done.returncode == 0, done.stderr
    assert "assembled False" in done.stdout
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (found["assembled"], found["spectra"], found["samples"]) == (False, 2, 2)


def test_measurements_are_neither_lost_nor_mixed_without_being_asked(duallgd, tmp_path):
    kept = tmp_path / "out" / "results.json"
    kept.parent.mkdir()
    kept.write_text('{"rows": [{"steps": 3}]}')

    asked = ("bench", "--atoms", "4", "--device", "cpu", "-o", "out")
    silent, resumed = duallgd(*asked), duallgd(*asked, "--resume")

    assert (silent.code, resumed.code) == (2, 2)
    assert "add --force to replace it, or --resume to continue its run" in silent.err
    assert "the measurements in out are of other settings" in resumed.err
    assert kept.read_text() == '{"rows": [{"steps": 3}]}'
