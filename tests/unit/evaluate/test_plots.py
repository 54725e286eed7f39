import pytest

from duallgd_cli.evaluate import plots

Figure = pytest.importorskip("matplotlib.figure", reason="needs the evaluate extra").Figure

ESTIMATE = {"mean": 0.3, "low": 0.2, "high": 0.5}
GROUPS = [
    {
        "by": "rings",
        "label": label,
        "spectra": n,
        "estimates": dict.fromkeys(("accuracy@1", "mces@1", "tanimoto@1"), ESTIMATE),
    }
    for label, n in (("0", 3), ("1-2", 5))
]
METRICS = {
    name: {"per_spectrum": ESTIMATE} for name in ("accuracy@1", "mces@1", "tanimoto@1", "valid")
}
EVERYTHING = {
    "groups": GROUPS,
    "spectra": 8,
    "metrics": METRICS,
    "parts": [{"title": "NPLIB1 part", "spectra": 3, "metrics": METRICS}],
}
CALIBRATION = {
    "confidence": {
        "expected_error": 0.1,
        "bins": [{"stated": 0.1, "observed": ESTIMATE}, {"stated": 0.6, "observed": ESTIMATE}],
    }
}


def test_every_kind_of_plot_is_drawn_as_png_and_svg(tmp_path):
    plots.write_plots(tmp_path, EVERYTHING | {"calibration": CALIBRATION})

    drawn, names = tmp_path / "plots", {"by_rings", "parts", "calibration"}
    assert {path.name for path in drawn.iterdir()} == {
        f"{name}.{ending}" for name in names for ending in ("png", "svg")
    }
    assert (drawn / "parts.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (drawn / "by_rings.svg").read_text()


def test_series_are_told_apart_in_black_and_white(tmp_path, monkeypatch):
    names = ("accuracy@1", "accuracy@10", "tanimoto@1", "tanimoto@10", "mces@1", "mces@10")
    groups = [group | {"estimates": dict.fromkeys(names, ESTIMATE)} for group in GROUPS]
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))

    plots.write_plots(tmp_path, {"groups": groups})

    boxes = [box for axis in drawn[0].axes for box in axis.containers if hasattr(box, "lines")]
    assert [box.get_label() for box in boxes] == list(names)
    assert len({box.lines[0].get_marker() for box in boxes}) == len(names)


def test_remarks_in_capitals_stand_above_every_figure(tmp_path):
    found = {"groups": GROUPS, "calibration": {}}
    remarks = ["TRUE ATOM ORDER: as in the authors' tests.", "None of 3 molecules was seen."]
    texts = []
    for said in (remarks[1:], remarks):
        plots.write_plots(tmp_path, found | {"remarks": said})
        texts.append((tmp_path / "plots" / "by_rings.svg").read_text())

    # Text is drawn as paths; the SVG says what they mean in comments.
    assert ["TRUE ATOM ORDER" in text for text in texts] == [False, True]
    assert "None of" not in texts[1]


def test_without_matplotlib_a_message_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(plots, "find_spec", lambda _: None)

    plots.write_plots(tmp_path, {"groups": [], "calibration": CALIBRATION})

    assert not list(tmp_path.iterdir())
    assert "matplotlib is missing" in caplog.text
