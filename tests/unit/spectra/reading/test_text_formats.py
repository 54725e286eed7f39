"""MSP, SIRIUS .ms and MassSpecGym tables. Peaks are made up from aspirin's fragments."""

from dataclasses import asdict

import numpy as np
import pytest

from tests.made_spectra import parsed

MONA = """Name: Acetylsalicylic acid
Synon: $:00in-source
DB#: XX000001
InChIKey: BSYNRYMUTXBXSQ-UHFFFAOYSA-N
Precursor_type: [M+H]+
Spectrum_type: MS2
PrecursorMZ: 181.0495
Instrument_type: LC-ESI-QFT
Instrument: Q Exactive Plus Orbitrap Thermo Scientific
Ion_mode: P
Collision_energy: 30 % (nominal)
Formula: C9H8O4
MW: 180
ExactMass: 180.0423
Comments: "SMILES=CC(=O)Oc1ccccc1C(=O)O" "InChI=InChI=1S/C9H8O4/c1" "author=made up"
Num Peaks: 2
121.0284 1000
163.0390 250.5

"""
RIKEN = """NAME: Aspirin; LC-ESI-QTOF
PRECURSORMZ: 179.035
PRECURSORTYPE: [M-H]-
FORMULA: C9H8O4
ONTOLOGY: benzoic acids
INCHIKEY: BSYNRYMUTXBXSQ-UHFFFAOYSA-N
SMILES: CC(=O)Oc1ccccc1C(=O)O
IONMODE: Negative
INSTRUMENTTYPE: LC-ESI-QTOF
COLLISIONENERGY: 20
COMMENT: DB#=X; origin=made up
Num Peaks: 2
93.0346\t100\t"C6H5O-"
137.0244\t999\t"C7H5O3-"

"""


def test_mona_and_riken_msp(tmp_path):
    mona, riken = parsed(tmp_path, MONA + RIKEN, "a.msp")

    assert (mona.spectrum_id, mona.adduct_text, mona.polarity) == ("XX000001", "[M+H]+", 1)
    assert (mona.precursor_mz, mona.formula_text) == (181.0495, "C9H8O4")
    assert mona.instrument == "orbitrap"
    assert mona.collision_energy_ev == pytest.approx(30 * 181.0495 / 500)
    assert mona.metadata["author"] == "made up"
    assert not any("InChI" in value or "c1ccccc1" in value for value in mona.metadata.values())
    assert (riken.adduct_text, riken.polarity, riken.instrument) == ("[M-H]-", -1, "qtof")
    assert riken.collision_energy_ev == 20
    np.testing.assert_array_equal(riken.mz, [93.0346, 137.0244])
    assert mona.warnings == riken.warnings == ()


def test_structures_in_msp_comments_are_kept_on_request(tmp_path):
    (mona,) = parsed(tmp_path, MONA, "a.msp", keep_structures=True)

    assert mona.metadata["smiles"] == "CC(=O)Oc1ccccc1C(=O)O"


@pytest.mark.parametrize(
    "peaks",
    [
        "50 1; 60 2;\n70 3;\n",
        "50 1 60 2 70 3\n",
        "50:1 60:2 70:3\n",
        "50\t1\n60\t2\n70\t3\n",
        '50 1 "a 9"\n60 2 "b"\n70 3\n',
    ],
)
def test_peak_layouts_of_msp(tmp_path, peaks):
    (found,) = parsed(tmp_path, f"NAME: x\nNum Peaks: 3\n{peaks}\n", "a.msp")

    np.testing.assert_array_equal(found.mz, [50, 60, 70])
    np.testing.assert_array_equal(found.intensity, [1, 2, 3])


def test_sirius_ms_compounds_become_grouped_spectra(tmp_path):
    text = """>compound aspirin
>parentmass 181.0495
>formula C9H8O4
>ionization [M+H]+
>charge 1
>rt 448.2s
>instrumentation Q Exactive
#SMILES CC(=O)Oc1ccccc1C(=O)O
# a comment

>ms1
181.0495 100
182.0528 9.8

>collision 35
121.0284 1000
163.0390 250.5

>ms2
>collision  10  eV
163.0390 1000

>compound second
>parentmass 179.035
>ionization [M-H]-
>feature_id 77
>ms2
93.0346 5
"""
    ms1, first, second, other = parsed(tmp_path, text, "a.ms")

    assert [s.ms_level for s in (ms1, first, second, other)] == [1, 2, 2, 2]
    assert [s.source.index for s in (ms1, first, second, other)] == [0, 1, 2, 3]
    assert first.feature_id == second.feature_id == "aspirin"
    assert (first.precursor_mz, first.adduct_text) == (181.0495, "[M+H]+")
    assert first.collision_energy_ev == pytest.approx(35 * 181.0495 / 500)
    assert second.collision_energy_ev == 10
    assert "smiles" not in first.metadata
    assert (other.feature_id, other.collision_energy_text) == ("77", "")


def test_broken_table_rows_are_unreadable_with_the_numbers(tmp_path):
    header = "identifier\tmzs\tintensities\n"

    items = parsed(tmp_path, header + "a\t1,2\t1\nb\t1\nc\t1,x\t1,2\nd\t[1, 2]\t[3, 4]\n", "a.tsv")

    a, b, c, d = items
    assert c.failure is not None
    assert "2 m/z values and 1 intensities" in a.failure.message
    assert "2 columns and the header 3" in b.failure.message
    assert (c.spectrum_id, c.source.index) == ("c", 2)
    np.testing.assert_array_equal(d.intensity, [3, 4])


def msp_record(fields, n):
    """One record in a given order of fields; two peaks, the first at m/z `n`."""
    lines = [f"{key}: {value}" for key, value in fields]
    return "\n".join([*lines, "Num Peaks: 2", f"{n} 10", "121.0284 1000"]) + "\n"


