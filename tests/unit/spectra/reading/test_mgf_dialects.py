"""MGF as the tools of the field write it. Peaks and masses are made up from aspirin's fragments."""

import numpy as np
import pytest

from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.types import Unreadable

PEAKS = "121.0284 1000\n163.0390 250.5\n"


def mgf(tmp_path, text, name="a.mgf"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read(str(path)))


def block(fields, peaks=PEAKS):
    lines = "".join(f"{line}\n" for line in fields.splitlines() if line.strip())
    return f"BEGIN IONS\n{lines}{peaks}END IONS\n\n"


def one(tmp_path, fields, peaks=PEAKS):
    (spectrum,) = mgf(tmp_path, block(fields, peaks))
    return spectrum


def test_mzmine_gnps_export(tmp_path):
    found = one(
        tmp_path,
        "FEATURE_ID=12\nPEPMASS=181.0495\nSCANS=12\nRTINSECONDS=201.5\nCHARGE=1+\nMSLEVEL=2",
    )

    assert (found.spectrum_id, found.feature_id, found.scans) == ("12", "12", "12")
    assert (found.precursor_mz, found.charge, found.polarity) == (181.0495, 1, 1)
    assert (found.ms_level, found.adduct_text, found.formula_text) == (2, "", "")
    np.testing.assert_array_equal(found.mz, [121.0284, 163.0390])
    np.testing.assert_array_equal(found.intensity, [1000, 250.5])
    assert found.metadata["rtinseconds"] == "201.5"
    assert found.warnings == ()


def test_mzmine_sirius_export_with_ms1_blocks(tmp_path):
    head = "FEATURE_ID=3\nPEPMASS=179.0350\nCHARGE=0\nRTINSECONDS=10\n"
    text = (
        block(head + "SPECTYPE=CORRELATED MS\nMSLEVEL=1")
        + block(head + "MSLEVEL=1")
        + block(head + "MSLEVEL=2\nION=[M-H]-\nPOLARITY=NEGATIVE\nCOLLISION_ENERGY=[20.0, 40.0]")
    )

    levels = mgf(tmp_path, text)

    assert [s.ms_level for s in levels] == [1, 1, 2]
    assert [s.source.index for s in levels] == [0, 1, 2]
    last = levels[-1]
    assert (last.charge, last.polarity, last.adduct_text) == (0, -1, "[M-H]-")
    assert last.collision_energy_ev == 30


def test_ms_dial_gnps_export_keeps_charge_and_adduct_apart(tmp_path):
    found = one(tmp_path, "SCANS=5\nPEPMASS=225.0405\nCHARGE=1+\nION=[M+FA-H]-")

    assert (found.charge, found.adduct_text, found.spectrum_id) == (1, "[M+FA-H]-", "5")


def test_gnps_library_file(tmp_path):
    found = one(
        tmp_path,
        "PEPMASS=181.05\nCHARGE=1\nMSLEVEL=2\nSOURCE_INSTRUMENT=LC-ESI-qTof\nFILENAME=x.mzXML\n"
        "SEQ=*..*\nIONMODE=Positive\nORGANISM=GNPS-LIBRARY\nNAME=Aspirin M+H\nPI=me\n"
        "SMILES=CC(=O)Oc1ccccc1C(=O)O\nINCHI=N/A\nINCHIAUX=BSYNRYMUTXBXSQ-UHFFFAOYSA-N\n"
        "PUBMED=N/A\nLIBRARYQUALITY=3\nSPECTRUMID=CCMSLIB00000000001\nSCANS=1",
    )

    assert found.spectrum_id == "CCMSLIB00000000001"
    assert (found.charge, found.polarity, found.instrument) == (1, 1, "qtof")
    assert found.feature_id == ""
    assert not {"smiles", "inchi", "inchiaux"} & found.metadata.keys()


def test_gnps_cluster_without_known_charge(tmp_path):
    found = one(tmp_path, "PEPMASS=181.0495\nCHARGE=0+\nSCANS=9\nION=positive")

    assert (found.charge, found.polarity, found.adduct_text) == (0, 1, "")


def test_massspecgym_file_has_its_energy_in_ev(tmp_path):
    found = one(
        tmp_path,
        "IDENTIFIER=MassSpecGymID0000001\nSMILES=CC(=O)O\nINCHIKEY=QTBSBXVTEAMEQO\n"
        "FORMULA=C9H8O4\nPRECURSOR_FORMULA=C9H9O4\nPARENT_MASS=180.0423\n"
        "PRECURSOR_MZ=181.0495\nADDUCT=[M+H]+\nINSTRUMENT_TYPE=Orbitrap\n"
        "COLLISION_ENERGY=30.0\nFOLD=train\nSIMULATION_CHALLENGE=True",
    )

    assert found.spectrum_id == "MassSpecGymID0000001"
    assert (found.precursor_mz, found.adduct_text) == (181.0495, "[M+H]+")
    assert (found.formula_text, found.instrument) == ("C9H8O4", "orbitrap")
    assert found.collision_energy_ev == 30
    assert "smiles" not in found.metadata


