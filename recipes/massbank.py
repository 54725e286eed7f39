"""MassBank's record files to the table of open high-resolution spectra that is trained on.

python recipes/massbank.py MassBank-data/ -o massbank.tsv.xz --folds folds.tsv --holdout keys.txt
"""

import csv
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from duallgd_cli.chem.identity import canonical_smiles, parse_smiles
from duallgd_cli.data.prepared import FOLDS, Screen
from duallgd_cli.data.spectra import (
    RejectedSpectrum,
    UnusableRecordError,
    adduct_of,
    molecule_of,
    refuse_misfit,
)
from duallgd_cli.data.structures import read_holdout
from duallgd_cli.errors import DuallgdError, UnreadableError, printable, quote
from duallgd_cli.files import claim, replaced_text, require_input
from duallgd_cli.spectra.reading.quantities import collision_energy_ev
from duallgd_cli.spectra.reading.record import instrument_class
from duallgd_cli.tables import table_rows

COLUMNS: Final = (
    "identifier", "mzs", "intensities", "smiles", "inchikey", "formula", "precursor_mz",
    "parent_mass", "adduct", "instrument_type", "collision_energy", "fold", "ion_mode",
    "instrument", "collision_energy_text", "resolution", "license",
)  # fmt: skip
MAX_PEAKS: Final = 512
MIN_HEAVY_ATOMS: Final = 4
_IONISATION: Final = re.compile(r"ESI|APCI", re.IGNORECASE)
_ANALYSER: Final = re.compile(r"TOF|FT|ORBITRAP", re.IGNORECASE)
_OPEN_LICENSE: Final = re.compile(r"CC0|CC[- ]?BY(-SA)?( \d\.\d)?|dl-de/by-2-0", re.IGNORECASE)


# What a record says, by tag and subtag, such as ``AC$MASS_SPECTROMETRY: MS_TYPE`` ("" where it says
# nothing), and its peaks as published: m/z and intensity, float64 (P,).
Fields = Mapping[str, str]
Peaks = tuple[NDArray[np.float64], NDArray[np.float64]]


def rebuild_massbank(
    release: Path,
    out: Path,
    folds: Mapping[str, str] | None = None,
    *,
    holdout: frozenset[str] = frozenset(),
) -> dict[str, object]:
    """Write the open high-resolution MS2 spectra of a MassBank release as one table.

    Args:
        release: Folder or zip of record files.
        out: ``.tsv``, ``.tsv.gz`` or ``.tsv.xz`` to write; ``NAME.report.tsv`` beside it lists what
            was left out and why.
        folds: Fold of each InChIKey first block; molecules not named go to train.
        holdout: InChIKey first blocks that are left out altogether.

    Returns:
        Totals before hold-outs, totals written, and the number left out by reason.

    Raises:
        MissingInputError: No such release.
        UnreadableError: None of its records passes the filters.
    """
    rejected = Screen()
    molecules: set[str] = set()
    written: Counter[str] = Counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    with replaced_text(out) as stream:
        table = csv.DictWriter(stream, COLUMNS, delimiter="\t", lineterminator="\n")
        table.writeheader()
        for item in screen(release):
            if isinstance(item, RejectedSpectrum):
                rejected.refuse(item.reason, *item)
                continue
            key = item["inchikey"]
            molecules.add(key)
            written["held out" if key in holdout else "spectra"] += 1
            if key not in holdout:
                table.writerow(item | {"fold": (folds or {}).get(key, "train")})
        if not molecules:
            raise UnreadableError(f"{release} holds no record that passes the filters")
    report = out.with_name(out.name + ".report.tsv")
    rejected.write(report, *RejectedSpectrum._fields)
    return {
        "spectra_before_holdout": written.total(),
        "molecules_before_holdout": len(molecules),
        "spectra": written["spectra"],
        "molecules": len(molecules - holdout),
        "holdout_keys": len(holdout),
        "holdout_removed": written["held out"],
        "rejected": rejected.counts(),
    }


