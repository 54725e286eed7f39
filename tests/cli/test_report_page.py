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
from tests.pages import NEEDS_BROWSER, Visit, rank_of, written
from tests.stub_model import stub_model

WIDTHS = (390, 1000, 1400)
pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    """The page of a run with MS1: two compounds, each with the isotopes that were fragmented."""
    folder = tmp_path_factory.mktemp("run")
    compounds = [of_molecule(ASPIRIN, "a", 40, 3e5), of_molecule(CAFFEINE, "b", 60)]
    run = mzml(measure(np.random.default_rng(1), compounds, 90, noise=20), folder / "run.mzML")
    settings = PredictSettings(sampling=SamplingSettings(samples=4))
    predict(PredictRequest((run,), str(folder / "out.csv"), settings=settings), stub_model())
    write_report([folder / "out.csv"], folder / "out.html")
    return folder / "out.html"


@pytest.fixture(scope="module")
def family_page(tmp_path_factory):
    """The page of features with a family of three, of different levels, names and a library."""
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
    run, names = written_run(folder, *results, certain=0.41), folder / "names.tsv"
    write_report([run], folder / "out.html", names=names)
    return folder / "out.html"


@pytest.fixture
def visit(browser, made):
    opened = Visit(browser, made[0])
    yield opened
    opened.close()


@pytest.fixture
def run(browser, run_page):
    opened = Visit(browser, run_page)
    yield opened
    opened.close()


@pytest.fixture
def family(browser, family_page):
    opened = Visit(browser, family_page)
    yield opened
    opened.close()


def test_it_loads_and_shows_every_feature_and_the_first_in_full(visit, made):
    features = made[1]

    assert visit.ids() == [feature["id"] for feature in features]
    assert "11 of 11 features with candidates" in visit.text("#summary")
    visit.shows("1")
    assert len(visit.page.query_selector_all(".card")) == len(features[0]["candidates"])
    assert len(visit.asked) == 1


@pytest.mark.parametrize("width", [*WIDTHS, 2500])
def test_no_column_is_hidden_and_headers_have_one_line_whatever_the_width(visit, width):
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    names = ("id", "mz", "adduct", "formula", "smiles", "level", "confidence", "top10", "part")

    assert len({round(page.locator(f"#head th.{n}").bounding_box()["y"]) for n in names}) == 1
    assert page.locator("#head").bounding_box()["height"] < 45
    assert all(page.is_visible(f"#body tr:first-child td.{name}") for name in names)
    heads = page.locator("#detail h3, #detail h2, .top h1").all()
    assert all(head.bounding_box()["height"] < 34 for head in heads)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Nothing is said of what is the same everywhere.
    assert page.locator("th.status, td.status").count() == 0
    assert not page.is_visible("#status")
    visit.open(2)
    visit.shows("2")
    visit.expect(page.locator("#detail h2").first).to_be_in_viewport()


def test_columns_sort_both_ways_and_filter(visit, made):
    page, masses = visit.page, sorted(round(feature["mz"], 4) for feature in made[1])

    for expected, order in ((masses, "ascending"), (masses[::-1], "descending")):
        page.click("#head th.mz button")
        assert [float(text) for text in visit.column("mz")] == expected
        assert page.get_attribute("#head th.mz", "aria-sort") == order
    page.fill("#low", "200")
    page.fill("#high", "300")
    assert [float(text) for text in visit.column("mz")] == [
        mz for mz in masses[::-1] if 200 <= mz <= 300
    ]
    page.fill("#low", "")
    page.fill("#high", "")
    page.fill("#least", "0.05")
    best = [feature["candidates"][0]["confidence"] for feature in made[1]]
    assert len(visit.ids()) == sum(confidence >= 0.05 for confidence in best)


