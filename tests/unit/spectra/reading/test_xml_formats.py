"""mzML and mzXML, built here from the formats' definitions."""

import base64
import gzip
import re
import zlib

import numpy as np
import pytest

from duallgd_cli.spectra.reading.xml import pick_peaks
from tests import made_xml
from tests.made_spectra import fields_of, parsed
from tests.made_xml import CID, array, arrays, cv, peaks_of_mzxml, precursors, spectrum, windowed

MZ, INTENSITY = [121.0284, 163.0390, 181.0495], [1000.0, 250.5, 50.0]
PAIRS = [*zip(MZ, INTENSITY, strict=True)]
NATIVE = "controllerType=0 controllerNumber=1 "
BEAM = "beam-type collision-induced dissociation"
LEVEL = cv("MS:1000511", "ms level", 2)
PRECURSOR = precursors(
    windowed(181.05, 0.5, 0.6, [181.0495], cv("MS:1000422", BEAM) + cv("MS:1000045",
        "collision energy", "30.0"), cv("MS:1000041", "charge state", 1))
)  # fmt: skip


def scan(number=1, level=2, mode="positive", kind="centroid", mz=MZ, intensity=INTENSITY, **more):
    """One mzML spectrum; more: precursor, filter, compress, arrays."""
    polarity = "MS:1000130" if mode == "positive" else "MS:1000129"
    kinds = {"centroid": "MS:1000127", "profile": "MS:1000128"}
    terms = cv("MS:1000511", "ms level", level) + cv(kinds[kind], f"{kind} spectrum")
    terms += cv(polarity, f"{mode} scan") if mode else ""
    inner = cv("MS:1000016", "scan start time", 2.5, "UO:0000031|minute")
    inner += cv("MS:1000512", "filter string", line) if (line := more.get("filter")) else ""
    precursor = more.get("precursor", PRECURSOR) if level != 1 else ""
    own = more.get("arrays", arrays(mz, intensity, more.get("compress", False)))
    return spectrum(number, own, terms, inner, precursor, NATIVE)


IN_GROUP = '<referenceableParamGroupRef ref="{}"/>'


def mzml(*scans, model=("MS:1000932", "TripleTOF 5600"), more="", further="", run=""):
    group = '<referenceableParamGroup id="{}">{}</referenceableParamGroup>'
    groups = group.format("instrument", cv(*model)) + group.format("all", more)
    head = f"<referenceableParamGroupList>{groups}</referenceableParamGroupList>"
    first = configuration("IC0", content=IN_GROUP.format("instrument"))
    return made_xml.mzml(scans, first + further, head, run)


def configuration(name, *analysers, content=""):
    """An instrument configuration of mzML by the names of its analysers."""
    listed = "".join(f"<analyzer>{cv('MS:1000443', one)}</analyzer>" for one in analysers)
    if listed:
        source = f"<source>{cv('MS:1000073', 'electrospray ionization')}</source>"
        detector = f"<detector>{cv('MS:1000026', 'detector type')}</detector>"
        content = f'<componentList count="3">{source}{listed}{detector}</componentList>'
    return f'<instrumentConfiguration id="{name}">{content}</instrumentConfiguration>'


def mzxml(*scans):
    return made_xml.mzxml(scans, '<msModel category="msModel" value="Q Exactive"/>')


def mzxml_scan(number, level=2, peaks="", more="", ion=181.0495):
    precursor = f'<precursorMz precursorScanNum="1" precursorCharge="1">{ion}</precursorMz>'
    return f"""<scan num="{number}" msLevel="{level}" peaksCount="3" polarity="+"
      retentionTime="PT150S" collisionEnergy="30" centroided="1">{precursor if ion else ""}
      {peaks or peaks_of_mzxml(PAIRS, 64, True)}{more}</scan>"""