def test_metaboscape_and_progenesis_name_the_ion(tmp_path):
    metaboscape = one(
        tmp_path,
        "FEATURE_ID=4\nPEPMASS=181.04950\nCHARGE=1+\nION=[M+H]+\nIONMODE=POS\nRTINMINUTES=3.2\n"
        "MSLEVEL=2\nTITLE=Cmpd 4, +MS2(181.0495), 24.7eV, 3.2min",
    )
    progenesis = one(tmp_path, "PEPMASS=181.0495 3.4e5\nIONTYPE=M+H\nTITLE=3.20_180.0423n")

    assert (metaboscape.adduct_text, metaboscape.polarity) == ("[M+H]+", 1)
    assert metaboscape.spectrum_id == "4"
    assert (progenesis.precursor_mz, progenesis.adduct_text) == (181.0495, "M+H")
    assert progenesis.spectrum_id == "3.20_180.0423n"


@pytest.mark.parametrize(
    ("field", "charge", "polarity"),
    [
        ("CHARGE=1+", 1, 1),
        ("CHARGE=+1", 1, 1),
        ("CHARGE=1-", -1, -1),
        ("CHARGE=-1", -1, -1),
        ("CHARGE=\u22121", -1, -1),
        ("CHARGE=2+", 2, 1),
        ("CHARGE=+", 1, 1),
        ("CHARGE=0", 0, 0),
        ("CHARGE=0+", 0, 0),
        ("CHARGE=1", 1, 0),
        ("CHARGE=1\nIONMODE=Negative", -1, -1),
        ("CHARGE=0\nPOLARITY=-", 0, -1),
        ("CHARGE=1+\nIONMODE=N", 1, -1),
        ("CHARGE=2+ and 3+", 0, 0),
        ("CHARGE=N/A", 0, 0),
        ("CHARGE=unknown", 0, 0),
        ("CHARGE=" + "9" * 5000, 0, 0),
        ("ION=1-", 0, -1),
    ],
)
def test_charge_and_polarity_dialects(tmp_path, field, charge, polarity):
    found = one(tmp_path, f"PEPMASS=181\n{field}")

    assert (found.charge, found.polarity) == (charge, polarity)


@pytest.mark.parametrize(
    ("field", "mz"),
    [
        ("PEPMASS=181.0495 12000.5", 181.0495),
        ("PEPMASS=181.0495\t12000.5\t1+", 181.0495),
        ("PEPMASS=181,0495", 181.0495),
        ("PEPMASS=1.810495E2", 181.0495),
        ("PEPMASS=0.0\nPRECURSOR_MZ=181.0495", 181.0495),
        ("PRECURSORMZ=181.0495", 181.0495),
        ("PEPMASS=0", None),
        ("PEPMASS=", None),
        ("PEPMASS=N/A", None),
        ("TITLE=x", None),
    ],
)
def test_precursor_dialects(tmp_path, field, mz):
    found = one(tmp_path, field)

    assert found.precursor_mz == mz
    assert found.warnings == ()


@pytest.mark.parametrize(
    "text", ["abc", "-5", "nan", "inf", "1e999", "1e300", "1_95.08765", "19_5.1", "195.1_2"]
)
def test_a_precursor_that_is_no_positive_number_is_missing_with_a_warning(tmp_path, text):
    found = one(tmp_path, f"PEPMASS={text}")

    assert found.precursor_mz is None
    assert "is not a positive number below 1,000,000" in found.warnings[0]


@pytest.mark.parametrize("text", ["15, 30 or 45", "2000 eV", "35 scaled by m/z", "35 NCE"])
def test_an_energy_that_cannot_be_used_is_missing_with_a_warning(tmp_path, text):
    found = one(tmp_path, f"COLLISION_ENERGY={text}")

    assert found.collision_energy_ev is None
    assert found.warnings == (
        f"collision energy {text!r} gives no one value in eV and counts as missing; "
        "write it like 35 eV",
    )


@pytest.mark.parametrize("text", ["", "0", "0.0", "N/A", "unknown", "ramp"])
def test_an_energy_that_is_not_given_is_missing_and_nothing_is_said(tmp_path, text):
    found = one(tmp_path, f"COLLISION_ENERGY={text}")

    assert (found.collision_energy_ev, found.warnings) == (None, ())


@pytest.mark.parametrize(
    ("fields", "formula"),
    [
        ("FORMULA=C9H8O4", "C9H8O4"),
        ("FORMULA=N/A\nMOLECULAR_FORMULA=C9H8O4", "C9H8O4"),
        ("MOLECULARFORMULA=C9H8O4", "C9H8O4"),
        ("PRECURSOR_FORMULA=C9H9O4\nSIRIUS_FORMULA=C9H8O4", "C9H8O4"),
        ("FORMULA=na", ""),
        ("FORMULA=null", ""),
        ("FORMULA=", ""),
    ],
)
def test_formula_fields(tmp_path, fields, formula):
    assert one(tmp_path, fields).formula_text == formula


