"""Tables of features as programs write them, and which feature of a spectrum file a row is."""

import logging

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.spectra.tables import FeatureTable
from duallgd_cli.spectra.types import Feature
from duallgd_cli.writers.formats import lines_of
from tests.made_spectra import made_spectrum

# Two features in the layout of each program: caffeine at 61.5 s, aspirin's sodium adduct at 120 s.
LAYOUTS = {
    "mzmine 3 and 4, for GNPS and SIRIUS": ("quant.csv",
        "row ID,row m/z,row retention time,correlation group ID,annotation network number,best ion,"
        "auto MS2 verify,identified by n=,partners,neutral M mass,a.mzML Peak area,\n"
        "7,195.08765,1.025,1,1,[M+H]+,,2,9,194.0804,120000.5,\n"
        "9,203.03148,2.0,,,[M+Na]+,,,,,3.4e5,\n"),
    "mzmine 3, all columns": ("full.csv",
        "id,area,rt,mz_range:min,mz_range:max,charge,rt_range:min,rt_range:max,height,mz,"
        "ion_identities:iin_id,ion_identities:ion_identities,datafile:a.mzML:area\n"
        "7,120000.5,1.025,195.08,195.09,1,0.9,1.1,3e4,195.08765,1,[M+H]+,120000.5\n"
        "9,3.4e5,2.0,203.03,203.04,1,1.9,2.1,3e4,203.03148,,[M+Na]+,3.4e5\n"),
    "mzmine 4, all columns": ("full4.csv",
        "id,rt,rt_range:min,rt_range:max,mz,mz_range:min,mz_range:max,feature_group,"
        "ion_identities:ion_identities,fragment_scans,datafile:a.mzML:rt,datafile:a.mzML:area\n"
        "7,1.025,0.9,1.1,195.08765,195.08,195.09,1,[M+H]+,3,1.02,120000.5\n"
        "9,2.0,1.9,2.1,203.03148,203.03,203.04,,[M+Na]+,2,2.0,3.4e5\n"),
    "MS-DIAL 5, alignment": ("Area_1.txt",
        "\t\t\t\t\tClass\tcontrol\n\t\t\t\t\tFile type\tSample\n\t\t\t\t\tInjection order\t1\n"
        "\t\t\t\t\tBatch ID\t1\n"
        "Alignment ID\tAverage Rt(min)\tAverage Mz\tMetabolite name\tAdduct type\t"
        "MS/MS spectrum\ta\n"
        "7\t1.025\t195.08765\tUnknown\t[M+H]+\t138.06:1000 110.07:600\t120000.5\n"
        "9\t2.0\t203.03148\tw/o MS2: aspirin\t[M+Na]+\t\t340000\n"),
    "MS-DIAL 5, one file": ("a.txt",
        "Peak ID\tName\tScan\tRT left(min)\tRT (min)\tRT right (min)\tPrecursor m/z\tHeight\tArea\t"
        "Adduct\n" "7\tUnknown\t120\t0.9\t1.025\t1.2\t195.08765\t2000\t120000.5\t[M+H]+\n"
        "9\tUnknown\t220\t1.9\t2.0\t2.2\t203.03148\t2000\t340000\t[M+Na]+\n"),
    "SIRIUS 6, structures": ("structure_identifications.tsv",
        "structurePerIdRank\tformulaRank\tmolecularFormula\tadduct\tprecursorFormula\tsmiles\t"
        "ionMass\tretentionTimeInSeconds\tretentionTimeInMinutes\tformulaId\talignedFeatureId\t"
        "mappingFeatureId\toverallFeatureQuality\n"
        "1\t1\tC8H10N4O2\t[M + H]+\tC8H10N4O2\tCN1C=NC2=C1\t195.08765\t61.5\t1.025\t66\t"
        "77123\t7\tGOOD\n"
        "1\t1\tC9H8O4\t[M + Na]+\tC9H8O4\tCC(=O)O\t203.03148\t120\t2.0\t67\t77124\t9\tGOOD\n"),
    "SIRIUS 5, formulas": ("formula_identifications.tsv",
        "rank\tmolecularFormula\tadduct\tprecursorFormula\tSiriusScore\tionMass\t"
        "retentionTimeInSeconds\tid\tfeatureId\n"
        "1\tC8H10N4O2\t[M + H]+\tC8H10N4O2\t20.1\t195.08765\t61.5\t0_file_7\t7\n"
        "1\tC9H8O4\t[M + Na]+\tC9H8O4\t9.1\t203.03148\t120\t1_file_9\t9\n"),
    "XCMS 3 for GNPS, with CAMERA": ("xcms.txt",
        "Row.names\tmzmed\tmzmin\tmzmax\trtmed\trtmin\trtmax\tnpeaks\tpeakidx\ta.mzML\tadduct\n"
        "7\t195.08765\t195.087\t195.088\t61.5\t60\t63\t3\tc(1, 2)\t120000.5\t[M+H]+ 194.0804\n"
        "9\t203.03148\t203.031\t203.032\t120\t118\t123\t3\tc(3)\t340000\t[M+Na]+ 180.0423\n"),
    "XCMS, as R writes a table with names of rows": (
        "features.txt",
        "mzmed rtmed rtmin adduct\n7 195.08765 61.5 60 [M+H]+\n9 203.03148 120 118 [M+Na]+\n"
        .replace(" ", "\t"),
    ),
    "Progenesis QI": ("progenesis.csv",
        ",,,,,,,Normalised abundance,Raw abundance\n,,,,,,,control,control\n"
        "Compound,Neutral mass (Da),m/z,Charge,Retention time (min),"
        "Chromatographic peak width (min),Adducts,a,a\n"
        "7,194.0804,195.08765,1,1.025,0.1,M+H,1.2,120000.5\n"
        "9,,203.03148,1,2.0,0.1,M+Na,3.4,340000\n"),
    "Progenesis QI with decimal commas": ("progenesis.csv",
        ';;;;;;"Raw abundance"\n;;;;;;"control"\n'
        '"Compound";"Neutral mass (Da)";"m/z";"Charge";"Retention time (min)";"Adducts";"a"\n'
        '"7";"194,0804";"195,08765";"1";"1,025";"M+H";"120000,5"\n'
        '"9";"";"203,03148";"1";"2,0";"M+Na";"340000"\n'),
    "MS-DIAL 4, for GNPS, with ion mobility": ("GnpsTable_1.txt",
        "\t\t\t\t\t\tClass\tBlank\n\t\t\t\t\t\tFile type\tBlank\n\t\t\t\t\t\tInjection order\t1\n"
        "Alignment ID\tAverage Rt(min)\tAverage Mz\tAverage drift time\tMetabolite name\t"
        "Adduct ion name\tMS/MS spectrum\ta\n"
        "7\t1.025\t195.08765\t0.7\tN-methyl 5\"-x\t[M+H]+\t138.06:1000\t120000.5\n"
        "9\t2.0\t203.03148\t0.8\tw/o MS2:aspirin\t[M+Na]+\tnull\t340000\n"),
    "MS-DIAL 4, one file, as CSV": ("a.csv",
        "PeakID,Title,Scans,RT left(min),RT (min),RT right (min),Precursor m/z,Height,Area,"
        "Adduct\r\n\r\n7,Unknown,120,0.9,1.025,1.2,195.08765,2000,120000.5,[M+H]+\r\n"
        "9,Unknown,220,1.9,2.0,2.2,203.03148,2000,340000,[M+Na]+\r\n\r\n"),
    "MetaboScape, neutral masses": ("hops.csv",
        '"SHARED_NAME","FEATURE_ID","RT","PEPMASS","SIGMA_SCORE","NAME_METABOSCAPE",'
        '"MOLECULAR_FORMULA","ADDUCT","KEGG","CAS","MaxIntensity","hop 1_01_2252"\n'
        '1,7,61.50,194.08038,,,,ION=[M+H]+,,,2503.00,2012.00\n'
        '2,9,120.00,180.04226,12.4,"Aspirin","C9H8O4",ION=[M+Na]+,,"50-78-2",1059.00,793.00\n'),
    "OpenMS, TextExporter": ("consensus.txt",
        "#Consensus features extracted from a.consensusXML on 2022-02-22 17:43:22\t\t\t\n"
        "#MAP\tid\tfilename\tlabel\tsize\n#RUN\trun_id\tscore_type\n"
        "#UNASSIGNEDPEPTIDE\trt\tmz\tscore\trank\tsequence\tcharge\n"
        "#CONSENSUS\trt_cf\tmz_cf\tintensity_cf\tcharge_cf\tquality_cf\tID\tbest ion\tpartners\t"
        "rt_0\tmz_0\tintensity_0\n#PEPTIDE\trt\tmz\tscore\n"
        "MAP\t0\ta.mzML\t\t1026\nRUN\tx\t\nUNASSIGNEDPEPTIDE\t99\t195.08765\t1\t1\tAA\t1\n"
        "CONSENSUS\t61.5\t195.08765\t1.30E+06\t1\t1.6E-04\t7\t[M+H]+\t\t61.2\t195.08765\t9E+05\n"
        "CONSENSUS\t120\t203.03148\t7.87E+06\t1\t8.7E-04\t9\t[M+Na]+\t\tnan\tnan\tnan\n"),
    "Compound Discoverer": ("compounds.csv",
        '\ufeff"Checked","Compounds ID","Name","Formula","Annot. DeltaMass","Calc. MW","m/z",'
        '"RT [min]","Area (Max.)","Reference Ion","Area: a.raw (F1)"\n'
        '"False","7","","C8 H10 N4 O2","0.2","194.08038","195.08765","1.025","12","[M+H]+1","1"\n'
        '"False","9","Aspirin","C9 H8 O4","","180.04226","203.03148","2.000","34","[M+Na]+1",""\n'),
    "XCMS with CAMERA, for IIMN": ("camera.txt",
        "mzmed\tmzmin\tmzmax\trtmed\trtmin\trtmax\tnpeaks\tsample\trow ID\t"
        "annotation network number\tbest ion\tneutral M mass\ta.mzXML\n"
        "195.08765\t195\t195.1\t61.5\t60\t63\t27\t21\t7\t213\t[M+H]+\t194.0804\t\n"
        "203.03148\t203\t203.1\t120\t118\t123\t27\t21\t9\t213\t[M+Na]+\t180.0423\t8366.02\n"),
    "XCMS 4, featureDefinitions as R writes CSV": ("definitions.csv",
        '"","mzmed","mzmin","mzmax","rtmed","rtmin","rtmax","npeaks","mzML","adduct"\n'
        '"7",195.08765,195.0,195.1,61.5,60.1,63.4,3,3,"[M+H]+ 194.0804"\n'
        '"9",203.03148,203.0,203.1,120,118.2,123.8,3,3,"[M+Na]+ 180.0423"\n'),
    "Progenesis QI, with ions that may be": ("progenesis.csv",
        ',,,,,,,"Raw abundance",\n,,,,,,,"17c",\n"Compound","Neutral mass (Da)","m/z","Charge",'
        '"Retention time (min)","CCS (angstrom^2)","Adducts","a","a"\n'
        '"7","194.08038","195.08765","1","1.025","148.2","M+H-H2O, M+H, M+Na","1.2","2"\n'
        '"9","180.04226","203.03148","1","2.0","150.1","M+H, M+Na, M+K","3.4","0"\n'),
    "with a mark before the names": ("quant.csv",
        "\n#row ID,row m/z,row retention time,best ion\n7,195.08765,1.025,[M+H]+\n"
        "9,203.03148,2.0,[M+Na]+\n"),
    "this program": ("features.csv",
        "feature_id,file,precursor_mz,rt_seconds,adduct\n7,a.mgf,195.08765,61.5,[M+H]+\n"
        "9,a.mgf,203.03148,120,[M+Na]+\n"),
}  # fmt: skip


