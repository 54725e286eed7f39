"""However a text writes its peaks, none is lost without a word."""

import pytest

from tests.made_spectra import parsed

HEAD = "NAME: x\nPRECURSORMZ: 195.08765\nPRECURSORTYPE: [M+H]+\n"
COUNTS = (
    *("Num Peaks", "NumPeaks", "Num peaks", "NUM PEAKS", "Num_Peaks", "Num Peak", "num_peaks"),
    *(
        "Num Features",
        "Number of peaks",
        "Number of Peaks",
        "Peak count",
        "PeakCount",
        "No. of peaks",
    ),
    *("NPeaks", "Num Ions", "Num MS2 peaks", "Peaks"),
)
LAYOUTS = {
    "a blank": "138.0662 1000\n110.0713 600\n",
    "a tab": "138.0662\t1000\n110.0713\t600\n",
    "comma and blank": "138.0662, 1000\n110.0713, 600\n",
    "a comma": "138.0662,1000\n110.0713,600\n",
    "blank and comma": "138.0662 , 1000\n110.0713 ,600\n",
    "a colon": "138.0662:1000\n110.0713:600\n",
    "colons in one line": "138.0662:1000 110.0713:600\n",
    "a semicolon": "138.0662;1000\n110.0713;600\n",
    "round brackets": "(138.0662 1000)\n(110.0713 600)\n",
    "round brackets in one line": "(138.0662,1000)(110.0713,600)\n",
    "square brackets": "[138.0662, 1000], [110.0713, 600]\n",
    "semicolons between peaks": "138.0662 1000; 110.0713 600;\n",
    "semicolons and commas": "138.0662,1000; 110.0713,600\n",
    "bars": "138.0662|1000\n110.0713|600\n",
    "annotations in quotation marks": '138.0662\t1000\t"b2, 5; 7:1"\n110.0713\t600\t""\n',
    "annotations in apostrophes": "138.0662 1000 'C6H8'\n110.0713 600 'x'\n",
    "annotations after a semicolon": "138.0662 1000; C6H8N3O\n110.0713 600; x\n",
    "a third column": "138.0662 1000 1+\n110.0713 600 1\n",
    "blanks before": "  138.0662 1000\n\t110.0713 600\n",
    "exponents": "1.380662E2 1e3\n1.100713e+02 6E2\n",
    "decimal commas": "138,0662 1000\n110,0713 600\n",
    "decimal commas and a tab": "138,0662\t1000,0\n110,0713\t600,0\n",
    "a blank line between": "138.0662 1000\n\n110.0713 600\n",
}


def assert_both(found, warnings=()):
    assert found.failure is None
    assert found.mz.tolist() == [110.0713, 138.0662]
    assert found.intensity.tolist() == [600, 1000]
    assert found.warnings == warnings


@pytest.mark.parametrize("peaks", LAYOUTS.values(), ids=list(LAYOUTS))
def test_layouts_of_peaks_in_msp(tmp_path, peaks):
    record = f"{HEAD}Num Peaks: 2\n{peaks}"

    for found in parsed(tmp_path, f"{record}\n{record}{record}", "a.msp"):
        assert_both(found)


@pytest.mark.parametrize("peaks", LAYOUTS.values(), ids=list(LAYOUTS))
def test_layouts_of_peaks_in_mgf_and_sirius(tmp_path, peaks):
    (mgf,) = parsed(tmp_path, f"BEGIN IONS\nPEPMASS=195.08765\n{peaks}END IONS\n", "a.mgf")
    (sirius,) = parsed(tmp_path, f">compound x\n>parentmass 195.08765\n>ms2\n{peaks}", "a.ms")

    assert_both(mgf)
    assert_both(sirius)


@pytest.mark.parametrize("count", COUNTS)
def test_however_their_number_is_called(tmp_path, count):
    record = f"{HEAD}{count}: 2\n138.0662 1000\n110.0713 600\n"

    for found in parsed(tmp_path, f"{record}\n{record}{record}", "a.msp"):
        assert_both(found)


@pytest.mark.parametrize("between", ["", "SPECTRUM: centroid\n", "m/z intensity\n", "\n"])
def test_peaks_below_a_line_that_nobody_knows_are_read_and_said(tmp_path, between):
    record = f"{HEAD}{between}138.0662 1000\n110.0713 600\n"

    for found in parsed(tmp_path, f"{record}\n{record}", "a.msp"):
        assert_both(found, ("the record has no Num Peaks",))


def test_peaks_in_the_line_of_their_number_are_read(tmp_path):
    (found,) = parsed(tmp_path, f"{HEAD}Peaks: 138.0662:1000 110.0713:600\n", "a.msp")

    assert_both(found)


def test_a_number_that_is_wrong_is_said_in_the_files_own_words(tmp_path):
    (found,) = parsed(tmp_path, f"{HEAD}Num Features: 3\n138.0662 1000\n110.0713 600\n", "a.msp")

    assert_both(found, ("Num Features says 3, and there are 2",))


