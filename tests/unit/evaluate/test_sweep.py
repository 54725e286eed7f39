import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.sweep import Sweep, front


def row(value, speed_up, tanimoto, mces):
    metrics = {"tanimoto@1": {"mean": tanimoto}, "mces@1": {"mean": mces}}
    return {"value": value, "speed_up": speed_up, "metrics": metrics}


ROWS = [row(1, 50, 0.2, 9.0), row(5, 10, 0.4, 9.5), row(10, 5, 0.3, 8.0), row(50, 1, 0.5, 8.0)]


def test_the_front_holds_what_no_faster_value_equals():
    assert front(ROWS, "tanimoto@1") == [1, 5, 50]


def test_a_smaller_distance_is_the_better_one():
    assert front(ROWS, "mces@1") == [1, 10]


def test_values_are_read_ascending_and_once():
    assert Sweep.parse("steps=10, 1,10") == Sweep("steps", (1, 10))


@pytest.mark.parametrize("text", ["steps", "steps=", "steps=0", "seed=1", "samples=1.5"])
def test_what_is_no_sweep_is_refused(text):
    with pytest.raises(UsageError, match="is not like steps=1,2,5"):
        Sweep.parse(text)