def written(tmp_path, text, name="quant.csv"):
    (tmp_path / name).write_text(text, "utf-8")
    return FeatureTable(tmp_path / name)


def feature(feature_id="", mz=195.08765, rt=61.5, adduct="", polarity=1, **more):
    return Feature(
        (
            made_spectrum(
                [100.0], None, 0, "a.mgf", precursor_mz=mz, retention_time_s=rt, polarity=polarity,
                feature_id=feature_id, adduct_text=adduct, **more,
            ),
        )
    )  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_understood(layout, tmp_path, caplog):
    name, text = LAYOUTS[layout]

    table = written(tmp_path, text, name)
    first, second = table.applied([feature("7"), feature("", 203.0315, 121.0)])

    assert [(row.ions[0][0], row.rt_s) for row in table.rows] == [
        (pytest.approx(195.08765), pytest.approx(61.5)),
        (pytest.approx(203.03148), pytest.approx(120)),
    ]
    assert len({len(row.cells) for row in table.rows} | {len(table.columns)}) == 1
    assert first.first.adduct_text.replace(" ", "").strip("[]+").startswith("M+H")
    assert second.first.adduct_text.replace(" ", "").strip("[]+").startswith("M+Na")
    assert {one.first.adduct_source for one in (first, second)} == {"table"}
    assert first.first.warnings == second.first.warnings == ()
    assert caplog.text == ""
    assert table.row_of(("7",), 195.0877, 61.5).by == "id"
    assert table.row_of((), 195.0877, 61.5).by == "m/z and RT"
    again = lines_of([*table.before, table.columns, *(row.cells for row in table.rows)], "csv")
    assert written(tmp_path, "".join(again)).columns == table.columns