def test_mzml_keeps_what_the_acquisition_says(tmp_path):
    ms1, ms2 = parsed(tmp_path, mzml(scan(1, level=1), scan(2, mode="negative", compress=True)))

    expected = {
        "ms_level": 2, "spectrum_id": "scan=2", "scans": "2", "precursor_mz": 181.0495,
        "polarity": -1, "charge": -1, "instrument": "qtof", "collision_energy_ev": 30,
        "native_id": f"{NATIVE}scan=2", "isolation_window": pytest.approx((180.55, 181.65)),
        "retention_time_s": 150.0, "fragmentation_mode": BEAM, "warnings": (),
    }  # fmt: skip
    assert (ms1.ms_level, ms1.source.index, ms1.precursor_mz) == (1, 0, None)
    assert fields_of(ms2, expected) == expected
    np.testing.assert_array_equal([ms2.mz, ms2.intensity], [MZ, INTENSITY])


def with_precursor(*window, activation=""):
    return mzml(scan(precursor=precursors(windowed(*window, activation=activation))))


# m/z, window and selected ions; the m/z that is read (None where that is refused) and what is said.
WINDOWS = (
    (181.05, 0.5, 0.5, [181.0495], 181.0495, ""),
    (181.0495, 0.5, 0.5, [181.0495], 181.0495, ""),  # narrow, its middle as the ion
    (181.05, 0.5, 0.5, [], 181.05, "is taken for the precursor"),
    (181.05, 2, 2, [181.0495], 181.0495, ""),  # just narrow
    (182.0, 2.1, 2, [181.0495], 181.0495, "is 4.1 m/z wide, so fragments of"),
    (181.05, None, None, [], 181.05, "whose width is not given"),
    (182.0, 12.5, 12.5, [181.0495], 181.0495, "is 25 m/z wide, so fragments"),
    (412.5, 12.5, 12.5, [], None, "is 25 m/z wide and no ion of it"),
    (412.5, 12.5, 12.5, [412.5], None, "is 25 m/z wide"),  # its middle as the ion
    (600, 500, 500, [600.0], None, "is 1000 m/z wide"),
    (400, 0, 25, [412.5], None, "is 25 m/z wide"),  # aside
    (400, 0, 25, [400], None, "is 25 m/z wide"),  # aside, its target as the ion
)
NO_LEVEL = "the file gives no MS level; a spectrum with a precursor is read as MS2"
NOT = cv("MS:1000511", "ms level", 0)
MS1, MSN = cv("MS:1000579", "MS1 spectrum"), cv("MS:1000580", "MSn spectrum")
# In place of the level, whether there is a precursor, the level that is read, and what is said.
LEVELS = (
    (MS1, False, 1, ""),
    (MS1, True, 1, ""),
    (MSN, True, 2, NO_LEVEL),
    ("", True, 2, NO_LEVEL),
    ("", False, 2, ""),
    (NOT, False, 1, ""),  # of an image
    (NOT + MSN, True, 2, NO_LEVEL),
    (cv("MS:1000511", "ms level", 3), True, 3, "an MS3 spectrum is read as if"),
    (cv("MS:1000511", "ms level", "nan"), True, 2, ""),
    *(
        (cv("MS:1000511", "ms level", one), True, 2, f"'{one}' is no MS level and is left out")
        for one in ("2e999", "-2e999")
    ),
)
ENERGIES = {
    "30.0": cv("MS:1000045", "collision energy", 30),
    "30.0 NCE": cv("MS:1000138", "normalized collision energy", 30),
    "20.0 eV": cv("MS:1000509", "activation energy", 20),
    "20.0-40.0 eV": cv("MS:1002013", "collision energy ramp start", 20)
    + cv("MS:1002014", "collision energy ramp end", 40),
    "": "",
}
MINUTE = 'unitCvRef="UO" unitAccession="UO:0000031" unitName="minute"'
# Unit of a time of 2.5, seconds, and what is said.
UNITS = (
    ('unitCvRef="UO" unitAccession="UO:0000010" unitName="second"', 2.5, ""),
    ('unitCvRef="UO" unitAccession="UO:0000031"', 150, ""),
    ('unitCvRef="UO" unitAccession="UO:0000010"', 2.5, ""),
    ('unitAccession="UO:0000010"', 2.5, ""),
    ('unitCvRef="UO" unitAccession="UO:0000028" unitName="millisecond"', 0.003, ""),
    ('unitCvRef="UO" unitAccession="UO:0000032" unitName="hour"', 9000, ""),
    *((f'unitName="{name}"', time, "") for name, time in (("Minute", 150), ("HOUR", 9000))),
    ('unitName="fortnight"', None, "retention time '2.5 fortnight' is not understood and left out"),
    ("", 150, "the file gives no unit of retention times; they are taken for minutes"),
)
WATERS = "function=2 process=0 scan=7"  # of which each function has a scan of this number
SCIEX, BRUKER = "sample=1 period=1 cycle=5 experiment=2", "merged=4 frame=1 scanStart=1 scanEnd=9"
# Native id, the name and the scan number that are read, and what is said.
NATIVES = (
    ("scan=7", "scan=7", "7", ""),
    ("controllerType=0 controllerNumber=1 scan=7", "scan=7", "7", ""),
    *((native, native, "", "") for native in (WATERS, SCIEX, BRUKER)),
    ("frame=1 scan=230", "frame=1 scan=230", "", "one scan of ion mobility has few of the peaks"),
)
OF_MODE = "fragments of {}: the networks know those of collisions (CID, HCD)"
MODES = {
    **dict.fromkeys((BEAM, "trap-type collision-induced dissociation"), ""),
    **{
        mode: OF_MODE.format(mode)
        for mode in (
            *("electron activated dissociation", "electron transfer dissociation"),
            "electron transfer/higher-energy collision dissociation",
            "ultraviolet photodissociation",
        )
    },
}
FILTER = "FTMS + c ESI d Full ms2 181.0495@hcd30.00 [75.0000-208.0000]"
IN_SPECTRUM = f'<userParam name="filter string" type="xsd:string" value="{FILTER}"/><scanList'
ORBITRAP = {"instrument": "orbitrap", "collision_energy_ev": pytest.approx(30 * 181.0495 / 500)}
MODEL = ("MS:1000031", "instrument model")
SEVERAL = [windowed(mz, 0.5, 0.5, [mz]) for mz in (181.0495, 300.1, 400.2)]
MORE = '</precursorMz><precursorMz precursorCharge="1">300.1</precursorMz>'
# ProteoWizard says of which level each is.
OF_LEVELS = [
    windowed(mz, 0.5, 0.5, [mz]).replace(
        "</isolationWindow>", f'<userParam name="ms level" value="{level}"/></isolationWindow>', 1
    )
    for mz, level in ((181.0495, 1), (121.0284, 2))
]
OF_ALL = IN_GROUP.format("all")
ONE = mzml(scan())
ONE_MZXML = mzxml(mzxml_scan(2))


