"""mzML and mzXML, built here from the formats' definitions."""

import base64
import gzip
import re
import zlib

import numpy as np
import pytest

from duallgd_cli.spectra.reading.xml import pick_peaks
from tests import made_xml
from tests.made_spectra import parsed
from tests.made_xml import (
    CID,
    MZML,
    array,
    arrays,
    cv,
    instrument,
    peaks_of_mzxml,
    precursors,
    spectrum,
    windowed,
)

MZ, INTENSITY = [121.0284, 163.0390, 181.0495], [1000.0, 250.5, 50.0]


def scan(number, level=2, mode="positive", kind="centroid", mz=MZ, intensity=INTENSITY, **options):
    """One mzML spectrum; options: precursor, filter, compress, arrays."""
    polarity = "MS:1000130" if mode == "positive" else "MS:1000129"
    kinds = {"centroid": "MS:1000127", "profile": "MS:1000128"}
    terms = cv("MS:1000511", "ms level", level) + cv(kinds[kind], f"{kind} spectrum")
    terms += cv(polarity, f"{mode} scan") if mode else ""
    inner = cv("MS:1000016", "scan start time", 2.5, "UO:0000031|minute")
    inner += cv("MS:1000512", "filter string", line) if (line := options.get("filter")) else ""
    precursor = options.get("precursor", PRECURSOR) if level != 1 else ""
    own = options.get("arrays", arrays(mz, intensity, options.get("compress", False)))
    return spectrum(number, own, terms, inner, precursor, "controllerType=0 controllerNumber=1 ")


def mzml(scans, model=("MS:1000932", "TripleTOF 5600")):
    group = f'<referenceableParamGroup id="instrument">{cv(*model)}</referenceableParamGroup>'
    return (
        f'{MZML}<cvList count="1"><cv id="MS" fullName="PSI-MS" URI="x"/></cvList>'
        f'<referenceableParamGroupList count="1">{group}</referenceableParamGroupList>'
        f'{instrument(GROUP)}<run id="r"><spectrumList count="{len(scans)}">{"".join(scans)}'
        "</spectrumList></run></mzML>"
    )


GROUP = '<referenceableParamGroupRef ref="instrument"/>'
PRECURSOR = precursors(
    windowed(181.05, 0.5, 0.6, [181.0495], cv("MS:1000422", "beam-type collision-induced "
        "dissociation") + cv("MS:1000045", "collision energy", "30.0"),
        cv("MS:1000041", "charge state", 1))
)  # fmt: skip


def test_mzml_keeps_what_the_acquisition_says(tmp_path):
    ms1, ms2 = parsed(tmp_path, mzml([scan(1, level=1), scan(2, mode="negative", compress=True)]))

    assert (ms1.ms_level, ms1.source.index, ms1.precursor_mz) == (1, 0, None)
    assert (ms2.ms_level, ms2.source.index) == (2, 1)
    assert (ms2.spectrum_id, ms2.scans) == ("scan=2", "2")
    assert (ms2.precursor_mz, ms2.polarity) == (181.0495, -1)
    assert (ms2.instrument, ms2.collision_energy_ev) == ("qtof", 30)
    assert ms2.metadata["native_id"] == "controllerType=0 controllerNumber=1 scan=2"
    assert ms2.metadata["isolation_window_target_mz"] == "181.05"
    assert ms2.metadata["isolation_window_lower_offset"] == "0.5"
    assert ms2.metadata["isolation_window_upper_offset"] == "0.6"
    assert ms2.metadata["rtinseconds"] == "150.000"
    np.testing.assert_array_equal(ms2.mz, MZ)
    np.testing.assert_array_equal(ms2.intensity, INTENSITY)
    assert ms2.warnings == ()


def test_profile_spectra_are_picked_with_a_warning(tmp_path):
    mz = np.arange(120.9, 121.2, 0.005)
    profile = 1000 * np.exp(-(((mz - 121.0284) / 0.012) ** 2))

    (found,) = parsed(
        tmp_path, mzml([scan(1, kind="profile", mz=list(mz), intensity=list(profile))])
    )

    assert found.mz == pytest.approx([121.0284], abs=5e-4)
    assert "profile spectrum" in found.warnings[0]