METABOSCAPE = (  # of a version that had m/z and minutes where later ones have masses and seconds
    '"SHARED_NAME","FEATURE_ID","RT","PEPMASS","NAME","MOLECULAR_FORMULA","ADDUCT","a.d"\n'
    '7,31,1.025,195.08765,,"C8H10N4O2",ION=[M+H]1+,0.00\n8,7,3.42,300.1,,,ION=,1446.97\n'
)
PROGENESIS = (
    "Compound;Neutral mass (Da);m/z;Charge;Retention time (min);Adducts\n"
    "0,60_158,9765m/z;;158,9764664;1;0,600666667;\n"
    "0,94_194,0804n;194,08038;195,08765;1;0,94;M+H, M+Na\n"
)
MSDIAL = "Alignment ID\tAverage Rt(min)\tAverage Mz\tAdduct type\n18\t3.8\t195.08765\t[M+H]+\n"


@pytest.mark.parametrize(
    ("text", "name", "mz", "rt", "place", "adduct"),
    [
        (METABOSCAPE, "31", 195.0877, 61, 0, "[M+H]1+"),
        (METABOSCAPE, "7", 195.0877, None, None, ""),  # its number in the table is no id
        (METABOSCAPE, "7", 300.1, None, 1, ""),
        # An MSP of Progenesis QI has the id in the name, no time, and each ion of a compound.
        (PROGENESIS, "Unknown (0,60_158,9765m/z)", 158.9765, None, 0, ""),
        (PROGENESIS, "Unknown (0,94_194,0804n)", 195.0877, None, 1, "M+H"),
        (PROGENESIS, "Caffeine (0,94_194,0804n)", 217.0696, None, 1, "M+Na"),
        (PROGENESIS, "Unknown (0,94_194,0804n)", 233.04354, None, None, ""),
        (PROGENESIS, "", 217.0696, 56, 1, "M+Na"),
        (MSDIAL, "Unknown|ID=18|MZ=195.0877|RT=3.8||PEAKID=18|ISOTOPE=M+0", 195.0877, None, 0,
         "[M+H]+"),
        (MSDIAL, "Methionine||PEAKID=18", 195.0877, None, 0, "[M+H]+"),
        (MSDIAL, "Methionine||PEAKID=18", 150.0583, None, None, ""),
        (MSDIAL, "Unknown|ID=1", 195.0877, None, None, ""),
    ],
)  # fmt: skip
def test_names_and_ions_of_programs_lead_to_rows(tmp_path, text, name, mz, rt, place, adduct):
    joined = written(tmp_path, text).row_of((name,), mz, rt)

    assert (joined.place, joined.adduct, joined.remark) == (place, adduct, "")


