"""The scalability study: what it measures, what it keeps, how cost grows and where curves cross."""

import csv
import json
import math
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.bench import measure, scaling
from duallgd_cli.bench.measure import KERNELS, PARTS, Cell
from duallgd_cli.bench.scaling import crossing, fit_exponent, groups_of, parse_atoms
from duallgd_cli.bench.work import Ceilings
from duallgd_cli.errors import DuallgdError, UsageError
from tests.made_training import cpu

CELL = Cell(cpu(), samples=3, steps=2, repeats=1)
GROUPS = groups_of(CELL, (4, 6, 8), KERNELS)
CEILINGS = Ceilings({"float32": 1e9}, 1e9, 1e9, False)
X = (10.0, 20.0, 40.0, 80.0)
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


@given(st.floats(-3, 5), st.floats(1e-6, 1e6))
def test_a_power_law_is_found_exactly(exponent, scale):
    fitted = fit_exponent(X, [scale * x**exponent for x in X])

    assert fitted["value"] == pytest.approx(exponent, abs=1e-9)
    assert fitted["standard_error"] == pytest.approx(0, abs=1e-9)


def test_the_standard_error_is_that_of_the_textbook():
    fitted = fit_exponent([1, 10, 100], [1, 20, 100])

    # slope 1 on log10; residuals 0.301 x (-1, 2, -1) / 3; spread 2; one degree of freedom
    assert fitted["value"] == pytest.approx(1)
    assert fitted["standard_error"] == pytest.approx((0.30103**2 * 6 / 9 / 2) ** 0.5, rel=1e-5)
    assert fit_exponent([1, 10], [1, 10])["standard_error"] is None
    assert fit_exponent([10, 10], [1, 2]) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 4, 8], [4, 4, 4, 4], 40),  # where their logarithms do
        ([2, 2, 2, 2], [1, 1, 1, 1], 10),  # from the start: the first size
        ([1, 3, 1, 1], [2, 2, 2, 2], None),  # above at the end
        ([3, 1, 1, 4], [2, 2, 2, 2], 56.57),  # the last one counts
    ],
)
def test_curves_cross(first, second, expected):
    found = crossing(X, first, second)

    assert found == (None if expected is None else pytest.approx(expected, rel=1e-3))


@pytest.fixture
def calls(monkeypatch):
    """Cells that were measured: time is the square of the atoms times candidates and steps."""
    monkeypatch.setattr(scaling, "measure_ceilings", lambda *_: CEILINGS)
    seen = []

    def invent(cells, ceilings):
        for cell in cells:
            if isinstance(cell, BaseException):
                raise cell
        seen.extend(cells)
        return [(invented(cell), None) for cell in cells]

    monkeypatch.setattr(scaling, "read_cells", invent)
    return seen


def invented(cell):
    seconds = {"softmax": cell.atoms, "favor": 5}[cell.kernel] * cell.atoms**2
    row = {"path": "fast", "clock": "cpu", "cpu_s": seconds * cell.samples * cell.steps}
    return cell.identity | row | {"memory_mib": float(cell.atoms)}


def table_of(folder):
    with (folder / scaling.TABLE).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_part_size_and_kernel_gets_a_row_and_growth_follows(calls, tmp_path):
    found = scaling.run_study(GROUPS, tmp_path)

    kinds = [(r["part"], r["atoms"], r["kernel"]) for r in found["rows"]]
    assert len(kinds) == len(set(kinds)) == 3 * 3 * 2
    assert {(r["part"], r["samples"], r["steps"]) for r in found["rows"]} == {
        ("attention", 1, 1), ("forward", 1, 1), ("loop", 3, 2)
    }  # fmt: skip
    # Time grows as it was made to; exact softmax takes N / 5 times as long as FAVOR+.
    for series in found["exponents"]:
        expected = {"softmax": 3, "favor": 2}[series["kernel"]]
        assert series["time"]["value"] == pytest.approx(expected)
        assert series["memory"]["value"] == pytest.approx(1)
    assert found["favor_faster_from_atoms"] == {part: pytest.approx(5) for part in PARTS}
    assert json.loads((tmp_path / scaling.RESULTS).read_text())["rows"] == found["rows"]
    assert [row["atoms"] for row in table_of(tmp_path)] == [str(r["atoms"]) for r in found["rows"]]


