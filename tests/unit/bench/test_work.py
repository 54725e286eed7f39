import pytest
import torch
from torch import nn

from duallgd_cli.bench.work import Ceilings, Work, count_work, floor_s
from duallgd_cli.model.tensors import Linear, softmax_attention


@pytest.mark.parametrize("kind", [nn.Linear, Linear])
def test_a_linear_map_has_two_operations_for_each_weight_and_row(kind):
    layer = kind(6, 10)

    work = count_work(lambda: layer(torch.randn(4, 6)), layer)

    assert work.flop == 2 * 4 * 6 * 10
    assert work.parameter_bytes == 4 * (60 + 10)
    assert work.exponentials == 0


def test_fused_attention_counts_both_products_and_its_exponentials():
    x, heads, tokens, width = torch.randn(2, 5, 12), 3, 5, 4
    mask = torch.ones(2, tokens, dtype=torch.bool)

    work = count_work(lambda: softmax_attention(x, x, x, mask, heads), nn.Module())

    assert work.flop == 2 * 2 * 2 * heads * tokens * tokens * width
    assert work.exponentials == 2 * heads * tokens * tokens


@pytest.mark.parametrize(
    ("work", "size", "overlaps", "seconds"),
    [
        # On a CPU arithmetic adds up, for every candidate and step; a GPU hides exponentials.
        (Work(2e6, 3e5, 1e3), (4, 5, 4), False, 20 * (2e-3 + 3e-3)),
        (Work(2e6, 3e5, 0), (1, 1, 1), True, 3e-3),
        # Many weights are read once an evaluation: of 4 candidates by 3, that is twice a step.
        (Work(1.0, 0, 1e6), (4, 5, 3), False, 2 * 5 * 1e-3),
    ],
)
def test_the_floor_is_arithmetic_or_reading_the_weights(work, size, overlaps, seconds):
    room = Ceilings({"float32": 1e9}, 1e8, 1e9, arithmetic_overlaps=overlaps)

    assert floor_s(work, *size, room, "float32") == pytest.approx(seconds)
