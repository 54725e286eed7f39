"""The plain path is the fast one's specification: the same parameters give the same numbers."""

import json
from dataclasses import replace

import numpy as np
import plain
import plain_path
import pytest
import torch
from plain import PlainDenoiser
from plain_path import ParityError

from duallgd_cli.bench import measure, scaling
from duallgd_cli.bench.measure import Cell, job_of
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu

ABOUT = {"parameters": 1, "val_top1": None}


def small_network(kernel):
    features = {"favor": 8, "softmax": 0}[kernel]
    return stirred(small_settings(pair_features=features))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(measure, "network_of", lambda _, kernel: (small_network(kernel), ABOUT))
    monkeypatch.setattr("duallgd_cli.bench.work._CPU_EDGE", 64)
    monkeypatch.setattr("duallgd_cli.bench.work._CPU_COPY", 1 << 16)


@pytest.mark.parametrize("kernel", ["softmax", "favor"])
@pytest.mark.parametrize("part", ["attention", "forward", "loop"])
def test_both_paths_give_the_same_numbers(part, kernel):
    cell = Cell(cpu(), part, kernel, 9, samples=2, steps=3 if part == "loop" else 1)

    with torch.inference_mode():
        slow, fast = (job_of(one)[0]() for one in (replace(cell, plain="plain"), cell))

    torch.testing.assert_close(fast, slow, atol=2e-5, rtol=1e-5)
    assert slow.float().std() > 0


def test_the_plain_network_shares_all_parameters_and_leaves_the_fast_one_alone():
    fast = small_network("favor").denoiser
    kinds = [type(module) for module in fast.modules()]

    rebuilt = PlainDenoiser(fast)

    own = {id(parameter) for parameter in fast.parameters()}
    assert own == {id(parameter) for parameter in rebuilt.parameters()}
    assert kinds == [type(module) for module in fast.modules()]


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Measures both paths in this process."""
    monkeypatch.setattr(plain_path, "read_cells", measure._measured)
    groups = scaling.groups_of(Cell(cpu(), repeats=1), (7,), ("favor",))
    return lambda: scaling.run_study(groups, tmp_path, measure=plain_path.both_paths)["rows"]


@pytest.mark.slow
def test_a_fault_put_into_one_path_is_found(measured, monkeypatch):
    whole = plain.incidence

    def without_the_last_pair(graph):
        found = whole(graph).clone()
        found[:, -1] = False
        return found

    monkeypatch.setattr(plain, "incidence", without_the_last_pair)

    with pytest.raises(ParityError, match="forward, favor, 7 atoms"):
        plain_path.check_parity(measured())


def test_a_result_that_is_no_number_agrees_with_nothing():
    row = {"part": "forward", "kernel": "favor", "atoms": 7, "precision": "float32"}
    numbers = np.arange(3, dtype=np.float32)
    for result, sound in ((numbers, True), (numbers + 0.01, False), (numbers * np.nan, False)):
        difference, allowed = plain_path.apart(row, numbers, result)
        compared = row | {"difference": difference, "allowed": allowed}
        if sound:
            plain_path.check_parity([compared])
        else:
            with pytest.raises(ParityError):
                plain_path.check_parity([compared])


@pytest.mark.slow
def test_the_command_measures_both_paths_in_processes_of_their_own(study, tmp_path):
    done = study(
        plain_path.plain_path, "--atoms", "4", "--attention", "favor",
        "--repeats", "1", "--steps", "2", "--threads", "1", "--device", "cpu",
        "-o", "out",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert "plain/fast" in done.out
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert [row["path"] for row in rows] == ["plain", "fast"] * 3
    for slow, fast in zip(rows[::2], rows[1::2], strict=True):
        assert fast["times_plain"] == pytest.approx(slow["cpu_s"] / fast["cpu_s"])
        assert "difference" not in slow
        assert slow["gflop"] == fast["gflop"] > 0
