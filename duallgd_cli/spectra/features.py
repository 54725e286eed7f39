"""From the inputs of a run to features: the spectra of one ion, read together.

What MS1 spectra show of the isotopes of an ion goes with its MS2 spectra.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Self

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import ConfigError, DuallgdError, Failure, UnreadableError, clip
from duallgd_cli.files import STANDARD_STREAM, require_input, sha256
from duallgd_cli.spectra.ms1 import (
    SPANS,
    charge_of,
    differs,
    is_scan,
    isotope_pattern,
    with_isotopes,
)
from duallgd_cli.spectra.reading import open_bytes, read
from duallgd_cli.spectra.reading.record import canonical, unreadable
from duallgd_cli.spectra.run import (
    BY_DEFAULT,
    COMPOUNDS,
    FEATURES,
    LEFT_OUT,
    SPECTRA,
    FeatureSettings,
    features_of_run,
)
from duallgd_cli.spectra.types import GIVEN, ISOTOPES, OPTION, Feature, Source, Spectrum

logger = logging.getLogger(__name__)

_LEVEL: Final = "MS level"
_LEAST_ABOVE: Final = 0.01  # of the base peak: an ion above the precursor that is no noise
_FILTERS: Final = ("rt", "mz", "min_peaks", "min_intensity", "rt_window")  # of runs alone
GroupBy = Literal["run", "feature", "none"]


def group(
    items: Iterable[Spectrum],
    by: GroupBy = "feature",
    adduct: str | None = None,
    settings: FeatureSettings = BY_DEFAULT,
    counts: Counter[str] | None = None,
    level: int = logging.INFO,
) -> Iterator[Feature]:
    """Features in the order of their first spectrum.

    With ``run``, files whose MS2 spectra all have a retention time, and none a FEATURE_ID, an
    adduct, a formula or a name, are read as `features_of_run` says, and other files as with
    ``feature``: spectra of one file are one feature where they share a FEATURE_ID (in SIRIUS
    ``.ms``: a compound), the adduct, the precursor m/z and, where both name it, formula, charge,
    ion mode and retention time; what differs is said. SCANS, TITLE and NAME group nothing, since in
    most dialects they number spectra or name compounds, nor does a FEATURE_ID that all of a file
    with several precursors have. Spectra without one pass straight through until the first that has
    one; from there on a file is held until its end, since a further member may still come. MS1
    spectra found no features: what they show of the isotopes of one goes with its spectra.

    Args:
        items: Spectra, file after file.
        by: ``run``, ``feature``, or ``none`` for one feature per spectrum.
        adduct: Of all spectra, whatever they say; None leaves each its own.
        settings: Of runs.
        counts: Told what became of the spectra of runs.
        level: Of the line of a log that says so.
    """
    if adduct is not None:
        items = (_with_adduct(one, adduct) for one in items)
    if adduct is not None or settings.by == "feature":
        items = (replace(one, answered_by="") if one.answered_by else one for one in items)
    counts = Counter() if counts is None else counts
    for name, of_file in groupby(items, key=lambda one: one.source.file):
        scans: list[Spectrum] = []
        rest = iter(of_file)
        if by == "run":
            for item in rest:
                scans.append(item)
                if not _is_of_run(item):
                    break
            else:
                if any(map(is_scan, scans)):
                    yield from features_of_run(name, scans, settings, counts, level)
                    continue
        if any(getattr(settings, name) != getattr(BY_DEFAULT, name) for name in _FILTERS):
            why = "since it is no run (its MS2 spectra lack times, or have ids, adducts or names)"
            why = why if by == "run" else f"with --group-by {by}"
            logger.warning("all spectra of %s are read, %s", name, why)
        yield from _by_id(chain(scans, rest), has_ids=by != "none")


def _is_of_run(item: Spectrum) -> bool:
    """Whether a spectrum is a scan as an instrument writes it, not a spectrum with a name."""
    if item.failure is not None or item.ms_level > 2:
        return True
    if item.ms_level == 1:
        return not item.feature_id
    named = item.feature_id or item.formula_text or "compound_name" in canonical(item.metadata)
    is_named = bool(named) or (item.adduct_text != "" and item.adduct_source == GIVEN)
    return item.retention_time_s is not None and not is_named


def _with_adduct(spectrum: Spectrum, adduct: str) -> Spectrum:
    if spectrum.failure is not None:
        return spectrum
    own = spectrum.adduct_text
    if own and parse_adduct(own) != parse_adduct(adduct):
        spectrum = spectrum.warned(f"the adduct {adduct} is used, not the spectrum's {clip(own)}")
    return replace(spectrum, adduct_text=adduct, adduct_source=OPTION)


def _by_id(items: Iterable[Spectrum], has_ids: bool) -> Iterator[Feature]:
    """Features by the FEATURE_ID of spectra of one file; without ids each spectrum is one."""
    held: list[list[Spectrum]] = []
    by_id: defaultdict[str, list[list[Spectrum]]] = defaultdict(list)
    ms1: defaultdict[str | int, list[Spectrum]] = defaultdict(list)
    for item in _with_levels(items):
        if item.ms_level == 1 and item.feature_id:
            ms1[item.feature_id].append(replace(item, metadata={}))
        elif item.ms_level == 1:
            ms1[item.polarity] = [item]
        elif not has_ids or not item.feature_id:
            held.append([with_isotopes(_of_unclear_level(item), ms1)])
        else:
            features = by_id[item.feature_id]
            members = next((one for one in features if _apart(one[0], item) == ""), None)
            if members is None:  # the first of a new feature
                members = []
                features.append(members)
                held.append(members)
            members.append(item)
        if not by_id:
            yield from _finished(held, ms1)
            held = []
    for name, features in by_id.items():
        reasons = dict.fromkeys(_apart(features[0][0], other[0]) for other in features[1:])
        if reasons and len(by_id) == 1 and "precursor m/z" in reasons:
            warning = f"FEATURE_ID {clip(name)}, the only one of the file, is of several precursors"
            alone = sorted((one for entry in held for one in entry), key=lambda s: s.source.index)
            held = [
                [one.warned(f"{warning} and groups none") if one.feature_id else one]
                for one in alone
            ]
        elif what := " and ".join(reason for reason in reasons if reason != _LEVEL):
            warning = f"spectra of FEATURE_ID {clip(name)} differ in {what} and are read apart"
            for members in features:
                members[:] = [one.warned(warning) for one in members]
        for members in features:
            members[:] = _without_ms1(members, ms1[name])
    yield from _finished(held, ms1)


def _finished(
    held: list[list[Spectrum]], ms1: Mapping[str | int, Sequence[Spectrum]]
) -> Iterator[Feature]:
    for entry in held:
        if len(entry) > 1:  # what some spectra of a feature say of their ion holds for all
            charge = next((one.charge for one in entry if one.charge), 0)
            polarity = next((one.polarity for one in entry if one.polarity), 0)
            entry = [replace(one, charge=charge, polarity=polarity) for one in entry]
        # An MS1 spectrum of the feature may have come after those of MS2.
        yield Feature(tuple(with_isotopes(one, ms1) if one.feature_id else one for one in entry))


def _apart(first: Spectrum, other: Spectrum) -> str:
    """In what two spectra of one FEATURE_ID differ so that they are two features, else ""."""
    if first.ms_level != other.ms_level:
        return _LEVEL
    adduct = parse_adduct(first.adduct_text)
    is_same = not isinstance(adduct, Failure) and adduct == parse_adduct(other.adduct_text)
    if first.adduct_text != other.adduct_text and not is_same:
        return "adduct"
    if len({first.formula_text, other.formula_text} - {""}) > 1:
        return "formula"
    return differs(first, other)


def _with_levels(items: Iterable[Spectrum]) -> Iterator[Spectrum]:
    """Spectra of a file; what is clearly the MS1 spectrum of the next one is given that level."""
    before: Spectrum | None = None
    for item in items:
        if before is not None:
            is_of_item = before.feature_id == item.feature_id and not _shows_ms1(item)
            if is_of_item and item.ms_level == 2 and differs(before, item) == "":
                item = _with_ms1(item, before)
                before = replace(before, ms_level=1)
            yield before
        before = item if _shows_ms1(item) else None
        if before is None:
            yield item
    if before is not None:
        yield before


def _without_ms1(members: list[Spectrum], ms1: list[Spectrum]) -> list[Spectrum]:
    """The spectra of a feature, after what is clearly MS1 was added to the MS1 spectra."""
    of_ms1 = [one for one in members if _shows_ms1(one)]
    others = [one for one in members if one not in of_ms1]
    if not of_ms1 or not others:
        return [*map(_of_unclear_level, members)]
    ms1 += [replace(one, ms_level=1, metadata={}) for one in of_ms1]
    return [_with_ms1(one, of_ms1[0]) for one in others]


def _shows_ms1(spectrum: Spectrum) -> bool:
    """Whether a spectrum without a level shows what MS1 spectra do and those of fragments do not.

    That is the isotopes of its singly charged precursor, and beside them ions above it or nothing
    below it. A spectrum that names a collision energy is of fragments.
    """
    mz, intensity = spectrum.precursor_mz, spectrum.intensity
    if spectrum.ms_level != 2 or mz is None or not intensity.size:
        return False
    above = intensity[spectrum.mz > mz + SPANS[4][1] + 0.2].max(initial=0.0)
    # Without a FEATURE_ID it may be a spectrum of low energy, which has a row of its own.
    has_nothing_below = spectrum.feature_id != "" and spectrum.mz[0] > mz - 1
    if not has_nothing_below and above < _LEAST_ABOVE * intensity.max():
        return False
    said = {"ms_level", "spectype", "collision_energy"} & canonical(spectrum.metadata).keys()
    pattern = isotope_pattern(spectrum, spectrum)
    if said or abs(charge_of(spectrum)) > 1 or pattern is None:
        return False
    return pattern.intensity[1 + ISOTOPES.index(1)] < 1.2 * pattern.intensity[0]


def _with_ms1(spectrum: Spectrum, ms1: Spectrum) -> Spectrum:
    return spectrum.assumed(
        f"index {ms1.source.index} of the file has no MS level and shows the isotopes of its "
        "precursor as MS1 spectra do: it is read as the MS1 spectrum of this one"
    )


def _of_unclear_level(spectrum: Spectrum) -> Spectrum:
    if not _shows_ms1(spectrum):
        return spectrum
    return spectrum.assumed(
        "it has no MS level and shows the isotopes of its precursor as MS1 spectra do, but is read "
        "as MS2 since no other spectrum is; write MSLEVEL"
    )


def require_adduct(text: str | None) -> None:
    """Refuse (ConfigError) an adduct for all spectra that is none."""
    adduct = None if text is None else parse_adduct(text)
    if isinstance(adduct, Failure):
        raise ConfigError(f"--adduct: {adduct.message}")


@dataclass(slots=True)
class Inputs:
    """Spectrum files of a run; a context manager, since pipes are copied and released."""

    names: tuple[str, ...]  # as the user named them; ``-`` is standard input
    n_ms1: int = 0  # MS1 spectra that `features` has read so far
    n_features: int = 0  # what it has given so far
    runs: Counter[str] = field(default_factory=Counter)  # what became of MS2 spectra of runs so far
    level: int = logging.INFO  # of the line of a log that says so of each
    _piped: dict[str, BinaryIO] = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        """Find the files (see `require_input`), and copy pipes, which can be read only once."""
        for name in self.names:
            if name != STANDARD_STREAM:
                require_input(name)
        self._piped |= {name: open_bytes(name) for name in self.names if _flows(name)}
        return self

    def __exit__(self, *error: object) -> None:
        for copied in self._piped.values():
            copied.close()

    def identity(self) -> tuple[Mapping[str, Any], ...]:
        """Name, size and SHA-256 of each input."""
        values = []
        for name in self.names:
            copied = self._piped.get(name)
            with open_bytes(name) if copied is None else nullcontext(copied) as file:
                file.seek(0)
                digest, size = sha256(file), file.tell()
                file.seek(0)
            values.append({"name": name, "bytes": size, "sha256": digest})
        return tuple(values)

    def features(
        self,
        group_by: GroupBy,
        adduct: str | None = None,
        settings: FeatureSettings = BY_DEFAULT,
    ) -> Iterator[Feature]:
        """Features in the order of the inputs, see `group`; MS1 spectra are counted.

        What cannot be read, a record or one file of several, is a feature of its own.

        Raises:
            UnreadableError: The only input cannot be read, or there is no feature.
        """

        def items() -> Iterator[Spectrum]:
            for name in self.names:
                try:
                    for item in read(name, raw=self._piped.get(name)):
                        self.n_ms1 += item.ms_level == 1
                        yield item
                except UnreadableError as error:
                    if len(self.names) == 1:
                        raise
                    yield unreadable(Source(name, 0), str(error))

        for item in group(items(), group_by, adduct, settings, self.runs, self.level):
            self.n_features += 1
            yield item
        if not self.n_features:
            files = ", ".join(self.names)
            message = f"no MS2 spectrum in {files} ({self.n_ms1} of MS1)"
            if why := ", ".join(f"{n} {reason}" for reason, n in left_out(self.runs).items()):
                message = f"no MS2 spectrum of {files} is left: {why}; widen the filters"
            raise UnreadableError(message)


def left_out(counts: Mapping[str, int]) -> dict[str, int]:
    """How many MS2 spectra of runs are in no feature, by reason."""
    split = ((name.partition(LEFT_OUT)[2], number) for name, number in counts.items())
    return {why: number for why, number in split if why}


def record_of_scans(counts: Mapping[str, int]) -> dict[str, Any]:
    """What became of MS2 spectra, for the record of a run; {} without runs of scans."""
    if not counts.get(SPECTRA):
        return {}
    names = {"spectra": SPECTRA, "features": FEATURES, "compounds": COMPOUNDS}
    values = {name: counts.get(key, 0) for name, key in names.items()}
    return {"scans": {**values, "left_out": left_out(counts)}}


def count_spectra(
    names: tuple[str, ...],
    group_by: GroupBy,
    adduct: str | None = None,
    settings: FeatureSettings = BY_DEFAULT,
    holds: Callable[[int], bool] = lambda number: True,
) -> int | None:
    """How many spectra a run will account for, see `group`; None for pipes and faults.

    Of a run that shares its input, `holds` says which features by their numbers are its own.
    """
    inputs = Inputs(names, level=logging.DEBUG)
    try:
        if any(map(_flows, names)):
            return None
        features = inputs.features(group_by, adduct, settings)
        own = (feature.spectra for number, feature in enumerate(features) if holds(number))
        return sum(len(one.merged) or 1 for spectra in own for one in spectra)
    except (DuallgdError, OSError):
        return None


def _flows(name: str) -> bool:
    """Whether an input is standard input, or a pipe such as a shell's ``<(...)``."""
    return name == STANDARD_STREAM or Path(name).is_fifo()
