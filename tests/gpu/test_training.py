"""Training on CUDA: the figures of the CPU, batches from other processes, no waiting in a step."""

import copy
import math
from dataclasses import replace
from itertools import islice

import pytest
import torch

from duallgd_cli.train.loop import optimisers, update_average
from duallgd_cli.train.prefetch import batches
from duallgd_cli.train.run import compile_layers
from duallgd_cli.train.settings import OptimiserSettings
from tests.made_training import decoder_stage, figures, made_settings, run, small_model, state

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def exact_products():
    """Full float32 products, as on a CPU; the setting before is put back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def test_a_run_has_the_losses_of_a_run_on_the_cpu(tmp_path):
    for device in ("cpu", "cuda"):
        run(tmp_path / device, made_settings(steps=4), model=small_model().to(device))

    expected, got = (figures(tmp_path / device, "loss") for device in ("cpu", "cuda"))
    assert got == pytest.approx(expected, rel=1e-3)


def test_processes_that_make_batches_change_nothing_and_a_run_resumes(tmp_path):
    settings = made_settings(steps=6)
    helped = replace(settings, data=replace(settings.data, workers=2))
    run(tmp_path / "alone", settings, model=small_model().to(CUDA))

    run(tmp_path / "helped", helped, model=small_model().to(CUDA), stop_after=3)
    run(tmp_path / "helped", helped, model=small_model().to(CUDA))

    assert figures(tmp_path / "helped", "loss") == pytest.approx(
        figures(tmp_path / "alone", "loss"), rel=1e-4
    )
    assert all(tensor.isfinite().all() for tensor in state(tmp_path / "helped").values())


def test_a_step_waits_for_nothing():
    settings = made_settings()
    stage, model = decoder_stage(settings), small_model().to(CUDA).train()
    (optimiser,) = optimisers(model, OptimiserSettings(matrices="adamw"))
    average = copy.deepcopy(model)

    def step(batch):
        with torch.autocast("cuda", torch.bfloat16):
            summed, count = stage.loss(model, batch)
        (summed / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        update_average(average, model, 0.9, 5)

    for batch in islice(batches(stage, 0, CUDA), 2):
        for mode in ("default", "error"):  # tables are filled in the first pass
            torch.cuda.set_sync_debug_mode(mode)
            try:
                step(batch)
            finally:
                torch.cuda.set_sync_debug_mode("default")

    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_layers_have_the_losses_of_plain_ones():
    stage = decoder_stage(made_settings())
    plain, compiled = small_model().to(CUDA), small_model().to(CUDA)
    compile_layers(compiled)

    for batch in islice(batches(stage, 0, CUDA), 3):
        one, two = (float(stage.loss(model, batch)[0].detach()) for model in (plain, compiled))
        assert math.isclose(one, two, rel_tol=1e-3)
