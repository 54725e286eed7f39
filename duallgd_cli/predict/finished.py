"""The journals of a finished run, read as one: in the order of the input, feature by feature.

Memory holds some ten numbers a spectrum: where it and its hypotheses lie. L hypotheses of all
features, S spectra.
"""

import copy
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial as with_arguments
from pathlib import Path
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.data.pool import in_order
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.predict.journal import ENDING, Contents, Header, decode, few, hypotheses
from duallgd_cli.predict.prediction import Case, case_of
from duallgd_cli.runtime import leave_to_parent

_Numbers = NDArray[np.int64]
_BLOCK: Final = 1 << 16  # spectra of which numbers of Python are made at a time
_SIDES: Final[tuple[Literal["left", "right"], ...]] = ("left", "right")


class FinishedRun:
    """The cases of a run, read when asked for.

    Attributes:
        header: What the run is; that of the first of its journals.
        totals: Of the whole input: ``cases``, ``ms1``.
    """

    def __init__(self, paths: Sequence[Path], *, partial: bool = False, workers: int = 1) -> None:
        """Open the journals of a run.

        Args:
            paths: Of its journals.
            partial: Take what is finished in unfinished journals.
            workers: Processes that read them.

        Raises:
            UsageError: A journal is missing, damaged or unfinished, or belongs to another run.
        """
        self._paths = tuple(paths)
        find = with_arguments(_places, partial=partial)
        found = list(in_order(find, self._paths, workers, leave_to_parent, at_a_time=1))
        contents = [one for one, _, _ in found]
        self.header = _common_header(self._paths, contents)
        self._shards = [journal.header.shard for journal in contents if journal.header]
        self.totals = dict(contents[0].end or {})
        numbers = np.repeat(np.arange(len(found)), [len(lines) for _, lines, _ in found])
        lines = np.concatenate([lines for _, lines, _ in found])
        # Case, journal and byte of every hypothesis, by case and position: (L, 3).
        self._lines = _of_finished(np.column_stack([lines, numbers]))
        spectra = np.concatenate([spectra for _, _, spectra in found])
        spectra = spectra[np.isin(spectra[:, 2], self._lines[:, 0])]
        # Case of every spectrum, and its place among the case's members, in input order: (S, 2).
        self._spectra = spectra[np.lexsort(spectra.T[::-1]), 2:]

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
        latest: Case | None = None
        for start in range(0, len(self._spectra), _BLOCK):
            for number, place in self._spectra[start : start + _BLOCK].tolist():
                if latest is None or latest.number != number:
                    latest = self.case(number)
                yield latest, place

    def slices(self, size: int) -> Iterator[Self]:
        """The run as several of so many spectra, in input order; at least one, if it has none."""
        for start in range(0, max(1, len(self._spectra)), size):
            part = copy.copy(self)
            part._spectra = self._spectra[start : start + size]
            cases = np.unique(part._spectra[:, 0])
            first, end = (np.searchsorted(self._lines[:, 0], cases, side) for side in _SIDES)
            rows = [np.arange(*ends) for ends in zip(first, end, strict=True)]
            part._lines = self._lines[np.concatenate([*rows, np.arange(0)])]
            yield part

    def case(self, number: int) -> Case:
        """Read one case from the disk.

        Raises:
            UnreadableError: Its fields are those of another version, or the file changed.
        """
        first, end = (int(np.searchsorted(self._lines[:, 0], number, side)) for side in _SIDES)
        rows = self._lines[first:end].tolist()
        path = self._paths[rows[0][1]]
        lines = []
        with path.open("rb") as file:
            for _, _, offset in rows:
                file.seek(offset)
                lines.append(decode(file.readline()))
        try:
            return case_of([line or {} for line in lines])
        except (KeyError, TypeError):
            raise UnreadableError(
                f"{path} was written by another version of duallgd, or changed while it was read; "
                "use that version, or predict again"
            ) from None


def read(names: Sequence[Path], *, partial: bool = False, workers: int = 1) -> FinishedRun:
    """All that a run computed: header, totals, and every feature with its spectra and outcomes.

    A `Case` holds what ranking and outputs are made from: the structures of each hypothesis with
    their counts and scores, the explained peaks, what became of the samples, and messages.

    Args:
        names: Journals, or outputs that have journals beside them; all shards of one run.
        partial: Take what is finished, whatever is missing or still going on.
        workers: Processes that read them.

    Raises:
        UsageError: There is no journal, or it is damaged, unfinished, or one of other shards.
    """
    run = FinishedRun(journals_of(names), partial=partial, workers=workers)
    if not partial:
        run.require_whole()
    return run


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


def _places(path: Path, partial: bool) -> tuple[Contents, _Numbers, _Numbers]:
    """Where everything lies in a journal, once that is known to be usable.

    Returns:
        The journal but for its hypotheses; case, position, number of hypotheses of the case and
        byte of each hypothesis, (L, 4); position of the input, index in it, case and place among
        the case's members of each spectrum, (S, 4).
    """
    if not path.is_file():
        raise UsageError(f"there is no journal {path}; run that shard first")
    contents = Contents()
    lines, spectra = array("q"), array("q")
    inputs: dict[str, int] = {}
    for values in hypotheses(path, contents):
        if not inputs and contents.header is not None:
            inputs = {entry["name"]: place for place, entry in enumerate(contents.header.inputs)}
        case = values["case"]
        lines.extend((case, values["hypothesis"], values["of"], contents.good_bytes))
        for place, member in enumerate(values["members"]):
            name, index = member["source"]
            spectra.extend((inputs[name], index, case, place))
    numbers = np.frombuffer(lines, np.int64).reshape(-1, 4)
    if contents.header is None or (contents.is_damaged and not partial):
        raise UsageError(f"journal {path} is empty or damaged; run it again without --resume")
    if contents.end is None and not partial:
        raise UsageError(
            f"the run of {path} (shard {contents.header.shard}) is not finished, "
            f"{len(np.unique(numbers[:, 0]))} features so far; run it again with --resume, or "
            "merge with --partial"
        )
    return contents, numbers, np.frombuffer(spectra, np.int64).reshape(-1, 4)


def _of_finished(lines: _Numbers) -> _Numbers:
    """Case, journal and byte of the hypotheses of finished cases, by case and position.

    What was written twice counts as it was written last.

    Args:
        lines: Case, position, number of hypotheses of the case, byte and journal of each, (L, 5).
    """
    case, position, _, byte, journal = lines.T
    lines = lines[np.lexsort((byte, position, journal, case))]
    last = np.searchsorted(lines[:, 0], lines[:, 0], "right") - 1
    lines = lines[lines[:, 4] == lines[last, 4]]  # each case from one journal
    is_last = np.ones(len(lines), np.bool_)
    is_last[:-1] = (lines[1:, :2] != lines[:-1, :2]).any(1)
    lines = lines[is_last]
    first, end = (np.searchsorted(lines[:, 0], lines[:, 0], side) for side in _SIDES)
    return np.ascontiguousarray(lines[end - first == lines[:, 2]][:, [0, 4, 3]])


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