def of_mzxml(old, new, mz=181.0495, said=""):
    fields = {"precursor_mz": mz, "retention_time_s": 150.0, "status": "" if mz else "no_precursor"}
    return ONE_MZXML.replace(old, new, 1), fields, said


# A file of one scan, fields of what is read, and part of the one thing that is said.
FILES = (
    *((with_precursor(*window), {"precursor_mz": mz, "peaks": 3, "retention_time_s": 150.0,
       "status": "" if mz else "no_precursor"}, said) for *window, mz, said in WINDOWS),
    *((mzml(scan(precursor=PRECURSOR if has else " ").replace(LEVEL, terms)), {"ms_level": level,
       "precursor_mz": 181.0495 if has and level > 1 else None}, said)
      for terms, has, level, said in LEVELS),
    *((with_precursor(181.05, 0.5, 0.5, [181.0495], activation=cv(*CID) + terms),
       {"collision_energy_text": text, "fragmentation_mode": CID[1]}, "")
      for text, terms in ENERGIES.items()),
    *((ONE.replace(MINUTE, unit), {"retention_time_s": time}, said) for unit, time, said in UNITS),
    *((ONE.replace(f"{NATIVE}scan=1", native), {"spectrum_id": name, "scans": number}, said)
      for native, name, number, said in NATIVES),
    *((ONE.replace(BEAM, mode), {}, said) for mode, said in MODES.items()),
    (mzml(scan(filter=FILTER), model=MODEL), ORBITRAP, ""),
    (mzml(scan().replace("<scanList", IN_SPECTRUM), model=MODEL), ORBITRAP, ""),  # by OpenMS
    (mzml(scan(precursor=precursors(*SEVERAL))), {"precursor_mz": 181.0495},
     "the first of 3 precursors is used; fragments of the others"),
    (mzml(scan(level=3, precursor=precursors(*OF_LEVELS))), {"precursor_mz": 121.0284},
     "an MS3 spectrum is read as if it were MS2"),
    # A spectrum's own term wins over one of a group, wherever it stands.
    *((mzml(scan().replace(LEVEL, terms), more=cv("MS:1000511", "ms level", level)),
       {"ms_level": 2, "assumptions": ()}, "")
      for terms, level in ((OF_ALL, 2), (OF_ALL + LEVEL, 1))),
    of_mzxml("<precursorMz ", '<precursorMz windowWideness="4" '),
    of_mzxml("<precursorMz ", '<precursorMz windowWideness="25.0" ', None,
             "is 25 m/z wide and no ion of it is named"),
    of_mzxml("PT150S", "150"),
    of_mzxml("</precursorMz>", MORE, said="the first of 2 precursors is used"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "fields", "said"),
    FILES,
    ids=[f"{said[:40]} {fields}"[:80] for _, fields, said in FILES],
)
def test_what_is_read_of_a_scan_and_said_of_it(tmp_path, content, fields, said):
    (found,) = parsed(tmp_path, content)

    assert fields_of(found, fields) == fields
    failed = [found.failure.message] if found.failure else []
    remarks = [*found.warnings, *found.assumptions, *failed]
    assert len(remarks) == bool(said)
    assert said in "".join(remarks)


