"""Records of text formats beyond plain dialects: odd fields and peaks, and what is damaged."""

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
MASSBANK = f"""ACCESSION: XX000001
RECORD_TITLE: Caffeine; LC-ESI-QFT; MS2
CH$NAME: Caffeine
CH$NAME: 1,3,7-trimethylpurine-2,6-dione
CH$FORMULA: C8H10N4O2
CH$SMILES: Cn1cnc2c1c(=O)n(C)c(=O)n2C
CH$IUPAC: InChI=1S/C8H10N4O2/c1-10-4-9-6-5(10)7(13)12(3)8(14)11(6)2/h4H,1-3H3
CH$LINK: INCHIKEY RYYVLZVUVIJVGH-UHFFFAOYSA-N
AC$MASS_SPECTROMETRY: ION_MODE POSITIVE
AC$MASS_SPECTROMETRY: RESOLUTION 17500
MS$FOCUSED_ION: PRECURSOR_M/Z 195.08765
PK$ANNOTATION: m/z tentative_formula formula_count mass error(ppm)
  110.0713 C5H8N3+ 1 110.0713 0.02
PK$NUM_PEAK: 2
PK$PEAK: m/z int. rel.int.
{PEAKS}//
"""
LIBRARY = f"""<mzSpecLib>
MS:1003186|library format version=1.0
<Spectrum=1>
MS:1000744|selected ion m/z=195.08765
MS:1003059|number of peaks=2
<Analyte=1>
MS:1002813|adduct ion formula=[M+H]+
<Peaks>
{PEAKS}"""


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


