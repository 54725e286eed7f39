"""Batches made ahead: in order, the same as without processes, and errors that reach the loop."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import count, islice

import pytest
import torch
from torch import Tensor

from duallgd_cli.errors import UnreadableError, UsageError, WorkerDiedError
from duallgd_cli.train import prefetch
from duallgd_cli.train.prefetch import batches, default_workers
from tests.made_training import cpu, decoder_stage, made_settings, run, state

CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Numbers:
    """A batch of a name and a tensor."""

    name: str
    values: Tensor


class Steps:
    """Batches that say which step they are of, and who made them."""

    def __init__(self, wrong_at=None, last_words=None):
        self.wrong_at, self.last_words = wrong_at, last_words

    def plan(self, first_step):
        return (10 * step for step in count(first_step))

    def collate(self, planned, step):
        if step == self.wrong_at:
            self.last_words()
        time.sleep(0.002 * (step % 3))  # later steps may be ready first
        return Numbers(f"{planned} by {os.getpid()}", torch.full((2, 3), float(step)))


def refuse():
    raise UnreadableError("row 7 is broken")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_the_order_of_their_steps(workers):
    made = batches(Steps(), 5, CPU, workers)

    found = list(islice(made, 20))

    made.close()
    assert [int(batch.values[0, 0]) for batch in found] == list(range(5, 25))
    assert [batch.name.split()[0] for batch in found] == [str(10 * step) for step in range(5, 25)]
    makers = {batch.name.split()[-1] for batch in found}
    assert (makers == {str(os.getpid())}) == (workers == 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_goes_wrong_in_a_batch_is_raised_where_it_is_asked_for(workers):
    made = batches(Steps(wrong_at=3, last_words=refuse), 0, CPU, workers)

    assert len(list(islice(made, 3))) == 3
    with pytest.raises(UnreadableError, match="row 7 is broken"):
        next(made)


def test_a_killed_process_is_named(tmp_path):
    settings = made_settings()
    stage = decoder_stage(settings)
    stage.collate = lambda planned, step: die()

    with pytest.raises(
        WorkerDiedError, match=r"ended from outside.*fewer --set training\.data\.wor"
    ):
        run(tmp_path, replace(settings, data=replace(settings.data, workers=1)), stage=stage)


class Signalled(Steps):
    """Batches whose maker is asked to stop by another process than its parent, twice."""

    def collate(self, planned, step):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        return super().collate(planned, step)


def test_processes_leave_requests_to_stop_to_the_parent():
    made = batches(Signalled(), 0, CPU, 1)

    assert [int(batch.values[0, 0]) for batch in islice(made, 3)] == [0, 1, 2]
    made.close()


LEFT_OPEN = """
import torch
from duallgd_cli.train.prefetch import batches
from tests.unit.train.test_prefetch import Steps
made = batches(Steps(), 0, torch.device("cpu"), 2)
print(next(made).name)
"""


@pytest.mark.slow
def test_a_run_that_leaves_its_processes_open_ends_all_the_same():
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=60, check=True
    )

    assert ended.stdout.startswith("0 by")
    assert ended.stderr == ""
    assert not is_running(int(ended.stdout.split()[-1]))


def test_processes_end_with_the_iterator():
    made = batches(Steps(), 0, CPU, 2)
    maker = int(next(made).name.split()[-1])

    made.close()

    until = time.monotonic() + 20
    while is_running(maker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(maker)


def is_running(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_system_that_cannot_fork_is_told_so(monkeypatch):
    monkeypatch.setattr(prefetch.multiprocessing, "get_all_start_methods", lambda: ["spawn"])

    with pytest.raises(UsageError, match="workers must be 0 on this system"):
        next(batches(Steps(), 0, CPU, 2))


@pytest.mark.parametrize(("kind", "cores", "workers"), [
    ("cpu", 16, 0), ("cuda", 16, 8), ("cuda", 3, 2), ("cuda", 1, 1),
])  # fmt: skip
def test_processes_by_default_leave_the_loop_a_core(kind, cores, workers, monkeypatch):
    monkeypatch.setattr(prefetch, "available_cores", lambda: 2 * cores)
    runtime = replace(cpu(), device=torch.device(kind), world_size=2)

    assert default_workers(runtime) == workers


def test_a_run_with_processes_is_the_run_without_and_goes_on_with_either(tmp_path):
    alone = made_settings(steps=4, validate_every=4)
    helped = replace(alone, data=replace(alone.data, workers=2))
    run(tmp_path / "alone", alone)

    run(tmp_path / "helped", helped, stop_after=2)
    run(tmp_path / "helped", alone, stop_after=3)
    run(tmp_path / "helped", helped)

    one, two = state(tmp_path / "alone"), state(tmp_path / "helped")
    assert one.keys() == two.keys()
    assert not [name for name in one if not torch.equal(one[name], two[name])]