def test_one_broken_array_costs_one_record(tmp_path):
    good = array(MZ, "m/z array", "MS:1000514", True)
    short = array(INTENSITY[:2], "intensity array", "MS:1000515")
    packed = base64.b64encode(zlib.compress(bytes(99))[:-9]).decode()
    numpress = cv("MS:1002312", "MS-Numpress linear prediction compression")
    said = {
        good.replace("<binary>", "<binary>AAAA") + short: "cannot be decoded",
        good + short: "3 m/z values and 2 intensities",
        re.sub("<binary>[^<]*", f"<binary>{packed}", good) + short: "compressed data are cut off",
        arrays(MZ, INTENSITY).replace(
            cv("MS:1000576", "no compression"), numpress, 1
        ): "Numpress linear prediction compression is not supported",
    }
    scans = [*(scan(n, arrays=both) for n, both in enumerate(said, 1)), scan(9)]

    *broken, sound = parsed(tmp_path, mzml(scans))

    for found, words in zip(broken, said.values(), strict=True):
        assert words in found.failure.message
    assert [one.spectrum_id for one in broken] == ["scan=1", "scan=2", "scan=3", "scan=4"]
    assert sound.mz.size == 3


def test_a_truncated_mzml_gives_its_whole_spectra_and_one_row(tmp_path):
    text = mzml([scan(i) for i in range(1, 41)])
    cut = text[: text.index('id="controllerType=0 controllerNumber=1 scan=31"') + 400]

    *spectra, last = parsed(tmp_path, cut)

    assert f"ends early after {len(spectra)} spectra: its XML is broken" in last.failure.message
    assert 1 <= len(spectra) <= 30


def test_gzip_and_indexed_mzml(tmp_path):
    inner = mzml([scan(1), scan(2)]).partition("?>")[2]
    indexed = f"""<?xml version="1.0"?><indexedmzML xmlns="http://psi.hupo.org/ms/mzml">{inner}
      <indexList count="0"></indexList><indexListOffset>0</indexListOffset></indexedmzML>"""

    found = parsed(tmp_path, gzip.compress(indexed.encode()), "a.mzML.gz")

    assert [s.spectrum_id for s in found] == ["scan=1", "scan=2"]


def test_spectra_without_peaks_stop_nothing(tmp_path):
    empty = arrays([], [])
    no_text = empty.replace("<binary></binary>", "<binary/>")
    scans = [scan(1, arrays=empty), scan(2, arrays=no_text), scan(3, arrays=""), scan(4)]

    assert [s.mz.size for s in parsed(tmp_path, mzml(scans))] == [0, 0, 0, 3]


PAIRS = [*zip(MZ, INTENSITY, strict=True)]


def mzxml(scans):
    return made_xml.mzxml(scans, '<msModel category="msModel" value="Q Exactive"/>')


def mzxml_scan(number, level=2, peaks="", more="", ion=181.0495):
    precursor = f'<precursorMz precursorScanNum="1" precursorCharge="1">{ion}</precursorMz>'
    return f"""<scan num="{number}" msLevel="{level}" peaksCount="3" polarity="+"
      retentionTime="PT150S" collisionEnergy="30" centroided="1">{precursor if ion else ""}
      {peaks or peaks_of_mzxml(PAIRS, 64, True)}{more}</scan>"""


@pytest.mark.parametrize(("precision", "compress"), [(32, False), (64, True)])
def test_mzxml(tmp_path, precision, compress):
    nested = mzxml_scan(2, peaks=peaks_of_mzxml(PAIRS, precision, compress))

    found = parsed(tmp_path, mzxml(mzxml_scan(1, 1, more=nested, ion=None)), "a.mzXML")

    ms1, ms2 = found  # though the one that encloses ends last
    assert (ms1.ms_level, ms2.ms_level) == (1, 2)
    assert (ms2.spectrum_id, ms2.scans) == ("scan=2", "2")
    assert (ms2.precursor_mz, ms2.charge, ms2.polarity) == (181.0495, 1, 1)
    assert ms2.collision_energy_ev == pytest.approx(30 * 181.0495 / 500)
    np.testing.assert_allclose(ms2.mz, MZ, rtol=1e-7)


def test_mzxml_scans_of_equal_number_and_broken_peaks(tmp_path):
    broken = '<peaks precision="32" byteOrder="network" compressionType="zlib">AAAA</peaks>'

    first, second, third = parsed(
        tmp_path, mzxml(mzxml_scan(2) + mzxml_scan(2) + mzxml_scan(3, peaks=broken)), "a.mzXML"
    )

    assert first.spectrum_id == second.spectrum_id == "scan=2"
    assert third.failure is not None


@pytest.mark.parametrize("peaks", ['<peaks precision="32" byteOrder="network"/>', "<peaks/>", " "])
def test_mzxml_scans_without_peaks_stop_nothing(tmp_path, peaks):
    first, second = parsed(tmp_path, mzxml(mzxml_scan(1, peaks=peaks) + mzxml_scan(2)), "a.mzXML")

    assert (first.mz.size, second.mz.size) == (0, 3)


