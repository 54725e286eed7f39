"""Records of text formats beyond plain dialects: odd fields and peaks, and what is damaged."""

from pathlib import Path

import pytest

from duallgd_cli.spectra.reading.record import Record, build
from duallgd_cli.spectra.types import Source
from tests.made_spectra import fields_of, parsed

PEAKS = "138.0662 1000\n110.0713 600\n"


def mgf(fields, peaks=PEAKS):
    lines = "".join(f"{line}\n" for line in fields.split(" | "))
    return f"BEGIN IONS\n{lines}{peaks}END IONS\n\n"


MSP = "NAME: x\nPRECURSORMZ: 195.08765\nPRECURSORTYPE: [M+H]+\n"
SIRIUS = ">compound x\n>parentmass 195.08765\n>ionization [M+H]+\n"
TABLE = "identifier\tmzs\tintensities\tsmiles\tformula\tprecursor_mz\tadduct\tinstrument_type\t"
FOLDER = Path(__file__).parents[3] / "data" / "records"
MASSBANK, LIBRARY = ((FOLDER / name).read_text() for name in ("massbank.txt", "library.mzlib.txt"))


def assert_both(found, warnings=()):
    pairs = [*zip(found.mz, found.intensity, strict=True)]
    assert (pairs, found.warnings) == ([(110.0713, 600), (138.0662, 1000)], warnings)


LAYOUTS = (
    PEAKS,
    *("138.0662\t1000\n110.0713\t600\n", "  138.0662 1000\n\t110.0713 600\n"),
    *("138.0662, 1000\n110.0713, 600\n", "138.0662,1000\n110.0713,600\n"),
    *("138.0662 , 1000\n110.0713 ,600\n", "138.0662:1000\n110.0713:600\n"),
    *("138.0662:1000 110.0713:600\n", "138.0662;1000\n110.0713;600\n"),
    *("(138.0662 1000)\n(110.0713 600)\n", "(138.0662,1000)(110.0713,600)\n"),
    *("[138.0662, 1000], [110.0713, 600]\n", "138.0662 1000; 110.0713 600;\n"),
    *("138.0662,1000; 110.0713,600\n", "138.0662|1000\n110.0713|600\n"),
    '138.0662\t1000\t"b2, 5; 7:1"\n110.0713\t600\t""\n',
    *("138.0662 1000 'C6H8'\n110.0713 600 'x'\n", "138.0662 1000; C6H8N3O\n110.0713 600; x\n"),
    *("138.0662 1000 1+\n110.0713 600 1\n", "1.380662E2 1e3\n1.100713e+02 6E2\n"),
    *("138,0662 1000\n110,0713 600\n", "138,0662\t1000,0\n110,0713\t600,0\n"),
    "138.0662 1000\n\n110.0713 600\n",
)


@pytest.mark.parametrize("peaks", LAYOUTS)
def test_layouts_of_peaks(tmp_path, peaks):
    msp = f"{MSP}Num Peaks: 2\n{peaks}"
    texts = {"msp": f"{msp}\n{msp}{msp}", "mgf": mgf("PEPMASS=1", peaks)}

    for ending, text in (texts | {"ms": f"{SIRIUS}>ms2\n{peaks}"}).items():
        for found in parsed(tmp_path, text, f"a.{ending}"):
            assert_both(found)


COUNTS = """Num Peaks, NumPeaks, Num peaks, NUM PEAKS, Num_Peaks, Num Peak, num_peaks, Num Features,
Number of peaks, Number of Peaks, Peak count, PeakCount, No. of peaks, NPeaks, Num Ions, Peaks,
Num MS2 peaks"""


def test_peaks_are_found_however_their_number_and_the_line_above_them_are_called(tmp_path):
    for count in COUNTS.replace("\n", " ").split(", "):
        record = f"{MSP}{count}: 2\n{PEAKS}"
        for found in parsed(tmp_path, f"{record}\n{record}{record}", "a.msp"):
            assert_both(found)
        (found,) = parsed(tmp_path, record.replace("2\n", "3\n", 1), "a.msp")
        assert_both(found, (f"{count.title()} says 3, and there are 2",))
    for line in ("", "SPECTRUM: centroid\n", "m/z intensity\n", "\n"):
        record = f"{MSP}{line}{PEAKS}"
        for found in parsed(tmp_path, f"{record}\n{record}", "a.msp"):
            assert_both(found, ("the record has no Num Peaks",))


