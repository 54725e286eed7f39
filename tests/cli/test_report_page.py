"""The report in a real browser, from file://, without the network."""

import csv
from pathlib import Path

import numpy as np
import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.report import write_report
from tests.cli.test_report import HOSTILE, hostile_mgf
from tests.made_run import measure, mzml, of_molecule
from tests.made_runs import ASPIRIN_KEY, MATCH, aspirin_result, written_run
from tests.made_spectra import ASPIRIN, CAFFEINE
from tests.pages import NEEDS_BROWSER, rank_of
from tests.stub_model import stub_model

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def example_page(example_run, tmp_path_factory):
    page = tmp_path_factory.mktemp("made") / "out.html"
    write_report([example_run], page)
    return page


@pytest.fixture
def example(visit, example_page):
    return visit(example_page)


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    """A run with MS1: two compounds, each with the isotopes that were fragmented."""
    folder = tmp_path_factory.mktemp("run")
    compounds = [of_molecule(ASPIRIN, "a", 40, 3e5), of_molecule(CAFFEINE, "b", 60)]
    run = mzml(measure(np.random.default_rng(1), compounds, 90, noise=20), folder / "run.mzML")
    settings = PredictSettings(sampling=SamplingSettings(samples=4))
    predict(PredictRequest((run,), str(folder / "out.csv"), settings=settings), stub_model())
    return write_report([folder / "out.csv"], folder / "out.html").page


@pytest.fixture
def run(visit, run_page):
    return visit(run_page)


@pytest.fixture(scope="module")
def family_page(tmp_path_factory):
    """Features with a family of three, of different levels, names and a library."""
    folder = tmp_path_factory.mktemp("family")
    (folder / "names.tsv").write_text(
        f"inchikey\tname\tclass\n{ASPIRIN_KEY}\tAspirin <i>\tSalicylates\n"
    )
    predicted = {"formula_source": "predicted", "known": {}}
    peaks = {"mz": [121.0284, 163.0390], "intensity": [1.0, 0.4]}
    results = (
        aspirin_result(known={"library_match": MATCH | peaks}),
        aspirin_result(log_prior=-1.2, **predicted),
        aspirin_result(sampled=2, assembled=2, **predicted),
    )
    run = written_run(folder, *results, certain=0.41)
    return write_report([run], folder / "out.html", names=folder / "names.tsv").page


@pytest.fixture
def family(visit, family_page):
    return visit(family_page)


def test_it_loads_and_shows_every_feature_and_the_first_in_full(example, features):
    assert example.ids() == [feature["id"] for feature in features]
    assert "11 of 11 features with candidates" in example.text("#summary")
    example.shows("1")
    assert (example.count(".card"), len(example.asked)) == (len(features[0]["candidates"]), 1)
    links = example.page.locator(".card").first.locator(".elsewhere a")
    assert [link.inner_text() for link in links.all()] == ["PubChem", "COCONUT", "ChEBI"]
    key = features[0]["candidates"][0]["inchikey"]
    assert all(link.get_attribute("href").endswith(key) for link in links.all())
    for width in (390, 2500):
        example.resize(width)
        assert example.width() <= width


def test_columns_sort_both_ways_and_filter(example, features):
    page, masses = example.page, sorted(round(feature["mz"], 4) for feature in features)

    for expected, order in ((masses, "ascending"), (masses[::-1], "descending")):
        page.click("#head th.mz button")
        assert example.numbers("mz") == expected
        assert page.get_attribute("#head th.mz", "aria-sort") == order
    page.fill("#low", "200")
    page.fill("#high", "300")
    assert example.numbers("mz") == [mz for mz in masses[::-1] if 200 <= mz <= 300]
    for field, value in (("#low", ""), ("#high", ""), ("#least", "0.05")):
        page.fill(field, value)
    best = [feature["candidates"][0]["confidence"] for feature in features]
    assert len(example.ids()) == sum(confidence >= 0.05 for confidence in best)


def test_a_search_finds_every_part_mass_key_and_formula(example, features):
    first, second, *_ = features

    def ids_of(typed):
        example.page.fill("#text", typed)
        return example.ids()

    assert ids_of("C8H10N4O2") == ["1"]
    assert example.text("#count") == "1 of 11 features"
    assert ids_of(second["candidates"][0]["inchikey"]) == ["2"]
    assert all("1" in ids_of(f"{first['mz']:.{decimals}f}") for decimals in (2, 3, 4, 5))
    assert ids_of(f"{first['mz'] + 0.0002:.4f}") == []
    for feature in features[:3]:
        for name, *_ in (*feature["parts"], *feature["other_parts"]):
            assert feature["id"] in ids_of(f"{name} {feature['mz']:.2f}")
    example.page.click("#filters button[type=reset]")
    example.expect(example.page.locator("#count")).to_have_text("11 features")