def test_one_broken_array_costs_one_record(tmp_path):
    good = array(MZ, "m/z array", "MS:1000514", True)
    short = array(INTENSITY[:2], "intensity array", "MS:1000515")
    packed = base64.b64encode(zlib.compress(bytes(99))[:-9]).decode()
    plain, zipped = cv("MS:1000576", "no compression"), cv("MS:1000574", "zlib compression")
    numpress = cv("MS:1002312", "MS-Numpress linear prediction compression")
    said = {
        good.replace("<binary>", "<binary>AAAA") + short: "cannot be decoded",
        good + short: "3 m/z values and 2 intensities",
        re.sub("<binary>[^<]*", f"<binary>{packed}", good) + short: "compressed data are cut off",
        **{
            arrays(MZ, INTENSITY).replace(plain, terms, 1): "linear prediction compression is not"
            for terms in (numpress, zipped + numpress)
        },
    }
    noise = array(MZ, "signal to noise array", "MS:1000517").replace("<binary>", "<binary>AAAA")
    scans = [*(scan(n, arrays=both) for n, both in enumerate(said, 1))]
    scans.append(scan(9, arrays=arrays(MZ, INTENSITY) + noise))  # which nobody asks for

    *broken, sound = parsed(tmp_path, mzml(*scans))

    for number, (found, words) in enumerate(zip(broken, said.values(), strict=True), 1):
        assert words in found.failure.message
        assert found.spectrum_id == f"scan={number}"
    assert sound.mz.size == 3


def test_a_truncated_mzml_gives_its_whole_spectra_and_one_row(tmp_path):
    text = mzml(*map(scan, range(1, 41)))

    *spectra, last = parsed(tmp_path, text[: text.index(f'id="{NATIVE}scan=31"') + 400])

    assert f"ends early after {len(spectra)} spectra: its XML is broken" in last.failure.message
    assert 1 <= len(spectra) <= 30


def test_gzip_and_indexed_mzml(tmp_path):
    inner = mzml(scan(1), scan(2)).partition("?>")[2]
    indexed = f"""<?xml version="1.0"?><indexedmzML xmlns="http://psi.hupo.org/ms/mzml">{inner}
      <indexList count="0"></indexList><indexListOffset>0</indexListOffset></indexedmzML>"""

    found = parsed(tmp_path, gzip.compress(indexed.encode()), "a.mzML.gz")

    assert [s.spectrum_id for s in found] == ["scan=1", "scan=2"]


