"""What updates the parameters: the rate over a run, who decays, Muon by shape."""

from itertools import pairwise

import pytest
import torch

from duallgd_cli.train import optimisers as module
from duallgd_cli.train.optimisers import learning_rate, optimisers
from duallgd_cli.train.settings import OptimiserSettings
from tests.made_training import small_model

SETTINGS = OptimiserSettings(learning_rate=1e-3, warmup_share=0.1, final_share=0.01)


def test_the_rate_rises_to_its_peak_and_falls_to_its_end_without_a_jump():
    rates = [learning_rate(step, 1000, SETTINGS) for step in (*range(1001), 2000)]

    assert all(a < b for a, b in pairwise(rates[:100]))
    assert all(a > b for a, b in pairwise(rates[100:1001]))
    ends = [1e-5, 1e-3, 1e-3, 1e-3 * (0.01 + 0.99 / 2), 1e-5, 1e-5]
    assert [rates[step] for step in (0, 99, 100, 550, 1000, 1001)] == pytest.approx(ends)
    held = OptimiserSettings(learning_rate=1e-3, warmup_share=0.1, hold_share=0.5)
    assert learning_rate(599, 1000, held) == 1e-3 > learning_rate(610, 1000, held)
    assert learning_rate(0, 100, OptimiserSettings(warmup_share=0.0)) == 1e-3
    for steps in (1, 2, 3):  # the shortest runs have a rate, too
        assert all(0 < learning_rate(step, steps, SETTINGS) <= 1e-3 for step in range(steps))


@pytest.mark.parametrize("matrices", ["adamw", "muon"])
def test_every_parameter_is_optimised_once_and_matrices_of_linear_layers_alone_decay(matrices):
    model = small_model()
    model.encoder.requires_grad_(False)

    chosen = optimisers(model, OptimiserSettings(matrices=matrices, weight_decay=0.1))

    groups = [group for optimiser in chosen for group in optimiser.param_groups]
    decays = [(id(p), group["weight_decay"]) for group in groups for p in group["params"]]
    linear = [part for part in model.denoiser.modules() if isinstance(part, torch.nn.Linear)]
    matrices_of = {id(part.weight) for part in linear}
    expected = [(id(p), 0.1 * (id(p) in matrices_of)) for p in model.denoiser.parameters()]
    assert sorted(decays) == sorted(expected)
    if matrices == "muon":  # an orthogonal step makes little sense on a handful of numbers
        assert all(min(p.shape) >= 16 for p in groups[0]["params"])


@pytest.mark.parametrize("steps", [1, 3])
def test_muon_by_shape_is_torch_s_muon(steps):
    shapes = [(24, 48), (48, 24), (24, 48), (32, 32)]
    generator = torch.Generator().manual_seed(4)
    start, *gradients = (
        [torch.randn(shape, generator=generator) for shape in shapes] for _ in range(1 + steps)
    )
    ends = []
    for kind in (torch.optim.Muon, module._Muon):
        own = [torch.nn.Parameter(matrix.clone()) for matrix in start]
        muon = kind(own, lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
        for step in gradients:
            for parameter, gradient in zip(own, step, strict=True):
                parameter.grad = gradient.clone()
            muon.step()
        ends.append([(p.detach(), muon.state[p]["momentum_buffer"]) for p in own])
    for (one, momentum), (other, expected) in zip(*ends, strict=True):
        torch.testing.assert_close(momentum, expected)
        # Torch's products are in bfloat16.
        torch.testing.assert_close(one, other, atol=0.05 * 0.1 * steps, rtol=0.01)


def test_orthogonal_matrices_keep_their_directions_in_the_numbers_that_a_processor_has():
    matrices = torch.randn(3, 20, 50, generator=torch.Generator().manual_seed(5))

    made = module.orthogonal(matrices, (3.4445, -4.7750, 2.0315), 5, 1e-7)

    assert made.dtype == torch.float32  # bfloat16 is imitated by many
    assert torch.equal(made.mT, module.orthogonal(matrices.mT, (3.4445, -4.7750, 2.0315), 5, 1e-7))
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    along = left.mT @ made @ right.mT
    sizes = torch.diagonal(along, dim1=1, dim2=2)
    torch.testing.assert_close(along, torch.diag_embed(sizes), atol=1e-3, rtol=0)
    assert (values.amax(1) > 3 * values.amin(1)).all()
    assert ((sizes > 0.6) & (sizes < 1.3)).all()


def test_the_average_follows_the_weights_fast_at_first():
    averaged, model = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    expected = averaged.weight.detach().clone()
    for step, decay in enumerate((1 / 10, 2 / 11, 3 / 12, 0.3, 0.3)):
        torch.nn.init.normal_(model.weight)
        expected = decay * expected + (1 - decay) * model.weight

        module.update_average(averaged, model, 0.3, step)

        torch.testing.assert_close(averaged.weight, expected)
