"""`duallgd trace`: the walk from noise to molecules, recorded and shown."""

import re

import numpy as np
import pytest
from PIL import Image

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError
from duallgd_cli.generator.network import ModelGenerator
from duallgd_cli.generator.trace import trace
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.report.trace import write_trace
from tests.cli.test_report import HOSTILE, hostile_mgf
from tests.cli.test_report_page import BROWSER, Visit, browser  # noqa: F401 - a fixture
from tests.made_graphs import small_settings, stirred
from tests.made_spectra import ALANINE, CAFFEINE, block, mgf
from tests.made_training import cpu

STEPS, SAMPLES = 4, 3


@pytest.fixture(scope="module")
def model():
    """Weights that have learnt nothing draw as others do."""
    generator = ModelGenerator(stirred(small_settings()), cpu())
    return LoadedModel(generator, RankingModel(), "small", "0" * 64)


@pytest.fixture(scope="module")
def settings():
    return PredictSettings(sampling=SamplingSettings(steps=STEPS, samples=SAMPLES))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    blocks = (block(CAFFEINE, feature_id="7"), block(ALANINE, feature_id="F8"))
    return mgf(tmp_path_factory.mktemp("trace") / "in.mgf", *blocks)


@pytest.fixture(scope="module")
def followed(model, settings, file):
    return trace(model, str(file), "1", settings)


def test_a_walk_goes_from_noise_to_the_graphs_that_were_drawn(followed):
    times = [step.t for step in followed.steps]

    assert times[0] == 500
    assert times == sorted(times, reverse=True)
    assert len(times) == STEPS + 1
    assert times[-1] == 0
    for step in followed.steps:
        assert step.bond_class.shape == (SAMPLES, 91)
        np.testing.assert_allclose(step.bond_prob.sum(-1), 1, atol=1e-5)
    last = followed.steps[-1]
    assert (last.bond_prob.argmax(-1) == last.bond_class).all()
    assert followed.places.shape == (SAMPLES, 14, 2)


def test_a_spectrum_is_chosen_by_number_or_id(model, settings, file):
    by_number, by_id = (trace(model, str(file), name, settings) for name in ("2", "F8"))

    assert str(by_number.annotated.hypothesis.formula) == "C3H7NO2"
    assert str(by_id.annotated.hypothesis.formula) == "C3H7NO2"
    for absent in ("3", "0", "third"):
        with pytest.raises(UsageError, match=r"has no (feature|spectrum)"):
            trace(model, str(file), absent, settings)


def test_pictures_hold_every_sample_and_an_animation_every_step(followed, tmp_path):
    for ending in ("svg", "png", "gif"):
        write_trace(followed, tmp_path / f"t.{ending}")
    text = (tmp_path / "t.svg").read_text(encoding="utf-8")

    assert text.startswith("<svg ")
    assert text.count(">t = 0<") == 1
    assert text.count('class="dot"') == 8 * SAMPLES * (STEPS + 1)  # the carbon atoms
    assert text.count("</title>") > 100  # peaks and bits say what they are
    width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', text).groups()
    with Image.open(tmp_path / "t.png") as image:
        assert image.size == (2 * int(width), 2 * int(height))
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 16)}
    assert (255, 255, 255) in colours
    assert len(colours) > 8
    assert (tmp_path / "t.png").stat().st_size < 300_000
    with Image.open(tmp_path / "t.gif") as image:
        assert image.n_frames == STEPS + 1


def test_nothing_of_a_hostile_file_is_markup(model, settings, tmp_path):
    (tmp_path / "bad.mgf").write_text(hostile_mgf(HOSTILE), encoding="utf-8")

    write_trace(trace(model, str(tmp_path / "bad.mgf"), "1", settings), tmp_path / "t.html")
    text = (tmp_path / "t.html").read_text(encoding="utf-8")

    assert "<img" not in text
    assert len(re.findall(r"<script", text)) == 2
    assert "\x1b" not in text
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")
def test_the_slider_shows_one_step_of_every_sample(browser, followed, tmp_path):  # noqa: F811
    write_trace(followed, tmp_path / "t.html")
    opened = Visit(browser, tmp_path / "t.html", wait_for=".walked")
    page = opened.page

    assert opened.text("#time") == "t = 0"
    page.locator("#step").fill("0")

    assert opened.text("#time") == "t = 500"
    shown = page.locator(".walked .frame:visible")
    assert shown.count() == SAMPLES
    assert page.locator(".walked .frame.on").count() == SAMPLES
    page.locator("#play").click()
    opened.expect(page.locator("#time")).to_have_text("t = 0")
    opened.context.close()
    assert opened.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in opened.asked)
