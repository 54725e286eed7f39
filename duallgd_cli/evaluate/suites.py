"""Benchmarks: where their files are and how they are read.

``massspecgym`` is MassSpecGym (Bushuiev et al., NeurIPS 2024), versions 1.0 and 1.5; ``nplib1`` is
NPLIB1 (Duehrkop et al., CANOPUS) as MIST's authors released it, made a table by recipes/nplib1.py.
"""

import logging
import shutil
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate.tables import PEAKS, Truth, id_column, write_table
from duallgd_cli.files import replaced, sha256
from duallgd_cli.runtime import cache_folder
from duallgd_cli.tables import table_rows

logger = logging.getLogger(__name__)

Row = Mapping[str, str]

# What a lab has of an unknown. Whatever is not listed here does not reach the prediction.
_MEASURED: Final = (
    "mzs", "intensities", "precursor_mz", "adduct", "ion_mode", "instrument_type", "instrument",
    "resolution", "collision_energy", "collision_energy_text",
)  # fmt: skip
_REPOSITORY: Final = "roman-bushuiev/MassSpecGym"
_REVISION: Final = "d2e86d0c3bd905a6d578c0dd6053ed2bd41f9c2a"
# Version, file name and SHA-256 at that revision; the newest first: the one taken when several are
# there. Spectra and folds are the same in both.
RELEASES: Final = (
    ("1.5", "MassSpecGym1.5.tsv",
     "50cfdd1d22f79543c59555f9ce43c6893bd788a19a42b21fb4e2e3a54673c06a"),
    ("1.0", "MassSpecGym.tsv",
     "0c9cc50450def3f0d4fe2dc09dea1105fc15e635db8c6656bc3e3be37a3bcd95"),
)  # fmt: skip
NPLIB1: Final = "nplib1.tsv"
_REQUIRED: Final = ("smiles", "mzs", "intensities", "precursor_mz")
_NPLIB1_PAGE: Final = "https://zenodo.org/records/7897324"
_OWN_TABLE: Final = "--benchmark also takes a table of your own, such as labelled.tsv"
# Longer than a slow server takes, shorter than anybody waits for a sentence.
_ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """One benchmark, found on this machine.

    Attributes:
        title: What results on it may be called, without the fold.
        test_title: What results on the fold ``test`` are called, "" for the title and the fold.
        files: What was read, for hashes in the report.
        rows: Reads the spectra from the start, each time it is called, in the MassSpecGym layout.
        fold: Its test fold.
        remarks: Sentences that belong to every result.
    """

    title: str
    files: tuple[Path, ...]
    rows: Callable[[], Iterator[Row]]
    fold: str = ""
    remarks: tuple[str, ...] = ()
    test_title: str = ""

    def titled(self, fold: str) -> str:
        """What results on a fold may be called."""
        if fold == "test" and self.test_title:
            return self.test_title
        return f"{self.title}, fold {fold or 'all'}"


@dataclass(slots=True, eq=False, kw_only=True)
class EvaluationInputs:
    """What is scored, and what is found out about it on the way to the report.

    Attributes:
        suite: Knows the truth.
        truths: The spectra to score.
        predictions: CSV or TSV with a spectrum's identifier, ``smiles`` and possibly ``rank``.
        remarks: Sentences for the report.
        left_out: Molecules that were trained on and dropped, by InChIKey first block.
        track: ``formula known``, ``formula predicted`` or ``not stated``.
        record: Settings, weights and samples of the predictions, as far as known.
        notes: Numbers by spectrum, as `groups.strata` takes them.
        formulas: Predicted formulas by spectrum, best first; None where the true ones are given.
    """

    suite: Suite
    truths: Sequence[Truth]
    predictions: Path
    remarks: list[str] = field(default_factory=list)
    left_out: Sequence[str] = ()
    track: str = "not stated"
    record: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Mapping[str, float]] = field(default_factory=dict)
    formulas: Mapping[str, Sequence[str]] | None = None

    def remark(self, *sentences: str) -> None:
        """Add sentences for the report, each once."""
        self.remarks = list(dict.fromkeys((*self.remarks, *sentences)))


def find(benchmark: str, data_dir: Path | None) -> Suite:
    """The benchmark ``massspecgym``, ``nplib1``, or a table of labelled spectra.

    Raises:
        MissingInputError: Its files are not there and cannot be downloaded.
        UnreadableError: They are not what they should be.
    """
    known = {"massspecgym": massspecgym, "nplib1": nplib1}.get(benchmark.lower())
    return known(data_dir) if known is not None else _labelled(Path(benchmark), data_dir)


