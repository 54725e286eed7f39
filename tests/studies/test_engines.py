"""OpenVINO beside PyTorch, as the study compares them."""

import pytest
from engines import draw, equal_share, loaded

from duallgd_cli.config import SamplingSettings


@pytest.mark.slow
def test_the_shipped_weights_draw_the_same_graphs_with_either(tmp_path, monkeypatch):
    pytest.importorskip("openvino", reason="openvino is not installed: duallgd[openvino]")
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path))

    settings = SamplingSettings(samples=4, steps=2)
    found = draw(loaded(("float32",), None), 8, settings, repeats=1)

    assert equal_share(found["torch", "float32"], found["openvino", "float32"]) == 1
    assert all(drawn.seconds > 0 for drawn in found.values())