@pytest.mark.parametrize("gap", ["\n", "\n\n", ""], ids=["blank", "two blanks", "no blank"])
@pytest.mark.parametrize("first", range(6))
def test_msp_fields_may_stand_in_any_order(tmp_path, first, gap):
    fields = f"{MSP}FORMULA: C9H8O4\nINSTRUMENTTYPE: QTOF\nCOLLISIONENERGY: 20 eV".split("\n")
    fields = [*fields[first:], *fields[:first]]
    texts = ("\n".join([*fields, "Num Peaks: 2", f"{n} 10\n121.02 9\n"]) for n in (50, 60, 70))

    found = parsed(tmp_path, gap.join(texts), "a.msp")

    whole = ("x", "C9H8O4", "[M+H]+", 20, ())
    names = ("spectrum_id", "formula_text", "adduct_text", "collision_energy_ev", "warnings")
    assert [tuple(fields_of(one, names).values()) for one in found] == [whole] * 3
    assert [one.mz[0] for one in found] == [50, 60, 70]


TORN = "the record may be incomplete: "
MS3 = "an MS3 spectrum is read as if it were MS2: its precursor is a fragment, so the formula must "
STRAY = {"failed": "peaks stand without BEGIN IONS; restore that line"}
BLOCKS = (
    *((f">{name}\n", 2, ()) for name in ("ms2", "collision 35", "ms2peaks", "msms")),
    (">ms3\n", 3, (f"{MS3}be the fragment's",)),
    (">spectrum\n", 2, ("peaks below >spectrum are read as MS2",)),
    ("", 2, ("peaks below >ionization are read as MS2",)),
)
LOST = ("1 line of its attributes could not be read",)
BROKEN = (
    *(("", "", ()), ("<Peaks>", "<Peks>", ()), ("<Peaks>\n", "", ())),
    *(("<Spectrum=1>\n", "", LOST), ("MS:1000744|", "", LOST)),
    ("110.0713", "?", ("1 of 2 peak lines were not readable and left out",)),
    ("110.0713 600\n", "", ("number of peaks says 2, and there are 1",)),
)
ODD = {
    "odd.msp": [
        {"spectrum_id": "RIKEN-1", "scans": "", "peaks": 1}, {"author": "made up", "peaks": 1},
        *({"peaks": n} for n in (1, 2, 2)),
        {"peaks": 1, "warnings": ("Num Peaks says 3, and there are 1",)},
        {}, {"warnings": ("the record has no Num Peaks",)},
        *({"peaks": n} for n in (1, 2, 1)),
        {"failed": "as spectra of electron ionisation have", "formula_text": "C8H10N4O2",
         "peaks": 5}, {"peaks": 5},
    ],
    "odd.ms": [
        {"spectrum_id": "a"}, {"spectrum_id": "b", "peaks": 1}, {"ms_level": 1, "peaks": 1},
        {"feature_id": "x", "collision_energy_ev": 35 * 195.08765 / 500, "peaks": 1},
        {"feature_id": "x", "collision_energy_ev": 10, "peaks": 1},
        {"feature_id": "77", "spectrum_id": "77", "collision_energy_text": "", "peaks": 1},
        {"ms_level": 1, "peaks": 1},
        {"peaks": 2, "warnings": ("peaks below >other are read as MS2",)},
    ],
    "odd.mgf": [
        {"scans": "1-5", "spectrum_id": "what=may stand", "precursor_mz": 195, "peaks": 3,
         "charge": -1},
        {"spectrum_id": "odd:1", "charge": -1, "peaks": 1},
        {"spectrum_id": "odd:2", "charge": 1, "peaks": 1},
        {"spectrum_id": "open", "peaks": 1, "warnings": (f"{TORN}it has no END IONS",)},
        {"spectrum_id": "whole", "peaks": 1}, {"failed": "END IONS stands without BEGIN IONS"},
        {"spectrum_id": "next", "precursor_mz": None, "peaks": 1}, STRAY,
        {"failed": "no m/z and intensity in 2 peak lines", "spectrum_id": "garbage"},
        {"ms_level": 3, "peaks": 1, "warnings": (f"{MS3}be the fragment's",)},
        {"retention_time_s": 61.5, "peaks": 2}, STRAY,
        {"peaks": 1, "warnings": (f"{TORN}the file ends within it",)},
    ],
}  # fmt: skip
# Name of the file, text, and of each spectrum what is read of it; what is not named is nothing.
RECORDS = {
    **{name: (name, (FOLDER / name).read_text("utf-8"), *rows) for name, rows in ODD.items()},
    "MassSpecGym's energies are in eV": ("a.tsv", f"{TABLE}collision_energy\tfold\n"
        "M1\t50.5,60\t0.5,1\tCCO\tC9H8O4\t181.0495\t[M+H]+\tOrbitrap\t30.0\ttrain\n",
        {"spectrum_id": "M1", "collision_energy_ev": 30, "instrument": "orbitrap", "peaks": 2}),
    "the energy as recorded goes before the converted one": ("a.tsv",
        f"{TABLE}collision_energy\tcollision_energy_text\n"
        "M1\t50\t1\tC\tC9H8O4\t250\t[M+H]+\tOrbitrap\t99\t30 NCE\n",
        {"collision_energy_ev": 15, "peaks": 1}),
    "MassSpecGym as MGF": ("a.mgf",
        mgf("IDENTIFIER=M1 | SMILES=CC(=O)O | INCHIKEY=QTBSB | PRECURSOR_MZ=250 | "
            "INSTRUMENT_TYPE=Orbitrap | COLLISION_ENERGY=30.0 | FOLD=train"),
        {"spectrum_id": "M1", "precursor_mz": 250, "collision_energy_ev": 30, "peaks": 2}),
    "a table of other marks": ("a.csv",
        "# made\nsep=;\nidentifier;precursor_mz;mzs;intensities\na;195.08;[138.1, 110.1];[1, 2]\n",
        {"spectrum_id": "a", "precursor_mz": 195.08, "peaks": 2}),
    "broken rows of a table": ("a.tsv", "identifier\tmzs\tintensities\n"
        "a\t1,2\t1\nb\t1\nc\t1,x\t1,2\nd\t[1, 2]\t[3, 4]\n",
        {"failed": "2 m/z values and 1 intensities"}, {"failed": "2 columns and the header 3"},
        {"failed": "must hold numbers", "spectrum_id": "c"}, {"spectrum_id": "d", "peaks": 2}),
    "a row with an open quotation mark": ("a.csv",
        'identifier,mzs,intensities\na,"1,2\nb,"3,4","5,6"\n', {"failed": "quotation mark"},
        {"spectrum_id": "b", "peaks": 2}),
    "an energy of mzSpecLib with its unit": ("a.mzlib.txt", LIBRARY.replace("<Analyte=1>",
        "[1]MS:1000045|collision energy=30\n[1]UO:0|unit=UO:0000266|electronvolt\n<Analyte=1>"),
        {"collision_energy_text": "30 eV", "collision_energy_ev": 30, "peaks": 2}),
    "a record of MassBank": ("a.txt", MASSBANK, {"spectrum_id": "XX000001", "polarity": 1,
        "precursor_mz": 195.08765, "formula_text": "C8H10N4O2", "name": "Caffeine",
        "resolution": "17500", "peaks": 2}),
    "numbers in a line of MassBank that was wrapped are no peaks": ("a.txt",
        MASSBANK.replace("O2/c1-10-4-9-6-5(", "O2\n /c1-10-4-9-6-5("),
        {"failed": "no m/z and intensity in 1 peak line"}, {"peaks": 2}),
    "records of MassBank that break off": ("a.txt",
        2 * (MASSBANK[: MASSBANK.index("110.0713 600")] + MASSBANK).replace("\n", "\r\n"),
        *(2 * ({"peaks": 1, "warnings": (f"{TORN}// does not end it",
        "PK$NUM_PEAK says 2, and there are 1")}, {"peaks": 2}))),
    "missing values, missing peaks and a withdrawn record of MassBank": ("a.txt",
        MASSBANK.replace("_M/Z 195.08765", "_M/Z N/A").replace("C8H10N4O2\n", "N/A\n", 1)
        + "ACCESSION: XX1\nDEPRECATED: 2019-11-21 wrong\nPK$NUM_PEAK: 0\n//\n",
        {"precursor_mz": None, "formula_text": "", "peaks": 2}, {"spectrum_id": "XX1"}),
    **{f"a block of SIRIUS, {block}": ("a.ms", f"{SIRIUS}{block}{PEAKS}", {"ms_level": level,
        "warnings": said, "peaks": 2}) for block, level, said in BLOCKS},
    **{f"a library with {new} for {old}": ("a.mzlib.txt", LIBRARY.replace(old, new),
        {"warnings": said, "peaks": 1 if "110" in old else 2}) for old, new, said in BROKEN},
}  # fmt: skip


