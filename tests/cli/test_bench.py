"""`duallgd bench` from outside: what it needs, what it writes, how it refuses."""

import json

import pytest

from tests.cli.conftest import command_without, python

WITHOUT = command_without(
    *("rdkit", "matplotlib", "matchms", "pyteomics", "lxml", "scipy", "pandas")
)


@pytest.mark.slow
@pytest.mark.parametrize("output", [(), ("-o", "out")])
def test_it_runs_with_torch_numpy_yaml_typer_and_rich_alone(tmp_path, output):
    options = "--atoms 5,6 --attention favor --seconds 0 --steps 2 --threads 1 --device cpu"

    done = python("-c", WITHOUT, "bench", *options.split(), *output, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "6 of 6: loop, favor, 6 atoms done" in done.stderr
    assert "loop favor grows: time as N^" in done.stdout
    assert "gflop_s" in done.stdout
    assert "weights duallgd.safetensors" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [*output[1:]]
    for path in tmp_path.rglob("results.json"):
        rows = json.loads(path.read_text())["rows"]
        assert [row["atoms"] for row in rows] == [5] * 3 + [6] * 3


def test_measurements_are_not_lost_without_being_asked(duallgd, tmp_path):
    kept = tmp_path / "out" / "results.json"
    kept.parent.mkdir()
    kept.write_text('{"rows": [{"steps": 3}]}')

    done = duallgd("bench", "--atoms", "4", "--device", "cpu", "-o", "out")

    assert done.code == 2
    assert "add --force to replace it" in done.err
    assert kept.read_text() == '{"rows": [{"steps": 3}]}'
