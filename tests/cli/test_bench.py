"""`duallgd bench` from outside: what it needs, what it writes, how it refuses."""

import csv
import json
import subprocess
import sys

import pytest

# A module that is None counts as absent: for imports and for whoever looks for it.
WITHOUT = """
import sys
absent = ("rdkit", "matplotlib", "matchms", "pyteomics", "lxml", "scipy", "pandas")
sys.modules.update(dict.fromkeys(absent))
from duallgd_cli.__main__ import main
main()
"""


@pytest.mark.slow
def test_it_runs_with_torch_numpy_yaml_typer_and_rich_alone(tmp_path):
    options = "--atoms 6 --attention favor --no-sweeps --repeats 1 --steps 2 --threads 1"
    command = ["bench", *options.split(), "--device", "cpu", "-o", str(tmp_path)]

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *command], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    with (tmp_path / "scaling.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["atoms"], row["path"]) for row in rows} == {("6", "fast")}
    assert "1 of 1: favor, 6 atoms done" in done.stderr
    assert "exponentials/s" in done.stdout
    assert "weights duallgd.safetensors" in done.stdout


@pytest.mark.slow
def test_predict_measures_the_network_alone_where_nothing_makes_molecules(tmp_path):
    made = ["bench", "predict", "--atoms", "6", "--made", "2", "--samples", "2", "--steps", "1"]
    made += ["--device", "cpu", "--threads", "1"]

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *made, "-o", str(tmp_path / "out")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "network alone: rdkit is absent" in done.stdout
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (found["assembled"], found["spectra"], found["samples"]) == (False, 2, 2)


def test_measurements_are_neither_lost_nor_mixed_without_being_asked(duallgd, tmp_path):
    kept = tmp_path / "out" / "journal.jsonl"
    kept.parent.mkdir()
    kept.write_text('{"steps": 3}\n')

    asked = ("bench", "--atoms", "4", "--device", "cpu", "-o", "out")
    silent, resumed = duallgd(*asked), duallgd(*asked, "--resume")

    assert (silent.code, resumed.code) == (2, 2)
    assert "add --force to replace it, or --resume to continue its run" in silent.err
    assert "of a different run: atoms absent -> [4]" in resumed.err
    assert kept.read_text() == '{"steps": 3}\n'
