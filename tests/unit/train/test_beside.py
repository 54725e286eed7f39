"""Spectra simulated beside a run: the pool that they are kept in, and an encoder that learns."""

import numpy as np
import pytest

from duallgd_cli.checkpoint.format import load
from duallgd_cli.data.peaks import most_intense, packed_batch
from duallgd_cli.data.prepared import spectrum_arrays, spectrum_row
from duallgd_cli.errors import UnreadableError, UsageError, WorkerDiedError
from duallgd_cli.train.beside import Pool, simulated_molecules
from duallgd_cli.train.run import TrainingRequest, run_training
from duallgd_cli.train.settings import run_settings
from duallgd_cli.train.simulator import save_simulator
from tests.made_prepared import molecules_of, spectra_folder, structures_folder
from tests.made_simulation import model_of, simulator
from tests.made_training import cpu, figures


@pytest.fixture(scope="module")
def drawn():
    """Molecules, the rows of those that were simulated, and their spectra."""
    molecules, generator = molecules_of(), np.random.default_rng(1)
    rows = np.array([row for row in range(len(molecules)) for _ in range(2)])
    found = [simulator().annotated(molecules, int(row), generator) for row in rows]
    return molecules, rows, [
        spectrum_row(one, "", "train", most_intense(one.intensity)) for one in found
    ]  # fmt: skip


def test_a_pool_gives_what_was_put_into_it_while_more_comes(drawn, tmp_path):
    molecules, rows, spectra = drawn
    pool = Pool(molecules, tmp_path / "pool", 100)

    assert pool.add(rows[:9], spectra[:9])
    assert pool.count == 9
    assert pool.add(rows[9:], spectra[9:])

    expected, own = spectrum_arrays(spectra, rows), pool.spectra
    assert pool.count == len(rows)
    np.testing.assert_array_equal(own.molecule[: len(rows)], rows)
    np.testing.assert_array_equal(own.peak_offset[: len(rows) + 1], expected["peak_offset"])
    for name in ("mz", "intensity", "ppm", "carrier", "adduct", "energy_ev"):
        np.testing.assert_array_equal(getattr(own, name)[: len(expected[name])], expected[name])
    whole = packed_batch([(own, [[3], [17]], 0.0)], np.random.default_rng(1))
    assert whole.n_samples == 2


@pytest.mark.parametrize("most", [5, 24])
def test_a_full_pool_takes_no_more(drawn, tmp_path, most):
    molecules, rows, spectra = drawn
    pool = Pool(molecules, tmp_path, most)

    went_on = [pool.add(rows, spectra), pool.add(rows, spectra)]

    assert went_on == [most == 24, False]
    assert pool.count == most
    assert pool.is_full


def test_processes_that_ended_are_missed_unless_the_pool_is_full(drawn, tmp_path):
    class Ended:
        def is_alive(self):
            return False

    molecules, rows, spectra = drawn
    pool = Pool(molecules, tmp_path, 5)
    pool.processes = [Ended()]

    with pytest.raises(WorkerDiedError, match=r"the same command goes on, with fewer --set"):
        _ = pool.count
    pool.add(rows, spectra)
    assert pool.count == 5


def settings(*overrides):
    chosen = [
        "training.stage=encoder", "training.steps=6", "training.log_every=1",
        "training.data.spectra_per_batch=8", "training.data.simulators=1",
        "training.data.pool=200", "training.data.measured_from=0.5",
        "model.denoiser.layers=1", *overrides,
    ]  # fmt: skip
    return run_settings("tiny", chosen)


@pytest.mark.slow
def test_an_encoder_learns_beside_processes_that_simulate(tmp_path):
    data = spectra_folder(tmp_path / "spectra")
    structures = structures_folder(tmp_path / "structures")
    save_simulator(tmp_path / "simulator.safetensors", model_of(-3.0), {"made": True})
    given = {"structures": (structures,), "simulator": tmp_path / "simulator.safetensors"}

    for stop_after in (2, None):
        request = TrainingRequest(
            settings(), tmp_path / "run", data, stop_after=stop_after, **given
        )
        run_training(request, cpu())

    losses = figures(tmp_path / "run", "loss")
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    assert all(np.isfinite(loss) for loss in losses.values())
    record = load(tmp_path / "run" / "model.safetensors").record
    assert record["data"]["structures"]["molecules"] == 12


def test_nothing_to_simulate_and_too_much_to_simulate_are_said(tmp_path):
    data = spectra_folder(tmp_path / "spectra")
    held = structures_folder(tmp_path / "held", fold=[1] * 12)
    request = TrainingRequest(settings(), tmp_path / "run", data, structures=(held, held))

    with pytest.raises(UsageError, match="one folder of --structures that are simulated"):
        run_training(request, cpu())
    with pytest.raises(UnreadableError, match="none of fold train to be simulated"):
        simulated_molecules(molecules_of("CCO", fold=[1]))
