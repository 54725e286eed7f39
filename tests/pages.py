"""Reports, and a real browser that opens them from file://, without the network."""

import shutil
from itertools import cycle, islice

import pytest

from duallgd_cli import report
from duallgd_cli.predict.journal import FinishedRun
from duallgd_cli.report import contents, write_report
from duallgd_cli.report.contents import ReportedRun

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
_WAITED_MS = 600_000  # at most, on a slow machine
NEEDS_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")


class Visit:
    """An open page, with what it complained of and asked for."""

    def __init__(self, browser, file, wait_for="#detail .feature"):
        # Waits without eval, which the policy of the page forbids to wait_for_function.
        self.expect = pytest.importorskip("playwright.sync_api").expect
        self.expect.set_options(timeout=_WAITED_MS)
        self.context = browser.new_context(viewport={"width": 1400, "height": 950})
        self.context.set_default_timeout(_WAITED_MS)
        self.page = self.context.new_page()
        self.complaints, self.asked = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector(wait_for)

    def texts(self, selector):
        """What stands in all elements, in one line each."""
        texts = self.page.locator(selector).all_inner_texts()
        return [text.replace("\n", "") for text in texts]

    def text(self, selector):
        return self.page.inner_text(selector).replace("\n", "")

    def count(self, selector):
        return self.page.locator(selector).count()

    def column(self, name):
        return self.texts(f"#body tr:visible td.{name}")

    def ids(self):
        return self.texts("#body tr:visible td.id .clamp")

    def numbers(self, name):
        return list(map(float, self.column(name)))

    def width(self):
        return self.page.evaluate("document.documentElement.scrollWidth")

    def resize(self, width):
        self.page.set_viewport_size({"width": width, "height": 900})

    def shows(self, feature):
        self.expect(self.page.locator("#detail h2").first).to_have_text(f"Feature {feature}")

    def press(self, *keys, shows=None):
        """Press keys one after the other; the feature that is shown then."""
        for key in keys:
            self.page.keyboard.press(key)
        if shows is not None:
            self.shows(shows)

    def point_at_nothing(self):
        self.page.mouse.move(3, 3)

    def open(self, number):
        """By pointer: the feature of this number, from 1."""
        self.page.click(f"#body tr[data-number='{number - 1}'] td.mz")
        self.page.wait_for_selector(f"#detail article[data-number='{number - 1}']")

    def close(self):
        self.context.close()
        assert self.complaints == []
        assert [url for url in self.asked if not url.startswith(("file:", "data:"))] == []


def written(example_run, features, page, large=1000):
    """The report of these features, of which a page holds so many."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (report, contents):
            patched.setattr(module, "LARGE", large)
        patched.setattr(ReportedRun, "features", lambda _: iter(features))
        patched.setattr(FinishedRun, "n_features", len(features))
        return write_report([example_run], page)


def repeated(features, count):
    """So many features, named by their number."""
    return [
        feature | {"number": number, "id": f"F{number}"}
        for number, feature in enumerate(islice(cycle(features), count))
    ]


def rank_of(card):
    return int(card.query_selector(".rank").text_content())