def massspecgym(data_dir: Path | None) -> Suite:
    """Find MassSpecGym in a folder, else in the cache of duallgd, else download it once.

    Args:
        data_dir: Folder that holds one of the files, possibly in ``data``.

    Raises:
        MissingInputError: It is not there and cannot be downloaded.
        UnreadableError: A downloaded file is not the published one.
    """
    (version, _, digest), path = _local(data_dir) if data_dir is not None else _fetched()
    remarks: tuple[str, ...] = ()
    if sha256(path) != digest:
        if data_dir is None:
            raise UnreadableError(
                f"{path} is not MassSpecGym {version} as published (its SHA-256 differs); "
                "delete it and try again"
            )
        remarks = (f"{path.name} is not the published file: its SHA-256 differs",)
        logger.warning("%s", remarks[0])
    return Suite(
        title=f"MassSpecGym {version}",
        files=(path,),
        rows=lambda: table_rows(path, required=("identifier", "smiles", "mzs", "intensities")),
        fold="test",
        remarks=remarks,
    )


def _local(folder: Path) -> tuple[tuple[str, str, str], Path]:
    for release in RELEASES:
        for path in (folder / release[1], folder / "data" / release[1]):
            if path.is_file():
                return release, path
    names = " or ".join(name for _, name, _ in RELEASES)
    raise MissingInputError(
        f"{folder} holds no {names}; download one from https://huggingface.co/datasets/{_REPOSITORY}"
    )


def _fetched() -> tuple[tuple[str, str, str], Path]:
    """The newest file, downloaded once."""
    release = RELEASES[0]
    path = cache_folder() / release[1]
    if path.is_file():
        return release, path
    address = f"https://huggingface.co/datasets/{_REPOSITORY}/resolve/{_REVISION}/data/{release[1]}"
    logger.info("downloading %s (about 260 MB), once", release[1])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(address, timeout=_ANSWER_S) as answer,
            replaced(path) as partial,
            partial.open("wb") as stream,
        ):
            shutil.copyfileobj(answer, stream)
    except OSError as error:
        raise MissingInputError(
            f"{release[1]} is not on this machine and could not be downloaded ({error}); "
            f"fetch {address} and give its folder with --data-dir; {_OWN_TABLE}"
        ) from None
    return release, path


def nplib1(data_dir: Path | None) -> Suite:
    """Find the table of NPLIB1 that ``recipes/nplib1.py`` makes.

    Raises:
        MissingInputError: No folder is given, or the table is not there.
    """
    by_hand = (
        f"unpack canopus_train_public.tar from {_NPLIB1_PAGE}, make {NPLIB1} of it by "
        f"recipes/nplib1.py of a clone of duallgd and give its folder with --data-dir; {_OWN_TABLE}"
    )
    if data_dir is None:
        raise MissingInputError(f"NPLIB1 is not downloaded automatically; {by_hand}")
    path = data_dir / NPLIB1
    if not path.is_file():
        raise MissingInputError(f"{data_dir} has no {NPLIB1}; {by_hand}")
    return Suite(
        title="NPLIB1",
        files=(path,),
        rows=lambda: table_rows(path, required=_REQUIRED),
        fold="test",
    )


def _labelled(path: Path, data_dir: Path | None) -> Suite:
    """A table of labelled spectra, as named or in a folder."""
    found = path if data_dir is None or path.is_file() else data_dir / path
    if not found.is_file():
        raise MissingInputError(
            f"benchmark {path} is neither massspecgym nor nplib1, nor a file that exists"
        )
    first = next(table_rows(found, required=_REQUIRED), {})
    title, test_title = found.name, ""
    remarks: tuple[str, ...] = ()
    # The table of open MassBank spectra marks the molecules that public benchmarks hold out.
    if "benchmark" in first:
        title = "MassBank"
        test_title = "MassBank test (molecules of the NPLIB1 / MassSpecGym held-out parts)"
        remarks = ("Not comparable with figures on the full NPLIB1 or MassSpecGym benchmarks.",)
    return Suite(
        title=title,
        test_title=test_title,
        files=(found,),
        rows=lambda: table_rows(found, required=_REQUIRED),
        remarks=remarks,
    )


def write_unlabelled(
    rows: Iterable[Row], chosen: Sequence[Truth], path: Path, *, with_formula: bool
) -> None:
    """Write spectra as a lab would have them: no structure, and no formula unless it is given."""
    columns = (*_MEASURED, "formula") if with_formula else _MEASURED
    wanted = {truth.spectrum_id for truth in chosen}

    def cells() -> Iterator[list[str]]:
        name = ""
        for row in rows:
            name = name or id_column([row], str(path))
            if row[name] in wanted:
                yield [row[name], *(row.get(column, "") for column in columns)]

    write_table(path, chain([["identifier", *columns]], cells()))


def write_truth(chosen: Sequence[Truth], path: Path) -> None:
    """Write the truth of the chosen spectra, so that predictions can be scored again later."""
    columns = [name for name in chosen[0].fields if name not in PEAKS] if chosen else []
    columns += ["inchikey"] if "inchikey" not in columns else []
    rows = ({**truth.fields, "inchikey": truth.molecule} for truth in chosen)
    write_table(path, chain([columns], ([fields[name] for name in columns] for fields in rows)))
