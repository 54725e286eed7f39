"""The counts of `make bench-check`: what they compare, and that what they count exists."""

import json
import re
from pathlib import Path

import duallgd_cli
from examples.benchmarks.counts import CALLS, RECORD, TALLIES, faults


def test_a_count_that_grew_by_more_than_a_tenth_is_said():
    before = {"a": 100, "b": 0}

    assert faults({"a": 110, "b": 0}, before) == []
    assert faults({"a": 111, "b": 1}, before) == [
        "a: 111 instead of 100, 11% more",
        "b: 1 instead of 0, none before",
    ]
    gone = "a: 100 before, and nothing is counted now; mend counts.py"
    assert faults({"b": 0}, before) == [gone]


def test_what_is_recorded_is_what_is_counted_of_functions_that_exist():
    package = Path(duallgd_cli.__file__).parent.rglob("*.py")
    functions = set(
        re.findall(r"\bdef (\w+)", "".join(path.read_text("utf-8") for path in package))
    )
    recorded = json.loads(RECORD.read_text("utf-8"))

    assert set(CALLS.values()) <= functions
    assert list(recorded) == [*CALLS, *TALLIES, "candidates"]
    assert all(recorded.values())
