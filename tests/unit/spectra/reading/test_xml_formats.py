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
NATIVE = "controllerType=0 controllerNumber=1 "
BEAM = "beam-type collision-induced dissociation"
LEVEL = cv("MS:1000511", "ms level", 2)
TIME = cv("MS:1000016", "scan start time", 2.5, "UO:0000031|minute")


def scan(number=1, level=2, mode="positive", kind="centroid", mz=MZ, intensity=INTENSITY, **more):
    """One mzML spectrum; more: precursor, filter, compress, arrays."""
    polarity = "MS:1000130" if mode == "positive" else "MS:1000129"
    kinds = {"centroid": "MS:1000127", "profile": "MS:1000128"}
    terms = cv("MS:1000511", "ms level", level) + cv(kinds[kind], f"{kind} spectrum")
    terms += cv(polarity, f"{mode} scan") if mode else ""
    inner = TIME
    inner += cv("MS:1000512", "filter string", line) if (line := more.get("filter")) else ""
    precursor = more.get("precursor", PRECURSOR) if level != 1 else ""
    own = more.get("arrays", arrays(mz, intensity, more.get("compress", False)))
    return spectrum(number, own, terms, inner, precursor, NATIVE)


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
    windowed(181.05, 0.5, 0.6, [181.0495], cv("MS:1000422", BEAM) + cv("MS:1000045",
        "collision energy", "30.0"), cv("MS:1000041", "charge state", 1))
)  # fmt: skip
PAIRS = [*zip(MZ, INTENSITY, strict=True)]


def mzxml(scans):
    return made_xml.mzxml(scans, '<msModel category="msModel" value="Q Exactive"/>')


def mzxml_scan(number, level=2, peaks="", more="", ion=181.0495):
    precursor = f'<precursorMz precursorScanNum="1" precursorCharge="1">{ion}</precursorMz>'
    return f"""<scan num="{number}" msLevel="{level}" peaksCount="3" polarity="+"
      retentionTime="PT150S" collisionEnergy="30" centroided="1">{precursor if ion else ""}
      {peaks or peaks_of_mzxml(PAIRS, 64, True)}{more}</scan>"""


def value_of(found, name):
    """A field of a spectrum, or of its record."""
    own = {"status": found.failure.status if found.failure else "", "peaks": found.mz.size}
    return own[name] if name in own else getattr(found, name, found.metadata.get(name, ""))


def test_mzml_keeps_what_the_acquisition_says(tmp_path):
    ms1, ms2 = parsed(tmp_path, mzml([scan(1, level=1), scan(2, mode="negative", compress=True)]))

    expected = {
        "ms_level": 2, "spectrum_id": "scan=2", "scans": "2", "precursor_mz": 181.0495,
        "polarity": -1, "charge": -1, "instrument": "qtof", "collision_energy_ev": 30,
        "native_id": f"{NATIVE}scan=2", "isolation_window_target_mz": "181.05",
        "isolation_window_lower_offset": "0.5", "isolation_window_upper_offset": "0.6",
        "rtinseconds": "150.000", "fragmentation_mode": BEAM, "warnings": (),
    }  # fmt: skip
    assert (ms1.ms_level, ms1.source.index, ms1.precursor_mz) == (1, 0, None)
    assert {name: value_of(ms2, name) for name in expected} == expected
    assert ms2.source.index == 1
    np.testing.assert_array_equal([ms2.mz, ms2.intensity], [MZ, INTENSITY])


def with_precursor(*window, activation=""):
    return scan(precursor=precursors(windowed(*window, activation=activation)))