def test_pointing_at_candidates_peaks_and_parts_marks_what_belongs_to_them(example, features):
    page, candidate = example.page, features[0]["candidates"][0]
    explained = features[0]["hypotheses"][candidate["hypothesis"]]["explained"]

    page.hover(".card .drawing")
    peaks = {tuple(explained[row][:2]) for row, _ in candidate["explains"]}
    assert example.count(".peak.by") == len(peaks)
    example.point_at_nothing()
    assert example.count(".asking") == 0
    sticks = (peak.bounding_box() for peak in page.query_selector_all(".peak.explained"))
    last = max(sticks, key=lambda box: box["x"])  # the molecular ion: all atoms
    page.mouse.move(last["x"] + 1, last["y"] + last["height"] / 2)
    for words in ("C8H11N4O2", "ppm", "the whole ion"):
        assert words in example.text("#hint")
    marked = example.count(".card:first-child .marks circle")
    assert marked == len(candidate["drawing"]["atoms"])
    example.point_at_nothing()
    assert (page.is_visible("#hint"), example.count(".marks circle")) == (False, 0)

    feature = next(feature for feature in features if feature["parts"])
    example.open(feature["number"] + 1)
    page.hover(".parts li")
    cards = sorted(page.query_selector_all(".card"), key=rank_of)
    for card, atoms in zip(cards, feature["parts"][0][3], strict=True):
        assert len(card.query_selector_all(".marks circle")) == len(atoms)
        assert ("without" in card.get_attribute("class")) is (not atoms)
    page.click(".parts summary")
    assert example.count(".others span") == len(feature["other_parts"])


def test_a_spectrum_of_a_library_hangs_below_the_spectrum(example, family):
    page = family.page

    assert example.count(".below line") == example.count(".mirror") == 0
    assert "the spectrum of mine.msp, Aspirin <b>" in family.text(".legend")
    assert family.count(".below line") == 2
    page.locator(".card:visible").nth(1).hover()
    assert family.count(".below line") == 2
    page.locator(".mirror").focus()
    page.keyboard.press("Enter")
    assert page.locator(".mirror").get_attribute("aria-pressed") == "false"
    assert family.count(".below line") == 0


def test_the_spectrum_zooms(example):
    page = example.page

    def width():
        texts = page.locator(".spectrum").first.locator(".axes text").all_text_contents()
        shown = [float(text) for text in texts if text.replace(".", "").isdigit()]
        return max(shown) - min(shown)

    whole = width()
    page.click("[aria-label='Zoom in']")
    assert width() < whole
    page.click("[aria-label='Show the whole spectrum']")
    assert width() == whole


def test_fragments_are_a_table(example, features):
    page, feature = example.page, features[0]

    page.click(".fragments summary")
    _, *rows = [row.query_selector_all("td") for row in page.query_selector_all(".fragments tr")]

    texts = [[cell.inner_text().replace("\n", "") for cell in row] for row in rows]
    assert len(texts) == len(feature["hypotheses"][0]["explained"])
    assert texts == sorted(texts, key=lambda row: float(row[0]))
    assert (*texts[-1][2:4], texts[-1][5].split(", ")[0]) == ("C8H11N4O2", "", "1")
    assert example.count(".spectrum") == len(feature["spectra"]) == 2  # one an energy


def test_a_review_is_kept_filtered_and_saved_with_the_rows_that_are_shown(example, features):
    page, first = example.page, features[0]
    page.click("[data-verdict=accepted]")
    page.fill(".note", "=fits, the standard")
    example.press("Escape", "j", shows="2")
    page.click("[data-verdict=rejected]")

    assert example.column("review")[:3] == ["accepted: =fits, the standard", "rejected", ""]
    page.select_option("#reviewed", "accepted")
    assert example.ids() == [first["id"]]
    with page.expect_download() as downloaded:
        page.click("#export")
    assert downloaded.value.suggested_filename == "out.reviewed.csv"
    with Path(downloaded.value.path()).open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    expected = ("accepted", "'=fits, the standard", first["candidates"][0]["inchikey"])
    assert (row["review"], row["note"], row["inchikey"]) == expected
    page.reload()
    page.wait_for_selector("#detail .feature")
    assert example.column("review")[:2] == ["accepted: =fits, the standard", "rejected"]
    example.open(2)
    page.click("[data-verdict=rejected]")  # taken back
    assert example.column("review")[1] == ""


def test_the_keyboard_is_enough(example):
    page = example.page

    example.press("j", shows="2")
    example.press("k", shows="1")
    example.press("/")
    page.keyboard.type("C11H12N2O2")
    assert example.ids() == ["2"]
    example.press("Escape")
    page.focus(".spectrum")
    example.press("ArrowRight")
    assert "ppm" in example.text("#hint")
    example.press("Tab")  # out of the spectrum, which no key holds
    assert page.evaluate("document.activeElement.className") != "spectrum"
    control = page.locator(".choose").first
    before = control.get_attribute("aria-pressed")
    control.focus()
    example.press("Enter")
    assert control.get_attribute("aria-pressed") != before


