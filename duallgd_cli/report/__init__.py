"""Results for people: one page of a finished run, and how single candidates were denoised.

A page is one HTML file: style, script, data and drawings, and no request to anyone. Each feature is
packed by itself (gzip, base64) and unpacked when it comes into view, so that a thousand open as
fast as ten. What comes from files is never read as HTML: it lies packed or as escaped JSON, the
script writes it as text, and the page's policy lets no other script run.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from duallgd_cli.files import claim, write_atomically
from duallgd_cli.predict.run import PAGE, files_of_runs
from duallgd_cli.report.contents import ReportedRun


def write_report(
    names: list[Path], output: Path, top_k: int = 10, *, force: bool = False
) -> tuple[int, list[str]]:
    """Write the report of a finished run.

    Args:
        names: Its output (the journal lies beside it), or journals of all its shards.
        output: HTML file to write, whole or not at all.
        top_k: Candidates shown of each feature.
        force: Replace a file that exists.

    Returns:
        How many features it shows, and the inputs that are gone or changed: their unexplained peaks
        are not shown.

    Raises:
        UsageError: There is no finished journal, or the file cannot be written or is another's.
    """
    claim({PAGE: output}, files_of_runs(names), force=force)
    run = ReportedRun(names, top_k)
    rows: list[list[Any]] = []

    def features() -> Iterator[str]:
        """Each packed on its way into the page, where the table of all comes last."""
        for feature in run.features():
            rows.append(_row(feature))
            yield packed(feature)

    values = {
        "about": run.about,
        "packed": features(),
        "rows": lambda: rows,
        "missing_inputs": lambda: run.missing_inputs,
    }
    write_atomically(output, page("report", values))
    return len(rows), run.missing_inputs


def page(name: str, values: dict[str, Any]) -> Iterator[str]:
    """A page in pieces: the template ``NAME.html`` with ``page.css`` and two scripts inside.

    What pages share is in ``draw.js``, the rest in ``NAME.js``.

    Args:
        name: Of template and script.
        values: For the template; iterators are consumed as the pieces are asked for.
    """
    room = files("duallgd_cli.report")
    script = "".join((room / part).read_text("utf-8") for part in ("draw.js", f"{name}.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=FunctionLoader(lambda file: (room / file).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (room / "page.css").read_text(encoding="utf-8")
    fixed = {"style": style, "script": script, "script_digest": digest}
    return environment.get_template(f"{name}.html").generate(**fixed, **values)


def packed(values: Any) -> str:  # noqa: ANN401 - anything that JSON knows
    """JSON, compressed, as text that HTML cannot mistake for anything; the same bytes each time."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode()


def _row(feature: dict[str, Any]) -> list[Any]:
    first = feature["candidates"][0] if feature["candidates"] else {}
    return [
        feature["id"],
        feature["mz"],
        feature["adduct"],
        first.get("formula", feature["formula"]),
        round(first.get("confidence", 0.0), 4),
        round(feature["confidence_top10"], 4),
        feature["status"],
        first.get("smiles", ""),
        feature["part"],
        " ".join([first.get("inchikey", ""), *(name for name, *_ in feature["parts"])]),
    ]
