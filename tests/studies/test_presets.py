"""The study of the presets, with a stand-in for the network."""

import json

import presets
import pytest

from duallgd_cli.config import SamplingSettings

pytest.importorskip("scipy", reason="needs the evaluate extra")


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_every_preset_gets_a_row_and_a_second_run_predicts_nothing(
    study, table, hashes, tmp_path, monkeypatch
):
    few = {"fast": SamplingSettings(samples=3, steps=2), "thorough": SamplingSettings(samples=9)}
    monkeypatch.setattr(presets, "PRESETS", few)
    options = "--fold test --presets fast,thorough -o out --train-hashes"
    asked = (table, *options.split(), hashes)

    first = study(presets.main, *asked)
    assert first.code == 0, first.err
    times = [(tmp_path / "out" / name / "cpu_s.txt").read_text() for name in few]
    again = study(presets.main, *asked)

    rows = [line.split(" | ") for line in first.out.splitlines()[2:]]
    assert [(row[0], *row[1:4]) for row in rows] == [
        ("| fast", "3", "2", "3"),
        ("| thorough", "9", "10", "3"),
    ]
    assert [len(text.split()) for text in times] == [3, 3]
    assert again.out == first.out
    assert [(tmp_path / "out" / name / "cpu_s.txt").read_text() for name in few] == times
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {name: one["prediction"]["samples"]["drawn"] for name, one in found.items()} == {
        "fast": 9,
        "thorough": 27,
    }
