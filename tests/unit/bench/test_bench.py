"""What the benchmarks measure and keep, and how cost grows."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from duallgd_cli.bench import scaling
from duallgd_cli.bench.scaling import (
    KERNELS,
    Cell,
    cells_of,
    count_flop,
    fit_exponent,
    made_formulas,
    parse_atoms,
)
from duallgd_cli.bench.throughput import measure_throughput
from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import DuallgdError, UsageError
from duallgd_cli.model.tensors import Linear, softmax_attention
from duallgd_cli.predict.settings import PredictSettings
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=2, samples=3))
CELLS = cells_of(Cell(cpu(), samples=3, steps=2, seconds=0), (4, 6, 8), KERNELS)
SIZES = st.integers(2, 400)


@given(SIZES, SIZES, st.integers(1, 50))
def test_a_range_with_a_stride_is_that_of_python(a, b, stride):
    first, last = sorted((a, b))

    assert parse_atoms(f"{first}..{last}:{stride}") == tuple(range(first, last + 1, stride))
    assert parse_atoms(f"{first}..{last}") == tuple(range(first, last + 1, 10))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("1 401 10..999999999:1", "must be 2 to 400"),
        ("ten 10-20 10.. ..20 10..20: 1.5 -3 10,,20 ²0 ٣٠ 20..10 10..20:0 ,", r"10\.\.100:5"),
    ],
)
def test_other_text_is_refused_in_a_sentence(texts, words):
    for text in texts.split():
        with pytest.raises(UsageError, match=words):
            parse_atoms(text)
    with pytest.raises(UsageError, match=r"''.*10\.\.100:5"):
        parse_atoms("")


def test_the_standard_error_is_that_of_the_textbook():
    # slope 1 on log10; residuals 0.301 x (-1, 2, -1) / 3; spread 2; one degree of freedom
    error = (0.30103**2 * 6 / 9 / 2) ** 0.5

    fitted = fit_exponent([1, 10, 100], [1, 20, 100])
    assert fitted == pytest.approx({"value": 1, "standard_error": error}, rel=1e-5)
    assert fit_exponent([1, 10], [1, 10])["standard_error"] is None
    assert fit_exponent([10, 10], [1, 2]) is None


@pytest.fixture
def invented(monkeypatch):
    """In place of being measured, cells take the square or the cube of their atoms."""

    def invent(cell, network, about, ceiling):
        if cell.weights == "too large" and cell.atoms == 6:
            raise RuntimeError("not enough memory\nmore")
        seconds = cell.atoms ** {"softmax": 3, "favor": 2}[cell.kernel] * cell.samples * cell.steps
        names = ("part", "kernel", "atoms", "samples", "steps")
        row = {name: getattr(cell, name) for name in names}
        return about | row | {"time_s": seconds, "memory_mib": float(cell.atoms)}

    monkeypatch.setattr(scaling, "ceiling_gflop_s", lambda _: 100.0)
    monkeypatch.setattr(scaling, "network_of", lambda *_: (None, {"weights": "none"}))
    monkeypatch.setattr(scaling, "measure_cell", invent)


def test_every_part_size_and_kernel_gets_a_row_and_growth_follows(invented, tmp_path):
    said = []

    study = scaling.run_study(CELLS, tmp_path / "out", said.append)

    assert json.loads((tmp_path / "out" / scaling.RESULTS).read_text())["rows"] == study["rows"]
    assert len({(r["part"], r["atoms"], r["kernel"]) for r in study["rows"]}) == 3 * 3 * 2
    sizes = {(r["part"], r["samples"], r["steps"]) for r in study["rows"]}
    assert sizes == {("attention", 1, 1), ("forward", 1, 1), ("loop", 3, 2)}
    for series in study["exponents"]:
        growth = ({"softmax": 3, "favor": 2}[series["kernel"]], 1)
        assert (series["time"]["value"], series["memory"]["value"]) == pytest.approx(growth)
    assert (said[0], len(said)) == ("1 of 18: attention, softmax, 4 atoms done", 18)


def test_what_was_measured_before_a_study_ends_early_is_kept(invented, tmp_path):
    cells = [replace(cell, weights="too large") for cell in CELLS]
    said = "^measuring attention, softmax, 6 atoms failed: not enough memory; try fewer"

    with pytest.raises(DuallgdError, match=said):
        scaling.run_study(cells, tmp_path, print)

    assert len(json.loads((tmp_path / scaling.RESULTS).read_text())["rows"]) == 6


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("part", scaling.PARTS)
def test_a_cell_is_measured(part, kernel):
    network = stirred(small_settings(pair_features={"favor": 8, "softmax": 0}[kernel]))
    cell = Cell(cpu(), part, kernel, 9, samples=2, steps=3, seconds=0)

    row = scaling.measure_cell(cell, network, {"weights": "none"}, 100.0)

    names = ("weights", "part", "atoms", "clock")
    assert tuple(row[name] for name in names) == ("none", part, 9, "cpu")
    assert min(row["time_s"], row["memory_mib"]) > 0
    assert row["floor_s"] == pytest.approx(row["gflop"] * 2 * 3 / 100)
    assert row["over_floor"] == pytest.approx(row["time_s"] / row["floor_s"])


def test_figures_add_up(tmp_path):
    network, record = stirred(small_settings()), {"ranking_validation": {"top1": 0.25}}
    weights = tmp_path / "small.safetensors"
    save(weights, Checkpoint(network.settings, dict(network.state_dict()), record, {}))

    figures, _ = measure_throughput(str(weights), cpu(), SETTINGS, made_formulas(9, 3))

    assert (figures["spectra"], figures["atoms"]) == (3, {9: 3})
    assert (figures["weights"], figures["val_top1"]) == ("small.safetensors", 0.25)
    assert figures["spectra_per_s"] == pytest.approx(3 / figures["seconds"])
    assert figures["candidates_per_s"] == pytest.approx(9 / figures["seconds"])
    assert figures["memory_mib"] > 0


def test_every_product_has_two_operations_for_each_pair_of_numbers():
    plain, layer, rows = nn.Linear(6, 10), Linear(6, 10), torch.randn(4, 6)
    x, heads, mask = torch.randn(2, 5, 12), 3, torch.ones(2, 5, dtype=torch.bool)

    assert count_flop(lambda: plain(rows)) == count_flop(lambda: layer(rows)) == 2 * 4 * 6 * 10
    # Attention: queries with keys, and weights with values.
    assert count_flop(lambda: softmax_attention(x, x, x, mask, heads)) == 2 * 2 * 2 * 5 * 5 * 12
