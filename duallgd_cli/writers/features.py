"""Features as tables: what was made of a run, beside its MGF, and a table that comes back.

The MGF is read as the run is: `predict` gives the same candidates of both.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UnreadableError, counted
from duallgd_cli.files import STANDARD_STREAM, claim, write_atomically
from duallgd_cli.results import OK, Prediction, references, sentences
from duallgd_cli.spectra.feature_table import FeatureTable
from duallgd_cli.spectra.features import GroupBy, Inputs
from duallgd_cli.spectra.reading.record import PRECURSOR, canonical, first
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.spectra.types import Feature, Spectrum
from duallgd_cli.writers.formats import inert, rows, table, write_pieces

COLUMNS: Final = (
    "feature_id", "file", "indices", "polarity", "charge", "precursor_mz", "rt_seconds", "rt_start",
    "rt_end", "scans", "energies", "precursor_intensity", "compound_id", "adduct", "adduct_source",
    "adduct_probability", "next_adduct", "remarks",
)  # fmt: skip
# Beside the columns of a table of features, each after ``duallgd_``.
_ANSWERS: Final = (
    *("feature_id", "joined_by", "formula", "smiles", "inchikey", "confidence", "level", "parts"),
    *("adduct", "adduct_source", "compound_id", "status", "message"),
)
_MOST_PARTS: Final = 5
_LIKELY: Final = 0.5  # least probability of a part in the table of features
_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?")


def write_features(
    names: tuple[str, ...],
    output: str,
    group_by: GroupBy,
    settings: FeatureSettings,
    *,
    force: bool = False,
) -> tuple[int, Inputs]:
    """Write the features of files of spectra as MGF, and as a table beside it.

    Args:
        names: Files.
        output: MGF to write; the table has its name and the ending ``.csv``. Standard output takes
            the MGF alone.
        group_by: See `spectra.features.group`.
        settings: Of runs.
        force: Replace files that exist.

    Returns:
        How many features were written, and the inputs, which have counted what they read.

    Raises:
        UsageError: A file would be lost or cannot be written.
        MissingInputError: An input does not exist.
        UnreadableError: There is no feature, or none of them can be read; the table says why.
    """
    is_file = output != STANDARD_STREAM
    places = {"the output": output}
    if is_file:
        places["the table of features"] = table_path(output)
    with Inputs(names) as inputs:
        claim(places, [("an input, the spectra", name) for name in names], force=force)
        lines: list[list[str]] = []
        written, statuses = 0, set[str]()

        def blocks() -> Iterator[str]:
            nonlocal written
            for feature in inputs.features(group_by, None, settings):
                lines.append([inert(cell) for cell in _cells(feature)])
                usable = [one for one in feature.spectra if one.failure is None]
                written += bool(usable)
                statuses.update(
                    one.failure.status if one.failure else OK for one in feature.spectra
                )
                yield from map(_block, usable)
                yield from map(_block, feature.ms1 if usable else ())

        write_pieces(blocks(), output)
        if is_file:
            write_pieces(table(COLUMNS, lines, "csv"), places["the table of features"])
    if statuses == {"unreadable"}:
        where = f"; see {table_path(output)}" if is_file else ""
        raise UnreadableError(f"none of {counted(len(lines), 'record')} can be read{where}")
    return written, inputs


def table_path(output: str) -> str:
    """Where the table of features lies: ``features.csv`` for ``features.mgf``."""
    return str(Path(output).with_suffix(".csv"))


def _block(spectrum: Spectrum) -> str:
    """An MGF record; numbers are as exact as they are in memory."""
    charge = f"{abs(spectrum.charge)}{'+' if spectrum.charge > 0 else '-'}"
    mode = {1: "positive", -1: "negative"}.get(spectrum.polarity, "")
    scans = [one.scans or str(one.source.index) for one in spectrum.merged]
    fields = {
        "FEATURE_ID": spectrum.feature_id,
        "COMPOUND_ID": spectrum.compound_id,
        "ANSWERED_BY": spectrum.answered_by,
        "ION_PROBABILITIES": ", ".join(f"{name} {share:.4g}" for name, share in spectrum.adducts),
        "PEPMASS": _precursor(spectrum),
        "CHARGE": charge if spectrum.charge else "",
        "IONMODE": mode,
        "ADDUCT": spectrum.adduct_text,
        "FORMULA": spectrum.formula_text,
        "RTINSECONDS": "" if (time := spectrum.retention_time_s) is None else repr(float(time)),
        "MSLEVEL": str(spectrum.ms_level),
        "COLLISION_ENERGY": spectrum.collision_energy_text,
        "INSTRUMENT_TYPE": spectrum.instrument,
        "SCANS": ",".join(scans) or spectrum.scans,
        "MERGED_SCANS": str(len(scans)) if scans else "",
        "FILENAME": spectrum.source.file,
    }
    peaks = zip(spectrum.mz.tolist(), spectrum.intensity.tolist(), strict=True)
    lines = [
        "BEGIN IONS",
        *(f"{name}={value}" for name, value in fields.items() if value),
        *(" ".join(map(repr, pair)) for pair in peaks),
        "END IONS",
    ]
    return "\n".join(lines) + "\n\n"


def _precursor(spectrum: Spectrum) -> str:
    """The precursor m/z as its file has it, whose decimals say how exact it is."""
    mz = spectrum.precursor_mz
    if mz is None:
        return ""
    written = _NUMBER.findall(first(canonical(spectrum.metadata), PRECURSOR))
    return next((text for text in written if float(text) == mz), repr(float(mz)))


def _cells(feature: Feature) -> Iterator[str]:
    """Cells of the row of a feature."""
    spectrum, intensity = feature.first, feature.precursor_intensity
    scans = [scan for one in feature.spectra for scan in one.merged or (one,)]
    times = sorted(one.retention_time_s for one in scans if one.retention_time_s is not None)
    energies = dict.fromkeys(one.collision_energy_text for one in feature.spectra)
    said = [text for one in feature.spectra for text in (*one.warnings, *one.assumptions)]
    failure = spectrum.failure.message if spectrum.failure else ""
    indices = [str(one.source.index) for one in references(feature.spectra)]
    cells: Mapping[str, object] = {
        "feature_id": spectrum.feature_id,
        "file": spectrum.source.file,
        "indices": " ".join(indices),
        "polarity": {1: "positive", -1: "negative"}.get(spectrum.polarity, ""),
        "charge": abs(spectrum.charge) or "",
        "precursor_mz": "" if spectrum.precursor_mz is None else repr(float(spectrum.precursor_mz)),
        "rt_seconds": "" if (time := spectrum.retention_time_s) is None else f"{time:.6g}",
        "rt_start": f"{times[0]:.6g}" if times else "",
        "rt_end": f"{times[-1]:.6g}" if times else "",
        "scans": len(indices),
        "energies": " ".join(sorted(filter(None, energies))),
        "precursor_intensity": "" if intensity is None else f"{intensity:.6g}",
        "compound_id": spectrum.compound_id,
        "adduct": spectrum.adduct_text,
        "adduct_source": spectrum.adduct_source if spectrum.adduct_text else "",
        "adduct_probability": f"{spectrum.adducts[0][1]:.4g}" if spectrum.adducts else "",
        "next_adduct": " ".join(f"{name} {share:.2g}" for name, share in spectrum.adducts[1:2]),
        "remarks": sentences(failure, *dict.fromkeys(said)),
    }
    return (str(cells[name]) for name in COLUMNS)


def write_joined(predictions: Iterable[Prediction], features: FeatureTable, path: Path) -> None:
    """Write a table of features with the answers beside its own columns, which stay as they are.

    Rows are in the order of the table, whatever became of them; features that are in none of them
    come last. Lines before the names of the columns are kept.

    Raises:
        UsageError: The file cannot be written.
    """
    answers: defaultdict[int, list[list[str]]] = defaultdict(list)
    alone: list[list[str]] = []
    for prediction in predictions:
        if prediction.source != prediction.group[0]:
            continue
        scans = "" if prediction.feature_id else prediction.scans
        names = (prediction.feature_id, prediction.spectrum_id, prediction.name, scans)
        place, by, _ = features.row_of(names, prediction.precursor_mz, prediction.rt_seconds)
        cells = next(rows(prediction))
        likely = [one for one in prediction.parts or () if one.probability >= _LIKELY]
        cells |= {
            "feature_id": cells["feature_id"] or cells["spectrum_id"],
            "joined_by": by,
            "parts": "; ".join(f"{o.name} {o.probability:.2f}" for o in likely[:_MOST_PARTS]),
        }
        of_row = alone if place is None else answers[place]
        of_row.append([cells[name] for name in _ANSWERS])
    nothing = dict.fromkeys(_ANSWERS, "") | {
        "status": "no_spectrum",
        "message": "no spectrum has the id and m/z of this row, or its m/z and retention time",
    }
    bare = [""] * len(features.columns)
    heads = [*features.before, [*features.columns, *(f"duallgd_{name}" for name in _ANSWERS)]]
    lines = chain(
        heads[1:],
        (
            [*row.cells, *answer]
            for place, row in enumerate(features.rows)
            for answer in answers[place] or [[*nothing.values()]]
        ),
        ([*bare, *answer] for answer in alone),
    )
    write_atomically(path, table(heads[0], lines, "csv"))
