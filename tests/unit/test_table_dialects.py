"""Tables as spreadsheets, databases and programs write them, and what is wrong with some."""

import gzip

import pytest

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.data.structures import read_rows
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.sources.database import read_analogues
from duallgd_cli.sources.known import read_guides
from duallgd_cli.tables import numbered_rows, table_rows

CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
INCHI = "InChI=1S/C8H10N4O2/c1-10-4-9-6-5(10)7(13)12(3)8(14)11(6)2/h4H,1-3H3"


def written(folder, text, name="a.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


# What divides the cells and stands before them; all hold one row of the columns id and note.
DIALECTS = {
    "commas": "id,note\n1,x\n",
    "tabs": "id\tnote\n1\tx\n",
    "semicolons": "id;note\n1;x\n",
    "Excel's first line": "sep=;\nid;note\n1;x\n",
    "Excel's first line, quoted": '"sep=,"\r\nid,note\r\n1,x\r\n',
    "a bar that only Excel's line tells": "sep=|\nid|note\n1|x\n",
    "a byte-order mark": "\ufeffid,note\n1,x\n",
    "UTF-16": "id;note\r\n1;x\r\n".encode("utf-16"),
    "comments": "# made, by hand\n#\n\nid,note\n1,x\n",
    "names behind a number sign": "#id\tnote\n1\tx\n",
    "Windows line ends": "id,note\r\n1,x\r\n",
    "old Macintosh line ends": "id,note\r1,x\r",
    "quotation marks": '"id","note"\n"1","x"\n',
    "blanks after commas": 'id, note\n1, "x"\n',
    "blank lines and cells": "\nid,note,,\n,,,\n1,x,,\n\n",
    "capitals": "ID,Note\n1,x\n",
    "no last line end": "id,note\n1,x",
}


@pytest.mark.parametrize("title", DIALECTS)
def test_a_table_is_read_whatever_divides_its_cells(tmp_path, title):
    for name in ("a.csv", "a.tsv", "a.txt"):
        (row,) = table_rows(written(tmp_path, DIALECTS[title], name), ("id",))
        assert (row["id"], row["note"]) == ("1", "x")


@pytest.mark.parametrize(
    ("name", "text", "notes"),
    [
        ("a.csv", "id,note\n1,café\n".encode("latin-1"), {2: "café"}),
        ("a.csv", 'id,note\n1,"a, ""b""\nc"\n2,x\n', {2: 'a, "b"\nc', 4: "x"}),
        # Between tabs quotation marks are text.
        ("a.tsv", 'id\tnote\n1\t"cis"-x\n2\t"open\n3\t5"\n', {2: '"cis"-x', 3: '"open', 4: '5"'}),
    ],
)
def test_what_a_cell_may_hold(tmp_path, name, text, notes):
    rows = numbered_rows(written(tmp_path, text, name))

    assert {line: row["note"] for line, row in rows} == notes


# What is said of a text.
FAULTS = {
    "id,note\n1,x,y\n": "line 2: the row has more cells than the header; put quotation marks",
    'id,note\n1,"x\n2,y\n': "line 2: a quotation mark is open or out of place",
    "id,note,ID\n1,x,y\n": "two columns 'id'",
    "name,note\n1,x\n": "has no column id; it has name, note",
    "": "has no column id; it has no columns",
    gzip.compress(b"id,note\n" + b"1,x\n" * 9999, mtime=0)[:-20]: "cut off",
}


@pytest.mark.parametrize(("text", "said"), FAULTS.items())
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, said):
    with pytest.raises(UnreadableError, match=said):
        list(table_rows(written(tmp_path, text), ("id",)))
    with pytest.raises(MissingInputError):
        list(table_rows(tmp_path / "absent.csv"))
    with pytest.raises(UnreadableError, match="is a folder"):
        list(table_rows(tmp_path))


# Names of columns as databases write them, and a row; S stands for the structure, I for its InChI.
STRUCTURES = """\
plain -> smiles -> S
semicolons -> name;smiles -> caffeine;S
PubChem -> Compound_CID,Name,Molecular_Weight,InChI,SMILES,InChIKey -> 2519,caffeine,194.19,I,S,K
PubChem before 2025 -> cid,cmpdname,isosmiles,canonicalsmiles -> 2519,caffeine,x,S
ChEMBL's web page -> "ChEMBL ID";"Name";"Smiles" -> "CHEMBL113";"caffeine";"S"
ChEMBL's dump -> chembl_id,canonical_smiles,standard_inchi -> CHEMBL113,S,x
COCONUT -> identifier,canonical_smiles,standard_inchi,name -> CNP1,S,x,caffeine
LOTUS -> structure_inchi,structure_smiles,structure_smiles_2D,structure_name -> x,S,y,caffeine
LOTUS' own -> lotus_id,traditional_name,smiles,inchi,smiles2D -> L1,caffeine,S,x,y
HMDB -> accession,name,chemical_formula,smiles,inchi -> H1,caffeine,C8H10N4O2,S,x
NP Atlas -> npaid,compound_name,compound_smiles -> N1,caffeine,S
CompTox -> DTXSID,PREFERRED_NAME,SMILES,QSAR_READY_SMILES -> D1,caffeine,S,x
capitals and blanks -> Name,Canonical SMILES -> caffeine,S
a vendor -> Name,SMILES (Canonical/RDKit ready) -> caffeine,S
IsomericSMILES -> CID,IsomericSMILES -> 2519,S
an InChI alone -> inchi -> I
an InChI and no SMILES -> name;smiles;InChI -> caffeine;;I
StdInChI -> Norman_SusDat_ID,StdInChI,StdInChIKey -> NS1,I,x"""


@pytest.mark.parametrize("line", STRUCTURES.splitlines(), ids=lambda line: line.split(" -> ")[0])
def test_structures_are_found_under_the_names_that_databases_give(tmp_path, line):
    _, names, cells = line.split(" -> ")
    mark = ";" if ";" in names else ","
    values = {"S": CAFFEINE, '"S"': f'"{CAFFEINE}"', "I": f'"{INCHI}"'}
    cells = mark.join(values.get(cell, cell) for cell in cells.split(mark))

    (row,) = read_rows(written(tmp_path, f"{names}\n{cells}\n"))

    assert inchikey_block(parse_smiles(row.smiles)) == inchikey_block(parse_smiles(CAFFEINE))
    assert row.name in {"caffeine", "CHEMBL113", "2519", ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,SMILES_in,SMILES_out\n1,C,C\n", "several columns of structures: SMILES_in, SMILES_"),
        ("smiles,SMILES\nC,C\n", "two columns 'smiles'"),
    ],
)
def test_two_columns_that_may_be_meant_are_named(tmp_path, text, said):
    with pytest.raises(UnreadableError, match=said):
        list(read_rows(written(tmp_path, text)))


def test_a_list_of_smiles_may_begin_with_names_of_columns(tmp_path):
    found = read_rows(written(tmp_path, "SMILES Name\nCCO ethanol\n\nCCC\n", "a.smi"))
    table = read_rows(written(tmp_path, "name\tsmiles\nethanol\tCCO\n", "a.txt"))

    rows = [(row.smiles, row.name, row.line) for row in found]
    assert rows == [("CCO", "ethanol", 2), ("CCC", "", 4)]
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
