"""Processes that share work: what they do first."""

import signal
import sys

from duallgd_cli.data.pool import pool


def test_ctrl_c_is_left_to_the_parent():
    with pool(1) as workers:
        assert workers.apply(signal.getsignal, (signal.SIGINT,)) == signal.SIG_IGN


def test_each_begins_with_what_it_is_given():
    with pool(1, sys.setrecursionlimit, (1234,)) as workers:
        assert workers.apply(sys.getrecursionlimit) == 1234
        assert workers.apply(signal.getsignal, (signal.SIGINT,)) == signal.SIG_IGN
