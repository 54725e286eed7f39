"""The counts of `make bench-check`: what they compare, and that what they count exists."""

import ast
import json
from pathlib import Path

import pytest

import duallgd_cli
from examples.benchmarks.counts import CALLS, RECORD, TALLIES, faults


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"a": 110, "b": 0}, []),
        ({"a": 111, "b": 0}, ["a: 111 instead of 100, 11% more"]),
        ({"a": 20, "b": 1}, ["b: 1 instead of 0, none before"]),
        ({"b": 0}, ["a: 100 before, and nothing is counted now; mend counts.py"]),
    ],
)
def test_a_count_that_grew_by_more_than_a_tenth_is_said(now, said):
    assert faults(now, {"a": 100, "b": 0}) == said


def test_what_is_recorded_is_what_is_counted_of_functions_that_exist():
    functions = {
        node.name
        for path in Path(duallgd_cli.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    recorded = json.loads(RECORD.read_text("utf-8"))

    assert set(CALLS.values()) <= functions
    assert list(recorded) == [*CALLS, *TALLIES, "candidates"]
    assert all(recorded.values())