NO_COUNT = ("the record has no Num Peaks",)
TORN = "the record may be incomplete: "
MS3 = "an MS3 spectrum is read as if it were MS2: its precursor is a fragment, so the formula must "
STRAY = {"failed": "peaks stand without BEGIN IONS; restore that line"}
NOMINAL = "Num Peaks: 5\n55 400; 67 300; 82 250; 109 800; 194 999;\n"
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
# Name of the file, text, and of each spectrum what is read of it; what is not named is nothing.
RECORDS = {
    "fields in comments of RIKEN end with a semicolon": ("a.msp",
        "NAME: x\nSCANNUMBER: -1\nComment: DB#=RIKEN-1; origin=R\nNum Peaks: 1\n50 1\n",
        {"spectrum_id": "RIKEN-1", "scans": "", "peaks": 1}),
    "comments of MoNA": ("a.msp",
        'Name: x\nComments: "SMILES=CCO" "author=made up"\nNum Peaks: 1\n50 1\n',
        {"author": "made up", "peaks": 1}),
    "the rest of a comment is no peak": ("a.msp",
        f"{MSP}Comments: of\n 2,4-dinitro and more\n  15 times\nNum Peaks: 1\n50 1\n",
        {"peaks": 1}),
    "peaks in the line of their number": ("a.msp", f"{MSP}Peaks: 138.0662:1000 110.0713:600\n",
        {"peaks": 2}),
    "peaks in one line are told apart by their number": ("a.msp",
        f"{MSP}Num Peaks: 2\n138.0662 1000 110.0713 600\n", {"peaks": 2}),
    "records without blank lines, peaks or the right count": ("a.msp",
        "NAME: a\nNum Peaks: 3\n50 1\nNAME: b\nNum Peaks: 0\nNAME: c\nNAME: d\nNum Peaks: 1\n60 1",
        {"spectrum_id": "a", "peaks": 1, "warnings": ("Num Peaks says 3, and there are 1",)},
        {"spectrum_id": "b"}, {"spectrum_id": "c", "warnings": NO_COUNT},
        {"spectrum_id": "d", "peaks": 1}),
    "a blank line between Num Peaks and the peaks": ("a.msp",
        "NAME: a\nNum Peaks: 2\n\n50 1\n60 2\n", {"peaks": 2}),
    "a count of peaks that is no number": ("a.msp", "NAME: a\nNum Peaks: \u00b2\n50 1\n",
        {"peaks": 1}),
    "nominal masses without a precursor are those of electron ionisation": ("a.msp",
        f"Name: Caffeine\nFormula: C8H10N4O2\nMW: 194\n{NOMINAL}\n{MSP}{NOMINAL}",
        {"failed": "as spectra of electron ionisation have", "formula_text": "C8H10N4O2",
         "peaks": 5}, {"peaks": 5}),
    "a SIRIUS compound without a block": ("a.ms",
        ">compound a\n>parentmass 5\n>compound b\n>ms2\n50 1\n", {"spectrum_id": "a"},
        {"spectrum_id": "b", "peaks": 1}),
    "blocks of SIRIUS compounds": ("a.ms",
        f"{SIRIUS}>instrumentation Q Exactive\n#SMILES CCO\n# a comment\n\n>ms1\n195.1 100\n\n"
        ">collision 35\n121.0284 1000\n\n>ms2\n>collision  10  eV\n163.0390 1000\n\n"
        ">compound y\n>parentmass 179\n>feature_id 77\n>ms2\n93 5\n",
        {"ms_level": 1, "peaks": 1},
        {"feature_id": "x", "collision_energy_ev": 35 * 195.08765 / 500, "peaks": 1},
        {"feature_id": "x", "collision_energy_ev": 10, "peaks": 1},
        {"feature_id": "77", "spectrum_id": "77", "collision_energy_text": "", "peaks": 1}),
    "a block of SIRIUS that nobody knows does not join the one before": ("a.ms",
        f"{SIRIUS}>ms1\n195.08765 9\n>other\n{PEAKS}", {"ms_level": 1, "peaks": 1},
        {"peaks": 2, "warnings": ("peaks below >other are read as MS2",)}),
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
    "without any identifier the file and place name the spectrum": ("run.1.mgf",
        mgf("PEPMASS=1") + mgf("PEPMASS=2 | TITLE=N/A"), {"spectrum_id": "run:0", "peaks": 2},
        {"spectrum_id": "run:1", "peaks": 2}),
    "global parameters hold for every record": ("a.mgf",
        "CHARGE=1-\nCOM=made up\n\n" + mgf("PEPMASS=1") + mgf("PEPMASS=2 | CHARGE=1+"),
        {"charge": -1, "peaks": 2}, {"charge": 1, "peaks": 2}),
    "what MGF holds besides peaks": ("a.mgf",
        "MASS=Monoisotopic\n# a comment\nBEGIN IONS\nTITLE=a=b\nSCANS=1-5\nPEPMASS=195 9\n"
        f"; a comment\n138.0662\t1000\t1+\n\n{PEAKS}END IONS\n",
        {"scans": "1-5", "spectrum_id": "a=b", "precursor_mz": 195, "peaks": 3}),
    "missing ends and beginnings cost no other record": ("a.mgf",
        "BEGIN IONS\nTITLE=open\n50 1\n" + mgf("TITLE=whole") + "PEPMASS=999\nEND IONS\n"
        + mgf("TITLE=next") + "BEGIN IONS\nTITLE=last\n50 1",
        {"spectrum_id": "open", "peaks": 1, "warnings": (f"{TORN}it has no END IONS",)},
        {"spectrum_id": "whole", "peaks": 2}, {"failed": "END IONS stands without BEGIN IONS"},
        {"spectrum_id": "next", "precursor_mz": None, "peaks": 2},
        {"spectrum_id": "last", "peaks": 1, "warnings": (f"{TORN}the file ends within it",)}),
    "peaks outside of a record": ("a.mgf", f"COM=x\n50 1\n{mgf('PEPMASS=1')}60 2\n70 3\n",
        STRAY, {"peaks": 2}, STRAY),
    "a record of garbage": ("a.mgf", mgf("TITLE=bad", "hello world\nfoo\n") + mgf("TITLE=good"),
        {"failed": "no m/z and intensity in 2 peak lines", "spectrum_id": "bad"}, {"peaks": 2}),
    "a level of MS beyond the second": ("a.mgf", mgf("MSLEVEL=3"),
        {"ms_level": 3, "peaks": 2, "warnings": (f"{MS3}be the fragment's",)}),
    "an MGF of MS-DIAL says how many peaks there are": ("a.mgf",
        mgf("TITLE=Unknown|ID=9|MZ=195.0877|RT=1.02||PEAKID=9|ISOTOPE=M+0 | PEPMASS=195.08765 | "
            "ION=[M+H]+ | CHARGE=1+ | RTINMINUTES=1.025 | Num Peaks: 2"),
        {"retention_time_s": 61.5, "peaks": 2}),
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


# File, fields of a record, and the USI of its file or of its scan. Of scans of Waters, Sciex and
# ion mobility a number alone is of several spectra, or there is none.
USIS = """\
/data/a b.mzML|native_id=controllerType=0 controllerNumber=1 scan=17|mzspec:USI000000:a b:scan:17
a.b.mzML.gz|native_id=scan=17|mzspec:USI000000:a.b:scan:17
a.MZXML|identifier=scan=17|mzspec:USI000000:a:scan:17
a.mzML|native_id=index=4|mzspec:USI000000:a:index:4
a.mzML|native_id=function=2 process=0 scan=17|mzspec:USI000000:a:nativeId:2,0,17
a.mzML|native_id=sample=1 period=1 cycle=5 experiment=2|mzspec:USI000000:a:nativeId:1,1,5,2
a.mzML|native_id=scanId=4123|mzspec:USI000000:a:nativeId:4123
a.mzML|native_id=controllerType=0 controllerNumber=1|mzspec:USI000000:a:nativeId:0,1
a.mzML|native_id=S17|
a.mgf|scans=17|identifier=scan=17|
-|native_id=scan=17|
a.mgf|usi=mzspec:MSV000078556:a:scan:3|mzspec:MSV000078556:a:scan:3
a.mgf|spectrum_usi=mzspec:GNPS:G:accession:CCMSLIB1547|mzspec:GNPS:G:accession:CCMSLIB1547
a.mzML|native_id=scan=17|usi=mzspec:PXD000561:b:scan:3|mzspec:PXD000561:b:scan:3
a.mgf|usi=n/a|
a.mgf|usi=17|"""


@pytest.mark.parametrize("row", USIS.splitlines())
def test_a_spectrum_has_the_usi_of_its_file_or_of_its_scan(row):
    file, *fields, usi = row.split("|")
    record = Record(dict(field.split("=", 1) for field in fields))

    assert build(record, Source(file, 0), keep_structures=False).usi == usi
