"""Tables of features as programs write them, and which feature of a spectrum file a row is."""

import logging
from pathlib import Path

import pytest

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.spectra.tables import FeatureTable
from duallgd_cli.spectra.types import Feature
from duallgd_cli.writers.formats import lines_of
from tests.made_spectra import made_spectrum


def written(tmp_path, text):
    (tmp_path / "quant.csv").write_text(text, "utf-8")
    return FeatureTable(tmp_path / "quant.csv")


def feature(feature_id="", mz=195.08765, rt=61.5, adduct="", **more):
    named = {"precursor_mz": mz, "retention_time_s": rt, "polarity": 1, "adduct_text": adduct}
    return Feature((made_spectrum([100.0], file="a.mgf", feature_id=feature_id, **named, **more),))


# Two features in the layout of each program: caffeine at 61.5 s, aspirin's sodium adduct at 120 s.
LAYOUTS = sorted((Path(__file__).parents[2] / "data" / "feature_tables").iterdir())


@pytest.mark.parametrize("path", LAYOUTS, ids=lambda path: path.stem)
def test_a_layout_is_understood(path, tmp_path, caplog):
    table = FeatureTable(path)

    found = [one.first for one in table.applied([feature("7"), feature("", 203.0315, 121.0)])]

    assert [(row.ions[0][0], row.rt_s) for row in table.rows] == [
        (pytest.approx(195.08765), pytest.approx(61.5)),
        (pytest.approx(203.03148), pytest.approx(120)),
    ]
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}
    adducts = [parse_adduct(one.adduct_text).name for one in found]
    assert adducts == ["[M+H]+", "[M+Na]+"]
    assert {(one.adduct_source, one.warnings) for one in found} == {("table", ())}
    assert caplog.text == ""
    assert [table.row_of(ids, 195.0877, 61.5).by for ids in (("7",), ())] == ["id", "m/z and RT"]
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
        ("mzmed\trtmed\n7\t195.08765\t61.5\n", "7", 195.0877, None, 0, ""),  # of R, a single row
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
    assert "without a spectrum: 1 row (rows 8)" in caplog.text


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

    assert (joined.place, joined.by, bool(joined.remark)) == (place, by, bool(said))
    assert said in joined.remark


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
        "quant.csv: 2 features joined (1 by id, 1 by m/z and RT); without a spectrum: 1 row "
        "(rows 2); in no row: 1 feature (features 8)"
    ) in caplog.text

    caplog.set_level(logging.INFO)

    list(written(tmp_path, "id,mz\n1,195.0877\n").applied([feature("1")]))

    assert caplog.records[-1].levelno == logging.INFO
    assert caplog.records[-1].getMessage() == "quant.csv: 1 feature joined (1 by id)"


@pytest.mark.parametrize("text", ["row ID,row m/z\n1,500.1\n", "row m/z,rt\n500.1,60\n"])
def test_where_none_joins_it_is_said_what_to_check(tmp_path, caplog, text):
    list(written(tmp_path, text).applied([feature("1")]))

    ids = "row ID" if "ID" in text else "no column"
    assert "0 features joined (none)" in caplog.text
    assert f"check that its ids ({ids}) and m/z (row m/z) are those of the spectra" in caplog.text


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
