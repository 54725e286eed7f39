"""Features as tables: what was made of a run, beside its MGF, and a table that comes back.

The MGF is read as the run is: `predict` gives the same candidates of both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from duallgd_cli.errors import Failure, UnreadableError, counted
from duallgd_cli.files import STANDARD_STREAM, claim, write_atomically
from duallgd_cli.results import Prediction, references, sentences
from duallgd_cli.spectra.features import GroupBy, Inputs
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.spectra.tables import FeatureTable
from duallgd_cli.spectra.types import Feature, Spectrum
from duallgd_cli.writers.formats import cells_of, lines_of, rows, table, write_pieces

COLUMNS: Final = (
    "feature_id", "file", "indices", "polarity", "charge", "precursor_mz", "rt_seconds", "rt_start",
    "rt_end", "scans", "energies", "precursor_intensity", "compound_id", "adduct", "adduct_source",
    "adduct_probability", "next_adduct", "remarks", "usi",
)  # fmt: skip
# Beside the columns of a table of features, each after ``duallgd_``.
_ANSWERS: Final = (
    *("feature_id", "joined_by", "formula", "smiles", "inchikey", "confidence", "level", "parts"),
    *("adduct", "adduct_source", "compound_id", "status", "message"),
)
# What features of one compound share.
_OF_COMPOUND: Final = ("formula", "smiles", "inchikey", "confidence", "level", "parts")
_NO_SPECTRUM: Final = {
    "status": "no_spectrum",
    "message": "no spectrum has the id and m/z of this row, or its m/z and retention time",
}
_MOST_PARTS: Final = 5
_MOST_REASONS: Final = 3
_LIKELY: Final = 0.5  # least probability of a part in the table of features
_MODES: Final = {1: "positive", -1: "negative", 0: ""}


def write_features(
    names: tuple[str, ...],
    output: str,
    group_by: GroupBy,
    settings: FeatureSettings,
    *,
    force: bool = False,
    others: Sequence[Path] = (),
) -> tuple[int, int, str]:
    """Write the features of files of spectra as MGF, and as a table beside it (`table_path`).

    What else the command reads is not written over either.

    Returns:
        How many features were written, how many were not, and why: of what could not be read, such
        as the rest of a file that is cut off, else of what has no usable spectrum.

    Raises:
        UsageError: A file would be lost or cannot be written.
        MissingInputError: An input does not exist.
        UnreadableError: There is no feature, or none of them can be read; the table says why.
    """
    is_file = output != STANDARD_STREAM
    places = {"the output": output}
    places |= {"the table of features": table_path(output)} if is_file else {}
    lines: list[dict[str, object]] = []
    left_out = list[Failure]()
    with Inputs(names) as inputs:
        claim(places, (*names, *others), force=force)

        def blocks() -> Iterator[str]:
            for feature in inputs.features(group_by, None, settings):
                lines.append(_row(feature))
                usable = [one for one in feature.spectra if one.failure is None]
                if usable:
                    yield from map(_block, (*usable, *feature.ms1))
                elif feature.first.failure is not None:
                    left_out.append(feature.first.failure)

        write_pieces(blocks(), output)
        if is_file:
            write_pieces(table(COLUMNS, lines, "csv"), table_path(output))
    broken = [one.message for one in left_out if one.status == "unreadable"]
    reasons = dict.fromkeys(broken or [one.message for one in left_out])
    why = sentences(*islice(reasons, _MOST_REASONS))
    if len(broken) == len(lines):
        where = f"; see {table_path(output)}" if is_file else ""
        raise UnreadableError(f"none of {counted(len(lines), 'record')} can be read: {why}{where}")
    return len(lines) - len(left_out), len(left_out), why


def table_path(output: str) -> str:
    """Where the table of features lies: ``features.csv`` for ``features.mgf``."""
    return str(Path(output).with_suffix(".csv"))


def _block(spectrum: Spectrum) -> str:
    """An MGF record; numbers are as exact as they are in memory."""
    time, charge, mz = spectrum.retention_time_s, spectrum.charge, spectrum.precursor_mz
    scans = [one.scans or str(one.source.index) for one in spectrum.merged]
    fields = {
        "FEATURE_ID": spectrum.feature_id,
        "COMPOUND_ID": spectrum.compound_id,
        "ANSWERED_BY": spectrum.answered_by,
        "ION_PROBABILITIES": ", ".join(f"{name} {share:.4g}" for name, share in spectrum.adducts),
        "PEPMASS": spectrum.precursor_text or ("" if mz is None else repr(float(mz))),
        "CHARGE": f"{abs(charge)}{'+' if charge > 0 else '-'}" if charge else "",
        "IONMODE": _MODES[spectrum.polarity],
        "ADDUCT": spectrum.adduct_text,
        "FORMULA": spectrum.formula_text,
        "RTINSECONDS": "" if time is None else repr(float(time)),
        "MSLEVEL": str(spectrum.ms_level),
        "COLLISION_ENERGY": spectrum.collision_energy_text,
        "INSTRUMENT_TYPE": spectrum.instrument,
        "SCANS": ",".join(scans) or spectrum.scans,
        "MERGED_SCANS": str(len(scans)) if scans else "",
        "FILENAME": spectrum.source.file,
        "USI": references([spectrum])[0].usi,
    }
    peaks = zip(spectrum.mz.tolist(), spectrum.intensity.tolist(), strict=True)
    lines = [
        "BEGIN IONS",
        *(f"{name}={value}" for name, value in fields.items() if value),
        *(" ".join(map(repr, pair)) for pair in peaks),
        "END IONS",
    ]
    return "\n".join(lines) + "\n\n"


def _row(feature: Feature) -> dict[str, object]:
    """The row of a feature, by `COLUMNS`."""
    spectrum, time = feature.first, feature.first.retention_time_s
    scans = [scan for one in feature.spectra for scan in one.merged or (one,)]
    times = [one.retention_time_s for one in scans if one.retention_time_s is not None]
    named = references(feature.spectra)
    said = [text for one in feature.spectra for text in (*one.warnings, *one.assumptions)]
    if spectrum.failure:
        said.insert(0, spectrum.failure.message)
    intensity = feature.precursor_intensity
    return {
        "feature_id": spectrum.feature_id,
        "file": spectrum.source.file,
        "indices": " ".join(str(one.index) for one in named),
        "polarity": _MODES[spectrum.polarity],
        "charge": abs(spectrum.charge) or None,
        "precursor_mz": spectrum.precursor_mz and float(spectrum.precursor_mz),
        "rt_seconds": None if time is None else f"{time:.6g}",
        "rt_start": f"{min(times):.6g}" if times else None,
        "rt_end": f"{max(times):.6g}" if times else None,
        "scans": len(named),
        "energies": " ".join(sorted({one.collision_energy_text for one in feature.spectra} - {""})),
        "precursor_intensity": None if intensity is None else f"{intensity:.6g}",
        "compound_id": spectrum.compound_id,
        "adduct": spectrum.adduct_text,
        "adduct_source": spectrum.adduct_source if spectrum.adduct_text else "",
        "adduct_probability": f"{spectrum.adducts[0][1]:.4g}" if spectrum.adducts else "",
        "next_adduct": " ".join(f"{name} {share:.2g}" for name, share in spectrum.adducts[1:2]),
        "remarks": sentences(*said),
        "usi": named[0].usi,
    }


@contextmanager
def joined_table(features: FeatureTable, path: Path) -> Iterator[Callable[[Prediction], None]]:
    """A table of features with the answers beside its own columns, which stay as they are.

    It takes one prediction after the other, and is written at the end. Rows are in the order of the
    table; features that are in none of them come last. A feature whose compound another one answers
    for has that answer, and its message names that feature.
    """
    answers: defaultdict[int | None, list[Mapping[str, str]]] = defaultdict(list)
    by_feature: dict[tuple[str, str], dict[str, str]] = {}
    same: list[tuple[dict[str, str], tuple[str, str]]] = []  # with the feature that answers

    def add(prediction: Prediction) -> None:
        scans = "" if prediction.feature_id else prediction.scans
        names = (prediction.feature_id, prediction.spectrum_id, prediction.name, scans)
        place, by, *_ = features.row_of(names, prediction.precursor_mz, prediction.rt_seconds)
        likely = [one for one in prediction.parts or () if one.probability >= _LIKELY]
        row = next(rows(prediction)) | {
            "feature_id": prediction.feature_id or prediction.spectrum_id,
            "joined_by": by,
            "parts": "; ".join(f"{o.name} {o.probability:.2f}" for o in likely[:_MOST_PARTS]),
        }
        answer = {name: row[name] for name in _ANSWERS}
        answers[place].append(answer)
        by_feature[row["file"], prediction.feature_id] = answer
        if prediction.status == "same_compound":
            answered_by = prediction.answered_by.rpartition(" ")[0]
            same.append((answer, (row["file"], answered_by)))

    yield add
    for answer, feature in same:
        whole = by_feature.get(feature, answer)
        answer.update((name, whole[name]) for name in _OF_COMPOUND)

    def lines() -> Iterator[Sequence[str]]:
        yield from features.before
        yield [*features.columns, *(f"duallgd_{name}" for name in _ANSWERS)]
        for row in features.rows:
            for answer in answers[row.same] or [_NO_SPECTRUM]:
                yield [*row.cells, *cells_of(answer, _ANSWERS)]
        for answer in answers[None]:
            yield [*[""] * len(features.columns), *cells_of(answer, _ANSWERS)]

    write_atomically(path, lines_of(lines(), "csv"))
