"""Which peaks stay of a spectrum, and how exact instrument and decimals tell its m/z to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.cleaning import (
    UNSUPPORTED,
    CleaningSettings,
    clean,
    peak_decimals,
    precursor_decimals,
    resolved,
)
from duallgd_cli.spectra.formulas import FormulaLimits, from_text
from duallgd_cli.spectra.types import UNIT_RESOLUTION, Feature
from tests.made_spectra import made_spectrum, parsed
from tests.made_xml import cv
from tests.unit.spectra.reading.test_xml_formats import mzml, mzxml, mzxml_scan, scan

AT_100 = {"precursor_mz": 100.0}
DOUBLY_CHARGED = AT_100 | {"adduct_text": "[M+2H]2+"}
# Peaks as read, fields, the most peaks, and those that stay.
KEPT = {
    "bad peaks go and the base peak becomes one": (
        [(40, 8), (50, np.nan), (60, -1), (70, 0), (80, 4), (np.nan, 5), (-1, 5), (np.inf, 5)],
        {}, 512, [(40, 1), (80, 0.5)]),
    "equal masses add up and the rest is sorted": (
        [(90, 1), (50, 4), (90, 3), (60, 2)], {}, 512, [(50, 1), (60, 0.5), (90, 1)]),
    "peaks above the precursor and its isotopes go": (
        [(99, 1), (100, 2), (102.9, 1), (103.1, 9), (500, 9)], AT_100, 512,
        [(99, 0.5), (100, 1), (102.9, 0.5)]),
    "those above a doubly charged precursor stay": (
        [(99, 1), (199, 2), (204, 9)], DOUBLY_CHARGED, 512, [(99, 0.5), (199, 1)]),
    "those above a precursor of which the file gives the charge alone stay": (
        [(99, 1), (199, 2), (204, 9)], AT_100 | {"charge": -2}, 512, [(99, 0.5), (199, 1)]),
    "the adduct is trusted over the charge": (
        [(99, 1), (199, 2), (204, 9)], DOUBLY_CHARGED | {"charge": 1}, 512, [(99, 0.5), (199, 1)]),
    "impossible masses go even where no precursor bounds them": (
        [(100, 1), (1e308, 9)], {}, 512, [(100, 1)]),
    "the most intense peaks are kept in order of mass": (
        [(1, 5), (2, 1), (3, 4), (4, 1), (5, 3)], {}, 3, [(1, 1), (3, 0.8), (5, 0.6)]),
}  # fmt: skip


@pytest.mark.parametrize("title", KEPT)
def test_what_stays_of_a_spectrum(title):
    peaks, fields, most, kept = KEPT[title]

    cleaned = clean(made_spectrum(*zip(*peaks, strict=True), **fields), CleaningSettings(most))

    assert list(zip(cleaned.mz, cleaned.intensity, strict=True)) == kept


@pytest.mark.parametrize(
    ("mz", "intensity", "message"),
    [
        ([], [], "has no peaks; export MS2 spectra together with their peaks"),
        ([50, 60], [0, np.nan], "no possible m/z and intensity above 0 in 2 peaks"),
        ([500, 600], [1, 2], "all peaks (2) lie above the precursor"),
    ],
)
def test_a_spectrum_without_a_usable_peak_fails_with_the_number(mz, intensity, message):
    cleaned = clean(made_spectrum(mz, intensity, **AT_100), CleaningSettings())

    assert (cleaned.failure.status, cleaned.mz.size, cleaned.intensity.size) == ("no_peaks", 0, 0)
    assert message in cleaned.failure.message


CAFFEINE = (69.04472, 83.06037, 110.07127, 123.04271, 138.06619)


def caffeine(pepmass="195.08765", decimals=5, n_peaks=5, **fields):
    """An MGF block of caffeine as some program rounds it."""
    head = {"PEPMASS": pepmass, "ADDUCT": "[M+H]+", "FORMULA": "C8H10N4O2"} | fields
    lines = [f"{key}={value}" for key, value in head.items()]
    peaks = [f"{mz:.{decimals}f} {100 + n}" for n, mz in enumerate(CAFFEINE[-n_peaks:])]
    return "\n".join(["BEGIN IONS", *lines, *peaks, "END IONS", ""])


def judged(folder, text):
    (spectrum,) = parsed(folder, text)
    return resolved(clean(spectrum, CleaningSettings()))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"INSTRUMENT_TYPE": "LC-ESI-QQQ"}, "the instrument ('LC-ESI-QQQ') measures fragments at"),
        ({"INSTRUMENT": "Q Exactive", "FILTERLINE": "ITMS + c Full ms2"}, "('ITMS + c Full ms2')"),
        ({"decimals": 1}, "all its peaks have m/z of at most 1 decimal"),
        ({"decimals": 0}, "all its peaks have whole numbers as m/z"),
        ({"decimals": 1, "n_peaks": 2}, "at most 1 decimal"),
        ({"decimals": 1, "n_peaks": 1, "pepmass": "195.1"}, "at most 1 decimal"),
        ({"decimals": 0, "n_peaks": 1, "pepmass": "195"}, "whole numbers"),
        # Zeros that a program appended, and numbers that were kept in 32 bits.
        ({"pepmass": "195.1000", "decimals": 1, "n_peaks": 1}, "at most 1 decimal"),
        ({"pepmass": "195.100006103516", "decimals": 1, "n_peaks": 1}, "at most 1 decimal"),
    ],
)
def test_fragments_of_unit_resolution_are_refused_in_a_sentence(tmp_path, made, words):
    failure = judged(tmp_path, caffeine(**made)).failure

    assert failure.status == UNSUPPORTED
    assert words in failure.message
    assert "use a spectrum of an Orbitrap or QTOF" in failure.message
    bare = clean(made_spectrum((), instrument=UNIT_RESOLUTION), CleaningSettings())
    assert "an ion trap or quadrupole measures" in resolved(bare).failure.message


ITMS, FTMS = (f"{kind} + c ESI d Full ms2 181.0495@cid35.00 [50-200]" for kind in ("ITMS", "FTMS"))
HYBRID = ("MS:1000449", "LTQ Orbitrap")


@pytest.mark.parametrize(
    ("model", "line", "is_unit"),
    [
        *((HYBRID, ITMS, True), (HYBRID, FTMS, False), (HYBRID, "", False)),
        (("MS:1000447", "LTQ"), "", True),
        (("MS:1001790", "Xevo TQ MS"), "", True),
        (("MS:1000081", "quadrupole"), "", True),
        (("MS:1000084", "time-of-flight"), "", False),
    ],
)
def test_mzml_and_mzxml_of_ion_traps_are_refused_by_filter_line_and_model(
    tmp_path, model, line, is_unit
):
    named = mzxml_scan(1).replace("<scan ", f'<scan filterLine="{line}" ')
    texts = (
        mzml(scan(1, filter=line), model=model),
        mzxml(named).replace("Q Exactive", model[1]),
    )

    failures = [judged(tmp_path, text).failure for text in texts]

    assert [one is not None and one.status == UNSUPPORTED for one in failures] == [is_unit] * 2


def test_of_a_hybrid_that_names_all_its_analysers_the_filter_line_tells(tmp_path):
    both = cv("MS:1000083", "radial ejection linear ion trap") + cv("MS:1000484", "orbitrap")

    found = parsed(tmp_path, mzml(scan(1), scan(2, filter=ITMS), model=HYBRID, further=both))

    assert [one.instrument for one in found] == ["orbitrap", UNIT_RESOLUTION]


@pytest.mark.parametrize(
    ("decimals", "texts"),
    [
        (None, ("195.08765", "195.0877", "195.088", "195.0900")),
        (2, ("195.09", "195.10", "195.09 12000", "195,09", "195.0899963378906")),
        (1, ("195.1", "195.1000", "195.0", "195.10000610")),
        (0, ("195",)),
    ],
)
def test_decimals_of_a_precursor_are_those_that_were_measured(tmp_path, texts, decimals):
    spectra = parsed(tmp_path, "".join(map(caffeine, texts)))

    assert [*map(precursor_decimals, spectra)] == [decimals] * len(texts)


@pytest.mark.parametrize(
    ("mz", "of_precursor", "decimals"),
    [
        ((138.0662, 110.0713), None, None),
        ((138.1,), None, None),  # one accurate m/z in a thousand
        ((138.1, 110.1), None, 1),
        ((138.1, 110.0713), None, None),
        ((138.0, 110.1), None, 1),
        ((138.07, 110.07), None, None),
        ((138.07, 110.07), 2, 2),
        ((138.07, 110.07, 69.04), None, 2),
        ((138.07, 110.1, 69.0), None, 2),
        ((138.0, 110.0), None, 0),
        (tuple(np.float32([138.1, 110.1, 69.1]).tolist()), None, 1),
        ((), None, None),
    ],
)
def test_peaks_are_rounded_where_no_chance_makes_so_many_of_them(mz, of_precursor, decimals):
    assert peak_decimals(np.array(mz), of_precursor) == decimals


@given(st.lists(st.integers(500_000, 9_999_999), min_size=1, max_size=40), st.integers(0, 2))
def test_rounded_peaks_are_known_and_accurate_ones_never_taken_for_them(numbers, decimals):
    mz = np.sort(np.array(numbers) / 1e4)

    known = peak_decimals(np.round(mz, decimals))

    assert known is None or known <= decimals
    mz[0] = np.floor(mz[0]) + 0.1234
    assert peak_decimals(mz) is None


@pytest.mark.parametrize("pepmass", ["195.09", "195.1", "195"])
def test_a_rounded_precursor_widens_the_check_of_a_given_formula_and_is_said(tmp_path, pepmass):
    spectrum = judged(tmp_path, caffeine(pepmass))

    (found,), (inferred,), other = (
        from_text(Feature((spectrum,)), formula, FormulaLimits(), adduct)
        for formula, adduct in (("C8H10N4O2", "[M+H]+"), ("C8H10N4O2", ""), ("C9H10N4O2", "[M+H]+"))
    )

    assert str(found.formula) == str(inferred.formula) == "C8H10N4O2"
    assert f"the precursor m/z {pepmass} is rounded" in spectrum.warnings[0]
    assert other.status == "formula_mismatch"


def test_peaks_of_two_decimals_are_explained_within_their_rounding(tmp_path):
    rough, exact = (judged(tmp_path, caffeine(decimals=n)) for n in (2, 5))

    for one in (rough, exact):
        (hypothesis,) = from_text(Feature((one,)), "C8H10N4O2", FormulaLimits(), "")
        assert annotate(hypothesis).n_explained == 5
    assert (rough.peak_rounding_da, exact.warnings) == (0.005, ())
    assert "explained within 0.005, and confidence is not calibrated" in rough.warnings[0]
    assert resolved(rough).warnings == rough.warnings  # judging twice changes nothing