def test_an_interrupted_study_goes_on_where_it_was(calls, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        scaling.run_study([*GROUPS[:3], [*GROUPS[3][:2], KeyboardInterrupt()]], tmp_path)
    assert len(table_of(tmp_path)) == len(calls) == 3 * 3
    said = []

    found = scaling.run_study(GROUPS, tmp_path, lambda *told: said.append(told), resume=True)

    assert calls == [cell for cells in GROUPS for cell in cells]
    assert said[0] == (1, 6, "softmax, 4 atoms done")
    whole = scaling.run_study(GROUPS, tmp_path / "whole")
    assert {name: found[name] for name in ("rows", "exponents")} == {
        name: whole[name] for name in ("rows", "exponents")
    }


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rows": [', '{"rows": 3}'])
def test_a_folder_without_sound_results_is_begun_anew(calls, tmp_path, text):
    (tmp_path / scaling.RESULTS).write_text(text)

    assert len(scaling.run_study(GROUPS[:1], tmp_path, resume=True)["rows"]) == 3


def test_measurements_of_other_settings_are_not_mixed(calls, tmp_path):
    scaling.run_study(GROUPS[:1], tmp_path)
    longer = groups_of(replace(CELL, steps=3), (4,), ("softmax",))

    with pytest.raises(UsageError, match="of other settings; name another folder"):
        scaling.run_study(longer, tmp_path, resume=True)


@pytest.mark.slow
def test_a_fresh_process_reads_what_this_one_does():
    cell = Cell(cpu(), "attention", "favor", 6, repeats=1)

    ((there, numbers),) = measure.read_cells([cell], CEILINGS)

    here, own = measure.measure_cell(cell, CEILINGS)
    np.testing.assert_allclose(numbers, own, atol=1e-5)
    for name in ("parameters", "val_top1", "gflop", "floor_s"):
        assert there[name] == here[name]
    assert there["memory_mib"] < 100
    assert there["over_floor"] == pytest.approx(there["cpu_s"] / there["floor_s"])


@pytest.mark.parametrize(("limit_s", "runs"), [(0, 1), (60, 5)])
def test_a_cell_that_takes_longer_than_allowed_is_run_once(monkeypatch, limit_s, runs):
    """Exact softmax takes minutes at some size. Else it runs for memory, to warm up and timed."""
    seen = []

    def job_of(cell):
        return lambda: seen.append(cell) or torch.ones(2), torch.nn.Linear(1, 1)

    monkeypatch.setattr(measure, "job_of", job_of)
    monkeypatch.setattr(measure, "network_of", lambda *_: (None, {"parameters": 1}))
    cell = Cell(cpu(), "forward", "softmax", 9, samples=2, repeats=3, limit_s=limit_s)

    row, numbers = measure.measure_cell(cell, CEILINGS)

    assert seen.count(cell) == runs
    assert row["repeats"] == max(1, runs - 2)
    assert numbers.tolist() == [1, 1]
    assert math.isfinite(row["cpu_iqr_s"])


def fail(cells, ceilings):
    """In place of measuring, what the weights stand for: the process is killed, memory is used up.

    Args:
        cells: Of which the first counts.
        ceilings: Not looked at.
    """
    if cells[0].weights == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("not enough memory: you tried to allocate 9 bytes\nsecond line")


@pytest.mark.parametrize(
    ("weights", "words"),
    [("killed", "its process was killed, perhaps"), ("used up", "tried to allocate 9 bytes; try")],
)
def test_a_process_that_fails_is_one_sentence(monkeypatch, weights, words):
    monkeypatch.setattr(measure, "_measured", fail)
    cell = Cell(cpu(), "forward", "favor", 6, weights=weights)

    with pytest.raises(DuallgdError, match=f"favor, 6 atoms failed: .*{words}.*fewer"):
        measure.read_cells([cell], CEILINGS)


def test_what_goes_wrong_in_the_process_is_one_sentence_with_its_code():
    cell = Cell(cpu(), "forward", "favor", 6, weights="no/such.safetensors")

    with pytest.raises(DuallgdError, match=r"no/such\.safetensors") as failure:
        measure.read_cells([cell], CEILINGS)

    assert failure.value.exit_code == 69
    assert "Traceback" not in str(failure.value)