@pytest.mark.parametrize("title", RECORDS)
def test_records(tmp_path, title):
    name, text, *expected = RECORDS[title]

    spectra = parsed(tmp_path, text, name)

    assert [one.source.index for one in spectra] == list(range(len(expected)))
    for found, wanted in zip(spectra, expected, strict=True):
        wanted = {"warnings": (), "peaks": 0, "ms_level": 2} | wanted
        assert wanted.pop("failed", "") in fields_of(found, ["failed"])["failed"]
        assert (found.failure is None) == ("failed" not in expected[found.source.index])
        assert fields_of(found, wanted) == wanted
        answer = ("smiles", "inchi", "c2c1", "RYYVLZ")  # nothing of it is kept
        assert not any(part in str(found.metadata) for part in answer)


@pytest.mark.parametrize(
    ("text", "name", "kept"),
    [
        (MASSBANK, "a.txt", {"smiles": "Cn1cnc2c1c(=O)n(C)c(=O)n2C"}),
        ('Name: x\nComments: "SMILES=CCO"\nNum Peaks: 1\n50 1\n', "a.msp", {"smiles": "CCO"}),
        (mgf("SMILES=CCO | INCHIKEY=A | NOTE=InChI=1S/C"), "a.mgf",
         {"smiles": "CCO", "inchikey": "A", "note": "InChI=1S/C"}),
    ],
)  # fmt: skip
def test_structures_are_kept_only_on_request(tmp_path, text, name, kept):
    (found,) = parsed(tmp_path, text, name, keep_structures=True)
    (dropped,) = parsed(tmp_path, text, name)

    assert kept.items() <= found.metadata.items()
    assert not kept.keys() & dropped.metadata.keys()


