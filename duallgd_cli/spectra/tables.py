"""Tables of formulas and of features as programs export them, and what joins them to spectra.

Columns are known by their names in lower case, without anything but letters and digits; where a
table may have several of a kind, the likelier stand first.
"""

import csv
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import Failure, UnreadableError, UsageError, bare, clip, counted, quote
from duallgd_cli.files import DAMAGED, damaged, open_text
from duallgd_cli.spectra.reading.quantities import finite
from duallgd_cli.spectra.reading.record import compound_name, is_missing
from duallgd_cli.spectra.types import LINKED, OPTION, TABLE, Feature, Spectrum
from duallgd_cli.tables import Line, column, lines_of, plain, refuse_repeated, table_lines

logger = logging.getLogger(__name__)

_IDENTIFIERS: Final = (
    *("mappingfeatureid", "featureid", "feature", "identifier", "spectrumid", "title", "name"),
    *("scans", "scan", "id", "rowid"),
)
_MORE_IDENTIFIERS: Final = re.compile(r"id|title|name|scan|spectr|query")
_NO_IDENTIFIERS: Final = re.compile(r"formula|inchi|smiles|pubchem|database|class|adduct|score")
_FORMULAS: Final = ("molecularformula", "formula", "neutralformula", "predictedformula")
_NUMBERED: Final = re.compile(r"\D*formula\D*(\d{1,3})\D*|\D*(\d{1,3})\D*formula")
_NO_FORMULAS: Final = re.compile(r"score|fdr|prob|mass|error|precursor|count")
_ION_NAMES: Final = ("adduct", "ion", "precursortype", "iontype")
# Probabilities first; SIRIUS' own score is the logarithm of one up to a constant.
_SCORES: Final = ("prior", "probability", "zodiacscore", "siriusscore", "score", "formulascore")
_RANKS: Final = ("formularank", "rank")
_FDR: Final = "estimatedfdr"
_SIRIUS_ID: Final = re.compile(r"\d+_.+_.+")  # <number>_<file>_<feature>, "_" in each
_MOST_PARTS: Final = 8
_DECIMAL_COMMA: Final = re.compile(r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$")


class TableRow(NamedTuple):
    """A formula for a feature and perhaps its adduct, as written."""

    formula: str
    adduct: str
    log_weight: float  # up to a constant that is common to the feature


Rows = dict[str, list[TableRow]]


def read_table(path: str) -> dict[str, Rows]:
    """Rows by identifier, in the file's order, for each column that may hold identifiers.

    A row has a formula (``molecularFormula``, ``Formula``), or several in numbered columns
    (``formula_rank_1``, ``Refined Formula (0)``). Which of several columns holds what stands in the
    spectrum file depends on version and file, so all are kept. The weight is the score where all
    scores of the table lie between 0 and 1, or add up to 100 for every feature; other scores are
    taken as logarithms. Without a score it is 1 / rank, without either the same for all rows.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is empty or no text, or has two columns of one name.
        UsageError: It has no identifier or no formula column.
    """
    lines = table_lines(Path(path), {*_IDENTIFIERS, *_FORMULAS})
    written = next(lines, Line(1, ())).cells
    if not any(written):
        raise UnreadableError(f"{path} is empty; expected a table of formulas")
    header = [plain(name) for name in written]
    likely = [name for name in _IDENTIFIERS if name in header]
    others = [n for n in header if _MORE_IDENTIFIERS.search(n) and not _NO_IDENTIFIERS.search(n)]
    identifiers = {name: header.index(name) for name in (*likely, *others)}
    formula = next((name for name in _FORMULAS if name in header), None)
    numbered = [] if formula else sorted(filter(_number_of, header), key=_number_of)
    if not identifiers or not (formula or numbered):
        missing, known = ("formula", _FORMULAS) if identifiers else ("identifier", _IDENTIFIERS)
        raise UsageError(
            f"{path} has no {missing} column among {clip(', '.join(written))}; expected one of "
            f"{', '.join(known)}"
        )
    kept = [*identifiers, formula, *numbered, *_ION_NAMES, *_SCORES, *_RANKS, _FDR]
    refuse_repeated(path, written, header, set(filter(None, kept)))
    table: list[dict[str, str]] = []
    for line in lines:
        if line.fault:
            raise UnreadableError(f"{path}, line {line.number}: {line.fault}")
        every = zip(header, line.cells, strict=True)
        table.append({name: cell for name, cell in every if name in kept})
    score = _score_column(table, next(iter(identifiers))) if formula else ("", 0.0)
    by_column: dict[str, Rows] = {written[at]: {} for at in identifiers.values()}
    for cells in table:
        texts = (cells.get(name, "").strip() for name in _ION_NAMES)
        adduct = next((text for text in texts if text == "Na" or not is_missing(text)), "")
        named = (cells[name] for name in ([formula] if formula else numbered))
        formulas = [text for text in named if not is_missing(text)]
        weights = _weights(cells, len(formulas), *score)
        rows = [TableRow(text, adduct, w) for text, w in zip(formulas, weights, strict=True)]
        for identifier, by_name in zip(identifiers, by_column.values(), strict=True):
            for name in _cell_names(cells.get(identifier, "")):
                by_name.setdefault(name, []).extend(rows)
    return by_column


def _number_of(name: str) -> int:
    """Number, from 1, of a formula among those of one row; 0 for any other column."""
    match = None if _NO_FORMULAS.search(name) else _NUMBERED.fullmatch(name)
    return int(match[1] or match[2]) + 1 if match else 0


def _score_column(table: Sequence[Mapping[str, str]], identifier: str) -> tuple[str, float]:
    """The first score column that holds a number anywhere, or "", and what a certain formula has.

    That is 1 of probabilities, 100 of percentages, which add up to it for every feature, and 0 of
    logarithms.
    """
    for name in _SCORES:
        cells = [(row[identifier], _number(row.get(name, ""))) for row in table]
        numbers = [value for _, value in cells if value is not None]
        if not numbers:
            continue
        if min(numbers) >= 0 and max(numbers) <= 1:
            return name, 1.0
        totals = defaultdict[str, float](float)
        for feature, value in cells:
            totals[feature] += value or 0.0
        are_parts = min(numbers) >= 0 and all(99 <= total <= 101 for total in totals.values())
        return name, 100.0 if are_parts else 0.0
    return "", 0.0


def _number(cell: str) -> float | None:
    """The number of a cell, whose decimals may follow a comma; None without one."""
    return finite(_DECIMAL_COMMA.sub(r"\1.\2", cell))


def _cell_names(cell: str) -> list[str]:
    """What a cell may name: spreadsheets turn 12 into 12.0, SIRIUS joins number, file and name."""
    name = bare(cell.strip())
    names = [name, name.removesuffix(".0")]
    if _SIRIUS_ID.fullmatch(name):
        parts = name.split("_", 1)[1].rsplit("_", _MOST_PARTS)
        names += ["_".join(parts[start:]) for start in range(1, len(parts))]
    return [n for n in dict.fromkeys(names) if not is_missing(n)]


def _weights(cells: Mapping[str, str], number: int, score: str, certain: float) -> list[float]:
    """Log weights of the formulas of a row.

    Of several the first has probability 1 - FDR where msbuddy gives one, and the others share the
    rest.
    """
    value, fdr = _number(cells.get(score, "")), _number(cells.get(_FDR, ""))
    if value is not None:
        return [_log(value / certain) if certain else value] * number
    if number > 1 and fdr is not None and 0 <= fdr <= 1:
        return [_log(1 - fdr), *[_log(fdr / (number - 1))] * (number - 1)]
    rank = next((r for name in _RANKS if (r := _number(cells.get(name, "")))), None)
    first = rank if rank is not None and rank > 0 else 1.0
    return [-math.log(first * place) for place in range(1, number + 1)]


def _log(probability: float) -> float:
    """Logarithm with a floor, so that a row of probability 0 stays a (hopeless) hypothesis."""
    return math.log(max(probability, 1e-6))


def names_in_tables(feature: Feature) -> tuple[str, ...]:
    """What a table may call a feature, the likelier name first.

    Scan numbers count only without a feature id: both are small integers of different meaning.
    """
    spectrum = feature.first
    last = "" if spectrum.feature_id else spectrum.scans
    names = (spectrum.feature_id, spectrum.spectrum_id, compound_name(spectrum.metadata), last)
    return tuple(dict.fromkeys(filter(None, names)))


_IDS: Final = (
    *("mappingfeatureid", "providedfeatureid", "alignedfeatureid", "featureid", "rowid"),
    *("alignmentid", "peakid", "compound", "compoundsid", "rownames", "feature", "id", "name"),
)
_MZ: Final = (
    *("rowmz", "averagemz", "mzmed", "mzcf", "precursormz", "ionmass", "mzmean", "mz", "pepmass"),
)
_MASSES: Final = ("neutralmassda", "calcmw")  # neutral ones
# Retention times: in seconds, in either unit (median of XCMS), and in minutes. XCMS calls rtmin
# what others call the least, so it comes after what XCMS writes beside it.
_SECONDS: Final = (
    *("retentiontimeinseconds", "rtseconds", "rtsec", "rts", "retentiontimes", "rtcf"),
)
_EITHER: Final = ("rtmed", "rt", "rtmean")
_MINUTES: Final = (
    *("rowretentiontime", "averagertmin", "retentiontimemin", "retentiontimeinminutes"),
    *("rtminutes", "rtmin"),
)
_RT: Final = (*_SECONDS, *_EITHER, *_MINUTES, "retentiontime")
_ADDUCTS: Final = (
    *("bestion", "ionidentitiesionidentities", "adducttype", "adductionname", "adduct", "adducts"),
    *("iontype", "referenceion"),
)
_OF_MZMINE: Final = "rtrangemin"  # stands beside its retention times, which are in minutes
# Stands in tables of MetaboScape whose PEPMASS is the neutral mass and whose times are in seconds;
# older ones have m/z and minutes under the same names.
_OF_METABOSCAPE: Final = "namemetaboscape"
# OpenMS writes tables of several kinds into one file; each line begins with the name of its kind.
_OF_OPENMS: Final = re.compile(r"#?CONSENSUS[\t;,]")
# Ids that MS-DIAL and Progenesis QI put into the names of spectra.
_ID_IN_NAME: Final = re.compile(
    r"\|(?:PEAK)?ID=(\d+)(?=\||$)|\((\d+[.,]\d+_\d+[.,]\d+(?:n|m/z))\)$"
)
_LONGEST_S: Final = 100.0  # a largest retention time below it is one in minutes
_MOST_BEFORE: Final = 20  # lines before the names of the columns
_OURS: Final = "duallgd_"
# What is of one feature: m/z of a row and of an id that it shares, and retention times.
_SAME_PPM, _SAME_DA, _SAME_DA_OF_ID = 10.0, 0.005, 0.02
_SAME_S, _SAME_S_OF_ID = 20.0, 30.0
_SHOWN: Final = 3


class Row(NamedTuple):
    """A feature of a table."""

    cells: Sequence[str]
    name: str  # its id, or the first cell of a row without ids
    rt_s: float | None
    # m/z and adduct, or "": first as the table has them, then each by its neutral mass
    ions: Sequence[tuple[float | None, str]]
    same: int  # place of the first row of these ids, m/z and time: SIRIUS has one for each formula


class Joined(NamedTuple):
    """The place of the row that a feature is, if any."""

    place: int | None  # of the first of such rows
    by: str = ""  # by what it joins: ``id`` or ``m/z and RT``
    adduct: str = ""  # as the row has it for the m/z of the feature
    remark: str = ""  # what is doubtful


class FeatureTable:
    """A table of features, as mzmine, MS-DIAL, SIRIUS, XCMS and Progenesis QI export them.

    MS-DIAL and Progenesis QI write lines before the one that names the columns, R may leave out the
    name of its first column. A row is of a feature of the spectra that has its id and about its
    m/z, or about its m/z and retention time: ids alone may be numbers of another file.

    Attributes:
        before: Cells of the lines before the names of the columns.
        columns: Their names, without those that this program adds.
        rows: All of them.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is no table of features.
    """

    def __init__(self, path: Path) -> None:
        self._name, self._guess = path.name, ""  # what was guessed of it
        self.before, (names, *lines) = _read(path)
        header = [plain(name) for name in names]
        first = partial(column, path, names)
        kept = [at for at, name in enumerate(names) if not name.startswith(_OURS)]
        self.columns = [names[at] for at in kept]

        mz, rt, adduct, mass = first(_MZ), first(_RT), first(_ADDUCTS), first(_MASSES)
        if _OF_METABOSCAPE in header:
            mz, mass = None, mz
        ids = [at for name in _IDS for at, own in enumerate(header) if own == name]
        ids += [0] if names[0] == "" else []
        of_mz = mz if mass is None else mass
        self._read_from = (  # for who has joined none
            f"ids ({', '.join(names[at] for at in ids) or 'no column'}) and m/z "
            f"({'no column' if of_mz is None else names[of_mz]})"
        )
        unit_s = 1.0 if rt is None else self._unit_s(names[rt], header, [one[rt] for one in lines])
        self.rows: list[Row] = []
        self._by_id: defaultdict[str, list[int]] = defaultdict(list)
        self._adducts: defaultdict[int, dict[str, None]] = defaultdict(dict)  # of equal rows
        first_of: dict[tuple[object, ...], int] = {}
        for place, cells in enumerate(lines):
            ion_mz, time, neutral = (
                None if at is None else _number(cells[at]) for at in (mz, rt, mass)
            )
            text = "" if adduct is None else cells[adduct].removeprefix("ION=")
            ions = _ions(ion_mz, neutral, "" if is_missing(text) else text)
            time_s = None if time is None else time * unit_s
            key = (*(cells[n] for n in ids), ions[0][0], time_s)
            same = first_of.setdefault(key, place) if any(key) else place
            name = next(filter(None, (cells[n] for n in ids)), cells[0])
            self.rows.append(Row([cells[n] for n in kept], name, time_s, ions, same))
            if ions[0][1]:
                self._adducts[same][ions[0][1]] = None
            for name in dict.fromkeys(name for n in ids for name in _cell_names(cells[n])):
                self._by_id[name].append(place)
        each = [(place, mz) for place, row in enumerate(self.rows) for mz, _ in row.ions]
        self._place = np.array([place for place, _ in each], dtype=np.intp)  # of each ion
        self._mz = np.array([mz for _, mz in each], dtype=np.float64)  # None becomes NaN
        self._rt = np.array([row.rt_s for row in self.rows], dtype=np.float64)

    def _unit_s(self, written: str, header: Sequence[str], cells: Sequence[str]) -> float:
        """Seconds in the unit of the retention times."""
        name = plain(written)
        if name in _MINUTES or (name == "rt" and _OF_MZMINE in header):
            return 60.0
        if name in _SECONDS or _OF_METABOSCAPE in header:
            return 1.0
        longest = max(filter(None, map(_number, cells)), default=0.0)
        is_minutes = longest < _LONGEST_S
        if name != "rtmed" or is_minutes:
            self._guess = (
                f"{self._name}: retention times in the column {quote(written)} are at most "
                f"{longest:.6g} and taken for {'minutes' if is_minutes else 'seconds'}; name it "
                "rt_seconds or rt_minutes if that is wrong"
            )
        return 60.0 if is_minutes else 1.0

    def row_of(self, names: Sequence[str], mz: float | None, rt_s: float | None) -> Joined:
        """The row of a feature by its names, the likelier first, precursor m/z and time (s)."""
        within = (part for name in names for ids in _ID_IN_NAME.findall(name) for part in ids)
        same_id = dict.fromkeys(
            at for name in (*names, *within) for at in self._by_id.get(name, ())
        )
        most_da = np.inf if mz is None else max(_SAME_DA_OF_ID, 2e-5 * mz)
        apart_s = np.abs(self._rt - (np.nan if rt_s is None else rt_s))
        agreeing = [
            at
            for at in same_id
            if any(
                ion is None or abs(ion - (mz or 0.0)) <= most_da for ion, _ in self.rows[at].ions
            )
        ]
        if agreeing:
            place = self.rows[min(agreeing, key=lambda one: np.nan_to_num(apart_s[one]))].same
            remark = ""
            if apart_s[place] > _SAME_S_OF_ID:
                remark = f"the retention time is {rt_s:.6g} s in the file and "
                remark += f"{self._rt[place]:.6g} s in the table of features"
            return self._joined(place, "id", mz, remark)
        if mz is None or rt_s is None:
            return Joined(None)
        apart = np.abs(self._mz - mz) / _near_da(mz)
        near = np.flatnonzero((apart <= 1) & (apart_s[self._place] <= _SAME_S))
        if not near.size:
            return Joined(None)
        places = self._place[near]
        best = int(places[np.argmin(apart[near] ** 2 + (apart_s[places] / _SAME_S) ** 2)])
        several, remark = len({self.rows[at].same for at in places.tolist()}), ""
        if several > 1:
            remark = f"{several} rows of the table of features have this m/z and retention time; "
            remark += "the nearest is used"
        return self._joined(self.rows[best].same, "m/z and RT", mz, remark)

    def _joined(self, place: int, by: str, mz: float | None, remark: str) -> Joined:
        """A row with the adduct that it gives to an ion of this m/z."""
        (_, text), *by_mass = self.rows[place].ions
        near = [
            (abs(ion - mz), name)
            for ion, name in by_mass
            if ion and mz and abs(ion - mz) <= _near_da(mz)
        ]
        adduct = min(near)[1] if near else text or next(iter(self._adducts[place]), "")
        if len(self._adducts[place]) > 1:
            also = ", ".join(name for name in self._adducts[place] if name != adduct)
            further = f"the table of features has {adduct} for it and in further rows {also}"
            remark = "; ".join(filter(None, (remark, further)))
        return Joined(place, by, adduct, remark)

    def applied(self, features: Iterable[Feature]) -> Iterator[Feature]:
        """Features with the adducts of their rows; the log says at the end what did not join.

        An adduct of the spectrum file, or one that is given for all, goes before that of the table,
        and this before one that other ions tell; where two differ the feature says so.
        """
        if self._guess:
            logger.warning("%s", self._guess)
        how: Counter[str] = Counter()
        unseen, without = {row.same for row in self.rows}, list[str]()
        for feature in features:
            spectrum, names = feature.first, names_in_tables(feature)
            place, by, adduct, remark = self.row_of(
                names, spectrum.precursor_mz, spectrum.retention_time_s
            )
            if place is None:
                without.append((*names, spectrum.spectrum_id)[0])
                yield feature
                continue
            how[by] += 1
            unseen.discard(place)
            spectra = tuple(_with_adduct(one, adduct, remark) for one in feature.spectra)
            yield replace(feature, spectra=spectra)
        said = ", ".join(f"{number} by {by}" for by, number in how.items()) or "none"
        text = f"{self._name}: {counted(how.total(), 'feature')} joined ({said})"
        if not unseen and not without:
            logger.info("%s", text)
            return
        rows = ", ".join(self.rows[place].name for place in sorted(unseen)[:_SHOWN])
        lacking = f" (features {', '.join(map(clip, without[:_SHOWN]))})" if without else ""
        advice = "" if how else f"; check that its {self._read_from} are those of the spectra"
        logger.warning(
            "%s; without a spectrum: %s%s; in no row: %s%s%s",
            text, counted(len(unseen), "row"), f" (rows {clip(rows)})" if rows else "",
            counted(len(without), "feature"), lacking, advice,
        )  # fmt: skip


def _near_da(mz: float) -> float:
    return max(_SAME_DA, _SAME_PPM * 1e-6 * mz)


def _ions(mz: float | None, mass: float | None, text: str) -> list[tuple[float | None, str]]:
    """Each m/z of a row with its adduct, see `Row`; several may be named, as Progenesis QI does."""
    ions: list[tuple[float | None, str]] = [(mz, text)]
    for name in text.split(", ") if mass else ():
        adduct = parse_adduct(name)
        if mass and not isinstance(adduct, Failure):
            ions.append((adduct.mz(mass), name))
    return ions[1:] if mz is None and len(ions) > 1 else ions


def _read(path: Path) -> tuple[list[list[str]], list[Sequence[str]]]:
    """Lines before the names of the columns, and the rows from these on."""
    try:
        with open_text(path) as file:
            texts = list(file)
    except DAMAGED as error:
        raise UnreadableError(damaged(path, error)) from None
    before: list[str] = []
    if any(map(_OF_OPENMS.match, texts)):
        before = [text for text in texts if not _OF_OPENMS.match(text)]
        texts = [*filter(_OF_OPENMS.match, texts)]
    for at, text in enumerate(texts[:_MOST_BEFORE]):
        for delimiter in "\t;,":
            names = {plain(name) for name in _split(text.lstrip("#"), delimiter)}
            if names & {*_MZ} and names & {*_IDS, *_RT}:
                break
        else:
            continue
        # A mark before the names would make a comment of them.
        rest = [text.lstrip("#"), *texts[at + 1 :]]
        if len(rest) > 1 and len(_split(rest[1], delimiter)) == len(_split(text, delimiter)) + 1:
            rest[0] = f'""{delimiter}{rest[0]}'  # R names no column of the names of its rows
        rows: list[Sequence[str]] = []
        for line in lines_of(iter(rest), delimiter):
            if line.fault:
                raise UnreadableError(f"{path}, line {at + line.number}: {line.fault}")
            rows.append(line.cells)
        return [_split(one, delimiter) for one in (*before, *texts[:at])], rows
    begins = next((one.strip() for one in texts if one.strip()), "nothing")
    raise UnreadableError(
        f"{path} is no table of features: no line names a column of m/z (such as row m/z, Average "
        f"Mz or mzmed) beside one of ids or retention times; it begins with {clip(begins)}"
    )


def _split(text: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]


def _with_adduct(spectrum: Spectrum, text: str, remark: str) -> Spectrum:
    """A spectrum with the adduct of its row, and what the two say of it differently."""
    own, said = spectrum.adduct_text, [remark]
    adduct = parse_adduct(text) if text else None
    if isinstance(adduct, Failure):
        said += [] if own else [f"in the table of features: {adduct.message}"]
    elif adduct and adduct.polarity * spectrum.polarity < 0:
        said.append(f"the adduct {text} of the table of features has another ion mode: left out")
    elif adduct and (not own or spectrum.adduct_source == LINKED):
        if own and parse_adduct(own) != adduct:
            other = f"not {own} that other ions tell"
            said.append(f"the adduct {text} of the table of features is used, {other}")
        spectrum = replace(spectrum, adduct_text=text, adduct_source=TABLE)
    elif adduct and parse_adduct(own) != adduct:
        whose = "of --adduct" if spectrum.adduct_source == OPTION else "of the file"
        said.append(f"the adduct {clip(own)} {whose} is used, not {text} of the table of features")
    return spectrum.warned(*said)
