"""What the machine offers and what the user asks for become one frozen record."""

import os
import subprocess
import sys

import pytest
import torch

from duallgd_cli import runtime
from duallgd_cli.errors import UsageError
from duallgd_cli.runtime import Runtime


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_machine_without_cuda_runs_in_float32_uncompiled_on_its_cpu(no_cuda, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    resolved = Runtime.resolve()

    assert str(resolved) == "device cpu, precision float32, threads 1, compile off"
    assert resolved.rank == 0
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "abacus"}, r"'abacus' is unknown; use auto, cpu"),
        ({"device": "cuda:one"}, r"not of the form cuda:0"),
        ({"device": "cuda"}, r"sees 0 CUDA devices; use --device cpu"),
        ({"precision": "float8"}, r"precision must be one of auto, float32, bfloat16"),
        ({"compile": "maybe"}, r"compile must be one of auto, on, off"),
        ({"threads": 0}, r"threads must be 1 to 1024, not 0"),
        ({"threads": 100_000}, r"threads must be 1 to 1024, not 100000"),
    ],
)
def test_an_impossible_request_is_refused_in_a_sentence(no_cuda, arguments, message):
    with pytest.raises(UsageError, match=message):
        Runtime.resolve(**arguments)


def test_torchrun_tells_the_rank(no_cuda, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    resolved = Runtime.resolve()

    assert (resolved.rank, resolved.world_size) == (1, 2)


def test_autocast_is_for_matrix_products_only(no_cuda):
    matrix = torch.eye(3)

    with Runtime.resolve(precision="bfloat16").autocast():
        low = matrix @ matrix
    with Runtime.resolve(precision="float32").autocast():
        full = matrix @ matrix

    assert low.dtype is torch.bfloat16
    assert full.dtype is torch.float32


def test_hardware_threads_of_one_core_count_once(monkeypatch, tmp_path):
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (tmp_path / str(cpu)).write_text(siblings)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(runtime, "_SIBLINGS", str(tmp_path / "{cpu}"))
    monkeypatch.setattr(runtime, "_CGROUP_QUOTA", tmp_path / "absent")
    assert runtime.available_cores() == 2

    (tmp_path / "cpu.max").write_text("150000 100000\n")
    monkeypatch.setattr(runtime, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    assert runtime.available_cores() == 1

    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert runtime.available_cores() == 2


def test_threads_sleep_and_few_kernels_are_kept_unless_the_user_decides(monkeypatch):
    environment = {"GOMP_SPINCOUNT": "99", "LRU_CACHE_CAPACITY": "7"}
    monkeypatch.setattr(os, "environ", environment)

    runtime.prepare_environment()

    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert environment["GOMP_SPINCOUNT"] == "99"
    assert environment["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "96"
    assert environment["LRU_CACHE_CAPACITY"] == "7"


def test_the_environment_is_prepared_before_torch_is_there():
    program = "import sys, duallgd_cli.runtime; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


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