def test_rows_of_several_formulas_are_one_feature(tmp_path, caplog):
    table = written(
        tmp_path,
        "formulaRank\tmolecularFormula\tadduct\tionMass\tretentionTimeInSeconds\tmappingFeatureId\n"
        "1\tC8H10N4O2\t[M + H]+\t195.08765\t61.5\t7\n2\tC10H14N2\t[M + Na]+\t195.08765\t61.5\t7\n"
        "3\tC10H12O4\t[M + H]+\t195.08765\t61.5\t7\n1\tCH4\t[M + H]+\t195.08765\t99\t8\n",
    )

    (found,) = table.applied([feature("7")])

    assert [row.same for row in table.rows] == [0, 0, 0, 3]
    assert found.first.adduct_text == "[M + H]+"
    assert found.first.warnings == (
        "the table of features has [M + H]+ for it and in further rows [M + Na]+",
    )
    assert "without a spectrum are 1 row (rows 8)" in caplog.text


PLAIN = "id,mz,rt_seconds,adduct\n1,195.0877,60,[M+H]+\n2,195.0877,95,[M+H]+\n3,301.1,60,\n"


@pytest.mark.parametrize(
    ("names", "mz", "rt", "place", "by", "said"),
    [
        (("1",), 195.088, 61, 0, "id", ""),
        (("1",), 195.088, None, 0, "id", ""),
        (("1",), None, 61, 0, "id", ""),
        (("1",), 195.088, 300, 0, "id", "is 300 s in the file and 60 s in the table"),
        (("3",), 195.088, 94, 1, "m/z and RT", ""),  # an id of another file
        (("3",), 195.088, None, None, "", ""),  # m/z alone joins nothing
        (("x",), 301.1001, 60, 2, "m/z and RT", ""),
        (("x",), 301.11, 60, None, "", ""),
        (("x",), 301.1, 81, None, "", ""),
        (("x",), 195.0877, 78, 1, "m/z and RT", "2 rows of the table of features have this m/z"),
        (("1.0", "2"), 195.0877, 95, 1, "id", ""),
    ],
)
def test_which_row_a_feature_is(tmp_path, names, mz, rt, place, by, said):
    joined = written(tmp_path, PLAIN).row_of(names, mz, rt)

    assert (joined.place, joined.by) == (place, by)
    assert said in joined.remark
    assert bool(said) == bool(joined.remark)


