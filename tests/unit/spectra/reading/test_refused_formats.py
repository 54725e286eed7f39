"""Files of other formats: each is refused in one sentence that says what it is and what to do."""

import sqlite3

import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.files import open_text
from duallgd_cli.spectra.reading import read
from duallgd_cli.tables import table_rows

XML = '<?xml version="1.0" encoding="utf-8"?>\n'
# Name, content, what it is called, and a part of what to do.
OTHERS = (
    ("a.mzTab", b"COM\tmade\nMTD\tmzTab-version\t2.0.0-M\n", "mzTab", "spectra that it is about"),
    ("a.jdx", b"##TITLE=caffeine\n##JCAMP-DX=5.00\n", "JCAMP-DX", "MS/MS"),
    ("a.animl", f"{XML}<AnIML version='0.90'></AnIML>".encode(), "AnIML", "mzML"),
    ("a.cdf", b"CDF\x01" + bytes(60), "netCDF", "mzML"),
    ("a.cdf", b"\x89HDF\r\n\x1a\n" + bytes(90), "HDF5", "mzML"),
    (
        "a.imzML",
        f'{XML}<mzML xmlns="http://psi.hupo.org/ms/mzml"><cvList count="1"><cv id="IMS" '
        'fullName="Imaging MS Ontology"/></cvList><fileDescription><fileContent><cvParam '
        'cvRef="IMS" accession="IMS:1000031" name="processed"/></fileContent>'
        "</fileDescription></mzML>".encode(),
        "imzML",
        ".ibd",
    ),
    ("a.mzid", f"{XML}<MzIdentML id='a'></MzIdentML>".encode(), "mzIdentML", "spectra"),
    ("a.pep.xml", f"{XML}<msms_pipeline_analysis/>".encode(), "pepXML", "spectra"),
    ("a.mzData", f"{XML}<mzData version='1.05'/>".encode(), "mzData", "mzML"),
    ("a.featureXML", f"{XML}<featureMap version='1.9'/>".encode(), "OpenMS", "spectra"),
    ("a.cef", b'<CEF version="1.0.0.0"><CompoundList/></CEF>', "CEF", "MGF"),
    ("a.ms2", b"H\tCreationDate\tnow\nS\t000012\t000012\t445.12\nZ\t1\t445.12\n", "MS2", "MGF"),
    ("a.pdf", b"%PDF-1.7\n" + bytes(range(256)), "PDF", "peaks"),
    ("a.xlsx", b"PK\x03\x04" + b"\x14\0\x06\0[Content_Types].xml xl/workbook.xml", "Excel", "CSV"),
    ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(90), "Excel", "CSV"),
    ("a.parquet", b"PAR1\x15\x04" + bytes(90), "Parquet", "TSV"),
    ("a.pickle", b"\x80\x04\x95\x10\0\0\0\0\0\0\0", "pickle", "MGF"),
    ("a.npz", b"\x93NUMPY\x01\0" + bytes(90), "NumPy", "MGF"),
    ("a.raw", b"\x01\xa1F\0i\0n\0n\0i\0g\0a\0n\0" + bytes(90), "Thermo", "ThermoRawFileParser"),
    ("a.html", b"<!DOCTYPE html>\n<html><body>log in</body></html>", "web page", "download"),
    ("a.sdf", b"caffeine\n  x\n\n  0  0  0  0  0  0            999 V2000\nM  END\n$$$$\n", "SDF",
     "--database"),
    ("a.csv", b"feature_id,mz,rt\n1,195.0877,5.2\n", "not recognised", "mzs and intensities"),
    ("a.txt", b"138.0662 1000\n110.0713 600\n", "not recognised", "BEGIN IONS"),
    ("a.txt", b"mzspec:MSV000084494:run_7:scan:1943\n", "USI", "spectra themselves"),
    ("a.mgf.zip", b"PK\x03\x04" + b"\x14\0\0\0\x08\0a.mgf" + bytes(60), "zip", "unpack"),
    ("a.mgf.zst", b"\x28\xb5\x2f\xfd" + bytes(60), "zstd", "unpack"),
    ("a.mgf.7z", b"7z\xbc\xaf\x27\x1c" + bytes(60), "7-Zip", "unpack"),
    ("a.mgf.rar", b"Rar!\x1a\x07\0" + bytes(60), "RAR", "unpack"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "kind", "advice"), OTHERS, ids=[f"{o[0]} {o[2]}" for o in OTHERS]
)
def test_another_format_is_refused_by_its_name(tmp_path, name, content, kind, advice):
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(UnreadableError) as caught:
        list(read(str(path)))

    said = str(caught.value)
    assert kind in said
    assert advice in said
    assert "\n" not in said


@pytest.mark.parametrize("ending", ["blib", "msf", "pdResult", "mzdb", "db"])
def test_a_database_of_sqlite_is_refused(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    with sqlite3.connect(path) as made:
        made.execute("create table RefSpectra (id integer)")
    made.close()

    with pytest.raises(UnreadableError, match=r"SQLite database.*export"):
        list(read(str(path)))


BINARY = [
    (name, content)
    for name, content, *_ in OTHERS
    if name.endswith((".pdf", ".xlsx", ".xls", ".parquet", ".pickle", ".npz", ".cdf", ".zip"))
]


@pytest.mark.parametrize(("name", "content"), BINARY, ids=lambda one: str(one)[:12])
def test_a_table_of_another_format_is_refused_too(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match=rf"{name} is "):
        list(table_rows(path))


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(UnreadableError, match="is a folder; name a file"):
        open_text(tmp_path)