WIDE_MZXML = '<precursorMz windowWideness="{}" '
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
    *((cv("MS:1000511", "ms level", one), True, 2, "") for one in ("2e999", "-2e999", "nan")),
)
RAMP = cv("MS:1002013", "collision energy ramp start", 20)
RAMP += cv("MS:1002014", "collision energy ramp end", 40)
ENERGIES = (
    (cv("MS:1000045", "collision energy", 30), "30.0"),
    (cv("MS:1000138", "normalized collision energy", 30), "30.0 NCE"),
    (cv("MS:1000509", "activation energy", 20), "20.0 eV"),
    (RAMP, "20.0-40.0 eV"),
    ("", ""),
)
NO_UNIT = "the file gives no unit of retention times; they are taken for minutes"
# Unit of a time of 2.5, seconds, and what is said.
UNITS = (
    ('unitCvRef="UO" unitAccession="UO:0000010" unitName="second"', 2.5, ""),
    ('unitCvRef="UO" unitAccession="UO:0000031"', 150, ""),
    ('unitCvRef="UO" unitAccession="UO:0000010"', 2.5, ""),
    ('unitAccession="UO:0000010"', 2.5, ""),
    ('unitCvRef="UO" unitAccession="UO:0000028" unitName="millisecond"', 0.003, ""),
    ("", 150, NO_UNIT),
)
STEP = "one scan of ion mobility has few of the peaks"
# Native id, the name and the scan number that are read, and what is said.
NATIVES = (
    ("scan=7", "scan=7", "7", ""),
    ("controllerType=0 controllerNumber=1 scan=7", "scan=7", "7", ""),
    # A number of a scan that each function of a Waters instrument has.
    ("function=2 process=0 scan=7", "function=2 process=0 scan=7", "", ""),
    ("sample=1 period=1 cycle=5 experiment=2",) * 2 + ("", ""),
    ("merged=4 frame=1 scanStart=1 scanEnd=927",) * 2 + ("", ""),
    ("frame=1 scan=230", "frame=1 scan=230", "", STEP),
)
COLLISIONS = (BEAM, "trap-type collision-induced dissociation")
OTHER_MODES = (
    *("electron activated dissociation", "electron transfer dissociation"),
    "electron transfer/higher-energy collision dissociation",
    "ultraviolet photodissociation",
)
OF_MODE = "fragments of {}: the networks know those of collisions (CID, HCD)"
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
FOR_ALL = '<referenceableParamGroup id="all">{}</referenceableParamGroup>'
OWN = mzml([scan().replace(LEVEL, GROUP.replace("instrument", "all"))])
# A spectrum's own term wins over one of a group, wherever it stands.
OWN_TOO = mzml([scan().replace(LEVEL, GROUP.replace("instrument", "all") + LEVEL)])
MS1_LEVEL = cv("MS:1000511", "ms level", 1)
# A file of one scan, fields of what is read, and part of what is said.
FILES = (
    *((mzml([with_precursor(*window)]), {"precursor_mz": mz, "peaks": 3, "rtinseconds": "150.000",
       "status": "" if mz else "no_precursor"}, said) for *window, mz, said in WINDOWS),
    *((mzml([scan(precursor=PRECURSOR if has else " ").replace(LEVEL, terms)]), {"ms_level": level,
       "precursor_mz": 181.0495 if has and level > 1 else None}, said)
      for terms, has, level, said in LEVELS),
    *((mzml([with_precursor(181.05, 0.5, 0.5, [181.0495], activation=cv(*CID) + terms)]),
       {"collision_energy_text": text, "fragmentation_mode": CID[1]}, "")
      for terms, text in ENERGIES),
    *((mzml([scan().replace('unitCvRef="UO" unitAccession="UO:0000031" unitName="minute"', unit)]),
       {"retention_time_s": time}, said) for unit, time, said in UNITS),
    *((mzml([scan().replace(f"{NATIVE}scan=1", native)]), {"spectrum_id": name, "scans": number},
       said) for native, name, number, said in NATIVES),
    *((mzml([scan().replace(BEAM, mode)]), {}, "") for mode in COLLISIONS),
    *((mzml([scan().replace(BEAM, mode)]), {}, OF_MODE.format(mode)) for mode in OTHER_MODES),
    (mzml([scan(filter=FILTER)], MODEL), ORBITRAP, ""),
    (mzml([scan().replace("<scanList", IN_SPECTRUM)], MODEL), ORBITRAP, ""),  # as OpenMS writes it
    (mzml([scan(precursor=precursors(*SEVERAL))]), {"precursor_mz": 181.0495},
     "the first of 3 precursors is used; fragments of the others"),
    (mzml([scan(level=3, precursor=precursors(*OF_LEVELS))]), {"precursor_mz": 121.0284},
     "an MS3 spectrum is read as if it were MS2"),
    *((made.replace("</referenceableParamGroupList>", FOR_ALL.format(level)
                    + "</referenceableParamGroupList>"), {"ms_level": 2, "assumptions": ()}, "")
      for made, level in ((OWN, LEVEL), (OWN_TOO, MS1_LEVEL))),
    *((mzxml(mzxml_scan(2).replace("<precursorMz ", WIDE_MZXML.format(width))),
       {"precursor_mz": mz, "rtinseconds": "150.000", "status": "" if mz else "no_precursor"}, said)
      for width, mz, said in (("1.5", 181.0495, ""), ("4", 181.0495, ""),
                              ("25.0", None, "is 25 m/z wide and no ion of it is named"))),
    (mzxml(mzxml_scan(2).replace("PT150S", "150")), {"retention_time_s": 150.0}, ""),
    (mzxml(mzxml_scan(2).replace("</precursorMz>", MORE, 1)), {"precursor_mz": 181.0495},
     "the first of 2 precursors is used"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("content", "fields", "said"),
    FILES,
    ids=[f"{said[:40]} {fields}"[:80] for _, fields, said in FILES],
)
def test_what_is_read_of_a_scan_and_said_of_it(tmp_path, content, fields, said):
    (found,) = parsed(tmp_path, content)

    assert {name: value_of(found, name) for name in fields} == fields
    failed = [found.failure.message] if found.failure else []
    remarks = [*found.warnings, *found.assumptions, *failed]
    assert len(remarks) == bool(said)
    assert said in "".join(remarks)


def test_profile_spectra_are_picked_with_a_warning(tmp_path):
    mz = np.arange(120.9, 121.2, 0.005)
    profile = 1000 * np.exp(-(((mz - 121.0284) / 0.012) ** 2))

    (found,) = parsed(tmp_path, mzml([scan(kind="profile", mz=list(mz), intensity=list(profile))]))

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
        arrays(MZ, INTENSITY).replace(
            cv("MS:1000576", "no compression"), cv("MS:1000574", "zlib compression") + numpress, 1
        ): "Numpress linear prediction compression is not supported",
    }
    noise = array(MZ, "signal to noise array", "MS:1000517").replace("<binary>", "<binary>AAAA")
    scans = [*(scan(n, arrays=both) for n, both in enumerate(said, 1))]
    scans.append(scan(9, arrays=arrays(MZ, INTENSITY) + noise))  # which nobody asks for

    *broken, sound = parsed(tmp_path, mzml(scans))

    for found, words in zip(broken, said.values(), strict=True):
        assert words in found.failure.message
    assert [one.spectrum_id for one in broken] == [f"scan={number}" for number in range(1, 6)]
    assert sound.mz.size == 3