MSP_FIELDS = (
    ("NAME", "one"),
    ("PRECURSORMZ", "181.0495"),
    ("PRECURSORTYPE", "[M+H]+"),
    ("FORMULA", "C9H8O4"),
    ("INSTRUMENTTYPE", "LC-ESI-QTOF"),
    ("COLLISIONENERGY", "20 eV"),
)


@pytest.mark.parametrize("gap", ["\n", "\n\n", ""], ids=["blank", "two blanks", "no blank"])
@pytest.mark.parametrize("first", range(len(MSP_FIELDS)))
def test_msp_fields_may_stand_in_any_order(tmp_path, first, gap):
    fields = MSP_FIELDS[first:] + MSP_FIELDS[:first]

    found = parsed(tmp_path, gap.join(msp_record(fields, n) for n in (50, 60, 70)), "a.msp")

    assert [(s.spectrum_id, s.formula_text, s.adduct_text) for s in found] == [
        ("one", "C9H8O4", "[M+H]+")
    ] * 3
    assert [(s.mz[0], s.instrument, s.collision_energy_ev) for s in found] == [
        (n, "qtof", 20) for n in (50, 60, 70)
    ]
    assert all(s.warnings == () for s in found)


HEADER = "identifier\tmzs\tintensities\tsmiles\tformula\tprecursor_mz\tadduct\tinstrument_type\t"
NO_COUNT = ("the record has no Num Peaks",)
# Ending, text, and for each spectrum what is read of it; warnings are none if none are named.
RECORDS = {
    "fields in comments of RIKEN end with a semicolon": (
        "msp",
        "NAME: unknown\nSCANNUMBER: -1\nComment: DB#=RIKEN-1; origin=RIKEN\nNum Peaks: 1\n50 1\n",
        [{"spectrum_id": "RIKEN-1", "scans": "", "n_peaks": 1}],
    ),
    "records without blank lines, peaks or the right count": (
        "msp",
        "NAME: a\nNum Peaks: 3\n50 1\nNAME: b\nNum Peaks: 0\nNAME: c\nNAME: d\nNum Peaks: 1\n60 1",
        [
            {"spectrum_id": "a", "warnings": ("Num Peaks says 3, and there are 1",)},
            {"spectrum_id": "b", "n_peaks": 0},
            {"spectrum_id": "c", "warnings": NO_COUNT},
            {"spectrum_id": "d", "n_peaks": 1},
        ],
    ),
    "a record without Num Peaks leaves the next record's fields alone": (
        "msp",
        "NAME: a\nFORMULA: CH4\n\nFORMULA: C9H8O4\nNAME: b\nNum Peaks: 1\n60 1\n",
        [
            {"spectrum_id": "a", "formula_text": "CH4", "warnings": NO_COUNT},
            {"spectrum_id": "b", "formula_text": "C9H8O4", "n_peaks": 1},
        ],
    ),
    "a blank line between Num Peaks and the peaks": (
        "msp",
        "NAME: a\nNum Peaks: 2\n\n50 1\n60 2\n",
        [{"n_peaks": 2}],
    ),
    "a count of peaks that is no number": (
        "msp",
        "NAME: a\nNum Peaks: \u00b2\n50 1\n",
        [{"n_peaks": 1}],
    ),
    "blocks of one compound by MS-FINDER": (
        "mat",
        "NAME: a\nPRECURSORMZ: 181.0495\nPRECURSORTYPE: [M+H]+\nSPECTRUMTYPE: Centroid\n"
        "MSTYPE: MS1\nNum Peaks: 1\n"
        "181.0495 5\nMSTYPE: MS2\nNum Peaks: 2\n50 1\n60 2\n\nNAME: b\nMSTYPE: MS2\nNum Peaks: 0\n",
        [
            {"ms_level": 1, "n_peaks": 1},
            {"ms_level": 2, "spectrum_id": "a", "adduct_text": "[M+H]+", "n_peaks": 2},
            {"ms_level": 2, "spectrum_id": "b"},
        ],
    ),
    "a SIRIUS compound without a block": (
        "ms",
        ">compound a\n>parentmass 5\n>compound b\n>ms2\n50 1\n",
        [{"spectrum_id": "a", "n_peaks": 0}, {"spectrum_id": "b", "n_peaks": 1}],
    ),
    "MassSpecGym's energies are in eV": (
        "tsv",
        HEADER + "collision_energy\tfold\n"
        "M1\t50.5,60\t0.5,1\tCCO\tC9H8O4\t181.0495\t[M+H]+\tOrbitrap\t30.0\ttrain\n",
        [
            {"spectrum_id": "M1", "adduct_text": "[M+H]+", "collision_energy_ev": 30}
            | {"instrument": "orbitrap", "n_peaks": 2}
        ],
    ),
    "the energy as recorded goes before the converted one": (
        "tsv",
        HEADER + "collision_energy\tcollision_energy_text\n"
        "M1\t50\t1\tC\tC9H8O4\t250\t[M+H]+\tOrbitrap\t99\t30 NCE\n",
        [{"collision_energy_ev": 15}],
    ),
}


@pytest.mark.parametrize(("ending", "text", "expected"), RECORDS.values(), ids=list(RECORDS))
def test_records_of_other_layouts(tmp_path, ending, text, expected):
    spectra = parsed(tmp_path, text, f"a.{ending}")

    read = [asdict(one) | {"n_peaks": one.mz.size} for one in spectra]
    wanted = [{"warnings": ()} | one for one in expected]
    assert [
        {name: one[name] for name in names} for one, names in zip(read, wanted, strict=True)
    ] == wanted
    assert not any("smiles" in one.metadata for one in spectra)