# Adducts of the file and of the table, the one that is used, and what is said of it.
ADDUCTS = """\
option | [M+K]+ | [M+H]+ | [M+K]+ | of --adduct is used, not [M+H]+ of the
linked | [M+Na]+ | [M+H]+ | [M+H]+ | is used, not [M+Na]+ that other ions tell
file | | [M+Na]+ | [M+Na]+ |
file | | | |
file | | NA | |
file | [M+H]+ | M+H | [M+H]+ |
file | [M+H]+ | [M+Na]+ | [M+H]+ | the adduct [M+H]+ of the file is used, not [M+Na]+ of
file | | M+H, M+Na | | it may mean several adducts
file | [M+H]+ | M+H, M+Na | [M+H]+ |
file | | [M-H]- | | the adduct [M-H]- of the table of features has another ion mode
file | | strange | | adduct 'strange' is not supported"""


@pytest.mark.parametrize("line", ADDUCTS.splitlines())
def test_adducts_of_table_and_file_that_differ_are_said(tmp_path, line):
    source, own, text, used, said = (part.strip() for part in line.split("|"))
    table = written(tmp_path, f'id,mz,rt_seconds,adduct\n1,195.0877,61,"{text}"\n')

    (found,) = table.applied([feature("1", adduct=own, adduct_source=source)])

    assert found.first.adduct_text == used
    assert said in " ".join(found.first.warnings)
    assert bool(said) == bool(found.first.warnings)