def screen(release: Path) -> Iterator[dict[str, str] | RejectedSpectrum]:
    """Apply the filters of the data set to every record of a release, in order.

    What passes is yielded as cells by `COLUMNS`, but for its fold. Kept are MS2 spectra by ESI or
    APCI on a TOF, Orbitrap or other FT analyser, under an open licence without NC and ND, of one
    connected neutral molecule (or a permanent cation as [M]+) of the supported elements with 4 to
    100 heavy atoms, with a supported adduct and a recorded precursor m/z within 0.02 Da or 20 ppm;
    the same peaks of the same ion are kept once.
    """
    seen: set[tuple[str, str, bytes]] = set()
    for number, (stated, published) in enumerate(read_release(release), 1):
        fields = defaultdict(str, stated)
        try:
            cells, peaks = _cells(fields, published)
            identity = cells["inchikey"], cells["adduct"], peaks
            if identity in seen:
                raise UnusableRecordError("duplicate", "the same peaks of the same ion stand above")
            seen.add(identity)
            yield cells
        except UnusableRecordError as refusal:
            yield RejectedSpectrum(number, fields["ACCESSION"], *refusal.args)


def _cells(fields: Fields, published: Peaks) -> tuple[dict[str, str], bytes]:
    """Cells and peaks of a record: m/z ascending, base peak 1, at most `MAX_PEAKS`.

    Raises:
        UnusableRecordError: With the reason why it is left out.
    """
    _refuse_the_unsuitable(fields)
    adduct = adduct_of(fields["MS$FOCUSED_ION: PRECURSOR_TYPE"])
    molecule = molecule_of(fields["CH$SMILES"])
    formula = molecule.formula
    if formula.n_heavy < MIN_HEAVY_ATOMS:
        raise UnusableRecordError("too few or too many atoms", f"{formula.n_heavy} heavy atoms")
    text = fields["MS$FOCUSED_ION: PRECURSOR_M/Z"]
    try:
        measured = float(text)
    except ValueError:
        measured = None
    refuse_misfit(formula, adduct, measured)
    if measured is None:
        raise UnusableRecordError("no precursor m/z", text)
    mz, intensity = published
    positive = np.isfinite(mz) & (mz > 0) & (intensity > 0)
    mz, intensity = mz[positive], intensity[positive]
    if not mz.size:
        raise UnusableRecordError("no usable peaks", f"{len(positive)} peaks")
    strongest = np.argsort(-intensity, kind="stable")[:MAX_PEAKS]
    order = strongest[np.argsort(mz[strongest], kind="stable")]
    mz, intensity = mz[order], intensity[order] / intensity.max()
    instrument = instrument_class(fields["AC$INSTRUMENT_TYPE"])
    instrument = instrument or instrument_class(fields["AC$INSTRUMENT"])
    energy_text = fields["AC$MASS_SPECTROMETRY: COLLISION_ENERGY"]
    energy = collision_energy_ev(energy_text, measured, instrument)
    return {
        "identifier": fields["ACCESSION"],
        "mzs": ",".join(f"{value:.10g}" for value in mz),
        "intensities": ",".join(f"{value:.4g}" for value in intensity),
        "smiles": _canonical(fields["CH$SMILES"]),
        "inchikey": molecule.inchikey,
        "formula": str(formula),
        "precursor_mz": text,
        "parent_mass": f"{formula.mass:.5f}",
        "adduct": adduct.name,
        "instrument_type": {"orbitrap": "Orbitrap", "qtof": "QTOF"}.get(instrument, ""),
        "collision_energy": "" if energy is None else f"{energy:.2f}",
        "ion_mode": "positive" if adduct.polarity > 0 else "negative",
        "instrument": fields["AC$INSTRUMENT"],
        "collision_energy_text": energy_text,
        "resolution": fields["AC$MASS_SPECTROMETRY: RESOLUTION"],
        "license": fields["LICENSE"],
    }, mz.tobytes() + intensity.tobytes()


@lru_cache(maxsize=4096)  # records of one molecule stand together
def _canonical(smiles: str) -> str:
    return canonical_smiles(parse_smiles(smiles))


