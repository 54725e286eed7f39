"""An encoder trained beside processes that simulate: the batches, the plan, a run to its end."""

import json
from dataclasses import replace
from itertools import combinations

import device_examples
import numpy as np
import pytest
import torch
from device_examples import Store, packed
from packed_encoder import packed_layer, packed_logits

from duallgd_cli.checkpoint.format import load, write_tensors
from duallgd_cli.data.peaks import from_annotated, peak_batch
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.train.encoder import dense_bits
from tests.made_prepared import molecules_of, spectra_folder, structures_folder
from tests.made_simulation import model_of, simulator
from weights.recipe.encoder_at_scale import main

CPU = torch.device("cpu")
ENDS = ("constant", "encoder-0.5", "encoder-1")
BY_ROW = ("subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev")


@pytest.fixture(scope="module")
def drawn():
    """Molecules, the row of each spectrum's molecule, and its peaks."""
    molecules, generator = molecules_of(), np.random.default_rng(1)
    rows = [row for row in range(len(molecules)) for _ in range(2)]
    peaks = [from_annotated(simulator().annotated(molecules, row, generator)) for row in rows]
    return molecules, rows, peaks


def filled(drawn):
    """A store that took them in two chunks."""
    molecules, rows, peaks = drawn
    store = Store.of(molecules, len(rows), sum(len(one.carrier) for one in peaks), CPU)
    for half in (slice(None, 9), slice(9, None)):
        assert store.add(packed(peaks[half], rows[half]))
    return store


@pytest.fixture
def without_noise(monkeypatch):
    for name in ("JITTER", "NOISE_PPM", "ENERGY_DROP", "INSTRUMENT_DROP"):
        monkeypatch.setattr(device_examples, name, 0.0)


def brightest_is_one(batch):
    """As noise leaves spectra: intensities relative to what is brightest now."""
    brightest = batch.intensity.amax(1, keepdim=True).clamp_min(1e-6)
    return replace(batch, intensity=batch.intensity / brightest)


@pytest.mark.usefixtures("without_noise")
def test_a_batch_is_the_spectra_put_in_with_the_bits_of_their_molecules(drawn):
    molecules, rows, peaks = drawn
    numbers = np.random.default_rng(3).integers(0, len(rows), 30)

    got, truth = filled(drawn).batch(numbers, 0.0, np.random.default_rng(1))

    expected = brightest_is_one(peak_batch([peaks[i] for i in numbers]))
    for name in BY_ROW:
        one, other = getattr(got.rows, name)[:, 0], getattr(expected, name)[expected.mask]
        torch.testing.assert_close(one, other, equal_nan=True)
    assert torch.equal(got.spectrum, expected.mask.nonzero()[:, 0])
    assert torch.equal(got.rows.parent, expected.parent[got.spectrum])
    for name in ("parent", "adduct", "instrument"):
        assert torch.equal(getattr(got, name), getattr(expected, name))
    assert torch.equal(truth, dense_bits([molecules.fingerprint_bits(rows[i]) for i in numbers]))


@pytest.mark.usefixtures("without_noise")
def test_without_padding_the_network_says_the_same(drawn):
    torch.manual_seed(2)
    sizes = EncoderSettings(width=32, layers=2, summary=16, dropout=0.3)
    network, numbers = FormulaTransformer(sizes).eval(), np.arange(len(drawn[1]))

    batch, _ = filled(drawn).batch(numbers, 0.0, np.random.default_rng(1))

    expected = network(brightest_is_one(peak_batch(drawn[2])))
    torch.testing.assert_close(packed_logits(network, batch, packed_layer), expected)


def test_a_spectrum_of_which_no_peak_is_left_is_its_ion(drawn):
    network = FormulaTransformer(EncoderSettings(width=16, layers=1, summary=16)).eval()

    batch, _ = filled(drawn).batch(np.array([0, 1, 2]), 1e9, np.random.default_rng(1))

    assert not len(batch.spectrum)
    assert batch.start.tolist() == [0, 1, 2, 3]
    assert packed_logits(network, batch, packed_layer).isfinite().all()


def test_a_full_store_takes_no_more(drawn):
    _, rows, peaks = drawn
    store = filled(drawn)

    assert not store.add(packed(peaks[:1], rows[:1]))
    assert store.n_examples == len(rows)


def test_noise_takes_peaks_and_moves_the_others_a_little(drawn):
    torch.manual_seed(1)
    store, numbers = filled(drawn), np.tile(np.arange(len(drawn[1])), 20)
    before = peak_batch(drawn[2] * 20)

    after, _ = store.batch(numbers, 0.15, np.random.default_rng(1))
    whole, _ = store.batch(numbers, 0.0, np.random.default_rng(1))

    assert 0.88 < len(after.spectrum) / int(before.mask.sum()) < 0.97  # each loses up to 15 %
    none = torch.zeros(len(numbers))
    brightest = none.scatter_reduce(0, after.spectrum, after.rows.intensity[:, 0], "amax")
    assert set(brightest[after.spectrum.unique()].tolist()) == {1.0}
    moved = whole.rows.ppm[:, 0] - before.ppm[before.mask]
    assert 1.2 < float(moved.std()) < 1.6  # root of two
    known = ~before.energy_ev[before.mask].isnan()
    assert 0.1 < float(whole.rows.energy_ev[known, 0].isnan().float().mean()) < 0.3
    known = before.instrument > 0
    assert 0.02 < float((whole.instrument[known] == 0).float().mean()) < 0.25


@pytest.mark.slow
def test_a_run_ends_in_an_encoder_that_training_goes_on_from(tmp_path):
    measured = spectra_folder(tmp_path / "measured")
    structures = structures_folder(tmp_path / "structures")
    fragments = tmp_path / "simulator.safetensors"
    write_tensors(fragments, model_of(-3.0).state_dict(), {})
    sizes = {"width": 16, "layers": 1, "summary": 16, "batch": 16}

    main(
        measured, structures, tmp_path / "out", fragments, minutes=0.05, ending=0.02,
        share="0.5,1", most=200, first=12, workers=1, device="cpu", **sizes,
    )  # fmt: skip

    made = {name: load(tmp_path / "out" / f"{name}.safetensors") for name in ENDS}
    for one in made.values():
        encoder = FormulaTransformer(one.settings.encoder)
        own = {n.removeprefix("encoder."): t for n, t in one.tensors.items()}
        encoder.load_state_dict(own)
    steps = [one.record["at_scale"]["spectra"] for one in made.values()]
    assert 16 < steps[0] < min(steps[1:])  # both go on from there
    different = [one.tensors["encoder.fingerprint.weight"] for one in made.values()]
    assert not any(torch.equal(a, b) for a, b in combinations(different, 2))
    best = min(ENDS[1:], key=lambda name: made[name].record["at_scale"]["fp_bce"])
    kept = load(tmp_path / "out" / "encoder.safetensors").record
    assert kept["at_scale"] == made[best].record["at_scale"]
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [rows[0]["step"], rows[0]["phase"]] == [1, "constant"]
    assert made["constant"].record["at_scale"]["fp_bce"] < rows[0]["fp_bce"]
