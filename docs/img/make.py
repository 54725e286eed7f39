"""The README's picture: a report seen in a browser.

Run after ``make demo``: ``python docs/img/make.py out/demo.html``. Needs Chromium and playwright.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(report: str) -> None:
    """Write the picture beside this script."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 1000}, color_scheme="light")
        page.goto(Path(report).resolve().as_uri())
        page.wait_for_selector("#body tr:nth-child(5) td.smiles svg")
        page.wait_for_selector(".card svg")
        page.screenshot(path=Path(__file__).with_name("report-light.png"))
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
