"""The scalability study: what it measures, what it keeps, how it says how long it takes."""

import csv
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.bench import measure, scaling
from duallgd_cli.bench.growth import KERNELS, PARTS
from duallgd_cli.bench.measure import Cell, Reading, Study
from duallgd_cli.bench.scaling import parse_atoms
from duallgd_cli.bench.work import Ceilings, Work
from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError

STUDY = Study(atoms=(4, 6, 8), steps=2, repeats=1)
sizes = st.integers(2, 400)


@given(sizes, sizes, st.integers(1, 50))
def test_a_range_with_a_stride_is_that_of_python(a, b, stride):
    first, last = sorted((a, b))

    assert parse_atoms(f"{first}..{last}:{stride}") == tuple(range(first, last + 1, stride))
    assert parse_atoms(f"{first}..{last}") == tuple(range(first, last + 1, 10))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, r"10\.\.100:5") for text in ("", "ten", "10-20", "10..", "..20", "10..20:")),
        *((text, r"10\.\.100:5") for text in ("1.5", "-3", "10,,20", "²0", "٣٠")),
        *((text, "hold no number") for text in ("20..10", "10..20:0")),
        *((text, "2 to 400") for text in ("1", "401", "10..999999999:1")),
    ],
)
def test_other_text_is_refused_in_a_sentence(text, words):
    with pytest.raises(UsageError, match=words):
        parse_atoms(text)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A small network, small ceilings, and nobody else on the machine."""

    monkeypatch.setattr(scaling, "read_cells", invent)
    monkeypatch.setattr("duallgd_cli.bench.work._CPU_EDGE", 64)
    monkeypatch.setattr("duallgd_cli.bench.work._CPU_COPY", 1 << 16)
    monkeypatch.setattr("duallgd_cli.bench.work.os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(scaling, "count_ahead", lambda cells: [Work(1e6, 0, 0, 0)] * len(cells))


def invented(cell):
    """A reading whose time is the square of the atoms times candidates and steps."""
    share = {"softmax": cell.atoms, "favor": 5}[cell.kernel]
    seconds = 1e-6 * share * cell.atoms**2 * cell.samples * cell.steps
    return Reading(
        (seconds,) * 3, (seconds,) * 3, float(cell.atoms), "by hand",
        {"weights": "made", "parameters": 7, "val_top1": 0.25}, Work(1e6, 1e3, 1e6, 4e3),
        np.arange(12, dtype=np.float32),
    )  # fmt: skip


def invent(cells):
    return [invented(cell) for cell in cells]


def table_of(folder):
    with (folder / scaling.TABLE).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_part_size_and_kernel_gets_a_row_and_both_sweeps_follow(tmp_path):
    found = scaling.run_study(STUDY, tmp_path)
    rows = found["rows"]

    kinds = [(r["part"], r["atoms"], r["kernel"]) for r in rows if r["sweep"] == "atoms"]
    assert len(kinds) == len(set(kinds)) == 3 * 3 * 2
    swept = {(r["sweep"], r["samples"], r["steps"]) for r in rows if r["sweep"] != "atoms"}
    assert swept == {("candidates", s, 2) for s in (1, 2, 4)} | {("steps", 1, j) for j in (2, 4, 8)}
    # Time grows with each as it was made to; exact softmax takes N / 5 times as long as FAVOR+.
    grown = {e["with"]: e["value"] for e in found["exponents"] if e["of"] == "time"}
    assert grown == pytest.approx({"atoms": 2, "candidates": 1, "steps": 1})
    assert found["favor_faster_from_atoms"] == {part: pytest.approx(5) for part in PARTS}


@pytest.fixture
def interrupt(tmp_path, monkeypatch):
    """Starts the study, which Ctrl-C ends after three groups; returns what it says then."""
    three = [invent(paths[0]) for paths in scaling.groups_of(STUDY)[:3]]

    def run():
        with monkeypatch.context() as patched:
            patched.setattr(scaling, "read_cells", Mock(side_effect=[*three, KeyboardInterrupt]))
            with pytest.raises(InterruptedRunError) as stopped:
                scaling.run_study(STUDY, tmp_path)
        return str(stopped.value)

    return run


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(interrupt, tmp_path):
    total = len(scaling.groups_of(STUDY))

    assert interrupt() == (
        f"stopped; 3 of {total} measurements are kept in {tmp_path}: the same command with "
        "--resume goes on"
    )


def test_an_interrupted_study_goes_on_where_it_was(interrupt, tmp_path, monkeypatch):
    interrupt()
    assert len(table_of(tmp_path)) == 3 * 3
    with (tmp_path / scaling.JOURNAL).open("a") as stream:
        stream.write('{"rows": [')  # killed while it wrote
    reader, said = Mock(side_effect=invent), []
    monkeypatch.setattr(scaling, "read_cells", reader)

    found = scaling.run_study(STUDY, tmp_path, lambda *told: said.append(told), resume=True)

    groups = len(scaling.groups_of(STUDY))
    assert reader.call_count == groups - 3
    assert said[0][:2] == (3, groups)
    assert "going on" in said[0][2]
    whole = scaling.run_study(STUDY, tmp_path / "whole")
    assert [r["wall_s"] for r in found["rows"]] == [r["wall_s"] for r in whole["rows"]]


def test_a_run_of_other_settings_is_refused_by_their_names(interrupt, tmp_path):
    interrupt()

    with pytest.raises(UsageError, match=r"different run: steps 2 -> 3, seed 1 -> 2; name another"):
        scaling.run_study(replace(STUDY, steps=3, seed=2), tmp_path, resume=True)


def test_floors_rest_on_what_the_machine_reached_in_their_own_run(interrupt, tmp_path, monkeypatch):
    def reached(rate):
        ceilings = Ceilings({"float32": rate}, 1e12, 1e12, False)
        monkeypatch.setattr(scaling, "measure_ceilings", lambda *_: ceilings)

    reached(1e9)
    interrupt()
    reached(2e9)

    rows = scaling.run_study(STUDY, tmp_path, resume=True)["rows"]

    floors = [row["floor_s"] / row["samples"] / row["steps"] for row in rows]
    assert floors[:9] == [pytest.approx(1e6 / 1e9, rel=1e-3)] * 9
    assert floors[9:] == [pytest.approx(1e6 / 2e9, rel=1e-3)] * len(floors[9:])


def row_of(cell, pace):
    """A measured row that took so many times its floor."""
    floor = FLOORS[cell.evaluation] * cell.samples * cell.steps
    names = {"part": cell.part, "kernel": cell.kernel, "path": cell.path}
    return names | {"floor_s": floor, "wall_s": pace * floor}


PLAIN = replace(STUDY, sweeps=False)
FLOORS = {
    Cell(PLAIN, part, kernel, "fast", n): n**2 / 1e3
    for part in ("attention", "forward")
    for kernel in KERNELS
    for n in STUDY.atoms
}


def test_the_time_left_follows_from_operations_and_the_pace_so_far():
    groups = scaling.groups_of(PLAIN)
    cells = [cell for paths in groups for cell in paths[0]]
    assert [cell.kernel for cell in cells[::3]] == ["softmax", "favor"] * 3
    paces = {"softmax": 5.0, "favor": 2.0}
    rows = [row_of(cell, paces[cell.kernel]) for cell in cells[:6]]

    left = scaling.seconds_left(groups[2:], FLOORS, rows)

    # For memory, to warm up and once timed, each: attention, an evaluation and a loop of two steps.
    assert left == pytest.approx(3 * (5 + 2) * (1 + 1 + 2) * (36 + 64) / 1e3)
    assert scaling.seconds_left([], FLOORS, rows) == 0
    # Before anything is measured, the least; what is not measured yet is as slow as the slowest.
    assert scaling.seconds_left(groups[:1], FLOORS, []) == pytest.approx(3 * 4 * 16 / 1e3)
    assert scaling.seconds_left(groups[1:2], FLOORS, rows[:3]) == pytest.approx(
        3 * 5 * 4 * 16 / 1e3
    )


@pytest.mark.slow
def test_operations_counted_ahead_are_those_that_are_counted_later(monkeypatch):
    monkeypatch.undo()
    cells = [Cell(STUDY, part, k, "fast", 7) for part in ("attention", "forward") for k in KERNELS]

    ahead = measure.count_ahead(cells)

    for cell, work in zip(cells, ahead, strict=True):
        counted = measure.measure_cell(cell).work
        for name in ("flop", "exponentials", "parameter_bytes"):
            assert getattr(work, name) == getattr(counted, name)


@pytest.mark.slow
def test_a_fresh_process_reads_what_this_one_does(monkeypatch):
    monkeypatch.undo()
    cell = Cell(STUDY, "attention", "favor", "fast", 6)

    (there,) = measure.read_cells([cell])

    here = measure.measure_cell(cell)
    np.testing.assert_allclose(there.result, here.result, atol=1e-5)
    assert (there.about, there.work) == (here.about, here.work)
    assert there.memory_mib < 100


def test_a_cell_that_takes_longer_than_allowed_is_run_once(monkeypatch):
    """Exact softmax takes minutes at some size."""
    runs = []

    def job_of(cell, runtime):
        del runtime
        return lambda: runs.append(cell.atoms) or torch.ones(2), torch.nn.Identity()

    monkeypatch.setattr(measure, "job_of", job_of)
    monkeypatch.setattr(measure, "network_of", lambda *_: (None, {}))
    cell = Cell(STUDY, "forward", "softmax", "other", 9)

    slow = measure.measure_cell(replace(cell, study=replace(STUDY, limit_s=0)))

    assert runs.count(9) == 1
    assert len(slow.wall_s) == len(slow.cpu_s) == 1
    assert slow.result.tolist() == [1, 1]
    assert slow.work is None
    many = replace(STUDY, limit_s=60, repeats=3)
    assert len(measure.measure_cell(replace(cell, study=many)).wall_s) == 3


def test_a_process_that_is_killed_is_one_sentence(monkeypatch):
    answers = Mock(recv=Mock(side_effect=EOFError))
    context = Mock(Pipe=lambda duplex: (answers, Mock()))
    context.Process.return_value.exitcode = -9
    monkeypatch.setattr(measure.multiprocessing, "get_context", lambda _: context)

    with pytest.raises(DuallgdError, match=r"favor, 6 atoms failed: its process was killed.*fewer"):
        measure.read_cells([Cell(STUDY, "forward", "favor", "fast", 6)])


def test_what_goes_wrong_in_the_process_is_one_sentence_with_its_code():
    cell = Cell(replace(STUDY, weights="no/such.safetensors"), "forward", "favor", "fast", 6)

    with pytest.raises(DuallgdError, match=r"no/such\.safetensors") as failure:
        measure.read_cells([cell])

    assert failure.value.exit_code == 69
    assert "Traceback" not in str(failure.value)
