"""`duallgd bench` from outside: what it needs, what it writes, how it refuses."""

import csv
import os
import subprocess
import sys

import pytest

ABSENT = ("rdkit", "matplotlib", "matchms", "pyteomics", "lxml", "scipy", "pandas")


def run(*arguments, path=""):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (path, ".")))}
    return subprocess.run(
        [sys.executable, "-m", "duallgd_cli", "bench", *arguments],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


@pytest.mark.slow
def test_it_runs_with_torch_numpy_yaml_typer_and_rich_alone(tmp_path):
    barred = tmp_path / "barred"
    barred.mkdir()
    for name in ABSENT:
        (barred / f"{name}.py").write_text(f"raise ImportError('{name} is not for this')\n")

    arguments = (
        "--atoms 4,6 --attention favor --no-sweeps --repeats 1 --steps 2 --threads 1 --device cpu"
    )
    done = run(*arguments.split(), "-o", str(tmp_path / "out"), path=str(barred))

    assert done.returncode == 0, done.stderr
    with (tmp_path / "out" / "scaling.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["atoms"], row["path"]) for row in rows} == {("4", "fast"), ("6", "fast")}
    assert "2 of 2: favor, 6 atoms done" in done.stderr
    assert "exponentials/s" in done.stdout
    assert "weights duallgd.safetensors" in done.stdout


def test_without_atoms_it_explains_itself():
    done = run()

    assert done.returncode == 0
    assert "--atoms" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--atoms", "ten"), "10..100:5"),
        (("--atoms", "10", "--attention", "linear"), "softmax, favor"),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments, words, tmp_path):
    done = run(*arguments, "-o", str(tmp_path / "out"))

    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


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
