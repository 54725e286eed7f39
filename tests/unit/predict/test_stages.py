"""Time by stage: exclusive, across threads that share a context, and free of cost unwatched."""

import contextvars
import time
from dataclasses import replace
from threading import Thread

import pytest

from duallgd_cli.predict.run import predict
from duallgd_cli.runtime import ELSEWHERE, STAGES, each_in_stage, stage, watched
from tests.made_runs import request
from tests.stub_model import stub_model


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only when it is told to."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def passes(seconds):
        now[0] += seconds

    return passes


def test_a_stage_inside_another_counts_for_itself_alone(clock):
    with watched() as seconds:
        with stage("outer"):
            clock(2)
            with stage("inner"):
                clock(5)
            clock(1)
        with stage("inner"):
            clock(10)

    assert seconds == {"outer": 3, "inner": 15}


def test_a_stage_that_fails_counts_too(clock):
    def breaks():
        with stage("broken"):
            clock(4)
            raise KeyError

    with watched() as seconds, pytest.raises(KeyError):
        breaks()

    assert seconds == {"broken": 4}


def test_making_an_item_counts_and_using_it_does_not(clock):
    def items():
        for number in range(3):
            clock(1)
            yield number

    with watched() as seconds:
        for _ in each_in_stage("read", items()):
            clock(50)

    assert seconds == {"read": 3}


def test_a_thread_with_a_copy_of_the_context_counts_along(clock):
    def work():
        with stage("thread"):
            clock(3)

    with watched() as seconds:
        thread = Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        thread.join()

    assert seconds == {"thread": 3}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_goes_through_all_stages(spectra, tmp_path, workers):
    with watched() as seconds:
        model = replace(stub_model(), again=stub_model)
        predict(request(spectra, tmp_path / "out.csv", workers=workers), model)

    expected = set(STAGES) - {"enumerate"}  # the stand-in lists nothing
    assert set(seconds) == expected | ({ELSEWHERE} if workers > 1 else set())
    assert all(one > 0 for one in seconds.values())