# Precursor, the m/z that is read of it (None where that is refused), and part of what is said.
WINDOWS = {
    "narrow, with an ion": (181.05, 0.5, 0.5, [181.0495], 181.0495, ""),
    "narrow, its middle as the ion": (181.0495, 0.5, 0.5, [181.0495], 181.0495, ""),
    "narrow, without an ion": (181.05, 0.5, 0.5, [], 181.05, "is taken for the precursor"),
    "just narrow": (181.05, 2, 2, [181.0495], 181.0495, ""),
    "just wide": (182.0, 2.1, 2, [181.0495], 181.0495, "is 4.1 m/z wide, so fragments of"),
    "of unknown width": (181.05, None, None, [], 181.05, "whose width is not given"),
    "wide, with an ion": (182.0, 12.5, 12.5, [181.0495], 181.0495, "is 25 m/z wide, so fragments"),
    "wide, without an ion": (412.5, 12.5, 12.5, [], None, "is 25 m/z wide and no ion of it"),
    "wide, its middle as the ion": (412.5, 12.5, 12.5, [412.5], None, "is 25 m/z wide"),
    "all ions": (600, 500, 500, [600.0], None, "is 1000 m/z wide"),
    "wide, aside": (400, 0, 25, [412.5], None, "is 25 m/z wide"),
    "wide, aside, its target as the ion": (400, 0, 25, [400], None, "is 25 m/z wide"),
}


@pytest.mark.parametrize("case", WINDOWS.values(), ids=list(WINDOWS))
def test_the_middle_of_a_wide_window_is_no_precursor(tmp_path, case):
    *window, mz, said = case
    (found,) = parsed(tmp_path, mzml([scan(1, precursor=precursors(windowed(*window)))]))

    assert found.precursor_mz == mz
    assert found.mz.size == 3
    if mz is None:
        assert found.failure.status == "no_precursor"
        assert said in found.failure.message
        assert found.metadata["rtinseconds"] == "150.000"
    else:
        assert found.failure is None
        remarks = (*found.warnings, *found.assumptions)
        assert said in "; ".join(remarks)
        assert bool(remarks) == bool(said)


def test_precursors_that_were_isolated_together_are_counted(tmp_path):
    each = [windowed(mz, 0.5, 0.5, [mz]) for mz in (181.0495, 300.1, 400.2)]

    (found,) = parsed(tmp_path, mzml([scan(1, precursor=precursors(*each))]))

    assert found.precursor_mz == 181.0495
    assert "the first of 3 precursors is used; fragments of the others" in found.warnings[0]
    more = '</precursorMz><precursorMz precursorCharge="1">300.1</precursorMz>'
    (found,) = parsed(tmp_path, mzxml(mzxml_scan(2).replace("</precursorMz>", more, 1)), "a.mzXML")
    assert found.precursor_mz == 181.0495
    assert "the first of 2 precursors is used" in found.warnings[0]


LEVEL = cv("MS:1000511", "ms level", 2)
NO_LEVEL = "the file gives no MS level; a spectrum with a precursor is read as MS2"
NOT, MS1, MSN = (
    cv("MS:1000511", "ms level", 0),
    cv("MS:1000579", "MS1 spectrum"),
    cv("MS:1000580", "MSn spectrum"),
)
# In place of the level, whether there is a precursor, the level that is read, and what is said.
LEVELS = {
    "a term of MS1": (MS1, False, 1, ()),
    "a term of MS1 and a precursor": (MS1, True, 1, ()),
    "a term of MSn": (MSN, True, 2, (NO_LEVEL,)),
    "nothing but a precursor": ("", True, 2, (NO_LEVEL,)),
    "nothing at all": ("", False, 2, ()),
    "level 0 of an image": (NOT, False, 1, ()),
    "level 0 and a term": (NOT + MSN, True, 2, (NO_LEVEL,)),
    "level 3": (cv("MS:1000511", "ms level", 3), True, 3, ("an MS3 spectrum is read as if",)),
    **{
        text: (cv("MS:1000511", "ms level", text), True, 2, ())
        for text in ("2e999", "-2e999", "nan")
    },
}


@pytest.mark.parametrize(
    ("terms", "has_precursor", "level", "said"), LEVELS.values(), ids=list(LEVELS)
)
def test_the_level_of_mzml_by_any_term(tmp_path, terms, has_precursor, level, said):
    one = scan(1, precursor=PRECURSOR if has_precursor else " ").replace(LEVEL, terms)

    (found,) = parsed(tmp_path, mzml([one]))

    assert found.ms_level == level
    assert (found.precursor_mz is not None) == (has_precursor and level > 1)
    remarks = (*found.warnings, *found.assumptions)
    assert len(remarks) == len(said)
    for remark, part in zip(remarks, said, strict=True):
        assert part in remark


