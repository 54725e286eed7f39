"""The pictures of the documents: the demo's report and that of a made run, in a browser.

Run by ``make pictures``: ``python docs/img/make.py out/demo.html``. Needs Chromium and playwright.
"""

import io
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.made_run import ions_of, measure, mzml, of_molecule
from tests.made_spectra import ASPIRIN, CAFFEINE

# File -> of the run, width, height, colours, the feature that is opened, what is clicked, what the
# pointer rests on, and what is cut out; "" for nothing or all of it.
VIEWS = {
    "report-light.png": (False, 1440, 1400, "light", 2, "", ".card .drawing", ""),
    "report-dark.png": (False, 1440, 1000, "dark", 1, "", ".parts li:last-child", ""),
    "report-narrow.png": (False, 420, 1000, "light", 1, "", ".parts li:last-child", ""),
    "run-table.png": (True, 1440, 900, "light", 6, ".fold-ions", "", "#overview"),
    "run-spectrum.png": (True, 1440, 1300, "light", 6, "", ".card .drawing", ".measured"),
    "run-isotopes.png": (True, 1440, 1300, "light", 6, "", "", "section:has(> svg.isotopes)"),
}


def predicted_run(folder: Path) -> Path:
    """The report of a run of three molecules, one of them as two ions."""
    made = [of_molecule(ASPIRIN, "a", 40, 3e5), of_molecule(CAFFEINE, "b", 60)]
    rng = np.random.default_rng(2)
    made += ions_of(rng, "c", 162.1157, 30, {"[M+H]+": 2e6, "[M+Na]+": 8e5})
    run = mzml(measure(np.random.default_rng(1), made, 90, noise=20), folder / "run.mzML")
    command = [sys.executable, "-m", "duallgd_cli", "predict", run, "--preset", "fast"]
    outputs = ["-o", str(folder / "out.csv"), "--report", str(folder / "out.html")]
    subprocess.run([*command, *outputs], check=True)
    return folder / "out.html"


def main(report: str) -> None:
    """Write each view beside this script, in 256 colours."""
    folder = Path(__file__).parent
    with TemporaryDirectory() as kept, sync_playwright() as playwright:
        pages = [Path(report).resolve(), predicted_run(Path(kept))]
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (of_run, width, height, scheme, row, click, pointer, part) in VIEWS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto(f"{pages[of_run].as_uri()}#feature={row + 1}")
            page.wait_for_selector("#body td.smiles svg")
            page.wait_for_selector(f"#body tr[data-number='{row}'][aria-selected=true]")
            page.wait_for_selector(".card svg")
            if click:
                page.click(click)
            if pointer:
                page.hover(pointer)
            page.wait_for_timeout(300)  # what fades has faded
            shot = page.locator(part).first.screenshot() if part else page.screenshot()
            picture = Image.open(io.BytesIO(shot)).convert("RGB")
            few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, 4, dither=Image.Dither.NONE)
            few.save(folder / name, optimize=True)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
