"""Processes that share work, and the order of what they give."""

import signal

import pytest

from duallgd_cli.runtime import in_order


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
