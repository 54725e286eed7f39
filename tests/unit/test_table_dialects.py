"""Tables as spreadsheets, databases and programs write them, and what is wrong with some."""

import gzip

import pytest

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.data.structures import read_rows
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.sources.database import read_analogues
from duallgd_cli.sources.known import read_guides
from duallgd_cli.spectra.tables import read_table
from duallgd_cli.tables import numbered_rows, table_rows

CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
INCHI = "InChI=1S/C8H10N4O2/c1-10-4-9-6-5(10)7(13)12(3)8(14)11(6)2/h4H,1-3H3"


def written(folder, text, name="a.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


# What divides the cells and stands before them; all hold one row of the columns id and note.
DIALECTS = {
    "commas": ("id,note\n1,x\n", "utf-8"),
    "tabs": ("id\tnote\n1\tx\n", "utf-8"),
    "semicolons": ("id;note\n1;x\n", "utf-8"),
    "Excel's first line": ("sep=;\nid;note\n1;x\n", "utf-8"),
    "Excel's first line, quoted": ('"sep=,"\r\nid,note\r\n1,x\r\n', "utf-8"),
    "a bar that only Excel's line tells": ("sep=|\nid|note\n1|x\n", "utf-8"),
    "a byte-order mark": ("id,note\n1,x\n", "utf-8-sig"),
    "UTF-16": ("id;note\r\n1;x\r\n", "utf-16"),
    "comments": ("# made, by hand\n#\n\nid,note\n1,x\n", "utf-8"),
    "names behind a number sign": ("#id\tnote\n1\tx\n", "utf-8"),
    "Windows line ends": ("id,note\r\n1,x\r\n", "utf-8"),
    "old Macintosh line ends": ("id,note\r1,x\r", "utf-8"),
    "quotation marks": ('"id","note"\n"1","x"\n', "utf-8"),
    "blanks after commas": ('id, note\n1, "x"\n', "utf-8"),
    "blank lines and cells": ("\nid,note,,\n,,,\n1,x,,\n\n", "utf-8"),
    "capitals": ("ID,Note\n1,x\n", "utf-8"),
    "no last line end": ("id,note\n1,x", "utf-8"),
}


@pytest.mark.parametrize(("text", "encoding"), DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
def test_a_table_is_read_whatever_divides_its_cells(tmp_path, text, encoding, name):
    (row,) = table_rows(written(tmp_path, text, name, encoding), ("id",))

    assert (row["id"], row["note"]) == ("1", "x")


def test_bytes_that_are_no_utf_8_are_latin_1(tmp_path):
    (row,) = table_rows(written(tmp_path, "id,note\n1,café\n", encoding="latin-1"))

    assert row["note"] == "café"


def test_a_cell_may_hold_what_divides_others_and_line_breaks(tmp_path):
    path = written(tmp_path, 'id,note\n1,"a, ""b""\nc"\n2,x\n')

    assert list(numbered_rows(path)) == [
        (2, {"id": "1", "note": 'a, "b"\nc'}),
        (4, {"id": "2", "note": "x"}),
    ]


def test_quotation_marks_between_tabs_are_text(tmp_path):
    path = written(tmp_path, 'id\tnote\n1\t"cis"-x\n2\t"open\n3\t5"\n', "a.tsv")

    assert [row["note"] for row in table_rows(path)] == ['"cis"-x', '"open', '5"']


# Text, and what is said of it.
FAULTS = {
    "id,note\n1,x,y\n": "line 2: the row has more cells than the header; put quotation marks",
    'id,note\n1,"x\n2,y\n': "line 2: a quotation mark is open or out of place",
    "id,note,ID\n1,x,y\n": "two columns 'id'",
    "name,note\n1,x\n": "has no column id; it has name, note",
    "": "has no column id; it has no columns",
}


@pytest.mark.parametrize(("text", "said"), FAULTS.items())
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, said):
    with pytest.raises(UnreadableError, match=said):
        list(table_rows(written(tmp_path, text), ("id",)))


def test_a_table_that_breaks_off_says_so(tmp_path):
    path = written(tmp_path, gzip.compress(b"id,note\n" + b"1,x\n" * 9999)[:-20], "a.csv.gz")

    with pytest.raises(UnreadableError, match="cut off"):
        list(table_rows(path))


def test_what_is_no_file_is_no_table(tmp_path):
    with pytest.raises(MissingInputError):
        list(table_rows(tmp_path / "absent.csv"))
    with pytest.raises(UnreadableError, match="is a folder"):
        list(table_rows(tmp_path))


# Names of columns as databases write them, with the structure under each.
PUBCHEM = "Compound_CID,Name,Molecular_Weight,Molecular_Formula,InChI,SMILES,InChIKey,IUPAC_Name"
STRUCTURES = {
    "plain": f"smiles\n{CAFFEINE}\n",
    "semicolons": f"name;smiles\ncaffeine;{CAFFEINE}\n",
    "PubChem": f'{PUBCHEM}\n2519,caffeine,194.19,C8H10N4O2,"{INCHI}",{CAFFEINE},K,x\n',
    "PubChem before 2025": f"cid,cmpdname,isosmiles,canonicalsmiles\n2519,caffeine,x,{CAFFEINE}\n",
    "ChEMBL's web page": f'"ChEMBL ID";"Name";"Smiles"\n"CHEMBL113";"caffeine";"{CAFFEINE}"\n',
    "ChEMBL's dump": f"chembl_id\tcanonical_smiles\tstandard_inchi\nCHEMBL113\t{CAFFEINE}\tx\n",
    "COCONUT": f"identifier,canonical_smiles,standard_inchi,name\nCNP1,{CAFFEINE},x,caffeine\n",
    "LOTUS": f"structure_inchi,structure_smiles,structure_smiles_2D,structure_nameTraditional\n"
    f"x,{CAFFEINE},y,caffeine\n",
    "LOTUS' own": f"lotus_id,traditional_name,smiles,inchi,smiles2D\nL1,caffeine,{CAFFEINE},x,y\n",
    "HMDB": f"accession,name,chemical_formula,smiles,inchi\nH1,caffeine,C8H10N4O2,{CAFFEINE},x\n",
    "NP Atlas": f"npaid\tcompound_name\tcompound_smiles\nN1\tcaffeine\t{CAFFEINE}\n",
    "CompTox": f"DTXSID,PREFERRED_NAME,SMILES,QSAR_READY_SMILES\nD1,caffeine,{CAFFEINE},x\n",
    "capitals and blanks": f"Name,Canonical SMILES\ncaffeine,{CAFFEINE}\n",
    "a vendor": f"Name,SMILES (Canonical/RDKit ready)\ncaffeine,{CAFFEINE}\n",
    "IsomericSMILES": f"CID,IsomericSMILES\n2519,{CAFFEINE}\n",
    "an InChI alone": f"inchi\n{INCHI}\n",
    "an InChI and no SMILES": f'name;smiles;InChI\ncaffeine;;"{INCHI}"\n',
    "StdInChI": f'Norman_SusDat_ID,StdInChI,StdInChIKey\nNS1,"{INCHI}",x\n',
}


@pytest.mark.parametrize("text", STRUCTURES.values(), ids=list(STRUCTURES))
def test_structures_are_found_under_the_names_that_databases_give(tmp_path, text):
    (row,) = read_rows(written(tmp_path, text))

    assert inchikey_block(parse_smiles(row.smiles)) == inchikey_block(parse_smiles(CAFFEINE))
    assert row.name in {"caffeine", "CHEMBL113", "2519", ""}


def test_two_columns_that_may_be_meant_are_named(tmp_path):
    path = written(tmp_path, "id,SMILES_in,SMILES_out\n1,C,C\n")

    with pytest.raises(UnreadableError, match="several columns of structures: SMILES_in, SMILES_"):
        list(read_rows(path))
    with pytest.raises(UnreadableError, match="two columns 'smiles'"):
        list(read_rows(written(tmp_path, "smiles,SMILES\nC,C\n")))


def test_a_list_of_smiles_may_begin_with_names_of_columns(tmp_path):
    found = list(read_rows(written(tmp_path, "SMILES Name\nCCO ethanol\n\nCCC\n", "a.smi")))
    table = list(read_rows(written(tmp_path, "name\tsmiles\nethanol\tCCO\n", "a.txt")))

    assert [(row.smiles, row.name, row.line) for row in found] == [
        ("CCO", "ethanol", 2),
        ("CCC", "", 4),
    ]
    assert [(row.smiles, row.name) for row in table] == [("CCO", "ethanol")]


def test_text_after_a_smiles_in_a_cell_is_counted_and_said(tmp_path, caplog):
    text = 'smiles,name\nCCO xyz,a\n"CC\nCC",b\nCCO,c,d\nCCN,e\n'

    found = read_analogues(written(tmp_path, text))

    assert list(found.smiles) == ["CCN"]
    assert "2 molecules left out (other text follows the SMILES in its cell)" in caplog.text
    assert "1 molecule left out (the row has more cells than the header" in caplog.text


def test_a_guide_is_read_in_any_dialect(tmp_path, caplog):
    path = written(tmp_path, "sep=;\nFeature ID;Core;remark\n7;c1ccccc1;sure\n")

    guides, _ = read_guides(path)

    assert guides["7"].core == "c1ccccc1"
    assert "not used are the columns remark" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("feature_id,core\n1,c1ccccc1 xyz\n", "line 2: core: other text follows the SMILES 'c1cc"),
        ('feature_id,core\n\n1,"CC\nCC"\n', "line 3: core: other text follows the SMILES 'CC'"),
        ("feature_id,require\n1,c1ccccc1 xyz\n", "line 2: other text follows the SMARTS"),
        ("feature_id,analogue\n1,CCO xyz\n", "line 2: analogue 'CCO xyz' is no molecule"),
    ],
)
def test_text_after_a_structure_in_a_guide_is_an_error(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        read_guides(written(tmp_path, text))


def test_decimals_after_a_comma_are_scores(tmp_path):
    path = written(tmp_path, "sep=;\nid;molecularFormula;score\n1;C8H10N4O2;0,9\n1;C7H8N4O2;0,1\n")

    rows = read_table(str(path))["id"]["1"]

    assert rows[0].log_weight - rows[1].log_weight == pytest.approx(2.1972, abs=1e-4)
