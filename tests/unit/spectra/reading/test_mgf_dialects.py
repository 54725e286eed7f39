"""MGF as the tools of the field write it. Peaks and masses are made up from aspirin's fragments."""

import numpy as np
import pytest

from duallgd_cli.spectra.reading import read
from tests.made_spectra import parsed

PEAKS = "121.0284 1000\n163.0390 250.5\n"
WHOLE = {"mz": [121.0284, 163.0390], "intensity": [1000, 250.5]}
CHARGES = {
    "CHARGE=1+": (1, 1),
    "CHARGE=+1": (1, 1),
    "CHARGE=1-": (-1, -1),
    "CHARGE=-1": (-1, -1),
    "CHARGE=\u22121": (-1, -1),
    "CHARGE=2+": (2, 1),
    "CHARGE=+": (1, 1),
    "CHARGE=0": (0, 0),
    "CHARGE=0+": (0, 0),
    "CHARGE=1": (1, 0),
    "CHARGE=1\nIONMODE=Negative": (-1, -1),
    "CHARGE=0\nPOLARITY=-": (0, -1),
    "CHARGE=2+ and 3+": (2, 1),
    "CHARGE=N/A": (0, 0),
    "CHARGE=unknown": (0, 0),
    "ION=1-": (-1, -1),
}
PRECURSORS = {
    "PEPMASS=181.0495 12000.5": 181.0495,
    "PEPMASS=181.0495\t12000.5\t1+": 181.0495,
    "PEPMASS=181,0495": 181.0495,
    "PEPMASS=1.810495E2": 181.0495,
    "PEPMASS=0.0\nPRECURSOR_MZ=181.0495": 181.0495,
    "PRECURSORMZ=181.0495": 181.0495,
    "PEPMASS=0": None,
    "PEPMASS=": None,
    "PEPMASS=N/A": None,
    "TITLE=x": None,
}
NO_PRECURSORS = ("abc", "-5", "nan", "inf", "1e999", "1e300", "1_95.08765", "19_5.1", "195.1_2")
NO_ENERGIES = ("15, 30 or 45", "2000 eV", "35 scaled by m/z", "35 NCE")
FORMULAS = {
    "FORMULA=C9H8O4": "C9H8O4",
    "FORMULA=N/A\nMOLECULAR_FORMULA=C9H8O4": "C9H8O4",
    "MOLECULARFORMULA=C9H8O4": "C9H8O4",
    "PRECURSOR_FORMULA=C9H9O4\nSIRIUS_FORMULA=C9H8O4": "C9H8O4",
    "FORMULA=na": "",
    "FORMULA=null": "",
    "FORMULA=": "",
}
# Fields of a record, and what is read of them; `says` is part of a warning, else there is none.
FIELDS = (
    *((text, {"charge": c, "polarity": p}) for text, (c, p) in CHARGES.items()),
    *((text, {"precursor_mz": mz}) for text, mz in PRECURSORS.items()),
    *(
        (f"PEPMASS={text}", {"precursor_mz": None, "says": "is not a positive number below"})
        for text in NO_PRECURSORS
    ),
    *(
        (
            f"COLLISION_ENERGY={text}",
            {
                "collision_energy_ev": None,
                "says": f"collision energy {text!r} gives no one value in eV and counts as "
                "missing; write it like 35 eV",
            },
        )
        for text in NO_ENERGIES
    ),
    *(
        (f"COLLISION_ENERGY={text}", {"collision_energy_ev": None})
        for text in ("", "0", "0.0", "N/A", "unknown", "ramp")
    ),
    *((text, {"formula_text": formula}) for text, formula in FORMULAS.items()),
    (
        "PRECURSORTYPE=[M+H]+\nION_MODE=positive\nCOLLISIONENERGY=20 eV\n"
        "INSTRUMENTTYPE=LC-QTOF\nACCESSION=X1\nMS_TYPE=MS2",
        {"adduct_text": "[M+H]+", "polarity": 1, "collision_energy_ev": 20, "instrument": "qtof"}
        | {"spectrum_id": "X1", "ms_level": 2},
    ),
    # MZmine for GNPS, MS-DIAL, GNPS clusters, MetaboScape, Progenesis.
    (
        "FEATURE_ID=12\nPEPMASS=181.0495\nSCANS=12\nRTINSECONDS=201.5\nCHARGE=1+\nMSLEVEL=2",
        {"spectrum_id": "12", "feature_id": "12", "scans": "12", "precursor_mz": 181.0495}
        | {"charge": 1, "polarity": 1, "ms_level": 2, "adduct_text": "", "formula_text": ""}
        | {"kept": {"rtinseconds": "201.5"}},
    ),
    (
        "SCANS=5\nPEPMASS=225.0405\nCHARGE=1+\nION=[M+FA-H]-",
        {"charge": 1, "adduct_text": "[M+FA-H]-", "spectrum_id": "5"},
    ),
    (
        "PEPMASS=181.0495\nCHARGE=0+\nSCANS=9\nION=positive",
        {"charge": 0, "polarity": 1, "adduct_text": ""},
    ),
    (
        "FEATURE_ID=4\nPEPMASS=181.04950\nCHARGE=1+\nION=[M+H]+\nIONMODE=POS\nRTINMINUTES=3.2\n"
        "MSLEVEL=2\nTITLE=Cmpd 4, +MS2(181.0495), 24.7eV, 3.2min",
        {"adduct_text": "[M+H]+", "polarity": 1, "spectrum_id": "4"},
    ),
    (
        "PEPMASS=181.0495 3.4e5\nIONTYPE=M+H\nTITLE=3.20_180.0423n",
        {"precursor_mz": 181.0495, "adduct_text": "M+H", "spectrum_id": "3.20_180.0423n"},
    ),
    # A library of GNPS, and MassSpecGym, whose energies are in eV.
    (
        "PEPMASS=181.05\nCHARGE=1\nMSLEVEL=2\nSOURCE_INSTRUMENT=LC-ESI-qTof\nFILENAME=x.mzXML\n"
        "SEQ=*..*\nIONMODE=Positive\nORGANISM=GNPS-LIBRARY\nNAME=Aspirin M+H\nPI=me\n"
        "SMILES=CC(=O)Oc1ccccc1C(=O)O\nINCHI=N/A\nINCHIAUX=BSYNRYMUTXBXSQ-UHFFFAOYSA-N\n"
        "PUBMED=N/A\nLIBRARYQUALITY=3\nSPECTRUMID=CCMSLIB00000000001\nSCANS=1",
        {"spectrum_id": "CCMSLIB00000000001", "charge": 1, "polarity": 1, "instrument": "qtof"}
        | {"feature_id": "", "dropped": {"smiles", "inchi", "inchiaux"}},
    ),
    (
        "IDENTIFIER=MassSpecGymID0000001\nSMILES=CC(=O)O\nINCHIKEY=QTBSBXVTEAMEQO\n"
        "FORMULA=C9H8O4\nPRECURSOR_FORMULA=C9H9O4\nPARENT_MASS=180.0423\n"
        "PRECURSOR_MZ=181.0495\nADDUCT=[M+H]+\nINSTRUMENT_TYPE=Orbitrap\n"
        "COLLISION_ENERGY=30.0\nFOLD=train\nSIMULATION_CHALLENGE=True",
        {"spectrum_id": "MassSpecGymID0000001", "precursor_mz": 181.0495, "adduct_text": "[M+H]+"}
        | {"formula_text": "C9H8O4", "instrument": "orbitrap", "collision_energy_ev": 30}
        | {"dropped": {"smiles"}},
    ),
)
LEFT_OUT = "1 of 3 peaks had no possible m/z and intensity and were left out"
# Lines of peaks: their m/z, and part of a warning.
PEAK_LINES = (
    ("50 1\n60 2 1+\n", [50, 60], ""),
    ("50 1 a b\n60\t2\tx\n", [50, 60], ""),
    ("50,1\n60,2\n", [50, 60], ""),
    ("50;1\n60;2\n", [50, 60], ""),
    ("50,5 1,5\n60,5 2\n", [50.5, 60.5], ""),
    ("60 2\n50 1\n60 2\n", [50, 60, 60], ""),
    ("50 1\nhello\n60 2\n", [50, 60], "1 of 3 peak lines"),
    ("50 1\n60\n", [50], "1 of 2 peak lines"),
    ("# a comment\n50 1\n\n", [50], ""),
    ("  50 1\n\t60 2\n", [50, 60], ""),
    ("5e1 1e3\n", [50], ""),
    ("50 1\n9_1.05 10\n", [50], "1 of 2 peak lines"),
    ("50 1\n\uff11\uff12 10\n", [50], "1 of 2 peak lines"),
    ("50 1\n91.05 1_0\n", [50], "1 of 2 peak lines"),
    ("50 1\n60 2\n110.0 nan\n", None, LEFT_OUT),
    ("50 1\n60 2\nnan 5\n", None, LEFT_OUT),
    ("50 1\n60 2\n110.0 -3\n", None, LEFT_OUT),
    ("50 1\n60 2\n-110.0 3\n", None, LEFT_OUT),
    ("50 1\n60 2\n110 inf\n", None, LEFT_OUT),
    ("50 1\n60 2\n1e9 5\n", None, LEFT_OUT),
    ("50 1\n110.0 0\n", [50, 110], ""),
)


