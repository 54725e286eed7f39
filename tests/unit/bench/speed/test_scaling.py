import csv
import dataclasses
import json
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from duallgd_cli.bench.speed import child, plain, scaling
from duallgd_cli.bench.speed.cells import PARTS, Cell, Reading, Subject, Work
from duallgd_cli.bench.speed.inputs import Job
from duallgd_cli.bench.speed.networks import About, DefaultNetwork
from duallgd_cli.bench.speed.rows import ParityError, median_and_iqr
from duallgd_cli.errors import DuallgdError, UsageError
from tests.made_graphs import small_settings, stirred

SUBJECT = Subject(weights="random", repeats=1)
REQUEST = scaling.StudyRequest(SUBJECT, atoms=(4, 6, 8), steps=2)


@pytest.fixture(autouse=True)
def quick_ceilings(monkeypatch):
    monkeypatch.setattr("duallgd_cli.bench.speed.floors._CPU_EDGE", 64)
    monkeypatch.setattr("duallgd_cli.bench.speed.floors._CPU_COPY", 1 << 16)


def invented(cell):
    """A reading whose time is the square of the atoms times candidates and steps."""
    share = {"plain": 3, "fast": 1}[cell.path] * {"softmax": cell.atoms, "favor": 5}[cell.kernel]
    seconds = 1e-6 * share * cell.atoms**2 * cell.evaluations
    work = Work(1e6, 1e3, 1e6, 4e3) if cell.path == "fast" else None
    reading = Reading(
        (seconds,) * 3, (seconds,) * 3, float(cell.atoms), "by hand", "made", 7, 0.25, 1, work
    )
    return reading, np.arange(12, dtype=np.float32)


def table_of(folder):
    with (folder / scaling.TABLE).open(newline="") as stream:
        return list(csv.DictReader(stream))


def invent(cells):
    return [invented(cell) for cell in cells]


def test_every_part_size_kernel_and_path_gets_a_row_and_both_sweeps_follow(tmp_path):
    found = scaling.run_study(REQUEST, tmp_path, read=invent)

    kinds = [(r.part, r.atoms, r.kernel, r.path) for r in found.rows if r.sweep == "atoms"]
    assert len(kinds) == len(set(kinds)) == 3 * 3 * 2 * 2
    swept = [(r.sweep, r.samples, r.steps) for r in found.rows if r.sweep != "atoms"]
    assert {s for s in swept if s[0] == "candidates"} == {("candidates", s, 2) for s in (1, 2, 4)}
    assert {s for s in swept if s[0] == "steps"} == {("steps", 1, j) for j in (2, 4, 8)}


def test_rows_state_speed_floor_work_and_accuracy(tmp_path):
    found = scaling.run_study(REQUEST, tmp_path, read=invent)

    fast = next(r for r in found.rows if (r.path, r.kernel, r.atoms) == ("fast", "softmax", 8))
    assert fast.times_plain == pytest.approx(3)
    assert fast.memory_of_plain == 1
    assert (fast.gflop, fast.parameters, fast.val_top1) == (1e-3, 7, 0.25)
    assert fast.over_floor == pytest.approx(fast.cpu_s / fast.floor_s)
    assert fast.difference == 0
    assert fast.clock == "cpu"


def test_growth_and_crossing_are_those_of_the_times(tmp_path):
    found = scaling.run_study(REQUEST, tmp_path, read=invent)

    exponents = {
        (e["of"], e["with"], e["part"], e["kernel"], e["path"]): e["value"] for e in found.exponents
    }
    assert exponents["time", "atoms", "forward", "softmax", "plain"] == pytest.approx(3)
    assert exponents["time", "atoms", "loop", "favor", "fast"] == pytest.approx(2)
    assert exponents["memory", "atoms", "loop", "favor", "fast"] == pytest.approx(1)
    assert exponents["time", "candidates", "loop", "favor", "fast"] == pytest.approx(1)
    assert exponents["time", "steps", "loop", "softmax", "fast"] == pytest.approx(1)
    # Exact softmax takes N / 5 times as long as FAVOR+, so they cross at 5.
    assert found.crossings == {part: pytest.approx(5) for part in PARTS}


def test_table_and_results_hold_the_same_rows(tmp_path):
    found = scaling.run_study(REQUEST, tmp_path / "new", read=invent)

    table = table_of(tmp_path / "new")
    results = scaling.read_results(tmp_path / "new")
    assert len(table) == len(results["rows"]) == len(found.rows)
    assert [float(row["wall_s"]) for row in table] == [row["wall_s"] for row in results["rows"]]
    assert results["machine"]["torch"] == torch.__version__
    assert json.dumps(results)


def test_an_interrupted_study_leaves_its_finished_rows_in_the_table(tmp_path):
    def interrupt(cells):
        if cells[0].atoms > 4:
            raise KeyboardInterrupt
        return invent(cells)

    with pytest.raises(KeyboardInterrupt):
        scaling.run_study(REQUEST, tmp_path, read=interrupt)

    rows = table_of(tmp_path)
    assert {row["atoms"] for row in rows} == {"4"}
    assert len(rows) == 3 * 2 * 2