def test_a_hostile_file_shows_as_text_and_does_nothing(visit, tmp_path):
    (tmp_path / "bad.mgf").write_text(hostile_mgf(HOSTILE), encoding="utf-8")
    predict(PredictRequest((str(tmp_path / "bad.mgf"),), str(tmp_path / "out.csv")), stub_model())
    page = write_report([tmp_path / "out.csv"], tmp_path / "out.html").page
    opened = visit(page)
    opened.press("j")
    opened.page.wait_for_timeout(300)

    assert opened.asked == [page.as_uri()]
    assert opened.count("img, iframe, object, embed, base, form[action]") == 0
    assert "<img src=x onerror=alert(2)>" in opened.text("#body")
    assert opened.count("script") == 5
    assert opened.width() <= 1400
    rows = opened.page.query_selector_all("#body tr")
    assert max(row.bounding_box()["height"] for row in rows) < 200
    assert opened.page.is_visible("#head th.status")  # not all are ok


def test_retention_times_and_intensities_of_a_run_sort_and_filter(run):
    page = run.page
    page.click(".fold-ions >> nth=0")

    page.click("#head th.intensity button")
    assert 5e5 < run.numbers("intensity")[0] < 2e6
    page.click("#head th.rt button")
    page.fill("#early", "0.9")
    assert min(run.numbers("rt")) >= 0.9
    page.fill("#faint", "500000")
    assert [height >= 5e5 for height in run.numbers("intensity")] == [True]
    assert len(run.column("compound")) == 1
    assert run.count("svg.isotopes line.measured") >= 2


def test_ions_of_a_compound_are_one_row_that_pointer_and_keyboard_open(run):
    def leave_the_button():
        run.page.locator("#body").evaluate("document.activeElement.blur()")

    assert run.text("#count") == "6 features in 2 compounds"
    assert run.ids() == ["1", "4"]
    button = run.page.locator(".fold-ions").first
    button.focus()
    for is_open, ids in (("true", ["1", "2", "3", "4"]), ("false", ["1", "4"])):
        run.press("Enter")
        assert (run.ids(), button.get_attribute("aria-expanded")) == (ids, is_open)
    leave_the_button()
    run.press("j", shows="4")  # the next compound, not an ion that is folded
    run.press("ArrowRight")
    assert run.ids() == ["1", "4", "5", "6"]
    leave_the_button()
    run.press("j", shows="5")
    run.press("k", shows="4")
    run.press("ArrowLeft")
    assert run.ids() == ["1", "4"]


def test_a_family_is_one_card_that_the_keyboard_opens(family):
    page, cards = family.page, family.page.locator(".card:visible")

    assert cards.count() == 3
    said = family.text(".fold")
    assert "family: benzene ring + acetoxy or carboxymethyl + carboxyl, positions open" in said
    assert "3 candidates, together 43 %" in said
    button = page.get_by_role("button", name="Show the 2 others")
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    family.press("Enter")
    button = page.get_by_role("button", name="Hide the 2 others")
    assert button.get_attribute("aria-expanded") == "true"
    controlled = page.locator(f"#{button.get_attribute('aria-controls')}")
    assert controlled.locator(".card:visible").count() == 2
    page.hover(".members .card .drawing")  # marked as all are
    assert family.count(".peak.by") > 0
    button.focus()
    family.press("Enter")
    assert cards.count() == 3
    # A benzene ring has a bond that is the same in all: it is not green.
    assert 0 < page.locator(".card").first.locator(".certainty line").count() < 13
    page.emulate_media(media="print")
    assert cards.count() == 5
    for selector in (".fold button", "#filters", "#theme", ".choose"):
        assert family.count(f"{selector}:visible") == 0


def test_levels_are_a_ladder_sort_from_fine_to_coarse_and_filter_what_is_as_fine(family):
    page = family.page

    for words in ("certain to the family: 0.43", "Schymanski level 3"):
        assert words in family.text(".ladder")
    assert family.text(".ladder [aria-current=true] .rung") == "family"
    assert "c1ccccc1" in family.texts(".ladder li")[2]
    assert [text.split()[0] for text in family.column("level")] == ["family", "parts", "formula"]
    page.click("#head th.level button")
    page.click("#head th.level button")
    assert family.ids() == ["F2", "F1", "F0"]
    finer = ["all", "family or finer", "parts or finer", "formula or finer"]
    assert family.texts("#level option") == finer
    page.select_option("#level", "parts")
    assert sorted(family.ids()) == ["F0", "F1"]