def block(fields, peaks=PEAKS):
    lines = "".join(f"{line}\n" for line in fields.splitlines() if line.strip())
    return f"BEGIN IONS\n{lines}{peaks}END IONS\n\n"


def assert_read(found, says="", kept=None, dropped=(), **expected):
    """What a spectrum is: attributes by name, its warning, fields that it has and has not."""
    assert {name: getattr(found, name) for name in expected} == expected
    assert (says in found.warnings[0]) if says else (found.warnings == ())
    assert (kept or {}).items() <= found.metadata.items()
    assert not set(dropped) & found.metadata.keys()


@pytest.mark.parametrize(("fields", "expected"), FIELDS, ids=lambda one: str(one)[:30])
def test_fields_are_read_whatever_program_wrote_them(tmp_path, fields, expected):
    (found,) = parsed(tmp_path, block(fields))

    assert_read(found, **expected)
    assert {"mz": found.mz.tolist(), "intensity": found.intensity.tolist()} == WHOLE


@pytest.mark.parametrize(("peaks", "mz", "warning"), PEAK_LINES)
def test_peak_line_dialects(tmp_path, peaks, mz, warning):
    (found,) = parsed(tmp_path, block("PEPMASS=181", peaks))

    assert_read(found, says=warning)
    assert mz is None or found.mz.tolist() == mz


