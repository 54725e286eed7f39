"""`duallgd bench` from outside: what it needs, what it writes, how it refuses."""

import pytest

from tests.cli.conftest import command_without, python
from tests.made_runs import rows_of

WITHOUT = command_without(
    *("rdkit", "matplotlib", "matchms", "pyteomics", "lxml", "scipy", "pandas")
)


@pytest.mark.slow
def test_it_runs_with_torch_numpy_yaml_typer_and_rich_alone(tmp_path):
    options = "--atoms 5,6 --attention favor --seconds 0 --steps 2 --threads 1"

    done = python("-c", WITHOUT, "bench", *options.split(), "--device", "cpu", "-o", tmp_path)

    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "scaling.csv")
    assert [row["atoms"] for row in rows] == ["5"] * 3 + ["6"] * 3
    assert "6 of 6: loop, favor, 6 atoms done" in done.stderr
    assert "loop favor grows: time as N^" in done.stdout
    assert "gflop_s" in done.stdout
    assert "weights duallgd.safetensors" in done.stdout


def test_measurements_are_not_lost_without_being_asked(duallgd, tmp_path):
    kept = tmp_path / "out" / "results.json"
    kept.parent.mkdir()
    kept.write_text('{"rows": [{"steps": 3}]}')

    done = duallgd("bench", "--atoms", "4", "--device", "cpu", "-o", "out")

    assert done.code == 2
    assert "add --force to replace it" in done.err
    assert kept.read_text() == '{"rows": [{"steps": 3}]}'
