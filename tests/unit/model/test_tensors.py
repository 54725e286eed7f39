"""Linear maps: what is fast on a CPU gives what PyTorch's own way gives."""

import pytest
import torch
from torch.nn import functional

from duallgd_cli.model.tensors import linear


def made(*shape, width=24):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=generator)
    return x, torch.randn(width, shape[-1], generator=generator), torch.randn(width)


@pytest.mark.parametrize("shape", [(1, 8), (40, 8), (3, 7, 33), (2, 5, 4, 64), (0, 3, 8)])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_without_gradients_the_result_is_that_of_the_formula(shape, with_bias, relu):
    x, weight, bias = made(*shape)
    expected = functional.linear(x.double(), weight.double(), bias.double() if with_bias else None)
    expected = expected.relu() if relu else expected

    with torch.inference_mode():
        got = linear(x, weight, bias if with_bias else None, relu=relu)

    torch.testing.assert_close(got.double(), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_product_is_added_to_what_is_there(dtype):
    x, weight, bias = (part.to(dtype) for part in made(5, 8))
    rest = torch.randn(5, 24).to(dtype)

    with torch.inference_mode():
        got = linear(x, weight, bias, onto=rest)

    expected = rest.double() + functional.linear(*(part.double() for part in (x, weight, bias)))
    torch.testing.assert_close(got, expected.to(dtype), atol=1e-5, rtol=0.01)


def test_a_slice_of_a_wider_tensor_is_taken_as_it_is():
    x, weight, bias = made(6, 10, 96)
    part = x[..., 32:64]

    with torch.inference_mode():
        got = linear(part, weight[:, :32], bias)

    expected = functional.linear(part.contiguous(), weight[:, :32].contiguous(), bias)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_precisions_are_those_of_pytorch(dtype):
    x, weight, bias = (part.to(dtype) for part in made(5, 8))

    with torch.inference_mode():
        assert torch.equal(linear(x, weight, bias), functional.linear(x, weight, bias))


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_autocast_decides_the_precision(stored):
    x, weight, bias = made(50, 16)

    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        got = linear(x, weight.to(stored), bias.to(stored), relu=True)
        expected = functional.linear(x, weight, bias).relu()

    assert got.dtype == torch.bfloat16
    assert torch.equal(got, expected)