def test_the_rest_of_a_comment_is_no_peak(tmp_path):
    text = f"{HEAD}Comments: made of\n 2,4-dinitro and more\n  15 times\nNum Peaks: 1\n50 1\n"

    (found,) = parsed(tmp_path, text, "a.msp")

    assert found.mz.tolist() == [50]


def test_nominal_masses_without_a_precursor_are_those_of_electron_ionisation(tmp_path):
    text = "Name: Caffeine\nFormula: C8H10N4O2\nMW: 194\nCAS#: 58-08-2\nNum Peaks: 5\n"
    peaks = "55 400; 67 300; 82 250; 109 800; 194 999;\n"

    electron, tandem = parsed(tmp_path, f"{text}{peaks}\n{HEAD}Num Peaks: 5\n{peaks}", "a.msp")

    assert electron.failure.status == "unsupported_measurement"
    assert "electron ionisation" in electron.failure.message
    assert electron.formula_text == "C8H10N4O2"
    assert tandem.failure is None


def test_peaks_of_mgf_outside_of_a_record_are_said(tmp_path):
    record = "BEGIN IONS\nPEPMASS=195.08765\n138.0662 1000\n110.0713 600\nEND IONS\n"

    before, sound, after = parsed(tmp_path, f"COM=x\n50 1\n{record}60 2\n70 3\n", "a.mgf")

    assert_both(sound)
    for one in (before, after):
        assert one.failure.message == "peaks stand without BEGIN IONS; restore that line"


def test_what_mgf_holds_besides_peaks_costs_nothing(tmp_path):
    text = """MASS=Monoisotopic
# a comment
BEGIN IONS
TITLE=a=b
SCANS=1-5
PEPMASS=195.08765 1000.5
CHARGE=1+
; a comment
138.0662\t1000\t1+

110.0713\t600
END IONS
"""

    (found,) = parsed(tmp_path, text, "a.mgf")

    assert_both(found)
    assert (found.scans, found.metadata["title"]) == ("1-5", "a=b")


SIRIUS = ">compound x\n>parentmass 195.08765\n>ionization [M+H]+\n"


@pytest.mark.parametrize(
    ("block", "level", "warnings"),
    [
        (">ms2\n", 2, ()),
        (">collision 35\n", 2, ()),
        (">ms2peaks\n", 2, ()),
        (">ms3\n", 3, ("an MS3 spectrum is read",)),
        (">msms\n", 2, ()),
        (">spectrum\n", 2, ("peaks below >spectrum are read as MS2",)),
        ("", 2, ("peaks below >ionization are read as MS2",)),
    ],
)
def test_blocks_of_sirius_whatever_they_are_called(tmp_path, block, level, warnings):
    (found,) = parsed(tmp_path, f"{SIRIUS}{block}138.0662 1000\n110.0713 600\n", "a.ms")

    assert found.mz.tolist() == [110.0713, 138.0662]
    assert found.ms_level == level
    assert len(found.warnings) == len(warnings)
    for said, part in zip(found.warnings, warnings, strict=True):
        assert part in said


def test_a_block_that_nobody_knows_does_not_join_the_one_before(tmp_path):
    text = f"{SIRIUS}>ms1\n195.08765 9\n>other\n138.0662 1000\n110.0713 600\n"

    ms1, ms2 = parsed(tmp_path, text, "a.ms")

    assert (ms1.ms_level, ms1.mz.tolist()) == (1, [195.08765])
    assert ms2.mz.tolist() == [110.0713, 138.0662]


TABLES = {
    "tabs": "identifier\tprecursor_mz\tmzs\tintensities\n"
    "a\t195.08765\t138.0662,110.0713\t1000,600\n",
    "commas": "identifier,precursor_mz,mzs,intensities\n"
    'a,195.08765,"138.0662,110.0713","1000,600"\n',
    "semicolons": "sep=;\nidentifier;precursor_mz;mzs;intensities\n"
    "a;195.08765;138.0662,110.0713;1000,600\n",
    "comments": "# made\n\nidentifier\tprecursor_mz\tmzs\tintensities\n"
    "a\t195.08765\t[138.0662, 110.0713]\t[1000, 600]\n",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=list(TABLES))
def test_tables_of_spectra_whatever_divides_their_cells(tmp_path, text):
    (found,) = parsed(tmp_path, text, "a.csv")

    assert_both(found)
    assert (found.spectrum_id, found.precursor_mz) == ("a", 195.08765)


def test_a_row_with_an_open_quotation_mark_costs_no_other(tmp_path):
    rows = 'a,"1,2\nb,"3,4","5,6"\n'

    first, second = parsed(tmp_path, f"identifier,mzs,intensities\n{rows}", "a.csv")

    assert "quotation mark" in first.failure.message
    assert second.mz.tolist() == [3, 4]
