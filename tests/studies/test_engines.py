"""The shipped weights by other engines, as the studies compare them."""

import pytest
import torch
from engines import draw, equal_share, loaded
from rewritten import compare

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.config import SamplingSettings


@pytest.mark.slow
def test_the_shipped_weights_draw_the_same_graphs_with_either(tmp_path, monkeypatch):
    pytest.importorskip("openvino", reason="openvino is not installed: duallgd[openvino]")
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path))

    settings = SamplingSettings(samples=4, steps=2)
    found = draw(loaded(("float32",), None), 8, settings, repeats=1)

    assert equal_share(found["torch", "float32"], found["openvino", "float32"]) == 1
    assert all(drawn.seconds > 0 for drawn in found.values())


@pytest.mark.slow
@torch.inference_mode()
def test_the_shipped_weights_say_the_same_either_way():
    found = compare(8, "float32", resolve_weights(None), pairs=1)

    assert found.difference < 1e-4
    assert found.ratio > 0
