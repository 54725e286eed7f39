"""The trainer: resumed exactly, stopped safely, several processes as one; batches made ahead."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from duallgd_cli.checkpoint.format import load
from duallgd_cli.errors import InterruptedRunError, UnreadableError, UsageError, WorkerDiedError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.train import trainer
from duallgd_cli.train.decoder import bond_loss
from duallgd_cli.train.settings import OptimiserSettings
from duallgd_cli.train.trainer import BEST, MODEL, STATE, DivergenceError, batches
from tests.made_graphs import small_settings
from tests.made_training import (
    METRICS,
    cpu,
    decoder_stage,
    figures,
    made_settings,
    run,
    state,
)

CPU = torch.device("cpu")
ALONE = made_settings()


def helped(workers):
    """Settings with so many processes that make batches."""
    return replace(ALONE, data=replace(ALONE.data, workers=workers))


def assert_same_tensors(one, other):
    assert one.keys() == other.keys()
    assert not [name for name in one if not torch.equal(one[name], other[name])]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody interrupts: its folder, what the callback was told, and its checkpoint."""
    out, told = tmp_path_factory.mktemp("whole"), []
    made = run(out, told=told)
    return SimpleNamespace(out=out, told=told, checkpoint=made)


def spoilt(spoil, at):
    """A stage whose loss goes wrong at one step."""
    stage, steps = decoder_stage(ALONE), count()

    def loss(model, batch):
        summed, number = bond_loss(model, batch)
        return (spoil(summed, model) if next(steps) == at else summed), number

    stage.loss = loss
    return stage


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, whole):
    """Also with processes that make batches, for a while."""
    run(tmp_path, until=1)
    run(tmp_path, helped(2), until=7)
    run(tmp_path)

    assert_same_tensors(state(tmp_path), state(whole.out))
    assert_same_tensors(load(tmp_path / MODEL).tensors, load(whole.out / MODEL).tensors)
    assert any(name.startswith("momentum_buffer/") for name in state(tmp_path))  # Muon's too
    for name in ("loss", "nll_250"):
        assert figures(tmp_path, name) == figures(whole.out, name)
    record = load(tmp_path / MODEL).record
    planned = islice(decoder_stage(ALONE).plan(0), 12)
    assert (record["step"], record["samples"]) == (12, sum(len(rows) for rows, _ in planned))
    assert record["seconds"] > 0
    assert record["validation"] == {n: figures(tmp_path, n)[12] for n in record["validation"]}
    assert "nll_250" in record["validation"]


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_is_answered_between_two_steps(tmp_path, whole, number):
    """Wherever in a step it comes: here within the loss, and twice, as `timeout` sends it."""

    def ask(summed, _model):
        if number is None:
            raise KeyboardInterrupt
        for _ in range(2):
            os.kill(os.getpid(), number)
        return summed

    done = 7 if number is None else 8
    told = rf"stopped at step {done} of 12; run the same command to go on, weights so .*/model\.saf"
    with pytest.raises(InterruptedRunError, match=told):
        run(tmp_path, stage=spoilt(ask, at=7))

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert load(tmp_path / MODEL).record["step"] == done
    if number is None:
        run(tmp_path)
        assert_same_tensors(state(tmp_path), state(whole.out))


def test_asked_again_later_a_run_stops_at_once(monkeypatch):
    clock = iter([10.0, 12.0])
    monkeypatch.setattr("duallgd_cli.train.trainer.time.monotonic", lambda: next(clock))

    with trainer.interruptible() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


NOT_FINITE = {
    "loss": lambda summed, model: summed * math.nan,
    # The same loss, but its slope is not finite.
    "gradient": lambda summed, model: summed + (0 * model.denoiser.readout.weight.sum()).sqrt(),
}


@pytest.mark.parametrize("what", NOT_FINITE)
def test_what_is_no_number_stops_the_run_and_keeps_the_last_state(tmp_path, what):
    with pytest.raises(DivergenceError, match=f"the {what} became nan at step 8; lower optim"):
        run(tmp_path, stage=spoilt(NOT_FINITE[what], at=8))

    assert load(tmp_path / MODEL).record["step"] == 5
    assert all(tensor.isfinite().all() for tensor in state(tmp_path).values())