def test_a_search_finds_every_part_mass_key_and_formula(visit, made):
    first, second, *_ = features = made[1]

    def found(typed):
        visit.page.fill("#text", typed)
        return visit.ids()

    assert found("C8H10N4O2") == ["1"]
    assert visit.text("#count") == "1 of 11 features"
    assert found(second["candidates"][0]["inchikey"]) == ["2"]
    assert all("1" in found(f"{first['mz']:.{decimals}f}") for decimals in (2, 3, 4, 5))
    assert found(f"{first['mz'] + 0.0002:.4f}") == []
    for feature in features[:3]:
        for name, *_ in (*feature["parts"], *feature["other_parts"]):
            assert feature["id"] in found(f"{name} {feature['mz']:.2f}")
    visit.page.click("#filters button[type=reset]")
    visit.expect(visit.page.locator("#count")).to_have_text("11 features")


def test_pointing_at_candidates_and_peaks_marks_what_belongs_to_them(visit, made):
    page, feature = visit.page, made[1][0]
    candidate = feature["candidates"][0]
    explained = feature["hypotheses"][candidate["hypothesis"]]["explained"]

    page.hover(".card .drawing")
    assert page.locator(".peak.by").count() == len(
        {tuple(explained[row][:2]) for row, _ in candidate["explains"]}
    )
    page.mouse.move(3, 3)
    assert page.query_selector(".asking") is None

    sticks = (one.bounding_box() for one in page.query_selector_all(".peak.explained"))
    last = max(sticks, key=lambda box: box["x"])  # the molecular ion: all atoms
    page.mouse.move(last["x"] + 1, last["y"] + last["height"] / 2)
    said = visit.text("#hint").replace("\n", "")
    assert all(words in said for words in ("C8H11N4O2", "ppm", "the whole ion"))
    marked = page.locator(".card:first-child .marks circle").count()
    assert marked == len(candidate["drawing"]["atoms"])
    page.mouse.move(3, 3)
    assert not page.is_visible("#hint")
    assert page.query_selector(".marks circle") is None


def test_pointing_at_a_part_marks_its_atoms_in_the_candidates_that_have_it(visit, made):
    page, feature = visit.page, next(one for one in made[1] if one["parts"])
    visit.open(feature["number"] + 1)
    visit.shows(feature["id"])

    page.hover(".parts li")

    cards = sorted(page.query_selector_all(".card"), key=rank_of)
    for card, own in zip(cards, feature["parts"][0][3], strict=True):
        assert len(card.query_selector_all(".marks circle")) == len(own)
        assert ("without" in card.get_attribute("class")) is (not own)
    page.click(".parts summary")
    assert page.locator(".others span").count() == len(feature["other_parts"])


def test_fragments_or_a_spectrum_of_a_library_hang_below_the_spectrum(visit, family, made):
    page, candidates = visit.page, made[1][0]["candidates"]
    lines = page.locator(".below line")

    assert lines.count() == len(candidates[0]["expected"])
    assert "fragments of candidate 1" in visit.text(".legend")
    both = page.locator(".below .both title").all_text_contents()
    assert any(text.startswith("m/z 195.08") and "measured, too" in text for text in both)
    assert page.locator(".below .missing").count() == lines.count() - len(both) > 0
    card = page.locator(".card:visible").nth(1)
    rank = int(card.locator(".rank").inner_text())
    card.locator(".choose").click()
    page.mouse.move(3, 3)
    page.locator("#theme").focus()
    assert f"fragments of candidate {rank}" in visit.text(".legend")  # it stays
    assert lines.count() == len(candidates[rank - 1]["expected"])
    page.click(".mirror")
    assert lines.count() == 0

    assert "the spectrum of mine.msp, Aspirin <b>" in family.text(".legend")
    assert family.page.locator(".below line").count() == 2
    family.page.locator(".card:visible").nth(1).hover()
    assert "fragments of candidate" in family.text(".legend")


