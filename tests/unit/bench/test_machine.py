"""How runs are timed on the machine, and how much memory they take."""

import time
from dataclasses import replace

import pytest
import torch

from duallgd_cli.bench import machine
from duallgd_cli.bench.machine import ceiling_gflop_s, clock_of, peak_mib, timed
from tests.made_training import cpu

CPU = cpu()


def test_peak_memory_sees_a_tensor_that_is_gone_afterwards():
    assert peak_mib(lambda: torch.ones(48 << 18).sum(), CPU) == pytest.approx(48, abs=0.1)
    assert peak_mib(lambda: None, CPU) == 0


def test_on_one_thread_time_does_not_pass_while_asleep():
    two = replace(CPU, threads=2)
    one_slept, two_slept = (timed(lambda: time.sleep(0.02), it, 0.0).median for it in (CPU, two))

    assert (clock_of(CPU), clock_of(two)) == ("cpu", "wall")
    assert one_slept < 0.015
    assert two_slept >= 0.02


def test_the_ceiling_is_of_the_network_s_precision(monkeypatch):
    monkeypatch.setattr(machine, "_CPU_EDGE", 64)

    assert ceiling_gflop_s(replace(CPU, autocast_dtype=torch.bfloat16)) > 0.001
