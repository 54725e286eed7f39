"""Features: spectra of one ion read together as one case."""

from collections.abc import Iterable, Iterator
from typing import Literal

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.spectra.reading import Unreadable
from duallgd_cli.spectra.types import Feature, Spectrum

SAME_PRECURSOR_PPM = 10.0

GroupBy = Literal["feature", "none"]


def group(
    items: Iterable[Spectrum | Unreadable], by: GroupBy = "feature"
) -> Iterator[Feature | Unreadable]:
    """Features in the order of their first spectrum.

    With ``feature``, spectra of one file become one feature where they share a FEATURE_ID (in a
    SIRIUS ``.ms`` file: a compound), the adduct, the formula where both name one, and the precursor
    m/z within 10 ppm. SCANS, TITLE and NAME group nothing: in most dialects they number spectra or
    name compounds. Spectra without a FEATURE_ID stand alone.

    Spectra without a FEATURE_ID pass straight through until the first one with it; from there on a
    file is held until its end, since a further member may still come.

    Args:
        items: Spectra and unreadable records, file after file.
        by: ``feature``, or ``none`` for one feature per spectrum.
    """
    held: list[list[Spectrum] | Unreadable] = []
    groups: dict[tuple[str, str, int], list[list[Spectrum]]] = {}
    file: str | None = None
    for item in items:
        if item.source.file != file:
            yield from _finished(held)
            held, groups, file = [], {}, item.source.file
        if isinstance(item, Unreadable):
            held.append(item)
        elif by == "none" or not item.feature_id:
            held.append([item])
        else:
            _place(item, groups.setdefault(_key(item), []), held)
        if not groups:
            yield from _finished(held)
            held = []
    yield from _finished(held)


def _finished(held: list[list[Spectrum] | Unreadable]) -> Iterator[Feature | Unreadable]:
    for entry in held:
        yield entry if isinstance(entry, Unreadable) else Feature(tuple(entry))


def _key(spectrum: Spectrum) -> tuple[str, str, int]:
    adduct = parse_adduct(spectrum.adduct_text)
    name = adduct.name if adduct is not None else spectrum.adduct_text
    return spectrum.feature_id, name, spectrum.ms_level


def _place(
    spectrum: Spectrum,
    candidates: list[list[Spectrum]],
    held: list[list[Spectrum] | Unreadable],
) -> None:
    """Join the first group that fits, or found a new one."""
    for members in candidates:
        if _same_ion(members[0], spectrum):
            members.append(spectrum)
            return
    members = [spectrum]
    candidates.append(members)
    held.append(members)


def _same_ion(first: Spectrum, other: Spectrum) -> bool:
    if first.formula_text and other.formula_text and first.formula_text != other.formula_text:
        return False
    if first.precursor_mz is None or other.precursor_mz is None:
        return first.precursor_mz is None and other.precursor_mz is None
    difference = abs(first.precursor_mz - other.precursor_mz)
    return difference <= SAME_PRECURSOR_PPM * 1e-6 * first.precursor_mz