def test_the_spectrum_zooms_by_button_pointer_and_key(visit):
    page = visit.page

    def width():
        texts = page.locator(".spectrum").first.locator(".axes text").all_text_contents()
        shown = [float(text) for text in texts if text.replace(".", "").isdigit()]
        return max(shown) - min(shown)

    whole = width()
    page.click("[aria-label='Zoom in']")
    assert width() < whole
    page.click("[aria-label='Show the whole spectrum']")
    assert width() == whole
    box = page.query_selector(".spectrum").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 110)
    page.mouse.up()
    assert width() < whole / 2
    page.focus(".spectrum")
    page.keyboard.press("0")
    assert width() == whole


def test_fragments_are_a_table_and_energies_stand_one_above_the_other(visit, made):
    page, feature = visit.page, made[1][0]

    page.click(".fragments summary")
    rows = page.query_selector_all(".fragments tr")

    assert len(rows) == 1 + len(feature["hypotheses"][0]["explained"])
    mz = [float(row.query_selector("td").inner_text()) for row in rows[1:]]
    assert mz == sorted(mz)
    last = [cell.inner_text().replace("\n", "") for cell in rows[-1].query_selector_all("td")]
    assert (*last[2:4], last[5].split(", ")[0]) == ("C8H11N4O2", "", "1")
    labels = [spectrum["label"] for spectrum in feature["spectra"]]
    assert page.locator(".energy").all_inner_texts() == labels
    assert page.locator(".spectrum").count() == len(labels) == 2
    page.click(".tabs [data-which='1']")
    assert page.locator(".spectrum").count() == 1


def test_a_review_is_kept_filtered_and_saved_with_the_rows_that_are_shown(visit, made):
    page, first = visit.page, made[1][0]
    page.click("[data-verdict=accepted]")
    page.fill(".note", "=fits, the standard")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    visit.shows("2")
    page.click("[data-verdict=rejected]")

    assert visit.column("review")[:3] == ["accepted: =fits, the standard", "rejected", ""]
    page.select_option("#reviewed", "accepted")
    assert visit.ids() == [first["id"]]
    with page.expect_download() as downloaded:
        page.click("#export")
    assert downloaded.value.suggested_filename == "out.reviewed.csv"
    with Path(downloaded.value.path()).open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["review"], row["note"]) == ("accepted", "'=fits, the standard")
    assert row["inchikey"] == first["candidates"][0]["inchikey"]
    page.reload()
    page.wait_for_selector("#detail .feature")
    assert visit.column("review")[:2] == ["accepted: =fits, the standard", "rejected"]
    visit.open(2)
    page.click("[data-verdict=rejected]")  # taken back
    assert visit.column("review")[1] == ""


def test_retention_times_and_intensities_of_a_run_sort_and_filter(run):
    page = run.page
    page.click(".fold-ions >> nth=0")

    page.click("#head th.intensity button")
    heads = [float(text) for text in run.column("intensity")]
    assert 5e5 < heads[0] < 2e6
    page.click("#head th.rt button")
    page.fill("#early", "0.9")
    assert all(float(text) >= 0.9 for text in run.column("rt"))
    page.fill("#faint", "500000")
    assert [float(text) >= 5e5 for text in run.column("intensity")] == [True]
    assert len(run.column("compound")) == 1


def test_only_what_can_be_mended_is_red(browser, made, example_run, tmp_path):
    found, nothing = made[1][0], {"candidates": [], "rank": None, "remarks": ["see"]}
    statuses = [{}, *(nothing | {"status": one} for one in ("same_compound", "no_peaks"))]
    features = [found | one | {"number": n, "id": f"F{n}"} for n, one in enumerate(statuses)]
    written(example_run, features, tmp_path / "out.html")

    opened = Visit(browser, tmp_path / "out.html")
    assert opened.column("status") == ["ok", "same compound", "no peaks"]
    assert opened.page.locator("#body .status.other").all_inner_texts() == ["no peaks"]
    for number, kind in ((2, "remarks"), (3, "failed")):
        opened.open(number)
        assert opened.page.locator(f"#detail p.{kind}").inner_text().endswith("see")
    opened.close()


