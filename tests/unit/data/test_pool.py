"""Processes that share work: what they do first, and the order of what they give."""

import signal

import pytest

from duallgd_cli.data.pool import in_order

_begun = []


def begin(name):
    _begun.append((name, signal.getsignal(signal.SIGINT) == signal.SIG_IGN))


def told(number):
    return number, _begun[-1]


@pytest.mark.parametrize("workers", [1, 2])
def test_chunks_come_back_in_order_from_processes_that_leave_ctrl_c_to_the_parent(workers):
    found = list(in_order(told, iter([1, 2, 3]), workers, begin, ("own",)))

    assert found == [(number, ("own", workers > 1)) for number in (1, 2, 3)]