def test_what_does_not_join_is_said(tmp_path, caplog):
    table = written(tmp_path, PLAIN)

    list(table.applied([feature("1"), feature("8", 500.0), feature("", 301.1, 60.0)]))

    assert (
        "quant.csv: 2 features joined (1 by id, 1 by m/z and RT); without a spectrum are 1 row "
        "(rows 2), in no row are 1 feature (features 8)"
    ) in caplog.text

    caplog.set_level(logging.INFO)

    list(written(tmp_path, "id,mz\n1,195.0877\n").applied([feature("1")]))

    assert caplog.records[-1].levelno == logging.INFO
    assert caplog.records[-1].getMessage() == "quant.csv: 1 feature joined (1 by id)"


@pytest.mark.parametrize(
    ("header", "time", "seconds", "is_said"),
    [
        ("rt_seconds", 90, 90, False),
        ("RT [s]", 90, 90, False),
        ("RT (min)", 90, 5400, False),
        ("retention time", 1.5, 90, True),
        ("retention time", 900, 900, True),
        ("rt", 1.5, 90, True),
        ("rtmed", 900, 900, False),
        ("rtmed", 15, 900, True),
    ],
)
def test_units_of_retention_times_that_no_name_tells_are_guessed_aloud(
    tmp_path, caplog, header, time, seconds, is_said
):
    table = written(tmp_path, f"id,mz,{header}\n1,195.0877,{time}\n")

    list(table.applied([]))

    assert table.rows[0].rt_s == seconds
    assert ("if that is wrong" in caplog.text) == is_said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it begins with nothing"),
        ("id,area\n1,2\n", "no line names a column of m/z"),
        ("mz,area\n100,2\n", "beside one of ids or retention times"),
        ("id,mz\n1,100\n2,100,7\n", "line 3: the row has more cells than the header"),
        ("Compound;m/z\n1;100\n2;100;7\n", "line 3: the row has more cells"),
        ("id,mz,adduct,mz\n1,100,,200\n", "two columns 'mz'; rename or remove one"),
    ],
)
def test_what_is_no_table_of_features_is_refused(tmp_path, text, said):
    with pytest.raises(UnreadableError, match=said):
        written(tmp_path, text)


def test_a_table_that_is_absent_is_a_missing_input(tmp_path):
    with pytest.raises(MissingInputError):
        FeatureTable(tmp_path / "absent.csv")


def test_columns_of_areas_and_names_may_have_one_name(tmp_path):
    table = written(tmp_path, "id,mz,name,name,a.mzML,a.mzML\n1,195.0877,x,y,5,6\n")

    assert [*table.rows[0].cells] == ["1", "195.0877", "x", "y", "5", "6"]
    assert [table.row_of((name,), 195.0877, None).place for name in ("1", "x", "y")] == [0, 0, 0]


def test_columns_of_an_earlier_answer_are_replaced(tmp_path):
    table = written(tmp_path, "id,mz,duallgd_formula,area\n1,195.0877,C8H10N4O2,5\n")

    assert table.columns == ["id", "mz", "area"]
    assert [*table.rows[0].cells] == ["1", "195.0877", "5"]
