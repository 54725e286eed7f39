"""The README's pictures: a report seen in a browser, light, dark and narrow.

Run after ``make demo``: ``python docs/img/make.py out/demo.html``. Needs Chromium and playwright.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

VIEWS = {
    "report-light.png": (1440, 1000, "light"),
    "report-dark.png": (1440, 1000, "dark"),
    "report-narrow.png": (420, 1100, "light"),
}


def main(report: str) -> None:
    """Write each view beside this script, the pointer on the first candidate."""
    folder = Path(__file__).parent
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (width, height, scheme) in VIEWS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto(Path(report).resolve().as_uri())
            page.wait_for_selector("#body tr:nth-child(5) td.smiles svg")
            page.wait_for_selector(".card svg")
            page.screenshot(path=folder / name)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
