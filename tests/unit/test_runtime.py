"""What the machine offers and what the user asks for become one frozen record."""

import os

import pytest
import torch

from duallgd_cli import runtime
from duallgd_cli.runtime import Runtime


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ({}, "device cpu, precision float32, threads 1, compile off"),
        (
            {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"},  # as torchrun sets them
            "device cpu, precision float32, threads 1, compile off, rank 1 of 2",
        ),
    ],
)
def test_a_machine_without_cuda_runs_in_float32_uncompiled_on_its_cpu(
    no_cuda, monkeypatch, ranks, said
):
    for name, value in ({"OMP_NUM_THREADS": "1"} | ranks).items():
        monkeypatch.setenv(name, value)

    assert str(Runtime.resolve()) == said
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("has_arithmetic", "precision", "warnings"),
    [(True, "bfloat16", 0), (False, "bfloat16", 1), (False, "float32", 0), (False, "auto", 0)],
)
def test_a_processor_without_bfloat16_says_that_it_is_slow_there(
    no_cuda, monkeypatch, caplog, has_arithmetic, precision, warnings
):
    monkeypatch.setattr(
        torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_arithmetic, raising=False
    )

    Runtime.resolve(precision=precision)

    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert ["leave --precision out" in message for message in said] == [True] * warnings


@pytest.mark.parametrize(
    ("quota", "cores"), [(None, 2), ("150000 100000\n", 1), ("50000 100000\n", 1), ("max 1\n", 2)]
)
def test_hardware_threads_of_one_core_count_once(monkeypatch, tmp_path, quota, cores):
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (tmp_path / str(cpu)).write_text(siblings)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(runtime, "_SIBLINGS", str(tmp_path / "{cpu}"))
    monkeypatch.setattr(runtime, "_CGROUP_QUOTA", tmp_path / "cpu.max")

    assert runtime.available_cores() == cores


def test_the_environment_is_prepared_before_torch_unless_the_user_decides(monkeypatch):
    environment = {"GOMP_SPINCOUNT": "99", "LRU_CACHE_CAPACITY": "7"}
    monkeypatch.setattr(os, "environ", environment)

    runtime.prepare_environment()

    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert environment["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "96"
    assert (environment["GOMP_SPINCOUNT"], environment["LRU_CACHE_CAPACITY"]) == ("99", "7")


@pytest.mark.parametrize(
    ("device", "cores", "gib", "expected"),
    [
        ("cpu", 1, 64, 1), ("cpu", 8, 64, 8), ("cpu", 8, 16, 5), ("cpu", 8, 2, 1), ("cpu", 8, 0, 1),
        ("cuda", 1, 64, 1), ("cuda", 4, 64, 4), ("cuda", 8, 64, 5), ("cuda", 8, 9, 3),
    ],
)  # fmt: skip
def test_processes_are_as_many_as_cores_and_memory_allow(device, cores, gib, expected, monkeypatch):
    monkeypatch.setattr(runtime, "memory_bytes", lambda: gib << 30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (11 << 30, 12 << 30))

    assert Runtime(torch.device(device), None, False, threads=cores).default_workers == expected
