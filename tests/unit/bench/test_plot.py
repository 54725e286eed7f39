import pytest

from duallgd_cli.bench import plot
from duallgd_cli.errors import UsageError

STUDY = {
    "machine": {"accelerator": None, "cpu": "a processor", "threads": 1},
    "rows": [
        {
            "part": part, "kernel": kernel, "atoms": n, "steps": 10, "samples": 1,
            "time_s": n / 1e3, "memory_mib": 0.0, "weights": "duallgd", "precision": "float32",
        }
        for part in ("attention", "forward", "loop")
        for kernel in ("softmax", "favor")
        for n in (10, 20)
    ],
}  # fmt: skip


def test_the_plot_shows_every_part_and_kernel(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the plots extra")

    plot.write_plot(tmp_path, STUDY)

    assert {path.name for path in tmp_path.iterdir()} == {"scaling.png", "scaling.svg"}
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "scaling.svg").read_text(encoding="utf-8")
    for words in ("attention", "forward", "loop", "FAVOR+", "exact softmax", "time / s"):
        assert f">{words}<" in text or f"<!-- {words} -->" in text


def test_without_matplotlib_a_plot_is_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)

    with pytest.raises(UsageError, match="matplotlib"):
        plot.require_matplotlib()