def test_ions_of_a_compound_are_one_row_that_pointer_and_keyboard_open(run):
    page = run.page
    assert run.text("#count") == "6 features in 2 compounds"
    assert run.ids() == ["1", "4"]

    button = page.locator(".fold-ions").first
    button.focus()
    for is_open, ids in (("true", ["1", "2", "3", "4"]), ("false", ["1", "4"])):
        page.keyboard.press("Enter")
        assert run.ids() == ids
        assert page.locator(".fold-ions").first.get_attribute("aria-expanded") == is_open
    page.locator("#body").evaluate("document.activeElement.blur()")
    page.keyboard.press("j")  # the next compound, not an ion that is folded
    run.shows("4")
    page.keyboard.press("ArrowRight")
    assert run.ids() == ["1", "4", "5", "6"]
    page.locator("#body").evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    run.shows("5")
    page.keyboard.press("k")
    run.shows("4")
    page.keyboard.press("ArrowLeft")
    assert run.ids() == ["1", "4"]


def test_isotopes_of_ms1_stand_beside_those_of_the_formula(run):
    run.open(4)
    run.shows("4")
    picture = run.page.locator("svg.isotopes")

    assert "M+1: " in picture.get_attribute("aria-label")
    assert "10 % expected" in picture.get_attribute("aria-label")
    assert picture.locator("line.measured").count() == picture.locator(".expected").count() >= 2
    assert "C8H10N4O2 [M+H]+" in run.text("section:has(> svg.isotopes) h3").replace("\n", "")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_keyboard_is_enough(visit, width):
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})

    page.keyboard.press("j")
    visit.shows("2")
    page.keyboard.press("k")
    visit.shows("1")
    page.keyboard.press("/")
    page.keyboard.type("C11H12N2O2")
    assert visit.ids() == ["2"]
    page.keyboard.press("Escape")
    page.focus(".spectrum")
    page.keyboard.press("ArrowRight")
    assert "ppm" in visit.text("#hint")
    page.keyboard.press("Tab")  # out of the spectrum, which no key holds
    assert page.evaluate("document.activeElement.className") != "spectrum"
    for selector in (".mirror", ".choose"):
        control = page.locator(selector).first
        before = control.get_attribute("aria-pressed")
        control.focus()
        page.keyboard.press("Enter")
        assert control.get_attribute("aria-pressed") != before


def test_it_follows_light_and_dark_and_a_choice_is_kept(browser, made):
    shades = {}
    for scheme in ("light", "dark"):
        opened = Visit(browser, made[0], color_scheme=scheme)
        colour = "getComputedStyle(document.body.parentNode).backgroundColor"
        shades[scheme] = opened.page.evaluate(colour)
        opened.page.click("#theme")
        assert opened.page.evaluate(colour) != shades[scheme]
        opened.close()

    assert shades["light"] != shades["dark"]


def test_how_to_read_it_comes_first_settings_last_and_links_lead_elsewhere(visit, made):
    page, key = visit.page, made[1][0]["candidates"][0]["inchikey"]
    footer = page.locator("#run")

    assert footer.locator("h2").all_inner_texts() == ["How to read this page", "This run"]
    assert not page.is_visible(".settings")
    footer.locator("summary").focus()
    page.keyboard.press("Enter")
    rows = dict(row.split("\t") for row in page.locator(".settings tr").all_inner_texts())
    assert rows["--top-k"] == "10"
    links = page.locator(".card").first.locator(".elsewhere a")
    assert links.all_inner_texts() == ["PubChem", "COCONUT", "ChEBI"]
    for link in links.all():  # which nobody asks before
        address = link.get_attribute("href")
        assert address.startswith("https://")
        assert address.endswith(key)
        assert link.get_attribute("rel") == "noopener noreferrer"


