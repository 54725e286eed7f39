import pytest

from duallgd_cli.bench import plot
from duallgd_cli.errors import UsageError


def row(part, kernel, path, atoms):
    return {
        "part": part, "kernel": kernel, "path": path, "atoms": atoms, "steps": 10,
        "samples": 1, "clock": "cpu", "cpu_s": atoms / 1e3, "wall_s": atoms / 1e3,
        "memory_mib": 0.0, "floor_s": atoms / 1e4, "weights": "duallgd", "parameters": 7_800_000,
        "precision": "float32",
    }  # fmt: skip


FOUND = {
    "machine": {"accelerator": None, "cpu": "a processor", "threads": 1},
    "rows": [
        row(part, kernel, path, n)
        for part in ("attention", "forward", "loop")
        for kernel in ("softmax", "favor")
        for path in ("plain", "fast")
        for n in (10, 20)
    ],
}


def test_four_panels_are_drawn_with_the_papers_points(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the evaluate extra")

    plot.write_plot(tmp_path, FOUND)

    assert {path.name for path in tmp_path.iterdir()} == {"scaling.png", "scaling.svg"}
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    figure = plot.figure_of(FOUND)
    assert len(figure.axes) == 4
    for axis in figure.axes:
        labels = [line.get_label() for line in axis.get_lines()]
        assert sum("paper" in label for label in labels) == 2
        assert axis.get_yscale() == "log"
        looks = [(line.get_linestyle(), line.get_marker()) for line in axis.get_lines()]
        assert len(set(looks)) == len(looks)  # in black and white too


def test_without_matplotlib_a_plot_is_refused_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)

    with pytest.raises(UsageError, match="matplotlib"):
        plot.require_matplotlib()
