"""Learning rate, weight decay, Muon and the moving average."""

from itertools import pairwise

import pytest
import torch

from duallgd_cli.train.loop import learning_rate, optimisers
from duallgd_cli.train.settings import OptimiserSettings
from tests.made_training import small_model

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


def test_muon_takes_the_wide_matrices_and_steps_them_orthogonally():
    model = small_model()
    muon, _ = optimisers(model, OptimiserSettings(matrices="muon", weight_decay=0.0))
    (group,) = muon.param_groups
    before = [p.detach().clone() for p in group["params"]]
    for parameter in group["params"]:
        parameter.grad = torch.randn_like(parameter)

    muon.step()

    for old, new in zip(before, group["params"], strict=True):
        assert min(new.shape) >= 16
        values = torch.linalg.svdvals((new - old).detach())
        assert float(values.max() / values.min()) < 3  # Newton and Schulz's five steps are rough
