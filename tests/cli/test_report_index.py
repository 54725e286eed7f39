"""Reports of many features in a real browser: an index, pages, and what is not drawn at once."""

import pytest

from duallgd_cli.report import contents, write_report
from tests.pages import NEEDS_BROWSER, rank_of, repeated, written

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def many(example_run, features, tmp_path_factory):
    """23 features in pages of ten."""
    page = tmp_path_factory.mktemp("many") / "out #1.html"
    return written(example_run, repeated(features, 23), page, 10)


@pytest.fixture
def index(visit, many):
    return visit(many.page, wait_for="#body td.smiles svg")


def test_an_index_searches_and_sorts_all_features_and_each_row_leads_to_its_page(
    index, many, features
):
    page = index.page

    assert many.n_pages == len(list(many.folder.iterdir())) == 3
    assert index.ids() == [f"F{number}" for number in range(23)]
    page.click("#head th.mz button")
    masses = sorted(round(feature["mz"], 4) for feature in repeated(features, 23))
    assert index.numbers("mz") == masses
    page.fill("#text", "F17")
    assert index.ids() == ["F17"]
    page.click("#body td.id a")
    index.shows("F17")
    assert page.url.endswith("_files/0002.html#feature=18")
    assert index.ids() == [f"F{number}" for number in range(10, 20)]
    assert "Features 11 to 20 of 23" in index.text("#summary")


def test_pages_lead_to_each_other_and_back_and_to_a_feature_by_number(index, many):
    page, links = index.page, index.page.locator("#pages a")

    assert links.all_inner_texts() == ["1\u201310", "11\u201320", "21\u201323"]
    links.nth(1).click()
    page.wait_for_selector("#detail .feature")
    assert links.all_inner_texts() == ["\u2039 Page before", "All features", "Next page \u203a"]
    links.nth(2).click()
    index.shows("F20")
    index.press("j", "j", "j", shows="F22")  # there is no more
    index.press("k", "k", "k", shows="F19")  # back over the edge
    page.click("#pages a:has-text('All features')")
    page.wait_for_selector("body.index")
    index.press("j", "j", "Enter", shows="F1")
    page.goto("about:blank")
    page.goto(many.page.as_uri() + "#feature=21")
    index.shows("F20")


def test_rows_beyond_the_first_are_made_when_they_are_scrolled_to(
    visit, features, example_run, tmp_path
):
    written(example_run, repeated(features[:1], 450), tmp_path / "long.html")
    opened = visit(tmp_path / "long.html")

    assert opened.count("#body tr") == 200
    opened.page.evaluate("document.querySelector('.scroll').scrollTo(0, 1e6)")
    opened.expect(opened.page.locator("#body tr")).to_have_count(400)
    opened.page.fill("#text", "F44")
    assert opened.ids() == ["F44", *(f"F{number}" for number in range(440, 450))]


def test_candidates_that_are_not_drawn_are_listed(
    visit, features, example_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(contents, "LARGE", 5)
    opened = visit(write_report([example_run], tmp_path / "out.html").page)

    assert opened.count(".card") == contents._DRAWN_OF_MANY
    ranks = {rank_of(card) for card in opened.page.query_selector_all(".card")}
    others = [one for one in features[0]["candidates"] if one["rank"] not in ranks]
    rows = opened.page.locator(".further td:first-child").all_text_contents()
    assert sorted(map(int, rows)) == [candidate["rank"] for candidate in others]
    text = " ".join(opened.page.locator(".further").all_text_contents())
    assert all(candidate["smiles"] in text for candidate in others)
    with_parts = next(feature for feature in features if feature["parts"])
    opened.open(with_parts["number"] + 1)
    opened.page.hover(".parts li")  # marks what is drawn alone