def test_a_hostile_file_shows_as_text_and_does_nothing(browser, tmp_path):
    (tmp_path / "bad.mgf").write_text(hostile_mgf(HOSTILE), encoding="utf-8")
    inputs, page = (str(tmp_path / "bad.mgf"),), tmp_path / "out.html"
    predict(PredictRequest(inputs, str(tmp_path / "out.csv")), stub_model())
    write_report([tmp_path / "out.csv"], page)
    opened = Visit(browser, page)
    opened.page.keyboard.press("j")
    opened.page.wait_for_timeout(300)

    assert opened.asked == [page.as_uri()]
    dangerous = "img, iframe, object, embed, base, form[action]"
    assert opened.page.query_selector(dangerous) is None
    assert "<img src=x onerror=alert(2)>" in opened.text("#body")
    assert opened.page.evaluate("document.querySelectorAll('script').length") == 5
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1400
    rows = opened.page.query_selector_all("#body tr")
    assert max(row.bounding_box()["height"] for row in rows) < 200
    assert opened.page.is_visible("#head th.status")  # not all are ok
    opened.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_family_is_one_card_that_the_keyboard_opens(family, width):
    page, cards = family.page, family.page.locator(".card:visible")
    page.set_viewport_size({"width": width, "height": 900})

    assert cards.count() == 3
    said = page.locator(".fold").inner_text()
    assert "family: benzene ring + acetoxy or carboxymethyl + carboxyl, positions open" in said
    assert "3 candidates, together 43 %" in said
    button = page.get_by_role("button", name="Show the 2 others")
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press("Enter")
    button = page.get_by_role("button", name="Hide the 2 others")
    assert button.get_attribute("aria-expanded") == "true"
    controlled = page.locator(f"#{button.get_attribute('aria-controls')}")
    assert controlled.locator(".card:visible").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.hover(".members .card .drawing")  # marked as all are
    assert page.locator(".peak.by").count() > 0
    button.focus()
    page.keyboard.press("Enter")
    assert cards.count() == 3
    # A benzene ring has a bond that is the same in all: it is not green.
    assert 0 < page.locator(".card").first.locator(".certainty line").count() < 13
    page.emulate_media(media="print")
    assert cards.count() == 5
    for selector in (".fold button", "#filters", "#theme", ".choose"):
        assert page.locator(f"{selector}:visible").count() == 0


def test_levels_are_a_ladder_sort_from_fine_to_coarse_and_filter_what_is_as_fine(family):
    page = family.page
    ladder = page.locator(".ladder")

    assert "certain to the family: 0.43" in ladder.inner_text()
    assert "Schymanski level 3" in ladder.inner_text()
    assert ladder.locator("[aria-current=true] .rung").inner_text() == "family"
    assert "c1ccccc1" in ladder.locator("li").nth(2).inner_text()
    assert [text.split()[0] for text in family.column("level")] == ["family", "parts", "formula"]
    page.click("#head th.level button")
    page.click("#head th.level button")
    assert family.ids() == ["F2", "F1", "F0"]
    options = page.locator("#level option").all_inner_texts()
    assert options == ["all", "family or finer", "parts or finer", "formula or finer"]
    page.select_option("#level", "parts")
    assert sorted(family.ids()) == ["F0", "F1"]


def test_a_candidate_says_in_words_what_it_is_called_and_where_it_comes_from(family):
    page = family.page
    page.get_by_role("button", name="Show the 2 others").click()
    said = {
        rank_of(card): [one.inner_text() for one in card.query_selector_all(".origin[title]")]
        for card in page.query_selector_all(".card")
    }

    assert said[1] == ["spectral library", "drawn from nothing"]
    assert said[2] == ["your database", "from a known molecule"]
    assert said[4][0] == "<i>mine"
    assert page.locator(".card .match").all_inner_texts() == [
        "mine.msp: Aspirin <b> · cosine 0.93 · 7 matched peaks · right with probability 0.40"
    ]
    assert page.locator(".card .called").all_inner_texts() == ["Aspirin <i> · Salicylates"]
    assert family.column("called")[0] == "Aspirin <i> · Salicylates"
    page.fill("#text", "salicylates")
    assert "F0" in family.ids()
