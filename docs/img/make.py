"""The pictures of the documents: the demo's report in a browser, light, dark and narrow.

Run by ``make pictures``: ``python docs/img/make.py out/demo.html``. Needs Chromium and playwright.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

# File -> width, height, colours, the row that is opened, what the pointer rests on.
VIEWS = {
    "report-light.png": (1440, 1400, "light", 3, ".card .drawing"),
    "report-dark.png": (1440, 1000, "dark", 2, ".parts li:last-child"),
    "report-narrow.png": (420, 1000, "light", 2, ".parts li:last-child"),
}


def main(report: str) -> None:
    """Write each view beside this script, in 256 colours."""
    folder = Path(__file__).parent
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (width, height, scheme, row, pointer) in VIEWS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto(Path(report).resolve().as_uri())
            page.wait_for_selector("#body tr:nth-child(2) td.smiles svg")
            page.click(f"#body tr:nth-child({row}) td.id")
            page.wait_for_selector(f"#body tr:nth-child({row})[aria-selected=true]")
            page.wait_for_selector(".card svg")
            page.hover(pointer)
            page.wait_for_timeout(300)  # what fades has faded
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, 4, dither=Image.Dither.NONE)
            few.save(folder / name, optimize=True)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
