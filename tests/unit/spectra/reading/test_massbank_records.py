"""MassBank records, typed from the description of their format (version 2)."""

import pytest

from tests.made_spectra import parsed

RECORD = """ACCESSION: MSBNK-Made_up-XX000001
RECORD_TITLE: Caffeine; LC-ESI-QFT; MS2; CE: 35 NCE; R=17500; [M+H]+
DATE: 2024.01.31
AUTHORS: Nobody
LICENSE: CC0
COMMENT: CONFIDENCE standard compound
CH$NAME: Caffeine
CH$NAME: 1,3,7-trimethylpurine-2,6-dione
CH$COMPOUND_CLASS: Natural Product; alkaloid
CH$FORMULA: C8H10N4O2
CH$EXACT_MASS: 194.08038
CH$SMILES: Cn1cnc2c1c(=O)n(C)c(=O)n2C
CH$IUPAC: InChI=1S/C8H10N4O2/c1-10-4-9-6-5(10)7(13)12(3)8(14)11(6)2/h4H,1-3H3
CH$LINK: CAS 58-08-2
CH$LINK: INCHIKEY RYYVLZVUVIJVGH-UHFFFAOYSA-N
AC$INSTRUMENT: Q Exactive Plus Orbitrap Thermo Scientific
AC$INSTRUMENT_TYPE: LC-ESI-QFT
AC$MASS_SPECTROMETRY: MS_TYPE MS2
AC$MASS_SPECTROMETRY: ION_MODE POSITIVE
AC$MASS_SPECTROMETRY: IONIZATION ESI
AC$MASS_SPECTROMETRY: FRAGMENTATION_MODE HCD
AC$MASS_SPECTROMETRY: COLLISION_ENERGY 35 eV
AC$MASS_SPECTROMETRY: RESOLUTION 17500
AC$CHROMATOGRAPHY: RETENTION_TIME 5.21 min
MS$FOCUSED_ION: BASE_PEAK 138.0662
MS$FOCUSED_ION: PRECURSOR_M/Z 195.08765
MS$FOCUSED_ION: PRECURSOR_TYPE [M+H]+
MS$DATA_PROCESSING: WHOLE made up
PK$SPLASH: splash10-0a4i-0900000000-x
PK$ANNOTATION: m/z tentative_formula formula_count mass error(ppm)
  110.0713 C5H8N3+ 1 110.0713 0.02
  138.0662 C6H8N3O+ 1 138.0662 0.01
PK$NUM_PEAK: 3
PK$PEAK: m/z int. rel.int.
  110.0713 600 599
  123.0427 200 199
  138.0662 1000.5 999
//
"""


def test_a_record_is_read(tmp_path):
    (found,) = parsed(tmp_path, RECORD)

    assert (found.spectrum_id, found.ms_level) == ("MSBNK-Made_up-XX000001", 2)
    assert (found.precursor_mz, found.adduct_text, found.polarity) == (195.08765, "[M+H]+", 1)
    assert (found.formula_text, found.instrument) == ("C8H10N4O2", "orbitrap")
    assert found.collision_energy_ev == 35
    assert found.mz.tolist() == [110.0713, 123.0427, 138.0662]
    assert found.intensity.tolist() == [600, 200, 1000.5]
    assert found.metadata["name"] == "Caffeine"
    assert found.metadata["retention_time"] == "5.21 min"
    assert found.metadata["ionization"] == "ESI"
    assert found.metadata["resolution"] == "17500"
    assert found.warnings == ()
    assert not any(part in str(found.metadata) for part in ("InChI=", "RYYVLZ", "c2c1"))


def test_structures_are_kept_on_request(tmp_path):
    (found,) = parsed(tmp_path, RECORD, keep_structures=True)

    assert found.metadata["smiles"] == "Cn1cnc2c1c(=O)n(C)c(=O)n2C"
    assert found.metadata["inchi"].startswith("InChI=1S/C8H10N4O2")
    assert found.metadata["inchikey"] == "RYYVLZVUVIJVGH-UHFFFAOYSA-N"


@pytest.mark.parametrize("between", ["", "\n", "\n\n"])
def test_several_records_stand_in_one_file(tmp_path, between):
    second = RECORD.replace("XX000001", "XX000002").replace("POSITIVE", "NEGATIVE")

    found = parsed(tmp_path, between.join([RECORD, second, RECORD]).replace("\n", "\r\n"))

    assert [one.spectrum_id[-1] for one in found] == ["1", "2", "1"]
    assert [one.polarity for one in found] == [1, -1, 1]
    assert [one.source.index for one in found] == [0, 1, 2]
    assert [one.warnings for one in found] == [()] * 3


def test_a_record_that_breaks_off_says_so(tmp_path):
    cut = RECORD[: RECORD.index("  123.0427")]

    found = parsed(tmp_path, cut + RECORD + cut)

    assert [one.mz.size for one in found] == [1, 3, 1]
    assert found[1].warnings == ()
    for one in (found[0], found[2]):
        assert one.warnings == (
            "the record may be incomplete: // does not end it",
            "PK$NUM_PEAK says 3, and there are 1",
        )


def test_missing_values_and_peaks_are_missing(tmp_path):
    text = RECORD.replace("PRECURSOR_M/Z 195.08765", "PRECURSOR_M/Z N/A")
    text = text.replace("C8H10N4O2\n", "N/A\n", 1)
    head = text[: text.index("PK$NUM_PEAK")]
    no_peaks = f"{head}PK$NUM_PEAK: 0\nPK$PEAK: m/z int. rel.int.\n//\n"

    found, empty = parsed(tmp_path, text + no_peaks)

    assert (found.precursor_mz, found.formula_text) == (None, "")
    assert empty.mz.size == 0


def test_a_withdrawn_record_is_a_row(tmp_path):
    text = "ACCESSION: XX1\nDEPRECATED: 2019-11-21 wrong compound\nRECORD_TITLE: x\n//\n"

    (found,) = parsed(tmp_path, text)

    assert (found.spectrum_id, found.mz.size) == ("XX1", 0)
