"""Finished journals read back: one run, or the shards of one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.predict.journal import Contents, Header, few, scan
from duallgd_cli.predict.prediction import Case
from duallgd_cli.predict.records import decode, member_of, outcome_of

ENDING: Final = ".journal.jsonl"


class FinishedRun:
    """The cases of a run, read when asked for; memory holds a few numbers per spectrum."""

    def __init__(self, paths: Sequence[Path], *, partial: bool = False) -> None:
        """Open the journals of a run.

        Args:
            paths: Of its journals.
            partial: Take what is finished in unfinished journals.

        Raises:
            UsageError: A journal is missing, damaged or unfinished, or belongs to another run.
        """
        self._paths = tuple(paths)
        contents = [_finished(path, partial) for path in self._paths]
        self.header = _common_header(self._paths, contents)
        self._shards = [journal.header.shard for journal in contents if journal.header]
        self.totals = dict(contents[0].end or {})
        self._where = {
            case: (place, [lines[hypothesis] for hypothesis in sorted(lines)])
            for place, journal in enumerate(contents)
            for case, lines in journal.lines.items()
            if len(lines) == journal.hypotheses[case]
        }
        self._sources = [
            source for journal in contents for source in journal.sources if source[2] in self._where
        ]

    def require_whole(self) -> None:
        """Make sure that these are all shards of the run.

        Raises:
            UsageError: A shard is absent or given twice.
        """
        count = int(self.header.shard.partition("/")[2])
        for shard in (f"{number}/{count}" for number in range(1, count + 1)):
            if self._shards.count(shard) != 1:
                found = "given twice" if shard in self._shards else "absent"
                raise UsageError(f"these journals are not one whole run: shard {shard} is {found}")

    def in_input_order(self) -> Iterator[tuple[Case, int]]:
        """Every spectrum as its case and its place among the case's members, as they were read."""
        rank = {entry["name"]: place for place, entry in enumerate(self.header.inputs)}
        ordered = sorted((rank[name], index, case, at) for name, index, case, at in self._sources)
        latest: Case | None = None
        for _, _, number, at in ordered:
            if latest is None or latest.number != number:
                latest = self.case(number)
            yield latest, at

    def case(self, number: int) -> Case:
        """Read one case from the disk.

        Raises:
            UnreadableError: Its fields are those of another version.
        """
        place, offsets = self._where[number]
        with self._paths[place].open("rb") as file:
            lines = [_line(file.seek(offset), file.readline()) for offset in offsets]
        try:
            members = tuple(member_of(values) for values in lines[0]["members"])
            return Case(number, members, tuple(outcome_of(line["outcome"]) for line in lines))
        except (KeyError, TypeError):
            raise UnreadableError(
                f"{self._paths[place]} was written by another version of duallgd; use that one, or "
                "predict again"
            ) from None


def journals_of(names: Sequence[Path]) -> list[Path]:
    """The journals meant by names of journals or of outputs; ``out.csv`` means all its shards.

    Raises:
        UsageError: Nothing of that name has a journal.
    """
    found: list[Path] = []
    for name in names:
        if name.name.endswith(ENDING):
            found.append(name)
            continue
        shards = sorted(
            path
            for path in name.parent.glob(f"*{ENDING}")
            if path.name.startswith(f"{name.name}.shard-") or path.name == name.name + ENDING
        )
        if not shards:
            raise UsageError(f"{name} has no journal beside it; name the {ENDING} files to join")
        found += shards
    return list(dict.fromkeys(found))


def _line(_: int, line: bytes) -> dict[str, Any]:
    values = decode(line)
    if values is None:
        raise UsageError("a journal changed while it was read; run it again with --resume")
    return values


def _finished(path: Path, partial: bool) -> Contents:
    if not path.is_file():
        raise UsageError(f"there is no journal {path}; run that shard first")
    contents = scan(path)
    if contents.header is None or (contents.is_damaged and not partial):
        raise UsageError(f"journal {path} is empty or damaged; run it again without --resume")
    if contents.end is None and not partial:
        raise UsageError(
            f"the run of {path} (shard {contents.header.shard}) is not finished, "
            f"{len(contents.lines)} features so far; run it again with --resume, or merge with "
            "--partial"
        )
    return contents


def _common_header(paths: Sequence[Path], contents: Sequence[Contents]) -> Header:
    headers = [journal.header for journal in contents if journal.header is not None]
    if not headers:
        raise UsageError("no journals to join; name the files that sharded runs wrote")
    first = headers[0]
    for path, header in zip(paths, headers, strict=True):
        changed = first.differences(replace(header, shard=first.shard))
        if changed:
            raise UsageError(f"{paths[0]} and {path} are of different runs: {few(changed)}")
    return first
