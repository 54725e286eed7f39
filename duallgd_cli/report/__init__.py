"""Results for people: one page of a finished run.

A page is one HTML file: style, script, data and drawings, and no request to anyone. Each feature is
packed by itself (gzip, base64) and unpacked when it comes into view, so that a thousand open as
fast as ten. More than a thousand are pages of a thousand each, and an index with the table of all:
a browser lets a page from a disk follow links but read no file, so each holds all it shows. What
comes from files is never read as HTML: it lies packed or as escaped JSON, the script writes it as
text, and the page's policy lets no other script run.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined

from duallgd_cli.errors import UsageError
from duallgd_cli.files import claim, write_atomically
from duallgd_cli.predict.run import PAGE, files_of_runs
from duallgd_cli.ranking.ladder import LEVELS
from duallgd_cli.report.contents import LARGE, ReportedRun

_DRAWINGS: Final = 50  # of the table of all features that are packed together
_LEVEL: Final = 6  # of compression; 9 takes twice the time for a hundredth of the size


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written.

    Attributes:
        page: To open first.
        n_features: That it shows.
        n_pages: Files beside that one, none of a small run.
        size_bytes: Of all files.
        missing_inputs: Inputs that are gone or changed: their unexplained peaks are not shown.
    """

    page: Path
    n_features: int
    n_pages: int
    size_bytes: int
    missing_inputs: Sequence[str]

    @property
    def folder(self) -> Path:
        """Where the other files are."""
        return self.page.with_name(f"{self.page.stem}_files")


def write_report(
    names: Sequence[Path],
    output: Path,
    top_k: int | None = None,
    workers: int = 1,
    *,
    force: bool = False,
) -> Report:
    """Write the report of a finished run: one file, or an index and pages of a thousand features.

    Args:
        names: Its output (the journal lies beside it), or journals of all its shards.
        output: HTML file to write, whole or not at all. Pages lie in a folder beside it: those of
            ``out.html`` in ``out_files``.
        top_k: See `ReportedRun`.
        workers: Processes.
        force: Replace a file that exists.

    Raises:
        UsageError: There is no finished journal, or a file cannot be written or is another's.
    """
    claim({PAGE: output}, files_of_runs(names), force=force)
    run = ReportedRun(names, top_k, workers)
    pages = _Pages(run, output)
    if run.n_features > LARGE:
        pages.write_many()
    else:
        write_atomically(output, pages.of(run.features()))
    written = [output, *(pages.folder / name for name in pages.names)]
    size_bytes = sum(path.stat().st_size for path in written)
    return Report(output, run.n_features, len(pages.names), size_bytes, run.missing_inputs)


class _Pages:
    """The pages of a run: an index and others beside it, or one that is all.

    Attributes:
        folder: Of the others; file managers know one of this name to belong to the first.
        names: Of the others, by number; none of a small run.
    """

    def __init__(self, run: ReportedRun, output: Path) -> None:
        self._run, self._output = run, output
        self._rows: list[list[Any]] = []
        self.folder = output.with_name(f"{output.stem}_files")
        count = -(-run.n_features // LARGE) if run.n_features > LARGE else 0
        self.names = [f"{number + 1:04}.html" for number in range(count)]
        files = f"{output.name} and the folder {self.folder.name}" if count else ""
        self._about = {"run": run.about(), "files": files, "drawn": run.drawn}
        self._place = {
            "missing": run.missing_inputs,
            "total": run.n_features,
            "size": LARGE,
            "drawings": _DRAWINGS,
            "first": 0,
            "index": "",
            "pages": self.names,
            "is_index": False,
            "levels": LEVELS,
            "certain": run.certain,
            "key": run.key,
        }

    def of(self, features: Iterable[dict[str, Any]], **place: object) -> Iterator[str]:
        """A page that shows features in full.

        Args:
            features: Those of the page.
            **place: Of it among the others, where it is not alone.
        """
        first = len(self._rows)

        def each() -> Iterator[str]:
            for feature in features:
                self._rows.append(_row(feature))
                yield packed(feature)

        values = {"kind": "feature", "packed": each(), "rows": lambda: self._rows[first:]}
        return page("report", {**values, **self._about, "place": self._place | place})

    def write_many(self) -> None:
        """Write the index and the pages; a report that is not finished leaves nothing behind.

        Raises:
            UsageError: A file cannot be written.
        """
        folder, output = self.folder, self._output
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is in the way of the report's pages; name another report")
        features, drawings = self._run.features(), list[str]()
        try:
            with TemporaryDirectory(prefix=f".{folder.name}.", dir=output.parent) as unfinished:
                paths = [Path(unfinished) / name for name in self.names]
                for number, path in enumerate(paths):
                    firsts: list[Any] = []
                    some = _watched(islice(features, LARGE), firsts)
                    place = {"first": number * LARGE, "index": "../" + quote(output.name)}
                    write_atomically(path, self.of(some, **place))
                    blocks = range(0, len(firsts), _DRAWINGS)
                    drawings += [packed(firsts[start : start + _DRAWINGS]) for start in blocks]
                folder.mkdir(exist_ok=True)
                for path in paths:
                    path.replace(folder / path.name)
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror}") from None
        pages = [f"{quote(folder.name)}/{name}" for name in self.names]
        place = self._place | {"pages": pages, "is_index": True}
        values = {"kind": "drawings", "packed": drawings, "rows": lambda: self._rows}
        write_atomically(output, page("report", {**values, **self._about, "place": place}))


def _watched(features: Iterable[dict[str, Any]], drawings: list[Any]) -> Iterator[dict[str, Any]]:
    """The features; `drawings` learns that of the first candidate of each."""
    for feature in features:
        drawings.append(next((one["drawing"] for one in feature["candidates"]), None))
        yield feature


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
    return base64.b64encode(gzip.compress(text.encode("ascii"), _LEVEL, mtime=0)).decode()


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
        feature["level"],
        next((value for name, value, _ in feature["ladder"] if name == feature["level"]), None),
        first.get("inchikey", ""),
        " ".join(name for name, *_ in feature["parts"]),
        feature["rt"],
        feature["intensity"],
        feature["compound"],
    ]
