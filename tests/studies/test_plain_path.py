"""The plain path is the fast one's specification: the same parameters give the same numbers."""

import plain
import plain_path
import pytest
import torch
from plain import PlainDenoiser
from plain_path import ParityError

from duallgd_cli.bench import scaling
from duallgd_cli.bench.scaling import Cell, job_of
from tests.made_graphs import small_settings, stirred
from tests.made_runs import rows_of
from tests.made_training import cpu

ABOUT = {"parameters": 1, "val_top1": None}


def small_network(kernel):
    features = {"favor": 8, "softmax": 0}[kernel]
    return stirred(small_settings(pair_features=features))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(scaling, "network_of", lambda _, kernel, __: (small_network(kernel), ABOUT))
    monkeypatch.setattr(plain_path, "ceiling_gflop_s", lambda _: 100.0)


@pytest.mark.parametrize("kernel", ["softmax", "favor"])
@pytest.mark.parametrize("part", ["attention", "forward", "loop"])
def test_both_paths_give_the_same_numbers(part, kernel):
    cell = Cell(cpu(), part, kernel, 9, samples=2, steps=3 if part == "loop" else 1)
    network = small_network(kernel)

    with torch.inference_mode():
        slow = job_of(cell, plain_path.plain_network(network))()
        fast = job_of(cell, network)()

    torch.testing.assert_close(fast, slow, atol=2e-5, rtol=1e-5)
    assert slow.float().std() > 0


def test_the_plain_network_shares_all_parameters_and_leaves_the_fast_one_alone():
    network = small_network("favor")
    kinds = [type(module) for module in network.modules()]

    rebuilt = plain_path.plain_network(network)

    own = {id(parameter) for parameter in network.parameters()}
    assert own == {id(parameter) for parameter in rebuilt.parameters()}
    assert kinds == [type(module) for module in network.modules()]
    assert isinstance(rebuilt.denoiser, PlainDenoiser)


@pytest.mark.slow
def test_a_fault_put_into_one_path_is_found(monkeypatch):
    whole = plain.incidence

    def without_the_last_pair(graph):
        pairs = whole(graph).clone()
        pairs[:, -1] = False
        return pairs

    monkeypatch.setattr(plain, "incidence", without_the_last_pair)
    cells = scaling.cells_of(Cell(cpu(), seconds=0), (7,), ("favor",))
    network = small_network("favor")
    rows = [row for cell in cells for row in plain_path.both_paths(cell, network, ABOUT, 1.0)]

    with pytest.raises(ParityError, match="forward, favor, 7 atoms"):
        plain_path.check_parity(rows)


@pytest.mark.parametrize(("more", "is_sound"), [(0.0, True), (0.01, False), (float("nan"), False)])
def test_a_result_that_is_no_number_agrees_with_nothing(more, is_sound):
    cell, numbers = Cell(cpu(), "forward", "favor", 7), torch.arange(3.0)
    difference, allowed = plain_path.apart(cell, numbers, numbers + more)
    row = {"part": "forward", "kernel": "favor", "atoms": 7}
    compared = [row | {"difference": difference, "allowed": allowed}]

    if is_sound:
        plain_path.check_parity(compared)
    else:
        with pytest.raises(ParityError):
            plain_path.check_parity(compared)


def test_the_command_measures_both_paths(study, tmp_path):
    done = study(
        plain_path.plain_path, "--atoms", "4", "--attention", "favor", "--seconds", "0",
        "--steps", "2", "--threads", "1", "--device", "cpu", "-o", "out",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert "times_plain" in done.out
    rows = rows_of(tmp_path / "out" / "scaling.csv")
    assert [row["path"] for row in rows] == ["plain", "fast"] * 3
    for slow, fast in zip(rows[::2], rows[1::2], strict=True):
        ratio = float(slow["time_s"]) / float(fast["time_s"])
        assert float(fast["times_plain"]) == pytest.approx(ratio)
        assert slow["difference"] == ""
