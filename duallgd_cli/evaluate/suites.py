"""What is scored: a benchmark or a table of labelled spectra, and what of it a prediction sees."""

import logging
import shutil
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
# MassSpecGym (Bushuiev et al., NeurIPS 2024): version, file name and SHA-256 at a revision, the
# newest first. Spectra and folds are the same in both.
MASSSPECGYM: Final = "massspecgym"
RELEASES: Final = (
    ("1.5", "MassSpecGym1.5.tsv",
     "50cfdd1d22f79543c59555f9ce43c6893bd788a19a42b21fb4e2e3a54673c06a"),
    ("1.0", "MassSpecGym.tsv",
     "0c9cc50450def3f0d4fe2dc09dea1105fc15e635db8c6656bc3e3be37a3bcd95"),
)  # fmt: skip
_ADDRESS: Final = (
    "https://huggingface.co/datasets/roman-bushuiev/MassSpecGym/resolve/"
    "d2e86d0c3bd905a6d578c0dd6053ed2bd41f9c2a/data/"
)
_REQUIRED: Final = ("smiles", "mzs", "intensities", "precursor_mz")
# Longer than a slow server takes, shorter than anybody waits for a sentence.
_ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """One benchmark, found on this machine.

    Attributes:
        title: What results on it are called, without the fold.
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


def find(benchmark: str) -> Suite:
    """A table of labelled spectra, or ``massspecgym``, which is downloaded once.

    A file that is MassSpecGym as published is that benchmark, wherever it lies.

    Raises:
        MissingInputError: There is no such file, or it cannot be downloaded.
        UnreadableError: It is not what it should be.
    """
    is_named = benchmark.lower() == MASSSPECGYM
    path = _fetched() if is_named else Path(benchmark)
    if not path.is_file():
        raise MissingInputError(
            f"benchmark {path} is neither {MASSSPECGYM} nor a file that exists; give the path of "
            "a table of labelled spectra"
        )
    digest = sha256(path)
    version = next((name for name, _, published in RELEASES if published == digest), None)
    if version is None and is_named:
        raise UnreadableError(
            f"{path} is not MassSpecGym {RELEASES[0][0]} as published (its SHA-256 differs); "
            "delete it and try again"
        )
    rows = partial(table_rows, path, required=_REQUIRED)
    # The table of open MassBank spectra marks the molecules that public benchmarks hold out.
    is_part = version is None and "benchmark" in next(rows(), {})
    remark = "Not comparable with figures on the full NPLIB1 or MassSpecGym benchmarks."
    return Suite(
        title=f"MassSpecGym {version}" if version else path.name,
        files=(path,),
        rows=rows,
        fold="test" if version else "",
        remarks=(remark,) if is_part else (),
    )


def _fetched() -> Path:
    """The newest file of MassSpecGym, downloaded once."""
    name = RELEASES[0][1]
    path, address = cache_folder() / name, _ADDRESS + name
    if path.is_file():
        return path
    logger.info("downloading %s (about 260 MB), once", name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(address, timeout=_ANSWER_S) as answer,
            replaced(path) as begun,
            begun.open("wb") as stream,
        ):
            shutil.copyfileobj(answer, stream)
    except OSError as error:
        raise MissingInputError(
            f"{name} is not on this machine and could not be downloaded ({error}); fetch {address} "
            "and give the file with --benchmark, or a table of your own, such as labelled.tsv"
        ) from None
    return path


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
