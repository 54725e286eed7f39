"""Reports of many features: an index over several pages, and long tables."""

import pytest

from duallgd_cli.report import contents, write_report
from tests.pages import NEEDS_BROWSER, Visit, rank_of, repeated, written

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def many(made, example_run, tmp_path_factory):
    """A report of 23 features in pages of ten, and the features."""
    features = repeated(made[1], 23)
    return written(example_run, features, tmp_path_factory.mktemp("many") / "out #1.html", 10), (
        features
    )


@pytest.fixture
def index(browser, many):
    opened = Visit(browser, many[0].page, wait_for="#body td.smiles svg")
    yield opened
    opened.close()


def test_an_index_searches_and_sorts_all_features_and_each_row_leads_to_its_page(index, many):
    written, features = many
    page = index.page

    assert written.n_pages == len(list(written.folder.iterdir())) == 3
    assert index.ids() == [feature["id"] for feature in features]
    page.click("#head th.mz button")
    masses = sorted(round(feature["mz"], 4) for feature in features)
    assert [float(text) for text in index.column("mz")] == masses
    page.fill("#text", "F17")
    assert index.ids() == ["F17"]
    page.click("#body td.id a")
    index.shows("F17")
    assert page.url.endswith("_files/0002.html#feature=18")
    assert index.ids() == [f"F{number}" for number in range(10, 20)]
    assert "Features 11 to 20 of 23" in index.text("#summary")


def test_pages_lead_to_each_other_and_back_and_to_a_feature_by_number(index, many):
    page = index.page
    links = page.locator("#pages a")

    assert links.all_inner_texts() == ["1\u201310", "11\u201320", "21\u201323"]
    links.nth(1).click()
    page.wait_for_selector("#detail .feature")
    assert links.all_inner_texts() == ["\u2039 Page before", "All features", "Next page \u203a"]
    links.nth(2).click()
    index.shows("F20")
    for key, last in (("j", "F22"), ("k", "F19")):  # there is no more; back over the edge
        for _ in range(3):
            page.keyboard.press(key)
        index.shows(last)
    page.click("#pages a:has-text('All features')")
    page.wait_for_selector("body.index")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    index.shows("F1")
    page.goto("about:blank")
    page.goto(many[0].page.as_uri() + "#feature=21")
    index.shows("F20")


def test_rows_beyond_the_first_are_made_when_they_are_scrolled_to(browser, made, example_run):
    page = made[0].with_name("long.html")
    written(example_run, repeated(made[1][:1], 450), page)
    opened = Visit(browser, page)

    assert opened.page.locator("#body tr").count() == 200
    opened.page.evaluate("document.querySelector('.scroll').scrollTo(0, 1e6)")
    opened.expect(opened.page.locator("#body tr")).to_have_count(400)
    opened.page.fill("#text", "F44")
    assert opened.ids() == ["F44", *(f"F{number}" for number in range(440, 450))]
    opened.close()


def test_candidates_that_are_not_drawn_are_listed(browser, made, example_run, tmp_path):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contents, "LARGE", 5)
        page = write_report([example_run], tmp_path / "out.html").page
    opened = Visit(browser, page)

    assert opened.page.locator(".card").count() == contents._DRAWN_OF_MANY
    ranks = {rank_of(card) for card in opened.page.query_selector_all(".card")}
    others = [one for one in made[1][0]["candidates"] if one["rank"] not in ranks]
    rows = opened.page.locator(".further td:first-child").all_text_contents()
    assert sorted(map(int, rows)) == [one["rank"] for one in others]
    text = " ".join(opened.page.locator(".further").all_text_contents())
    assert all(one["smiles"] in text for one in others)
    with_parts = next(feature for feature in made[1] if feature["parts"])
    opened.open(with_parts["number"] + 1)
    opened.page.hover(".parts li")  # marks what is drawn alone
    opened.close()