def _refuse_the_unsuitable(fields: Fields) -> None:
    """Refuse by what the record says of itself."""
    instrument, ms_type = fields["AC$INSTRUMENT_TYPE"], fields["AC$MASS_SPECTROMETRY: MS_TYPE"]
    if fields["DEPRECATED"]:
        raise UnusableRecordError("deprecated record", fields["DEPRECATED"])
    if ms_type.upper() != "MS2":
        raise UnusableRecordError("not an MS2 spectrum", ms_type)
    if not (_IONISATION.search(instrument) and _ANALYSER.search(instrument)):
        raise UnusableRecordError("not ESI or APCI on a TOF or FT analyser", instrument)
    if not _OPEN_LICENSE.fullmatch(fields["LICENSE"]):
        raise UnusableRecordError("licence not open", fields["LICENSE"])


def read_folds(path: Path) -> dict[str, str]:
    """Fold of each molecule from a table with columns inchikey and fold, such as a built data set.

    Raises:
        MissingInputError: No such file.
        UnreadableError: A column is missing, or a molecule stands in two folds.
    """
    folds: dict[str, str] = {}
    for row in table_rows(path, ("inchikey", "fold")):
        key, fold = row["inchikey"][:14], row["fold"].lower()
        if fold not in FOLDS or folds.setdefault(key, fold) != fold:
            raise UnreadableError(f"{path} puts {key} into fold {quote(fold)} and elsewhere")
    return folds


def read_release(source: Path) -> Iterator[tuple[Fields, Peaks]]:
    """Read every record of a release, in the order of the file names.

    Raises:
        MissingInputError: No such file.
        UnreadableError: Neither a folder nor a zip.
    """
    require_input(str(source))
    if source.is_dir():
        for path in sorted(source.rglob("*.txt")):
            yield from _records_of(path.read_bytes())
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".txt"):
                    yield from _records_of(archive.read(name))
    else:
        raise UnreadableError(f"{source} is no folder or zip of MassBank's record files")


def parse_record(text: str) -> tuple[Fields, Peaks]:
    """Read one record file; of repeated tags the first counts."""
    head, _, rest = text.partition("\nPK$PEAK:")
    fields: dict[str, str] = {}
    for line in head.splitlines():
        tag, _, value = line.partition(": ")
        subtag, _, detail = value.strip().partition(" ")
        fields.setdefault(tag, value.strip())
        fields.setdefault(f"{tag}: {subtag}", detail.strip())
    # Columns are m/z, intensity and relative intensity.
    peaks = takewhile(lambda line: line.startswith(" "), rest.splitlines()[1:])
    table = [row[:2] for row in map(str.split, peaks) if len(row) >= 2]
    mz, intensity = np.array(table, dtype=np.float64).reshape(-1, 2).T
    return fields, (mz, intensity)


def _records_of(content: bytes) -> Iterator[tuple[Fields, Peaks]]:
    """The record of a text file; none where the file is something else, such as a read-me."""
    text = content.decode("utf-8-sig", errors="replace")
    if not text.startswith("ACCESSION:"):
        return
    try:
        yield parse_record(text)
    except ValueError:
        accession = text.splitlines()[0].partition(":")[2].strip()
        yield {"ACCESSION": accession}, (np.zeros(0), np.zeros(0))


def main(
    release: Annotated[Path, typer.Argument(help="Folder or zip of MassBank's record files.")],
    output: Annotated[Path, typer.Option("-o", "--output", help=".tsv, .tsv.gz or .tsv.xz.")],
    folds: Annotated[
        Path | None, typer.Option(help="Table with inchikey and fold; others go to train.")
    ] = None,
    holdout: Annotated[
        list[Path] | None,
        typer.Option(help="Text file of InChIKey first blocks to leave out; repeatable."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Rebuild the table of open high-resolution spectra from MassBank's own release."""
    tables = () if folds is None else (folds,)
    claim(
        {"the output": output, "the report": output.with_name(f"{output.name}.report.tsv")},
        [release, *tables, *(holdout or ())],
        force=force,
        makes_folders=True,
    )
    totals = rebuild_massbank(
        release,
        output,
        None if folds is None else read_folds(folds),
        holdout=read_holdout(holdout or []),
    )
    typer.echo("\n".join(f"{name}: {value}" for name, value in totals.items()), err=True)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DuallgdError as error:
        raise SystemExit(f"error: {printable(str(error))}") from None
