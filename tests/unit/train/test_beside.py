"""Spectra simulated beside a run: the folders that they are kept in, an encoder that learns."""

import numpy as np
import pytest

from duallgd_cli.checkpoint.format import load
from duallgd_cli.errors import UnreadableError, UsageError, WorkerDiedError
from duallgd_cli.train.beside import Pool, _simulate
from duallgd_cli.train.encoder import EncoderStage
from duallgd_cli.train.run import TrainingRequest, run_training
from duallgd_cli.train.settings import run_settings
from duallgd_cli.train.simulator import save_simulator
from tests.made_prepared import spectra_folder, structures_folder
from tests.made_simulation import model_of, simulated_folder
from tests.made_training import cpu, figures


class Ended:
    def is_alive(self):
        return False


def settings(*overrides):
    chosen = [
        "training.stage=encoder", "training.steps=6", "training.log_every=1",
        "training.data.spectra_per_batch=8", "training.data.simulators=1",
        "training.data.pool=200", "training.data.measured_from=0.5",
        "model.denoiser.layers=1", *overrides,
    ]  # fmt: skip
    return run_settings("tiny", chosen)


def test_a_pool_counts_whole_parts_from_the_first_on_and_misses_ended_processes(tmp_path, spectra):
    pool = Pool(tmp_path, 12_000)
    counts = [pool.count]
    for number in (1, 0):
        simulated_folder(tmp_path / str(number))
        counts.append(pool.count)
    pool.processes = [Ended()]

    with pytest.raises(WorkerDiedError, match=r"the same command goes on, with fewer --set"):
        _ = pool.count
    simulated_folder(tmp_path / "2")

    assert (*counts, pool.count) == (0, 0, 2, 3)
    stage = EncoderStage(spectra, None, settings().training, beside=pool)
    assert next(stage.plan(0)) == 3
    measured = set(spectra.precursor_mz.tolist())
    own = pool.part(2)
    assert not measured & set(own.precursor_mz.tolist()) or len(own) == 12
    assert stage.collate(3, 0).n_samples == stage.collate(3, 5).n_samples == 8


def test_parts_that_are_there_are_kept_and_others_are_of_other_structures(tmp_path):
    structures, simulator = structures_folder(tmp_path / "s"), simulator_of()
    for numbers in (range(1), range(3)):
        _simulate(structures, simulator, tmp_path / "pool", numbers, 4, 7)

    pool = Pool(tmp_path / "pool", 12)
    pool.size = 4
    chosen = [pool.part(n).molecules.inchikey.tolist() for n in range(3)]
    assert [len(names) for names in chosen] == [4, 4, 4]
    assert len(set(map(tuple, chosen))) > 1


def simulator_of():
    import pickle

    from tests.made_simulation import simulator

    return pickle.dumps(simulator())


@pytest.mark.slow
def test_an_encoder_learns_beside_processes_that_simulate(tmp_path):
    data = spectra_folder(tmp_path / "spectra")
    structures = structures_folder(tmp_path / "structures")
    save_simulator(tmp_path / "simulator.safetensors", model_of(-3.0), {"made": True})
    given = {"structures": (structures,), "simulator": tmp_path / "simulator.safetensors"}

    run_training(TrainingRequest(settings(), tmp_path / "run", data, **given), cpu())

    losses = figures(tmp_path / "run", "loss")
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    assert all(np.isfinite(loss) for loss in losses.values())
    record = load(tmp_path / "run" / "model.safetensors").record
    assert record["data"]["structures"]["molecules"] == 12


@pytest.mark.parametrize(
    ("n_folders", "error", "message"),
    [
        (2, UsageError, "one folder of --structures that are simulated"),
        (1, UnreadableError, "none of fold train to be simulated"),
    ],
)
def test_nothing_to_simulate_and_too_much_are_said(tmp_path, n_folders, error, message):
    data = spectra_folder(tmp_path / "spectra")
    save_simulator(tmp_path / "run" / "simulator.safetensors", model_of(-3.0), {})
    held = structures_folder(tmp_path / "held", fold=[1] * 12)
    request = TrainingRequest(settings(), tmp_path / "run", data, structures=(held,) * n_folders)

    with pytest.raises(error, match=message):
        run_training(request, cpu())
