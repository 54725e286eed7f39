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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined

from duallgd_cli.errors import UsageError
from duallgd_cli.files import claim, write_atomically
from duallgd_cli.predict.run import files_of_runs
from duallgd_cli.predict.settings import PAGE
from duallgd_cli.ranking.one_list import LEVELS
from duallgd_cli.report.contents import LARGE, ReportedRun

_DRAWINGS: Final = 50  # of the table of all features that are packed together
_LEVEL: Final = 6  # of compression; 9 takes twice the time for a hundredth of the size
_Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written."""

    page: Path  # to open first
    n_features: int  # that it shows
    n_pages: int  # files beside that one, none of a small run

    @property
    def folder(self) -> Path:
        """Where the other files are; file managers know one of this name to belong to the first."""
        return self.page.with_name(f"{self.page.stem}_files")

    @property
    def pages(self) -> list[Path]:
        """The other files."""
        return [self.folder / f"{number + 1:04}.html" for number in range(self.n_pages)]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in (self.page, *self.pages))


def write_report(
    runs: Sequence[Path],
    output: Path,
    top_k: int | None = None,
    workers: int = 1,
    *,
    names: Path | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    force: bool = False,
) -> Report:
    """Write the report of a finished run: one file, or an index and pages of a thousand features.

    Pages lie in a folder beside the index: those of ``out.html`` in ``out_files``. Settings are
    named by the options that stand for them; for runs and `top_k` see `ReportedRun`.

    Raises:
        UsageError: There is no finished journal, or a file cannot be written or is another's.
    """
    claim({PAGE: output}, filter(None, [*files_of_runs(runs), names]), force=force)
    run = ReportedRun(runs, top_k, workers, names)
    n_pages = -(-run.n_features // LARGE) if run.n_features > LARGE else 0
    report = Report(output, run.n_features, n_pages)
    about = {
        "run": run.about(options),
        "files": f"{output.name} and the folder {report.folder.name}" if n_pages else "",
        "drawn": run.drawn,
    }
    place = {
        **{"certain": run.certain, "key": run.key},
        **{"total": run.n_features, "size": LARGE, "drawings": _DRAWINGS, "levels": LEVELS},
        **{"first": 0, "index": "", "is_index": False},
        "pages": [path.name for path in report.pages],
    }
    if n_pages:
        _write_many(run.features(), report, about, place)
    else:
        rows = list[_Values]()
        packed = _each(run.features(), rows, [])
        write_atomically(output, _page(about, place, "feature", packed, rows))
    return report


def _write_many(
    features: Iterator[_Values], report: Report, about: _Values, place: _Values
) -> None:
    """Write the index and the pages; a report that is not finished leaves nothing behind."""
    folder, output = report.folder, report.page
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is in the way of the report's pages; name another report")
    drawings, rows = list[str](), list[_Values]()
    try:
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=output.parent) as unfinished:
            for number, path in enumerate(report.pages):
                of_page, firsts = list[_Values](), list[Any]()
                here = {**place, "first": number * LARGE, "index": "../" + quote(output.name)}
                packed = _each(islice(features, LARGE), of_page, firsts)
                page = _page(about, here, "feature", packed, of_page)
                write_atomically(Path(unfinished) / path.name, page)
                blocks = range(0, len(firsts), _DRAWINGS)
                drawings += [_packed(firsts[start : start + _DRAWINGS]) for start in blocks]
                rows += of_page
            folder.mkdir(exist_ok=True)
            for path in report.pages:
                (Path(unfinished) / path.name).replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from None
    pages = [f"{quote(folder.name)}/{path.name}" for path in report.pages]
    here = {**place, "pages": pages, "is_index": True}
    write_atomically(output, _page(about, here, "drawings", drawings, rows))


def _each(features: Iterable[_Values], rows: list[_Values], firsts: list[Any]) -> Iterator[str]:
    """Features, each packed by itself; lists learn their rows and first drawings."""
    for feature in features:
        rows.append(_row(feature))
        firsts.append(next((one["drawing"] for one in feature["candidates"]), None))
        yield _packed(feature)


def _page(
    about: _Values, place: _Values, kind: str, packed: Iterable[str], rows: Sequence[_Values]
) -> Iterator[str]:
    """A page in pieces, made as they are asked for; rows may be learnt from what is packed."""
    room = files("duallgd_cli.report")
    script = "".join((room / part).read_text("utf-8") for part in ("draw.js", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=FunctionLoader(lambda file: (room / file).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (room / "page.css").read_text(encoding="utf-8")
    return environment.get_template("report.html").generate(
        **about,
        **{"style": style, "script": script, "script_digest": digest},
        **{"kind": kind, "packed": packed, "table": lambda: _table(rows), "place": place},
    )


def _packed(values: object) -> str:
    """JSON, compressed, as text that HTML cannot mistake for anything; the same bytes each time."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), _LEVEL, mtime=0)).decode()


def _row(feature: _Values) -> _Values:
    """A feature in the table: what its columns show, and what a search finds beside that."""
    candidates = feature["candidates"]
    first = candidates[0] if candidates else {}
    library = [] if feature["library"] is None else [feature["library"]["name"]]
    called = (one.get(kind, "") for one in candidates for kind in ("name", "class"))
    return {
        **{name: feature[name] for name in ("id", "mz", "rt", "intensity", "compound", "adduct")},
        **{name: feature[name] for name in ("status", "part", "level")},
        "formula": first.get("formula", feature["formula"]),
        "called": " · ".join(filter(None, (first.get("name", ""), first.get("class", "")))),
        "smiles": first.get("smiles", ""),
        "inchikey": first.get("inchikey", ""),
        "confidence": round(first.get("confidence", 0.0), 4),
        "top10": round(feature["confidence_top10"], 4),
        "chance": next((p for name, p, _ in feature["ladder"] if name == feature["level"]), None),
        "parts": [name for name, *_ in (*feature["parts"], *feature["other_parts"])],
        "names": " ".join(dict.fromkeys(filter(None, (feature["name"], *library, *called)))),
    }


def _table(rows: Sequence[_Values]) -> _Values:
    """Rows with what repeats in them named once: columns, and parts by their numbers."""
    names = [*dict.fromkeys(name for row in rows for name in row["parts"])]
    place = {name: n for n, name in enumerate(names)}
    numbered = ({**row, "parts": [place[name] for name in row["parts"]]} for row in rows)
    values = [[*row.values()] for row in numbered]
    return {"columns": [*rows[0]] if rows else [], "parts": names, "rows": values}