def test_spectra_without_peaks_stop_nothing(tmp_path):
    empty = arrays([], [])
    no_text = empty.replace("<binary></binary>", "<binary/>")
    peaks = ('<peaks precision="32" byteOrder="network"/>', "<peaks/>", " ", "")

    for content in (
        mzml(*(scan(n, arrays=one) for n, one in enumerate((empty, no_text, ""))), scan(4)),
        mzxml(*(mzxml_scan(n, peaks=text) for n, text in enumerate(peaks))),
    ):
        assert [s.mz.size for s in parsed(tmp_path, content)] == [0, 0, 0, 3]


@pytest.mark.parametrize(("precision", "compress"), [(32, False), (64, True)])
def test_mzxml(tmp_path, precision, compress):
    nested = mzxml_scan(2, peaks=peaks_of_mzxml(PAIRS, precision, compress))

    ms1, ms2 = parsed(tmp_path, mzxml(mzxml_scan(1, 1, more=nested, ion=None)), "a.mzXML")

    assert (ms1.ms_level, ms2.ms_level) == (1, 2)  # though the one that encloses ends last
    expected = {
        "spectrum_id": "scan=2", "scans": "2", "precursor_mz": 181.0495, "charge": 1,
        "polarity": 1, "collision_energy_ev": pytest.approx(30 * 181.0495 / 500),
    }  # fmt: skip
    assert fields_of(ms2, expected) == expected
    np.testing.assert_allclose(ms2.mz, MZ, rtol=1e-7)


def test_mzxml_scans_of_equal_number_and_broken_peaks(tmp_path):
    broken = '<peaks precision="32" byteOrder="network" compressionType="zlib">AAAA</peaks>'
    unsized = peaks_of_mzxml(PAIRS, 32, False).replace('precision="32"', "")
    scans = [mzxml_scan(2), mzxml_scan(2), *(mzxml_scan(3, peaks=one) for one in (broken, unsized))]

    first, second, *others = parsed(tmp_path, mzxml(*scans), "a.mzXML")

    assert first.spectrum_id == second.spectrum_id == "scan=2"
    assert ["cannot be decoded" in one.failure.message for one in others] == [True, True]


def test_spectra_of_light_are_no_ms2(tmp_path):
    light = array([200, 201, 202], "wavelength array", "MS:1000617") + arrays([], INTENSITY)
    kind = cv("MS:1000804", "electromagnetic radiation spectrum")
    one = scan(mode="", precursor=" ", arrays=light).replace(LEVEL, kind)

    first, second = parsed(tmp_path, mzml(one, scan(2)))

    assert (first.ms_level, first.mz.size) == (1, 0)
    assert (second.source.index, second.ms_level) == (1, 2)


@pytest.mark.parametrize(
    ("reference", "analyser"),
    [("", "orbitrap"), ("IC2", "radial ejection linear ion trap"), ("IC9", "orbitrap")],
)
def test_the_analyser_of_a_hybrid_is_that_of_the_scan(tmp_path, reference, analyser):
    both = configuration("IC1", "quadrupole", "orbitrap")
    both += configuration("IC2", "quadrupole", "radial ejection linear ion trap")
    named = f'<scan instrumentConfigurationRef="{reference}">' if reference else "<scan>"
    default = ' defaultInstrumentConfigurationRef="IC1"'

    (found,) = parsed(tmp_path, mzml(scan().replace("<scan>", named), further=both, run=default))

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


def test_profile_spectra_are_picked_with_a_warning(tmp_path):
    mz = np.array([1.0, 1.1, 1.3])
    assert pick_peaks(mz, 5 - (mz - 1.12) ** 2)[0] == pytest.approx([1.12])  # a parabola
    mz = np.arange(120.9, 121.2, 0.005)
    profile = 1000 * np.exp(-(((mz - 121.0284) / 0.012) ** 2))

    (found,) = parsed(tmp_path, mzml(scan(kind="profile", mz=mz, intensity=profile)))

    assert found.mz == pytest.approx([121.0284], abs=5e-4)
    assert "profile spectrum" in found.warnings[0]