def test_mzmine_sirius_export_with_ms1_blocks(tmp_path):
    head = "FEATURE_ID=3\nPEPMASS=179.0350\nCHARGE=0\nRTINSECONDS=10\n"
    text = (
        block(head + "SPECTYPE=CORRELATED MS\nMSLEVEL=1")
        + block(head + "MSLEVEL=1")
        + block(head + "MSLEVEL=2\nION=[M-H]-\nPOLARITY=NEGATIVE\nCOLLISION_ENERGY=[20.0, 40.0]")
    )

    levels = parsed(tmp_path, text)

    assert [(s.ms_level, s.source.index) for s in levels] == [(1, 0), (1, 1), (2, 2)]
    negative = {"charge": 0, "polarity": -1, "adduct_text": "[M-H]-"}
    assert_read(levels[-1], collision_energy_ev=30, **negative)


def test_without_any_identifier_the_file_and_place_name_the_spectrum(tmp_path):
    found = parsed(tmp_path, block("PEPMASS=1") + block("PEPMASS=2\nTITLE=N/A"), "run.1.mgf")

    assert [s.spectrum_id for s in found] == ["run:0", "run:1"]


def test_global_parameters_hold_for_every_record(tmp_path):
    text = "CHARGE=1-\nCOM=made up\n\n" + block("PEPMASS=1") + block("PEPMASS=2\nCHARGE=1+")

    assert [s.charge for s in parsed(tmp_path, text)] == [-1, 1]


