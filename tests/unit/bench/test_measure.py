import time
from itertools import count

import torch

from duallgd_cli.bench import work
from duallgd_cli.bench.measure import peak_memory
from duallgd_cli.bench.work import timed
from tests.made_training import cpu

CPU = cpu()


def test_peak_memory_sees_a_tensor_that_is_gone_afterwards():
    wanted_mib = 48

    found, how = peak_memory(lambda: torch.ones(wanted_mib << 18).sum(), CPU)

    assert wanted_mib - 2 <= found <= wanted_mib + 16
    assert "RSS" in how


def test_cpu_time_does_not_pass_while_asleep():
    wall, cpu = timed(lambda: time.sleep(0.02), 3, 10, CPU)

    assert len(wall) == 3
    assert min(wall) >= 0.02
    assert max(cpu) < 0.015


def test_no_run_starts_after_the_limit_but_one_always_does(monkeypatch):
    ticks = count()
    monkeypatch.setattr(work.time, "perf_counter", lambda: next(ticks))  # each run takes one

    assert len(timed(lambda: None, 5, 1.5, CPU)[0]) == 2
    assert len(timed(lambda: None, 5, 0.0, CPU)[0]) == 1