def test_spectra_of_light_are_no_ms2(tmp_path):
    light = array([200, 201, 202], "wavelength array", "MS:1000617") + arrays([], INTENSITY)
    kind = cv("MS:1000804", "electromagnetic radiation spectrum")
    one = scan(1, mode="", precursor=" ", arrays=light).replace(LEVEL, kind)

    first, second = parsed(tmp_path, mzml([one, scan(2)]))

    assert (first.ms_level, first.mz.size) == (1, 0)
    assert (second.source.index, second.ms_level) == (1, 2)


RAMP = (cv("MS:1002013", "collision energy ramp start", 20),
        cv("MS:1002014", "collision energy ramp end", 40))  # fmt: skip


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        (cv("MS:1000045", "collision energy", 30), "30.0"),
        (cv("MS:1000138", "normalized collision energy", 30), "30.0 NCE"),
        (cv("MS:1000509", "activation energy", 20), "20.0 eV"),
        ("".join(RAMP), "20.0-40.0 eV"),
        ("", ""),
    ],
)
def test_the_energy_of_mzml_under_any_term(tmp_path, terms, text):
    precursor = precursors(windowed(181.05, 0.5, 0.5, [181.0495], cv(*CID) + terms))

    (found,) = parsed(tmp_path, mzml([scan(1, precursor=precursor)]))

    assert found.collision_energy_text == text
    assert found.metadata["fragmentation_mode"] == "collision-induced dissociation"


@pytest.mark.parametrize(("width", "mz"), [("1.5", 181.0495), ("4", 181.0495), ("25.0", None)])
def test_a_wide_window_of_mzxml_has_no_precursor(tmp_path, width, mz):
    one = mzxml_scan(2).replace("<precursorMz ", f'<precursorMz windowWideness="{width}" ')

    (found,) = parsed(tmp_path, mzxml(one), "a.mzXML")

    assert found.precursor_mz == mz
    assert found.metadata["rtinseconds"] == "150.000"
    if mz is None:
        assert found.failure.status == "no_precursor"
        assert "is 25 m/z wide and no ion of it is named" in found.failure.message
    else:
        assert (found.failure, found.warnings) == (None, ())


def configuration(name, *analysers):
    """An instrument configuration of mzML by the names of its analysers."""
    listed = "".join(f"<analyzer>{cv('MS:1000443', one)}</analyzer>" for one in analysers)
    source = f"<source>{cv('MS:1000073', 'electrospray ionization')}</source>"
    detector = f"<detector>{cv('MS:1000026', 'detector type')}</detector>"
    inner = f'<componentList count="3">{source}{listed}{detector}</componentList>'
    return f'<instrumentConfiguration id="{name}">{inner}</instrumentConfiguration>'


@pytest.mark.parametrize(
    ("reference", "analyser"),
    [("", "orbitrap"), ("IC2", "radial ejection linear ion trap"), ("IC9", "orbitrap")],
)
def test_the_analyser_of_a_hybrid_is_that_of_the_scan(tmp_path, reference, analyser):
    lists = configuration("IC1", "quadrupole", "orbitrap")
    lists += configuration("IC2", "quadrupole", "radial ejection linear ion trap")
    one = scan(1)
    if reference:
        one = one.replace("<scan>", f'<scan instrumentConfigurationRef="{reference}">')
    text = mzml([one]).replace(
        "</instrumentConfigurationList>", f"{lists}</instrumentConfigurationList>", 1
    )
    text = text.replace('<run id="r">', '<run id="r" defaultInstrumentConfigurationRef="IC1">')

    (found,) = parsed(tmp_path, text)

    assert found.metadata["analyzer"] == analyser


@pytest.mark.parametrize(
    ("intensity", "peaks"),
    [
        *[([], []), ([0, 0, 0], []), ([1], [0]), ([3, 2, 1], [0]), ([1, 2, 3], [2])],
        *[([0, 5, 5, 0], [1]), ([0, 5, 0, 5, 0], [1, 3]), ([0, np.nan, 0], [])],  # a plateau is one
    ],
)
def test_edges_plateaus_and_nothing_of_a_profile(intensity, peaks):
    mz = np.arange(len(intensity), dtype=float)

    found, heights = pick_peaks(mz, np.array(intensity, dtype=float))

    assert found == pytest.approx(np.array(peaks, dtype=float), abs=0.5)
    assert len(heights) == len(peaks)
    mz = np.array([1.0, 1.1, 1.3])
    assert pick_peaks(mz, 5 - (mz - 1.12) ** 2)[0] == pytest.approx([1.12])  # a parabola