def test_a_state_of_another_run_and_a_broken_one_are_refused(tmp_path):
    run(tmp_path, until=1)
    for changes in ({"seed": 2}, {"steps": 20}, {"log_every": 3}):
        with pytest.raises(UsageError, match="a run with other settings; use another output fold"):
            run(tmp_path, made_settings(**changes))
    for sizes in ({"layers": 2}, {"layers": 1, "global_width": 12}):
        with pytest.raises(UsageError, match="another network; use another output folder"):
            run(tmp_path, model=DualLGD(small_settings(**sizes)))
    (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"state\.pt is broken .*; use another output"):
        run(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_state_of_version_0_2_goes_on_unless_atoms_were_shuffled(tmp_path, share):
    run(tmp_path, until=1)
    kept = torch.load(tmp_path / STATE, weights_only=True)
    kept["settings"]["data"]["shuffle_share"] = share
    torch.save(kept, tmp_path / STATE)

    with pytest.raises(UsageError, match="other settings") if share else nullcontext():
        run(tmp_path, until=2)


def test_the_callback_and_the_file_say_the_same_and_figures_are_the_averages(tmp_path, whole):
    expected = decoder_stage(ALONE).validate(whole.checkpoint.build())
    run(tmp_path, made_settings(validate_every=1), until=3)
    lines = (whole.out / METRICS).read_text().splitlines()
    assert whole.told == [json.loads(line) for line in lines]
    assert {"loss", "norm", "count", "rate", "s"} < whole.told[0].keys()
    assert {name: figures(whole.out, name)[12] for name in expected} == pytest.approx(expected)
    assert sorted(figures(whole.out, "nll_50")) == [6, 12]
    # What is saved, in half precision, is the moving average.
    kept, saved = state(whole.out), load(whole.out / MODEL).tensors
    for name, tensor in saved.items():
        assert torch.equal(tensor, kept[f"averaged/{name}"].half().float())
    assert any((kept[f"model/{name}"].half().float() != saved[name]).any() for name in saved)
    # A look at held-out molecules changes nothing.
    losses = figures(whole.out, "loss")
    assert figures(tmp_path, "loss") == {step: losses[step] for step in (1, 2, 3)}


def test_a_fit_in_memory_counts_its_steps_and_ends_in_evaluation_mode():
    model, told = torch.nn.Linear(1, 1), []
    rates = OptimiserSettings("adamw", learning_rate=0.3, weight_decay=0.0)
    settings, batch = made_settings(steps=60, optimiser=rates), torch.arange(3.0)[:, None]

    def loss(model, batch):
        return (model(batch) - 3 * batch - 1).square().sum(), torch.tensor(len(batch))

    trainer.fit(model, lambda step: batch, loss, settings, told.append)

    assert (told, model.training) == ([1] * 60, False)
    assert float(loss(model, batch)[0].detach()) < 0.1
    with pytest.raises(DivergenceError, match="the loss became nan at step 0"):
        trainer.fit(model, lambda step: batch * math.nan, loss, settings, told.append)


def test_two_processes_train_as_one_with_both_their_batches(tmp_path, whole, monkeypatch):
    """Where both have the same batch, sums over ranks are twice as much, and nothing changes.

    What no rank used keeps no gradient: weight decay and momentum would move it, in several
    processes but not in one.
    """
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor: tensor.mul_(2))

    run(tmp_path, runtime=replace(cpu(), world_size=2))

    ranks, alone = state(tmp_path), state(whole.out)
    assert ranks.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(ranks[name], tensor, atol=1e-5, rtol=1e-4)
    counts = figures(whole.out, "count")
    assert figures(tmp_path, "count") == {step: 2 * n for step, n in counts.items()}
    assert figures(tmp_path, "loss") == pytest.approx(figures(whole.out, "loss"), rel=1e-5)
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "idle": torch.nn.Linear(2, 1)})
    model["used"](torch.ones(2)).backward()
    trainer.sum_gradients(model)
    assert (model["used"].weight.grad.tolist(), model["idle"].weight.grad) == ([[2, 2]], None)


