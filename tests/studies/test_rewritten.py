"""The shipped weights in the rewritten network, as the study compares it."""

import pytest
import torch
from rewritten import compare

from duallgd_cli.checkpoint import resolve_weights


@pytest.mark.slow
@torch.inference_mode()
def test_the_shipped_weights_say_the_same_either_way():
    found = compare(8, "float32", resolve_weights(None), pairs=1)

    assert found.difference < 1e-4
    assert found.ratio > 0
