import time
from dataclasses import replace
from itertools import count

import pytest
import torch
from torch import nn

from duallgd_cli.bench import work
from duallgd_cli.bench.measure import peak_memory
from duallgd_cli.bench.work import Ceilings, Work, count_work, floor_s, measure_ceilings, timed
from duallgd_cli.model.tensors import Linear, softmax_attention
from tests.made_training import cpu

CPU = cpu()


@pytest.mark.parametrize("kind", [nn.Linear, Linear])
def test_a_linear_map_has_two_operations_for_each_weight_and_row(kind):
    layer = kind(6, 10)

    work = count_work(lambda: layer(torch.randn(4, 6)), layer)

    assert work.flop == 2 * 4 * 6 * 10
    assert work.parameter_bytes == 4 * (60 + 10)
    assert work.exponentials == 0


def test_fused_attention_counts_both_products_and_its_exponentials():
    x, heads, tokens, width = torch.randn(2, 5, 12), 3, 5, 4
    mask = torch.ones(2, tokens, dtype=torch.bool)

    work = count_work(lambda: softmax_attention(x, x, x, mask, heads), nn.Module())

    assert work.flop == 2 * 2 * 2 * heads * tokens * tokens * width
    assert work.exponentials == 2 * heads * tokens * tokens
    assert count_work(lambda: torch.exp(x), nn.Module()).exponentials == x.numel()


@pytest.mark.parametrize(
    ("work", "size", "overlaps", "seconds"),
    [
        # On a CPU arithmetic adds up, for every candidate and step; a GPU hides exponentials.
        (Work(2e6, 3e5, 1e3), (4, 5, 4), False, 20 * (2e-3 + 3e-3)),
        (Work(2e6, 3e5, 0), (1, 1, 1), True, 3e-3),
        # Many weights are read once an evaluation: of 4 candidates by 3, that is twice a step.
        (Work(1.0, 0, 1e6), (4, 5, 3), False, 2 * 5 * 1e-3),
    ],
)
def test_the_floor_is_arithmetic_or_reading_the_weights(work, size, overlaps, seconds):
    room = Ceilings({"float32": 1e9}, 1e8, 1e9, arithmetic_overlaps=overlaps)

    assert floor_s(work, *size, room, "float32") == pytest.approx(seconds)


def test_ceilings_are_of_float32_and_of_the_network_s_precision(monkeypatch):
    monkeypatch.setattr(work, "_CPU_EDGE", 64)
    monkeypatch.setattr(work, "_CPU_COPY", 1 << 16)

    found = measure_ceilings(replace(CPU, autocast_dtype=torch.bfloat16))

    assert set(found.flop_s) == {"float32", "bfloat16"}
    assert min(*found.flop_s.values(), found.exponentials_s, found.bytes_s) > 1e6
    assert not found.arithmetic_overlaps


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
