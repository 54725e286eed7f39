"""Processes that share work, and the order of what they give."""

import multiprocessing
import os
import signal
import time
from functools import partial

import pytest

from duallgd_cli.errors import WorkerDiedError
from duallgd_cli.runtime import Processes, in_order


def told(number):
    return number, signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize("workers", [1, 2])
def test_chunks_come_back_in_order_from_processes_that_leave_ctrl_c_to_the_parent(workers):
    found = list(in_order(told, iter([1, 2, 3]), workers))

    assert found == [(number, workers > 1) for number in (1, 2, 3)]


def test_no_more_is_under_way_than_is_asked_for():
    """What processes have done would else pile up where its reader is slow."""
    taken = []

    def items():
        for number in range(200):
            taken.append(number)
            yield number

    found = in_order(abs, items(), 2, at_a_time=1)

    assert next(found) == 0
    assert len(taken) <= 11
    found.close()  # and nothing waits for ever


def die_at(number, fatal):
    if number == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return bytes(1 << 20)  # more than a pipe holds


@pytest.mark.parametrize("fatal", [0, 7])
def test_a_process_that_is_killed_ends_the_work_in_a_sentence(fatal):
    with pytest.raises(WorkerDiedError, match=r"want of memory; free some memory.*run it again"):
        list(in_order(partial(die_at, fatal=fatal), range(40), 2, at_a_time=1))

    assert not multiprocessing.active_children()


def test_work_that_is_begun_after_a_process_was_killed_ends_in_the_same_sentence():
    with Processes(1, "go on") as processes:
        with pytest.raises(WorkerDiedError, match=r"want of memory; go on$"):
            processes.submit(die_at, 0, 0)()

        with pytest.raises(WorkerDiedError, match=r"want of memory; go on$"):
            processes.submit(abs, 1)


def test_an_error_ends_processes_that_are_at_work():
    started = time.monotonic()

    def fail():
        with Processes(2) as processes:
            processes.submit(time.sleep, 60)
            processes.submit(os.getpid)()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert not multiprocessing.active_children()
    assert time.monotonic() - started < 40