FILTER = "FTMS + c ESI d Full ms2 181.0495@hcd30.00 [75.0000-208.0000]"


@pytest.mark.parametrize("place", ["scan", "spectrum"])
def test_the_filter_line_tells_the_analyser_wherever_it_stands(tmp_path, place):
    """OpenMS writes it as a parameter of the spectrum."""
    one = scan(1, filter=FILTER)
    if place == "spectrum":
        line = f'<userParam name="filter string" type="xsd:string" value="{FILTER}"/>'
        one = scan(1).replace("<scanList", f"{line}<scanList")

    (found,) = parsed(tmp_path, mzml([one], ("MS:1000031", "instrument model")))

    assert found.instrument == "orbitrap"
    assert found.collision_energy_ev == pytest.approx(30 * 181.0495 / 500)


UNIT = 'unitCvRef="UO" unitAccession="UO:0000031" unitName="minute"'


@pytest.mark.parametrize(
    ("unit", "seconds", "said"),
    [
        (UNIT, 150, ""),
        ('unitCvRef="UO" unitAccession="UO:0000010" unitName="second"', 2.5, ""),
        ('unitCvRef="UO" unitAccession="UO:0000031"', 150, ""),
        ('unitCvRef="UO" unitAccession="UO:0000010"', 2.5, ""),
        ('unitAccession="UO:0000010"', 2.5, ""),
        ('unitCvRef="UO" unitAccession="UO:0000028" unitName="millisecond"', 0.0025, ""),
        ("", 150, "the file gives no unit of retention times; they are taken for minutes"),
    ],
)
def test_units_of_retention_times_by_name_or_accession(tmp_path, unit, seconds, said):
    (found,) = parsed(tmp_path, mzml([scan(1).replace(UNIT, unit)]))

    assert found.retention_time_s == pytest.approx(seconds, abs=1e-3)
    assert found.assumptions == ((said,) if said else ())


@pytest.mark.parametrize(
    ("native", "name", "scans", "said"),
    [
        ("scan=7", "scan=7", "7", False),
        ("controllerType=0 controllerNumber=1 scan=7", "scan=7", "7", False),
        # A number of a scan that each function of a Waters instrument has.
        ("function=2 process=0 scan=7", "function=2 process=0 scan=7", "", False),
        ("sample=1 period=1 cycle=5 experiment=2",) * 2 + ("", False),
        ("merged=4 frame=1 scanStart=1 scanEnd=927",) * 2 + ("", False),
        ("frame=1 scan=230", "frame=1 scan=230", "", True),
    ],
)
def test_scans_that_several_numbers_tell_keep_all_of_them(tmp_path, native, name, scans, said):
    one = scan(1).replace("controllerType=0 controllerNumber=1 scan=1", native)

    (found,) = parsed(tmp_path, mzml([one]))

    assert (found.spectrum_id, found.scans) == (name, scans)
    assert ("one scan of ion mobility has few of the peaks" in " ".join(found.warnings)) == said


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("beam-type collision-induced dissociation", False),
        ("trap-type collision-induced dissociation", False),
        ("electron activated dissociation", True),
        ("electron transfer dissociation", True),
        ("electron transfer/higher-energy collision dissociation", True),
        ("ultraviolet photodissociation", True),
    ],
)
def test_fragments_that_no_collision_made_are_said(tmp_path, mode, said):
    one = scan(1).replace("beam-type collision-induced dissociation", mode)

    (found,) = parsed(tmp_path, mzml([one]))

    said_of_it = f"fragments of {mode}: the networks know those of collisions (CID, HCD)"
    assert found.warnings == ((said_of_it,) if said else ())


def test_the_precursor_of_an_ms3_is_that_of_its_own_level(tmp_path):
    parent = windowed(181.05, 0.5, 0.5, [181.0495])
    each = [
        one.replace(
            "</isolationWindow>",
            f'<userParam name="ms level" value="{level}"/></isolationWindow>',
            1,
        )
        for one, level in ((parent, 1), (windowed(121.03, 0.5, 0.5, [121.0284]), 2))
    ]

    (found,) = parsed(tmp_path, mzml([scan(1, level=3, precursor=precursors(*each))]))

    assert found.precursor_mz == 121.0284
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("an MS3 spectrum is read as if it were MS2")
