"""The training loop: resumed exactly, stopped safely, several processes as one; its optimisers."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import socket
from itertools import islice, pairwise
from types import SimpleNamespace

import pytest
import torch

from duallgd_cli.checkpoint.format import load
from duallgd_cli.errors import InterruptedRunError, UsageError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.train import optimisers as updates
from duallgd_cli.train.optimisers import learning_rate, optimisers
from duallgd_cli.train.settings import OptimiserSettings
from duallgd_cli.train.trainer import (
    BEST,
    DivergenceError,
    interruptible,
    sum_gradients,
    verdict,
)
from tests import made_training
from tests.made_graphs import small_settings
from tests.made_training import (
    METRICS,
    MODEL,
    STATE,
    decoder_stage,
    figures,
    made_settings,
    run,
    small_model,
    state,
)


def assert_same_tensors(one, other):
    assert one.keys() == other.keys()
    assert not [name for name in one if not torch.equal(one[name], other[name])]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody interrupts: its folder, what the callback was told, and its checkpoint."""
    out, told = tmp_path_factory.mktemp("whole"), []
    made = run(out, on_step=lambda step, figures: told.append({"step": step, **figures}))
    return SimpleNamespace(out=out, told=told, checkpoint=made)


def assert_goes_on_as(out, whole):
    """The same command again ends where the uninterrupted run did."""
    run(out)
    assert_same_tensors(state(out), state(whole.out))


class Spy:
    """A stage whose loss goes wrong at one step."""

    def __init__(self, spoil, at):
        self.stage, self.spoil, self.at = decoder_stage(made_settings()), spoil, at
        self.plan, self.validate = self.stage.plan, self.stage.validate

    def collate(self, planned, step):
        return SimpleNamespace(graphs=self.stage.collate(planned, step), n_samples=1, step=step)

    def loss(self, model, batch):
        summed, count = self.stage.loss(model, batch.graphs)
        return (self.spoil(summed, model) if batch.step == self.at else summed), count


class BothRanks:
    """The batches of two ranks in one process."""

    def __init__(self, settings):
        self.stages = [decoder_stage(settings, rank, 2) for rank in range(2)]
        self.validate = self.stages[0].validate

    def plan(self, first_step):
        return zip(*(stage.plan(first_step) for stage in self.stages), strict=True)

    def collate(self, planned, step):
        parts = [s.collate(own, step) for s, own in zip(self.stages, planned, strict=True)]
        return SimpleNamespace(parts=parts, n_samples=sum(part.n_samples for part in parts))

    def loss(self, model, batch):
        losses = [s.loss(model, own) for s, own in zip(self.stages, batch.parts, strict=True)]
        return sum(summed for summed, _ in losses), sum(count for _, count in losses)


@pytest.mark.parametrize("stop", [1, 5, 7, 11])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, whole, stop):
    run(tmp_path, stop_after=stop)
    assert_goes_on_as(tmp_path, whole)

    assert_same_tensors(load(tmp_path / MODEL).tensors, load(whole.out / MODEL).tensors)
    assert any(name.startswith("momentum_buffer/") for name in state(tmp_path))  # Muon's too
    for name in ("loss", "nll_250"):
        assert figures(tmp_path, name) == figures(whole.out, name)
    record = load(tmp_path / MODEL).record
    planned = islice(decoder_stage(made_settings()).plan(0), 12)
    assert (record["step"], record["samples"]) == (12, sum(len(rows) for rows, _ in planned))
    assert record["seconds"] > 0
    assert record["validation"] == {n: figures(tmp_path, n)[12] for n in record["validation"]}
    assert "nll_250" in record["validation"]


@pytest.mark.slow
def test_a_killed_run_loses_at_most_the_steps_since_its_last_state(tmp_path, whole):
    context = multiprocessing.get_context("spawn")
    process = context.Process(
        target=made_training.killed_at, args=(tmp_path, 8, torch.get_num_threads())
    )
    process.start()
    process.join(120)

    assert process.exitcode == -9
    assert not list(tmp_path.glob(".*.part"))
    assert load(tmp_path / MODEL).record["step"] == 5
    assert_goes_on_as(tmp_path, whole)


