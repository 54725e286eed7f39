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
METRICS = dict.fromkeys(("accuracy@1", "mces@1", "tanimoto@1", "valid"), ESTIMATE)
EVERYTHING = {
    "groups": GROUPS,
    "spectra": 8,
    "metrics": METRICS,
}
CALIBRATION = {
    "confidence": {
        "expected_error": 0.1,
        "bins": [{"stated": 0.1, "observed": ESTIMATE}, {"stated": 0.6, "observed": ESTIMATE}],
    }
}


def test_every_table_has_a_plot_as_png_and_svg(tmp_path):
    formulas = [
        {"by": "all", "label": "all", "spectra": 8, "estimates": {"formula_accuracy@1": ESTIMATE}}
    ]
    more = {"calibration": CALIBRATION, "formula_accuracy": formulas}
    plots.write_plots(tmp_path, EVERYTHING | more)

    drawn = tmp_path / "plots"
    assert {path.name for path in drawn.iterdir()} == set(plots.PLOTS)
    assert (drawn / "metrics.png").read_bytes().startswith(b"\x89PNG")
    text = (drawn / "groups.svg").read_text()
    for words in ("rings 0 (3)", "rings 1-2 (5)", "accuracy@1", "MCES distance"):
        assert f"<!-- {words} -->" in text


def test_remarks_in_capitals_stand_above_every_figure(tmp_path):
    remarks = ["TRUE ATOM ORDER: as in the authors' tests.", "None of 3 molecules was seen."]
    texts = []
    for said in (remarks[1:], remarks):
        plots.write_plots(tmp_path, {"groups": GROUPS, "remarks": said})
        texts.append((tmp_path / "plots" / "groups.svg").read_text())

    # Text is drawn as paths; the SVG says what they mean in comments.
    assert ["TRUE ATOM ORDER" in text for text in texts] == [False, True]
    assert "None of" not in texts[1]


def test_without_matplotlib_a_message_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(plots, "find_spec", lambda _: None)

    plots.write_plots(tmp_path, {"groups": [], "calibration": CALIBRATION})

    assert not list(tmp_path.iterdir())
    assert "matplotlib is missing" in caplog.text
