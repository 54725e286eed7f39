"""Processes that share work, and the order of what they give."""

import multiprocessing
import os
import signal
import time
from functools import partial

import pytest

from duallgd_cli.errors import WorkerDiedError
from duallgd_cli.runtime import in_order
from tests.cli.conftest import python


def told(number):
    return number, signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize("workers", [1, 2])
def test_chunks_come_back_in_order_from_processes_that_leave_ctrl_c_to_the_parent(workers):
    answers = list(in_order(told, iter([1, 2, 3]), workers, at_a_time=2))

    assert answers == [(number, workers > 1) for number in (1, 2, 3)]
    assert list(in_order(told, [1], workers, at_a_time=2)) == [(1, False)]  # for one alone: here


def test_no_more_is_under_way_than_is_asked_for_and_nobody_waits_for_what_is_dropped():
    """What processes have done would else pile up where its reader is slow."""
    taken = []

    def items():
        for number in range(200):
            taken.append(number)
            yield 0 if number == 0 else 3600

    answers = in_order(time.sleep, items(), 2, at_a_time=1)

    assert next(answers) is None
    assert len(taken) <= 11
    processes = multiprocessing.active_children()
    answers.close()
    assert [process.exitcode for process in processes] == [-signal.SIGKILL] * 2


def die_at(number, fatal):
    if number == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return bytes(1 << 20)  # more than a pipe holds


@pytest.mark.parametrize("fatal", [0, 7])
def test_a_process_that_is_killed_ends_the_work_in_a_sentence(fatal):
    with pytest.raises(WorkerDiedError, match=r"want of memory; go on$"):
        list(in_order(partial(die_at, fatal=fatal), range(40), 2, at_a_time=1, go_on="go on"))

    assert not multiprocessing.active_children()


STOPPED = """
import os, signal, threading
from multiprocessing import resource_tracker
from duallgd_cli import stopping
from duallgd_cli.runtime import in_order
from duallgd_cli.stopping import end_at_once, stoppable
stopping._ENDING_S = 3600
register = resource_tracker.register
def stopped(name, kind):
    register(name, kind)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(0.2)
resource_tracker.register = stopped
with stoppable():
    threading.Thread(target=threading.Event().wait, daemon=True).start()  # may take the signal
    try:
        list(in_order(abs, [1, 2], 2, 1))
    except KeyboardInterrupt:
        end_at_once()
"""


def test_sigterm_while_processes_are_started_leaves_no_semaphore_behind():
    """It comes as soon as the first one is made, which is not yet noted then."""
    done = python("-c", STOPPED)

    assert (done.returncode, done.stderr) == (130, "")


LOADING = """
import hashlib, os, signal, threading
from duallgd_cli import stopping
with stopping.stoppable(), stopping.loading():
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    hashlib.pbkdf2_hmac("sha512", b"", b"", 10**9)  # as a library that is busy and asks nobody
"""


def test_what_is_stopped_while_a_library_is_busy_ends_at_once():
    done = python("-c", LOADING, timeout=60)

    said = "error: stopped before anything was computed\n"
    assert (done.returncode, done.stderr) == (130, said)


HANGING = """
import os, signal, time
from duallgd_cli import stopping
stopping._ENDING_S = 0.1
with stopping.stoppable():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(3600)
    except KeyboardInterrupt:
        time.sleep(3600)
"""


def test_a_command_that_does_not_end_when_it_is_asked_to_is_ended():
    done = python("-c", HANGING)

    assert (done.returncode, done.stderr) == (130, "error: stopped\n")
