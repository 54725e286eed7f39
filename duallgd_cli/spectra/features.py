"""From the inputs of a run to features: each spectrum cleaned, those of one ion read together.

What MS1 spectra show of the isotopes of an ion goes with its MS2 spectra.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Self

import numpy as np

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from duallgd_cli.config import require, require_range
from duallgd_cli.errors import (
    ConfigError,
    DuallgdError,
    Failure,
    UnreadableError,
    clip,
    counted,
)
from duallgd_cli.files import STANDARD_STREAM, require_input, sha256
from duallgd_cli.spectra.annotation import AnnotationSettings
from duallgd_cli.spectra.reading import open_bytes, read
from duallgd_cli.spectra.reading.record import unreadable
from duallgd_cli.spectra.types import (
    HIGHEST_MZ,
    ISOTOPES,
    OPTION,
    Feature,
    IsotopePattern,
    Source,
    Spectrum,
)

FAINTEST: Final = 1e-12  # relative to the base peak, beyond any detector: as good as zero
SAME_PRECURSOR_PPM: Final = 10.0
# Least and largest mass of each isotope from the monoisotopic ion, Da.
_SPANS: Final = {
    -2: (-1.9993, -1.9927),  # 78Se to 10B2
    -1: (-0.9964, -0.9964),  # 10B
    1: (0.9970, 1.0063),  # 15N to 2H
    2: (1.9957, 2.0068),  # 34S to 13C2
    4: (3.9915, 4.0086),  # 34S2 to 18O2
}
_SPANS_DA: Final = np.array([(0.0, 0.0), *(_SPANS[offset] for offset in ISOTOPES)])
_TOLERANCE: Final = AnnotationSettings()
_LEAST: Final = 1e-30  # intensity; ratios of any two are numbers whose squares are

GroupBy = Literal["feature", "none"]


@dataclass(frozen=True, slots=True)
class CleaningSettings:
    """Which peaks are kept.

    Attributes:
        max_peaks: The most intense peaks that are kept, at least 1.
        isotope_margin_da: Peaks above the precursor m/z, times its charges, plus this many Da are
            dropped: nothing of an ion lies there but its isotopes.
    """

    max_peaks: int = 512
    isotope_margin_da: float = 3.0

    def __post_init__(self) -> None:
        require_range(self, "max_peaks", least=1)
        margin_da = self.isotope_margin_da
        require(margin_da >= 0, f"isotope_margin_da must be 0 or more, not {margin_da}")


def clean(spectrum: Spectrum, settings: CleaningSettings) -> Spectrum:
    """A spectrum ready to be explained, or with a `no_peaks` failure where nothing is left.

    Drops peaks without a positive, possible m/z and intensity and those above the precursor;
    adds up peaks of equal m/z; makes the base peak 1; keeps the `max_peaks` most intense. A second
    cleaning changes nothing. (A spectrum whose peaks nothing explains is still predicted, from its
    formula; one without any peak is not, since it was not measured.)
    """
    if spectrum.failure is not None:
        return spectrum
    mz, intensity = spectrum.mz, spectrum.intensity
    measured = np.isfinite(mz) & np.isfinite(intensity) & (mz > 0) & (intensity > 0)
    measured &= mz < HIGHEST_MZ
    limit = np.inf
    if spectrum.precursor_mz is not None:
        adduct = parse_adduct(spectrum.adduct_text)
        # Fragments of a multiply charged ion with fewer charges lie above it.
        charges = 1 if isinstance(adduct, Failure) else abs(adduct.charge)
        limit = spectrum.precursor_mz * charges + settings.isotope_margin_da
    kept = measured & (mz <= limit)
    if not kept.any():
        failure = Failure("no_peaks", _why_empty(mz.size, int(measured.sum()), limit), "read")
        return replace(spectrum, mz=mz[:0], intensity=intensity[:0], failure=failure)
    # Scaled first, so that sums of huge intensities stay finite.
    mz, intensity = mz[kept], intensity[kept] / intensity[kept].max()
    if not (mz[1:] > mz[:-1]).all():
        mz, inverse = np.unique(mz, return_inverse=True)
        intensity = np.bincount(inverse, weights=intensity, minlength=mz.size).astype(np.float64)
    intensity = intensity / intensity.max()
    real = intensity >= FAINTEST
    mz, intensity = mz[real], intensity[real]
    if mz.size > settings.max_peaks:  # of equal intensities the lower m/z goes first
        chosen = np.sort(np.argsort(-intensity, kind="stable")[: settings.max_peaks])
        mz, intensity = mz[chosen], intensity[chosen]
    return replace(spectrum, mz=mz, intensity=intensity)


def _why_empty(n_read: int, n_measured: int, limit: float) -> str:
    if n_read == 0:
        return "the spectrum has no peaks; export MS2 spectra together with their peaks"
    if n_measured == 0:
        return (
            f"no possible m/z and intensity above 0 in {counted(n_read, 'peak')}; restore the file"
        )
    return (
        f"all peaks ({n_measured}) lie above the precursor (m/z {limit:.4f} with isotopes); "
        "check the precursor m/z"
    )


def _with_isotopes(spectrum: Spectrum, ms1: Mapping[str | int, Sequence[Spectrum]]) -> Spectrum:
    """An MS2 spectrum with what its MS1 spectra show.

    Args:
        spectrum: Its own are those of its FEATURE_ID; without one the last before it, of its
            polarity and, if that names a precursor, of its precursor.
        ms1: Those of its file as far as they are read, by FEATURE_ID; of those without the last one
            by polarity.
    """
    if spectrum.feature_id:
        own = ms1.get(spectrum.feature_id, ())
    else:
        last = ms1.get(spectrum.polarity) or ms1.get(0, ())
        own = [one for one in last if one.precursor_mz is None or _same_precursor(spectrum, one)]
    patterns = [found for one in own if (found := isotope_pattern(one, spectrum)) is not None]
    if not patterns:
        return spectrum
    return replace(spectrum, isotopes=sum(patterns[1:], patterns[0]))


def _same_precursor(first: Spectrum, other: Spectrum) -> bool:
    """Whether two spectra name one precursor, or neither names any."""
    if first.precursor_mz is None or other.precursor_mz is None:
        return first.precursor_mz is other.precursor_mz
    difference = abs(first.precursor_mz - other.precursor_mz)
    return difference <= SAME_PRECURSOR_PPM * 1e-6 * first.precursor_mz


def isotope_pattern(ms1: Spectrum, ms2: Spectrum) -> IsotopePattern | None:
    """What an MS1 spectrum shows of a precursor.

    Returns:
        None where the ion is not in it, or none of its heavier isotopes: such a list was rid of
        isotopes, or the ion is too faint.
    """
    mz = ms2.precursor_mz
    possible = (ms1.intensity > _LEAST) & (ms1.intensity < 1 / _LEAST)
    if mz is None or not possible.any():
        return None
    adduct = parse_adduct(ms2.adduct_text)
    charge = ms2.charge if isinstance(adduct, Failure) else adduct.charge
    ppm = _TOLERANCE.tolerance_ppm(ms2.instrument or ms1.instrument)
    at = mz + _SPANS_DA / max(abs(charge), 1)
    tolerance = np.array([-1.0, 1.0]) * np.maximum(at, _TOLERANCE.floor_mz) * ppm * 1e-6
    peak_mz, intensity = ms1.mz[possible], ms1.intensity[possible]
    edges = np.searchsorted(peak_mz, at + tolerance)
    sums = [float(intensity[start:end].sum()) for start, end in edges]
    if sums[0] == 0 or not any(sums[1 + ISOTOPES.index(1) :]):
        return None
    return IsotopePattern(tuple(sums), float(intensity.min()))


def group(
    items: Iterable[Spectrum], by: GroupBy = "feature", adduct: str | None = None
) -> Iterator[Feature]:
    """Features in the order of their first spectrum.

    With ``feature``, spectra of one file become one feature where they share a FEATURE_ID (in a
    SIRIUS ``.ms`` file: a compound), the adduct, the formula where both name one, and the precursor
    m/z within 10 ppm. SCANS, TITLE and NAME group nothing: in most dialects they number spectra or
    name compounds. Spectra without a FEATURE_ID stand alone.

    Spectra without a FEATURE_ID pass straight through until the first one with it; from there on a
    file is held until its end, since a further member may still come.

    MS1 spectra found no features: what they show of the isotopes of one goes with its spectra.

    Args:
        items: Spectra, file after file.
        by: ``feature``, or ``none`` for one feature per spectrum.
        adduct: Of all spectra, whatever they say; None leaves each its own.
    """
    if adduct is not None:
        items = (_with_adduct(one, adduct) for one in items)
    files = groupby(items, key=lambda one: one.source.file)
    return chain.from_iterable(_features_of_file(of_file, by) for _, of_file in files)


def _features_of_file(items: Iterable[Spectrum], by: GroupBy) -> Iterator[Feature]:
    held: list[list[Spectrum]] = []
    groups: dict[tuple[str, Adduct | str, int], list[list[Spectrum]]] = {}
    ms1: defaultdict[str | int, list[Spectrum]] = defaultdict(list)
    for item in items:
        if item.ms_level == 1 and item.feature_id:
            ms1[item.feature_id].append(replace(item, metadata={}))
        elif item.ms_level == 1:
            ms1[item.polarity] = [item]
        elif by == "none" or not item.feature_id:
            held.append([_with_isotopes(item, ms1)])
        else:
            ion = parse_adduct(item.adduct_text)
            own = item.adduct_text if isinstance(ion, Failure) else ion
            group = groups.setdefault((item.feature_id, own, item.ms_level), [])
            members = next((one for one in group if _same_ion(one[0], item)), None)
            if members is None:  # the first of a new feature
                members = []
                group.append(members)
                held.append(members)
            members.append(item)
        if not groups:
            yield from _finished(held, ms1)
            held = []
    yield from _finished(held, ms1)


def require_adduct(text: str | None) -> None:
    """Refuse an adduct for all spectra that is none.

    Raises:
        ConfigError: With the reason.
    """
    adduct = None if text is None else parse_adduct(text)
    if isinstance(adduct, Failure):
        raise ConfigError(f"--adduct: {adduct.message}")


def _with_adduct(spectrum: Spectrum, adduct: str) -> Spectrum:
    if spectrum.failure is not None:
        return spectrum
    own, notes = spectrum.adduct_text, spectrum.warnings
    if own and parse_adduct(own) != parse_adduct(adduct):
        notes = (*notes, f"the adduct {adduct} is used, not the spectrum's {clip(own)}")
    return replace(spectrum, adduct_text=adduct, adduct_source=OPTION, warnings=notes)


def _finished(
    held: list[list[Spectrum]], ms1: Mapping[str | int, Sequence[Spectrum]]
) -> Iterator[Feature]:
    for entry in held:  # an MS1 spectrum of the feature may have come after those of MS2
        yield Feature(tuple(_with_isotopes(one, ms1) if one.feature_id else one for one in entry))


def _same_ion(first: Spectrum, other: Spectrum) -> bool:
    formulas = {first.formula_text, other.formula_text} - {""}
    return len(formulas) < 2 and _same_precursor(first, other)


@dataclass(slots=True)
class Inputs:
    """Spectrum files of a run; a context manager, since pipes are copied and released.

    Attributes:
        names: As the user named them; ``-`` is standard input.
        n_ms1: MS1 spectra that `features` has read so far.
        n_features: What it has given so far.
    """

    names: tuple[str, ...]
    n_ms1: int = 0
    n_features: int = 0
    _piped: dict[str, BinaryIO] = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        """Find the files and copy standard input and pipes, which can be read only once.

        Raises:
            MissingInputError: A file does not exist, or standard input is closed.
            UnreadableError: A file may not be looked at.
        """
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
        return tuple(self._identity(name) for name in self.names)

    def features(self, group_by: GroupBy, adduct: str | None = None) -> Iterator[Feature]:
        """Features in the order of the inputs; MS1 spectra are counted.

        A record that cannot be read is a feature of its own, and so is a file of which nothing can
        be read, so that it does not cost the others their results; if it is the only one it is an
        error. See `group` for the arguments.

        Raises:
            UnreadableError: The only input cannot be read.
        """
        for item in group(self._items(), group_by, adduct):
            self.n_features += 1
            yield item

    def _items(self) -> Iterator[Spectrum]:
        for name in self.names:
            try:
                for item in read(name, raw=self._piped.get(name)):
                    self.n_ms1 += item.ms_level == 1
                    yield item
            except UnreadableError as error:
                if len(self.names) == 1:
                    raise
                yield unreadable(Source(name, 0), str(error))

    def _identity(self, name: str) -> Mapping[str, Any]:
        copied = self._piped.get(name)
        with open_bytes(name) if copied is None else nullcontext(copied) as file:
            file.seek(0)
            digest, size = sha256(file), file.tell()
            file.seek(0)
        return {"name": name, "bytes": size, "sha256": digest}


def count_spectra(names: tuple[str, ...]) -> int | None:
    """How many outcomes a run over these inputs will have; None where one can be read only once.

    Reads the files, which takes seconds where predicting takes hours. What cannot be read is left
    for the run itself to complain about.
    """
    inputs = Inputs(names)
    try:
        if any(map(_flows, names)):
            return None
        return sum(1 for _ in inputs.features("none"))
    except (DuallgdError, OSError):
        return None


def _flows(name: str) -> bool:
    """Whether an input is standard input, or a pipe such as a shell's ``<(...)``."""
    return name == STANDARD_STREAM or Path(name).is_fifo()