def test_structures_are_kept_only_on_request(tmp_path):
    path = tmp_path / "a.mgf"
    fields = "PEPMASS=1\nSMILES=CCO\nINCHIKEY=LFQSCWFLJHTTHZ-UHFFFAOYSA-N\nNOTE=InChI=1S/C2H6O/c1"
    path.write_text(block(fields), encoding="utf-8")

    (dropped,) = read(str(path))
    (kept,) = read(str(path), keep_structures=True)

    assert set(dropped.metadata) == {"pepmass"}
    assert kept.metadata["smiles"] == "CCO"


def test_a_record_of_garbage_is_unreadable_and_the_next_one_is_not(tmp_path):
    text = block("TITLE=bad", "hello world\nfoo\n") + block("TITLE=good")

    bad, good = parsed(tmp_path, text)

    assert (bad.spectrum_id, bad.failure.status) == ("bad", "unreadable")
    assert "no m/z and intensity in 2 peak lines" in bad.failure.message
    assert good.source.index == 1


def test_missing_end_and_missing_begin_cost_no_other_record(tmp_path):
    text = (
        "BEGIN IONS\nTITLE=open\n50 1\n"
        + block("TITLE=whole")
        + "PEPMASS=999\n60 2\nEND IONS\n"
        + block("TITLE=next")
        + "BEGIN IONS\nTITLE=last\n50 1"
    )

    opened, whole, stray, following, last = parsed(tmp_path, text)

    assert_read(opened, says="no END IONS")
    assert_read(whole)
    assert "END IONS stands without BEGIN IONS" in stray.failure.message
    assert_read(following, precursor_mz=None)
    assert_read(last, says="the file ends within it")


TITLED = "TITLE=caf\u00e9\nPEPMASS=181"


@pytest.mark.parametrize(
    "text",
    [
        block(TITLED).replace("\n", "\r\n").encode(),
        block(TITLED).replace("\n", "\r").encode(),
        block(TITLED).encode("latin-1"),
        block(TITLED).encode("utf-8-sig"),
        block(TITLED).encode("utf-16"),
        block(TITLED.lower()).replace("IONS", "ions").encode(),
        ("  " + block("TITLE = caf\u00e9 \nPEPMASS= 181")).encode(),
    ],
    ids=["crlf", "cr", "latin-1", "utf-8 mark", "utf-16", "lower case", "blanks"],
)
def test_line_ends_encodings_and_case(tmp_path, text):
    (found,) = parsed(tmp_path, text)

    assert_read(found, spectrum_id="caf\u00e9", precursor_mz=181)
    np.testing.assert_array_equal(found.mz, WHOLE["mz"])


def test_a_spectrum_of_a_fragment_says_how_it_is_read(tmp_path):
    (found,) = parsed(tmp_path, block("MSLEVEL=3\nPEPMASS=163"))

    assert_read(found, says="an MS3 spectrum is read as if it were MS2", ms_level=3)


@pytest.mark.parametrize("sign", ["\x1b[31m", "\x1c", "\x85", "\u2028", "\x00", "\u202e", "\t"])
def test_no_control_character_survives_into_names(tmp_path, sign):
    text = f"BEGIN IONS\nTITLE=a{sign}b\nFEATURE_ID=7{sign}\nPEPMASS=163\n{PEAKS}END IONS\n"

    (found,) = parsed(tmp_path, text)

    assert found.feature_id == f"7{sign}".translate({ord(sign[0]): " "}).strip()
    assert found.metadata["title"].isprintable()