# What is said of lines of an MGF record that give nothing.
SAID = {
    "is not a positive number below": "PEPMASS=abc|PEPMASS=-5|PEPMASS=nan|PEPMASS=inf|"
    "PEPMASS=1e999|PEPMASS=1e300|PEPMASS=1_95.08765|PEPMASS=19_5.1|PEPMASS=195.1_2",
    "gives no one value in eV": "COLLISION_ENERGY=15, 30 or 45|COLLISION_ENERGY=2000 eV|"
    "COLLISION_ENERGY=35 scaled by m/z|COLLISION_ENERGY=35 NCE",
    "1 of 3 peak lines": "hello|60|9_1.05 10|91.05 1_0|\uff11\uff12 10",
    "1 of 3 peaks had no possible m/z and intensity": "110.0 nan|nan 5|110.0 -3|-110.0 3|110 inf|"
    "1e9 5",
    "": "COLLISION_ENERGY=|COLLISION_ENERGY=0|COLLISION_ENERGY=0.0|COLLISION_ENERGY=N/A|110.0 0|"
    "COLLISION_ENERGY=unknown|COLLISION_ENERGY=ramp|PEPMASS=0|PEPMASS=|PEPMASS=N/A|# a comment",
}


@pytest.mark.parametrize("says", SAID)
def test_a_line_that_gives_nothing_is_said_where_it_meant_something(tmp_path, says):
    for line in SAID[says].split("|"):
        (found,) = parsed(tmp_path, mgf(line))

        assert (found.precursor_mz, found.collision_energy_ev) == (None, None)
        assert len(found.warnings) == bool(says)
        assert says in "".join(found.warnings)


def test_line_ends_encodings_and_case(tmp_path):
    text = mgf("TITLE=caf\u00e9 | PEPMASS=181")
    spaced = "  " + mgf("TITLE = caf\u00e9  | PEPMASS= 181")

    for content in (
        *(text.replace("\n", ends).encode() for ends in ("\r\n", "\r")),
        *(text.encode(name) for name in ("latin-1", "utf-8-sig", "utf-16")),
        *(text.lower(), spaced),
    ):
        (found,) = parsed(tmp_path, content)
        assert_both(found)
        assert (found.spectrum_id, found.precursor_mz) == ("caf\u00e9", 181)


@pytest.mark.parametrize("sign", ["\x1b[31m", "\x1c", "\x85", "\u2028", "\x00", "\u202e", "\t"])
def test_no_control_character_survives_into_names(tmp_path, sign):
    (found,) = parsed(tmp_path, mgf(f"TITLE=a{sign}b | FEATURE_ID=7{sign} | PEPMASS=163"))

    assert found.feature_id == f"7{sign}".translate({ord(sign[0]): " "}).strip()
    assert found.metadata["title"].isprintable()


# File, fields of a record, and the USI that it states.
USIS = """\
a.mzML|native_id=controllerType=0 controllerNumber=1 scan=17|
a.mgf|usi=mzspec:MSV000078556:a:scan:3|mzspec:MSV000078556:a:scan:3
a.mgf|spectrum_usi=mzspec:GNPS:G:accession:CCMSLIB1547|mzspec:GNPS:G:accession:CCMSLIB1547
a.mzML|native_id=scan=17|usi=mzspec:PXD000561:b:scan:3|mzspec:PXD000561:b:scan:3
a.mgf|usi=n/a|
a.mgf|usi=17|"""


@pytest.mark.parametrize("row", USIS.splitlines())
def test_a_spectrum_has_the_usi_that_its_file_states(row):
    file, *fields, usi = row.split("|")
    record = Record(dict(field.split("=", 1) for field in fields))

    assert build(record, Source(file, 0), keep_structures=False).usi == usi