def test_ctrl_c_saves_the_step_that_was_done(tmp_path, whole):
    def on_step(step, _):
        if step == 7:
            raise KeyboardInterrupt

    told = (
        r"stopped at step 7 of 12; run the same command to go on, weights so far are \S+/model.saf"
    )
    with pytest.raises(InterruptedRunError, match=told):
        run(tmp_path, on_step=on_step)

    assert load(tmp_path / MODEL).record["step"] == 7
    assert_goes_on_as(tmp_path, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_is_answered_between_two_steps(tmp_path, whole, number):
    # Wherever in a step it comes: here within the loss, and twice, as `timeout` sends it.
    def ask(summed, _model):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        return summed

    with pytest.raises(InterruptedRunError, match="stopped at step 8 of 12; run the same command"):
        run(tmp_path, stage=Spy(ask, at=7))

    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)
    assert_goes_on_as(tmp_path, whole)


def test_asked_again_later_a_run_stops_at_once(monkeypatch):
    clock = iter([10.0, 12.0])
    monkeypatch.setattr("duallgd_cli.train.trainer.time.monotonic", lambda: next(clock))

    with interruptible() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def steep(summed, model):
    """The same loss, but its slope is not finite."""
    return summed + (0 * model.denoiser.readout.weight.sum()).sqrt()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda summed, model: summed * math.nan, "the loss became nan at step 8; lower optim"),
        (lambda summed, model: summed * math.inf, "the loss became inf at step 8; lower optim"),
        (steep, "the gradient became nan at step 8; lower optim"),
    ],
)
def test_what_is_no_number_stops_the_run_and_keeps_the_last_state(tmp_path, spoil, told):
    with pytest.raises(DivergenceError, match=told):
        run(tmp_path, stage=Spy(spoil, at=8))

    assert load(tmp_path / MODEL).record["step"] == 5
    assert all(tensor.isfinite().all() for tensor in state(tmp_path).values())


def test_a_step_with_nothing_to_guess_is_no_divergence(tmp_path):
    """As where all that is drawn of small molecules is given: no pair is counted, the loss is 0."""
    stage = decoder_stage(made_settings())
    whole = stage.loss
    stage.loss = lambda model, batch: tuple(0 * part for part in whole(model, batch))

    run(tmp_path, made_settings(steps=2, validate_every=9), stage=stage)

    assert figures(tmp_path, "loss") == {1: 0, 2: 0}


def test_a_state_of_another_run_and_a_broken_one_are_refused(tmp_path):
    run(tmp_path, stop_after=1)
    for changes in ({"seed": 2}, {"steps": 20}, {"log_every": 3}):
        with pytest.raises(UsageError, match="a run with other settings; use another output fold"):
            run(tmp_path, made_settings(**changes))
    for sizes in ({"layers": 2}, {"layers": 1, "global_width": 12}):
        with pytest.raises(UsageError, match="another network; use another output folder"):
            run(tmp_path, model=DualLGD(small_settings(**sizes)))
    (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"state\.pt is broken .*; use another output"):
        run(tmp_path)


