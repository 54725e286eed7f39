"""The scalability study: what it measures, what it keeps, how cost grows and where curves cross."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from duallgd_cli.bench import scaling
from duallgd_cli.bench.scaling import KERNELS, Cell, cells_of, count_flop, fit_exponent, parse_atoms
from duallgd_cli.errors import DuallgdError, UsageError
from duallgd_cli.model.tensors import Linear, softmax_attention
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu

CELLS = cells_of(Cell(cpu(), samples=3, steps=2, seconds=0), (4, 6, 8), KERNELS)
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
        *((text, r"10\.\.100:5") for text in ("20..10", "10..20:0")),
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


@pytest.fixture
def invented(monkeypatch):
    """In place of measuring: time is the square of the atoms times candidates and steps."""
    monkeypatch.setattr(scaling, "ceiling_gflop_s", lambda _: 100.0)
    monkeypatch.setattr(scaling, "network_of", lambda *_: (None, {"weights": "none"}))

    def invent(cell, network, about, ceiling):
        each = {"softmax": cell.atoms, "favor": 5}[cell.kernel] * cell.atoms**2
        names = ("part", "kernel", "atoms", "samples", "steps")
        seconds = each * cell.samples * cell.steps
        row = {name: getattr(cell, name) for name in names}
        return about | row | {"time_s": seconds, "memory_mib": float(cell.atoms)}

    monkeypatch.setattr(scaling, "measure_cell", invent)
    return invent


def rows_in(folder):
    return json.loads((folder / scaling.RESULTS).read_text())["rows"]


def test_every_part_size_and_kernel_gets_a_row_and_growth_follows(invented, tmp_path):
    said = []

    study = scaling.run_study(CELLS, tmp_path / "out", said.append)

    kinds = [(r["part"], r["atoms"], r["kernel"]) for r in study["rows"]]
    assert len(kinds) == len(set(kinds)) == 3 * 3 * 2
    assert {(r["part"], r["samples"], r["steps"]) for r in study["rows"]} == {
        ("attention", 1, 1), ("forward", 1, 1), ("loop", 3, 2)
    }  # fmt: skip
    for series in study["exponents"]:
        expected = {"softmax": 3, "favor": 2}[series["kernel"]]
        assert series["time"]["value"] == pytest.approx(expected)
        assert series["memory"]["value"] == pytest.approx(1)
    assert rows_in(tmp_path / "out") == study["rows"]
    assert said[0] == "1 of 18: attention, softmax, 4 atoms done"
    assert scaling.run_study(CELLS, None, said.append)["rows"] == study["rows"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("not enough memory\nmore")])
def test_what_was_measured_before_a_study_ends_early_is_kept(
    invented, tmp_path, monkeypatch, error
):
    def fail(cell, *others):
        if cell.atoms == 6:
            raise error
        return invented(cell, *others)

    monkeypatch.setattr(scaling, "measure_cell", fail)

    with pytest.raises((KeyboardInterrupt, DuallgdError)) as ended:
        scaling.run_study(CELLS, tmp_path, print)

    assert len(rows_in(tmp_path)) == 6
    if isinstance(ended.value, DuallgdError):
        sentence = "measuring attention, softmax, 6 atoms failed: not enough memory; try fewer"
        assert str(ended.value).startswith(sentence)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("part", scaling.PARTS)
def test_a_cell_is_measured(part, kernel):
    network = stirred(small_settings(pair_features={"favor": 8, "softmax": 0}[kernel]))
    cell = Cell(cpu(), part, kernel, 9, samples=2, steps=3, seconds=0)

    row = scaling.measure_cell(cell, network, {"weights": "none"}, 100.0)

    assert (row["weights"], row["part"], row["atoms"]) == ("none", part, 9)
    assert row["clock"] == "cpu"
    assert row["time_s"] > 0
    assert row["memory_mib"] > 0
    assert row["floor_s"] == pytest.approx(row["gflop"] * 2 * 3 / 100)
    assert row["over_floor"] == pytest.approx(row["time_s"] / row["floor_s"])


def test_every_product_has_two_operations_for_each_pair_of_numbers():
    layer, rows = Linear(6, 10), torch.randn(4, 6)
    x, heads, mask = torch.randn(2, 5, 12), 3, torch.ones(2, 5, dtype=torch.bool)

    assert count_flop(lambda: nn.Linear(6, 10)(rows)) == 2 * 4 * 6 * 10
    assert count_flop(lambda: layer(rows)) == 2 * 4 * 6 * 10
    # Attention: queries with keys, and weights with values.
    assert count_flop(lambda: softmax_attention(x, x, x, mask, heads)) == 2 * 2 * 2 * 5 * 5 * 12


def test_weights_that_are_not_there_are_said_with_their_code(tmp_path):
    cells = [replace(CELLS[0], weights="no/such.safetensors")]

    with pytest.raises(DuallgdError, match=r"no/such\.safetensors") as failure:
        scaling.run_study(cells, tmp_path, print)

    assert failure.value.exit_code == 69