def test_without_any_identifier_the_file_and_place_name_the_spectrum(tmp_path):
    found = mgf(tmp_path, block("PEPMASS=1") + block("PEPMASS=2\nTITLE=N/A"), "run.1.mgf")

    assert [s.spectrum_id for s in found] == ["run:0", "run:1"]


def test_global_parameters_hold_for_every_record(tmp_path):
    text = "CHARGE=1-\nCOM=made up\n\n" + block("PEPMASS=1") + block("PEPMASS=2\nCHARGE=1+")

    assert [s.charge for s in mgf(tmp_path, text)] == [-1, 1]


def test_structures_are_kept_only_on_request(tmp_path):
    path = tmp_path / "a.mgf"
    fields = "PEPMASS=1\nSMILES=CCO\nINCHIKEY=LFQSCWFLJHTTHZ-UHFFFAOYSA-N\nNOTE=InChI=1S/C2H6O/c1"
    path.write_text(block(fields), encoding="utf-8")

    (dropped,) = read(str(path))
    (kept,) = read(str(path), keep_structures=True)

    assert set(dropped.metadata) == {"pepmass"}
    assert kept.metadata["smiles"] == "CCO"


@pytest.mark.parametrize(
    ("peaks", "mz", "warning"),
    [
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
    ],
)
def test_peak_line_dialects(tmp_path, peaks, mz, warning):
    found = one(tmp_path, "PEPMASS=181", peaks)

    np.testing.assert_array_equal(found.mz, mz)
    assert (warning in found.warnings[0]) if warning else (found.warnings == ())


def test_nan_and_negative_peaks_are_read_for_cleaning_to_judge(tmp_path):
    found = one(tmp_path, "PEPMASS=181", "nan 1\n60 -2\n50 nan\n70 inf\n")

    assert found.mz.size == 4


def test_a_record_of_garbage_is_unreadable_and_the_next_one_is_not(tmp_path):
    text = block("TITLE=bad", "hello world\nfoo\n") + block("TITLE=good")

    bad, good = mgf(tmp_path, text)

    assert isinstance(bad, Unreadable)
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

    opened, whole, stray, following, last = mgf(tmp_path, text)

    assert "no END IONS" in opened.warnings[0]
    assert whole.warnings == ()
    assert "END IONS stands without BEGIN IONS" in stray.failure.message
    assert following.precursor_mz is None
    assert "the file ends within it" in last.warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        block("TITLE=caf\u00e9\nPEPMASS=181").replace("\n", "\r\n").encode(),
        block("TITLE=caf\u00e9\nPEPMASS=181").replace("\n", "\r").encode(),
        block("TITLE=caf\u00e9\nPEPMASS=181").encode("latin-1"),
        block("TITLE=caf\u00e9\nPEPMASS=181").encode("utf-8-sig"),
        block("TITLE=caf\u00e9\nPEPMASS=181").encode("utf-16"),
        block("title=caf\u00e9\npepmass=181").replace("IONS", "ions").encode(),
        ("  " + block("TITLE = caf\u00e9 \nPEPMASS= 181")).encode(),
    ],
    ids=["crlf", "cr", "latin-1", "utf-8 mark", "utf-16", "lower case", "blanks"],
)
def test_line_ends_encodings_and_case(tmp_path, text):
    (found,) = mgf(tmp_path, text)

    assert (found.spectrum_id, found.precursor_mz) == ("caf\u00e9", 181)
    np.testing.assert_array_equal(found.mz, [121.0284, 163.0390])


def test_key_synonyms_are_understood(tmp_path):
    found = one(
        tmp_path,
        "PRECURSORTYPE=[M+H]+\nION_MODE=positive\nCOLLISIONENERGY=20 eV\nINSTRUMENTTYPE=LC-QTOF\n"
        "ACCESSION=X1\nMS_TYPE=MS2",
    )

    assert (found.adduct_text, found.polarity, found.collision_energy_ev) == ("[M+H]+", 1, 20)
    assert (found.instrument, found.spectrum_id, found.ms_level) == ("qtof", "X1", 2)


@pytest.mark.parametrize("peak", ["110.0 nan", "nan 5", "110.0 -3", "-110.0 3", "110 inf", "1e9 5"])
def test_a_peak_whose_numbers_cannot_be_is_left_out_and_said(tmp_path, peak):
    found = one(tmp_path, "PEPMASS=181.0495", f"{PEAKS}{peak}\n")

    assert found.warnings == ("1 of 3 peaks had no possible m/z and intensity and were left out",)


def test_peaks_of_intensity_zero_are_ordinary(tmp_path):
    assert one(tmp_path, "PEPMASS=181.0495", f"{PEAKS}110.0 0\n").warnings == ()