def test_a_truncated_mzml_gives_its_whole_spectra_and_one_row(tmp_path):
    text = mzml([scan(i) for i in range(1, 41)])
    cut = text[: text.index(f'id="{NATIVE}scan=31"') + 400]

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
    peaks = ('<peaks precision="32" byteOrder="network"/>', "<peaks/>", " ", "")
    of_mzxml = "".join(mzxml_scan(n, peaks=text) for n, text in enumerate(peaks))

    for content in (mzml(scans), mzxml(of_mzxml)):
        assert [s.mz.size for s in parsed(tmp_path, content)] == [0, 0, 0, 3]


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
    unsized = peaks_of_mzxml(PAIRS, 32, False).replace('precision="32"', "")
    scans = mzxml_scan(2) + mzxml_scan(2) + mzxml_scan(3, peaks=broken)

    first, second, *others = parsed(
        tmp_path, mzxml(scans + mzxml_scan(4, peaks=unsized)), "a.mzXML"
    )

    assert first.spectrum_id == second.spectrum_id == "scan=2"
    assert ["cannot be decoded" in one.failure.message for one in others] == [True, True]


def test_spectra_of_light_are_no_ms2(tmp_path):
    light = array([200, 201, 202], "wavelength array", "MS:1000617") + arrays([], INTENSITY)
    kind = cv("MS:1000804", "electromagnetic radiation spectrum")
    one = scan(mode="", precursor=" ", arrays=light).replace(LEVEL, kind)

    first, second = parsed(tmp_path, mzml([one, scan(2)]))

    assert (first.ms_level, first.mz.size) == (1, 0)
    assert (second.source.index, second.ms_level) == (1, 2)


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
    named = f'<scan instrumentConfigurationRef="{reference}">' if reference else "<scan>"
    end = "</instrumentConfigurationList>"
    text = mzml([scan().replace("<scan>", named)]).replace(end, f"{lists}{end}", 1)
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