def test_the_model_that_is_saved_is_the_moving_average(tmp_path):
    settings = made_settings(steps=4, checkpoint_every=1)
    average = {n: p.detach().clone() for n, p in small_model().named_parameters()}

    for step in range(4):
        run(tmp_path, settings, stop_after=step + 1)
        decay = min(settings.optimiser.ema, (1 + step) / (10 + step))
        kept = state(tmp_path)
        for name, value in average.items():
            average[name] = decay * value + (1 - decay) * kept[f"model/{name}"]

    saved = load(tmp_path / MODEL).tensors
    for name, value in average.items():
        torch.testing.assert_close(kept[f"averaged/{name}"], value, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(saved[name], value, atol=1e-6, rtol=1e-3)  # in half precision


def test_the_callback_and_the_file_say_the_same_and_figures_are_the_averages(whole):
    expected = decoder_stage(made_settings()).validate(whole.checkpoint.build())

    lines = (whole.out / METRICS).read_text().splitlines()
    assert whole.told == [json.loads(line) for line in lines]
    assert {"loss", "norm", "count", "rate", "s"} < whole.told[0].keys()
    found = {name: figures(whole.out, name)[12] for name in expected}
    assert found == pytest.approx(expected)
    assert sorted(figures(whole.out, "nll_50")) == [6, 12]


@pytest.mark.slow
def test_a_look_at_held_out_molecules_changes_nothing(tmp_path, whole):
    run(tmp_path, made_settings(validate_every=1))

    assert_same_tensors(state(tmp_path), state(whole.out))


def exit_codes_of_two_ranks(out):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=made_training.one_of_two, args=(rank, port, out))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(240)
    return [process.exitcode for process in ranks]


@pytest.mark.slow
def test_two_processes_train_as_one_with_both_their_batches(tmp_path):
    codes = exit_codes_of_two_ranks(tmp_path / "two")
    if codes != [0, 0]:  # somebody else took the free port in between: once more
        shutil.rmtree(tmp_path / "two", ignore_errors=True)
        codes = exit_codes_of_two_ranks(tmp_path / "two")
    assert codes == [0, 0]
    torch.set_num_threads(2)  # as the two have together: the last bits of a sum depend on it
    settings = made_settings()
    run(tmp_path / "one", settings, stage=BothRanks(settings), stop_after=4)

    for name in ("loss", "norm", "count"):
        one, two = (figures(tmp_path / folder, name) for folder in ("one", "two"))
        assert list(one) == list(two) == [1, 2, 3, 4]
        assert two == pytest.approx(one, rel=1e-6 if name != "norm" else 1e-5)
    one, two = state(tmp_path / "one"), state(tmp_path / "two")
    for name in one:
        # Adam magnifies rounding where a gradient is zero but for it, so moments are compared.
        if name.startswith("exp_avg/"):
            torch.testing.assert_close(two[name], one[name], atol=1e-6, rtol=1e-4)


def test_what_no_rank_used_keeps_no_gradient(monkeypatch):
    """Else weight decay and momentum would move it, in several processes but not in one."""
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor: tensor.mul_(2))
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "idle": torch.nn.Linear(2, 1)})
    model["used"](torch.ones(2)).backward()

    sum_gradients(model)

    assert model["used"].weight.grad.tolist() == [[2, 2]]
    assert model["used"].bias.grad.tolist() == [2]
    assert model["idle"].weight.grad is None


SETTINGS = OptimiserSettings(learning_rate=1e-3, warmup_share=0.1, final_share=0.01)


def test_the_rate_rises_to_its_peak_and_falls_to_its_end_without_a_jump():
    rates = [learning_rate(step, 1000, SETTINGS) for step in range(1001)]

    assert rates[0] == pytest.approx(1e-5)
    assert rates[99] == rates[100] == max(rates) == pytest.approx(1e-3)
    assert all(a < b for a, b in pairwise(rates[:100]))
    assert all(a > b for a, b in pairwise(rates[100:]))
    assert rates[550] == pytest.approx(1e-3 * (0.01 + 0.99 / 2))
    assert rates[1000] == learning_rate(2000, 1000, SETTINGS) == pytest.approx(1e-5)
    assert max(abs(a - b) for a, b in pairwise(rates)) <= 1e-3 / 100 + 1e-9
    assert learning_rate(0, 100, OptimiserSettings(warmup_share=0.0)) == 1e-3
    for steps in (1, 2, 3):  # the shortest runs have a rate, too
        assert all(0 < learning_rate(step, steps, SETTINGS) <= 1e-3 for step in range(steps))


