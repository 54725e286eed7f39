"""An encoder trained beside processes that simulate: the batches, the plan, a run to its end."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from device_examples import Store, noisy, packed

from duallgd_cli.checkpoint.format import load, write_tensors
from duallgd_cli.data.peaks import from_annotated, peak_batch
from duallgd_cli.model.encoder import FormulaTransformer
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


def test_batches_are_the_spectra_put_in_with_the_bits_of_their_molecules(drawn):
    molecules, rows, peaks = drawn
    numbers = np.random.default_rng(3).integers(0, len(rows), 30)
    in_order = numbers[np.argsort([len(peaks[i].carrier) for i in numbers], kind="stable")]

    parts = list(filled(drawn).batches(numbers))

    assert [len(truth) for _, truth in parts] == [8, 8, 7, 7]
    for (got, truth), own in zip(parts, np.split(in_order, [8, 16, 23]), strict=True):
        expected = peak_batch([peaks[i] for i in own])
        assert torch.equal(got.mask, expected.mask)
        for name in BY_ROW:
            one, other = (getattr(batch, name)[expected.mask] for batch in (got, expected))
            torch.testing.assert_close(one, other, equal_nan=True)
        for name in ("parent", "adduct", "instrument"):
            assert torch.equal(getattr(got, name), getattr(expected, name))
        bits = [molecules.fingerprint_bits(rows[i]) for i in own]
        assert torch.equal(truth, dense_bits(bits))


def test_a_full_store_takes_no_more(drawn):
    _, rows, peaks = drawn
    store = filled(drawn)

    assert not store.add(packed(peaks[:1], rows[:1]))
    assert store.n_examples == len(rows)


def test_noise_takes_peaks_and_moves_the_others_a_little(drawn):
    torch.manual_seed(1)
    before = peak_batch(drawn[2] * 20)

    after = noisy(before, 0.15)

    kept = int(after.mask.sum()) / int(before.mask.sum())
    assert 0.88 < kept < 0.97  # each loses up to 15 %
    assert not (after.mask & ~before.mask).any()
    assert (after.intensity[~after.mask] == 0).all()
    brightest = after.intensity.amax(1)[after.mask.any(1)]
    torch.testing.assert_close(brightest, torch.ones_like(brightest))
    moved = (after.ppm - before.ppm)[after.mask]
    assert 1.2 < float(moved.std()) < 1.6  # root of two
    known = ~before.energy_ev[:, 0].isnan()
    assert 0.1 < float(after.energy_ev[known, 0].isnan().float().mean()) < 0.3


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