def test_the_best_network_is_kept_beside_the_last(tmp_path, monkeypatch):
    """Also over an interruption: what was best before still is."""
    settings, told = made_settings(validate_every=2), iter([5.0, 3.0, 4.0, 3.5, 9.0, 8.0])
    stage = decoder_stage(settings)
    monkeypatch.setattr(stage, "validate", lambda model: {"nll_50": next(told)})

    run(tmp_path, settings, stage=stage, until=5)
    run(tmp_path, settings, stage=stage)

    records = (load(tmp_path / name).record for name in (BEST, MODEL))
    assert [(record["step"], record["best"]) for record in records] == [(4, 3.0), (12, 3.0)]
    figures = {"fp_bce": 9.0, "nll_50": 1.0, "nll_250": 3.0}, {"fp_bce": 9.0, "fp_tanimoto": 0.4}
    assert [*map(trainer.verdict, (*figures, {}))] == [2.0, 9.0, None]


class Steps:
    """Batches that say which step they are of, and who made them; at some step it acts."""

    def __init__(self, act=lambda: None, at=None):
        self.act, self.at = act, at

    def plan(self, first_step):
        return (10 * step for step in count(first_step))

    def collate(self, planned, step):
        if step == self.at:
            self.act()
        time.sleep(0.002 * (step % 3))  # later steps may be ready first
        return planned, os.getpid(), torch.full((2, 3), float(step))


def refuse():
    raise UnreadableError("row 7 is broken")


def be_asked_to_stop():
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)


def all_end(*process_ids):
    """Whether these processes end; an hour is no bound of theirs but one of a test that hangs."""
    until = time.monotonic() + 3600
    while any(Path(f"/proc/{each}").exists() for each in process_ids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("workers", [0, 3])
def test_batches_come_in_the_order_of_their_steps_and_processes_end_with_them(workers):
    """A process leaves requests to stop to its parent."""
    made = batches(Steps(be_asked_to_stop, at=7 if workers else None), 5, CPU, workers)

    planned, makers, values = zip(*islice(made, 20), strict=True)
    made.close()

    assert [int(tensor[0, 0]) for tensor in values] == list(range(5, 25))
    assert list(planned) == [10 * step for step in range(5, 25)]
    assert (set(makers) == {os.getpid()}) == (workers == 0)
    assert all_end(*set(makers) - {os.getpid()})


@pytest.mark.parametrize("workers", [0, 2])
def test_what_goes_wrong_in_a_batch_is_raised_where_it_is_asked_for(workers):
    made = batches(Steps(refuse, at=3), 0, CPU, workers)

    assert len(list(islice(made, 3))) == 3
    with pytest.raises(UnreadableError, match="row 7 is broken"):
        next(made)


def test_a_killed_process_is_named(tmp_path):
    stage = decoder_stage(ALONE)
    stage.collate = lambda planned, step: os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerDiedError, match=r"ended from outside.*--set decoder\.tr"):
        run(tmp_path, helped(1), stage=stage)


@pytest.mark.slow
def test_a_run_that_leaves_its_processes_open_ends_all_the_same():
    code = """if True:
        from tests.unit.train.test_trainer import CPU, Steps, batches
        made = batches(Steps(), 0, CPU, 2)
        print(next(made)[1])"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert ended.stderr == b""
    assert all_end(int(ended.stdout))


@pytest.mark.parametrize(("kind", "cores", "workers"), [
    ("cpu", 16, 0), ("cuda", 16, 8), ("cuda", 3, 2), ("cuda", 1, 1),
])  # fmt: skip
def test_processes_by_default_leave_the_loop_a_core(kind, cores, workers, monkeypatch):
    monkeypatch.setattr(trainer, "available_cores", lambda: 2 * cores)
    runtime = replace(cpu(), device=torch.device(kind), world_size=2)

    assert trainer.default_workers(runtime) == workers