def test_one_path_alone_is_measured_but_not_compared(tmp_path):
    request = replace(REQUEST, paths=("fast",), sweeps=False)

    found = scaling.run_study(request, tmp_path, read=invent)

    assert {row.path for row in found.rows} == {"fast"}
    assert all(row.difference is None for row in found.rows)
    found.check_parity()


@pytest.mark.parametrize("fault", [0.01, float("nan")])
def test_paths_that_differ_are_an_error_that_names_the_place(tmp_path, fault):
    def shifted(cells):
        found = invent(cells)
        if cells[0].path == "fast" and cells[0].atoms == 6:
            found[1][1][3] += fault
        return found

    study = scaling.run_study(REQUEST, tmp_path, read=shifted)

    with pytest.raises(ParityError, match="forward, softmax, 6 atoms"):
        study.check_parity()


@pytest.fixture
def small_network(monkeypatch):
    def network_of(subject, kernel):
        features = {"favor": 8, "softmax": 0}[kernel]
        model = stirred(small_settings(pair_features=features))
        return DefaultNetwork(model, About("small", 1))

    monkeypatch.setattr(child, "network_of", network_of)


def here(cells):
    return [child.measure_cell(cell) for cell in cells]


@pytest.mark.slow
def test_the_shipped_path_passes_its_own_comparison(tmp_path, small_network):
    request = scaling.StudyRequest(SUBJECT, atoms=(7,), steps=2, sweeps=False)

    found = scaling.run_study(request, tmp_path, read=here)

    found.check_parity()
    assert all(row.gflop > 0 for row in found.rows)


@pytest.mark.slow
def test_a_fault_put_into_one_path_is_found(tmp_path, small_network, monkeypatch):
    whole = plain.incidence

    def without_the_last_pair(graph):
        found = whole(graph).clone()
        found[:, -1] = False
        return found

    monkeypatch.setattr(plain, "incidence", without_the_last_pair)
    request = scaling.StudyRequest(SUBJECT, atoms=(7,), kernels=("favor",), sweeps=False, steps=1)

    found = scaling.run_study(request, tmp_path, read=here)

    with pytest.raises(ParityError, match="forward, favor, 7 atoms"):
        found.check_parity()


@pytest.mark.slow
def test_a_fresh_process_reads_what_this_one_does():
    cell = Cell(SUBJECT, "attention", "favor", "fast", 6)

    ((there, result),) = child.read_cells([cell])

    reading, expected = child.measure_cell(cell)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    assert (there.weights, there.parameters, there.work) == (
        reading.weights,
        reading.parameters,
        reading.work,
    )
    assert there.memory_mib < 100


def test_a_cell_that_takes_longer_than_allowed_is_run_once(monkeypatch):
    """Exact softmax over dense masks takes minutes at 100 atoms."""
    runs = []

    def job(cell, runtime):
        del runtime
        return Job(lambda: runs.append(cell.atoms) or torch.ones(2), torch.nn.Identity(), 1)

    monkeypatch.setattr(child, "_job", job)
    monkeypatch.setattr(child, "network_of", lambda subject, kernel: Mock())
    cell = Cell(SUBJECT, "forward", "softmax", "plain", 9)

    slow, result = child.measure_cell(replace(cell, subject=replace(SUBJECT, limit_s=0)))

    assert runs.count(9) == 1
    assert len(slow.wall_s) == len(slow.cpu_s) == 1
    assert result.tolist() == [1, 1]
    quick, _ = child.measure_cell(replace(cell, subject=replace(SUBJECT, limit_s=60, repeats=3)))
    assert len(quick.wall_s) == 3


def test_what_goes_wrong_in_the_process_is_one_sentence_with_its_code():
    cell = Cell(replace(SUBJECT, weights="no/such.safetensors"), "forward", "favor", "fast", 6)

    with pytest.raises(DuallgdError, match=r"no/such\.safetensors") as failure:
        child.read_cells([cell])

    assert failure.value.exit_code == 69
    assert "Traceback" not in str(failure.value)


def test_an_unknown_preset_is_refused():
    with pytest.raises(UsageError, match="duallgd, reference"):
        scaling.subject_on("cpu", "float32", 1, Subject(preset="tiny"))


def test_median_and_range_of_a_few_times():
    assert median_and_iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, 2.0)
    assert median_and_iqr([7.0]) == (7.0, 0.0)


def test_the_process_ends_when_its_parent_is_gone(tmp_path):
    values = dataclasses.asdict(Cell(SUBJECT, "forward", "favor", "fast", 6))
    values["subject"] |= {"repeats": 10**9, "limit_s": 1e9}
    (tmp_path / "message.json").write_text(json.dumps([values]))
    command = [sys.executable, "-m", "duallgd_cli.bench.speed.child", str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

    process.stdin.close()

    assert process.wait(timeout=120) == 1