def test_only_the_matrices_of_linear_layers_decay():
    model = small_model()
    (adamw,) = optimisers(model, OptimiserSettings(matrices="adamw", weight_decay=0.1))
    decayed, kept = adamw.param_groups

    assert decayed["weight_decay"] == 0.1
    assert kept["weight_decay"] == 0
    names = {id(p): name for name, p in model.named_parameters()}
    shrinking = {names[id(p)] for p in decayed["params"]}
    linear = {
        f"{n}.weight" for n, part in model.named_modules() if isinstance(part, torch.nn.Linear)
    }
    assert shrinking == linear
    assert len(decayed["params"]) + len(kept["params"]) == len(names)


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_every_parameter_but_the_frozen_is_optimised_once(matrices):
    model = small_model()
    for parameter in model.encoder.parameters():
        parameter.requires_grad_(False)

    chosen = optimisers(model, OptimiserSettings(matrices=matrices))

    groups = [group for optimiser in chosen for group in optimiser.param_groups]
    own = sorted(id(p) for p in model.denoiser.parameters())
    assert sorted(id(p) for group in groups for p in group["params"]) == own
    if matrices == "muon":  # an orthogonal step makes little sense on a handful of numbers
        assert all(min(p.shape) >= 16 for p in groups[0]["params"])


@pytest.mark.parametrize("steps", [1, 3])
def test_muon_by_shape_is_torch_s_muon(steps):
    shapes = [(24, 48), (48, 24), (24, 48), (32, 32)]
    generator = torch.Generator().manual_seed(4)
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    gradients = [[torch.randn(s, generator=generator) for s in shapes] for _ in range(steps)]
    ends = []
    for by_shape in (False, True):
        own = [torch.nn.Parameter(matrix.clone()) for matrix in start]
        muon = updates._Muon(own, lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
        for step in gradients:
            for parameter, gradient in zip(own, step, strict=True):
                parameter.grad = gradient.clone()
            with torch.no_grad():
                muon._step_by_shape(muon.param_groups[0]) if by_shape else muon.step()
        ends.append([(p.detach(), muon.state[p]["momentum_buffer"]) for p in own])
    for (one, momentum), (other, expected) in zip(*ends, strict=True):
        torch.testing.assert_close(momentum, expected)
        # Products in bfloat16 round by their order.
        torch.testing.assert_close(one, other, atol=0.05 * 0.1 * steps, rtol=0.01)


def test_what_is_brought_near_orthogonal_has_singular_values_about_one():
    matrices = torch.randn(3, 20, 50, generator=torch.Generator().manual_seed(1))
    for some in (matrices, matrices.mT.contiguous()):
        near = updates.orthogonal(some, (3.4445, -4.7750, 2.0315), 5, 1e-7)
        values = torch.linalg.svdvals(near.float())
        assert near.shape == some.shape
        assert 0.6 < values.min() < values.max() < 1.3


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"fp_bce": 9.0, "nll_50": 1.0, "nll_250": 3.0}, 2.0),
        ({"fp_bce": 9.0, "nll_50": 1.0, "predicted_nll_50": 5.0}, 5.0),
        ({"fp_bce": 9.0, "fp_tanimoto": 0.4}, 9.0),
        ({}, None),
    ],
)
def test_a_look_at_held_out_data_gives_one_verdict(figures, expected):
    assert verdict(figures) == expected


def test_the_best_network_is_kept_beside_the_last(tmp_path, monkeypatch):
    """Also over an interruption: what was best before still is."""
    looks = {2: 5.0, 4: 3.0, 6: 4.0, 8: 3.5, 10: 9.0, 12: 8.0}
    settings = made_settings(validate_every=2)
    stage = decoder_stage(settings)
    told = iter(looks.values())
    monkeypatch.setattr(stage, "validate", lambda model: {"nll_50": next(told)})

    run(tmp_path, settings, stage=stage, stop_after=5)
    run(tmp_path, settings, stage=stage)

    best, last = (load(tmp_path / name) for name in (BEST, MODEL))
    assert (best.record["step"], best.record["best"]) == (4, 3.0)
    assert (last.record["step"], last.record["best"]) == (12, 3.0)
