"""The readers and the rows against a second reading of files as some fifty programs write them."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UnreadableError
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.reading import read
from tests import oracle_reading as oracle
from tests.dialects import CEF, DIALECTS
from tests.made_runs import request, rows_of
from tests.stub_model import stub_model

ORACLE = Path(oracle.__file__)
SETTINGS = PredictSettings(
    sampling=SamplingSettings(steps=1, samples=1), group_by="none", top_k=1, formula_candidates=1
)
WINDOWS = ("MS-DIAL", "MS-FINDER", "NIST", "Agilent", "Bruker", "Sciex", "Thermo", "Progenesis")
# What is wrong today, and why; a dialect that comes right must be taken out.
READ_WRONG: dict[str, str] = {}
ROWS_WRONG: dict[str, str] = {}


def cases(wrong):
    marks = {name: pytest.mark.xfail(strict=True, reason=reason) for name, reason in wrong.items()}
    return [pytest.param(name, marks=marks.get(name, ())) for name in DIALECTS]


def written(folder, name):
    dialect = DIALECTS[name]
    path = folder / dialect.file
    ends = "\r\n" if name.startswith(WINDOWS) else "\n"
    path.write_text(dialect.write(dialect.made), "utf-8", newline=ends)
    return path, dialect


def test_the_oracle_takes_nothing_of_the_package_but_the_door_of_the_readers():
    imports = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(ORACLE.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]

    assert [one for one in imports if one.startswith(("duallgd_cli", "tests"))] == [
        "duallgd_cli.spectra.reading.read"
    ]


@pytest.mark.parametrize("name", DIALECTS)
def test_the_oracle_reads_what_was_made_or_what_the_dialect_leaves_unsaid(name, tmp_path):
    path, dialect = written(tmp_path, name)

    readings = oracle.read(path)

    assert len(readings) == len(dialect.made)
    wrong = set()
    for reading, made in zip(readings, dialect.made, strict=True):
        if made.level == 1:
            wrong |= {"MS1"} if (reading.level, reading.peaks) != (1, len(made.peaks)) else set()
            continue
        near = {
            "precursor": abs(reading.precursor - made.mz) < 1e-3,
            "polarity": reading.polarity == (1 if made.charge > 0 else -1),
            "charge": reading.charge == made.charge,
            "level": reading.level == made.level,
            "rt": any(abs(one - made.rt) < 0.35 for one in reading.rts),
            "energy": made.energy in (reading.energy, *reading.energies),
            "adduct": reading.adduct == made.adduct,
            "peaks": reading.peaks == len(made.peaks),
        }
        wrong |= {field for field, is_near in near.items() if not is_near}
    assert wrong <= dialect.unsaid


@pytest.mark.parametrize("name", cases(READ_WRONG))
def test_what_readers_take_of_a_record_is_what_it_says_or_a_sentence_tells(name, tmp_path):
    path, dialect = written(tmp_path, name)

    found, _ = oracle.compared(path, dialect.made)

    assert not [field for field in found if "WRONG" in found[field]], oracle.table({name: found})


def faults_of_row(reading, made, row):
    """What is wrong about a row in the light of its record."""
    if row["status"] != "ok":
        return [] if row["message"] else ["refused without a word"]
    said = f"{row['message']} {row['warnings']}"
    adduct, charge = row["adduct"], oracle.adduct_charge(row["adduct"])
    of_file = oracle.adduct_charge(reading.adduct or "") or reading.charge
    sign = of_file or reading.polarity
    agree = {
        "precursor": abs(float(row["precursor_mz"]) - reading.precursor) < 1e-3,
        "adduct": adduct == made.adduct if reading.adduct else row["adduct_source"] != "file",
        "charge": not of_file or charge == of_file,
        "polarity": (not sign or sign * charge > 0) and not reading.conflict,
    }
    return [
        f"{made.name}: {field}, row {adduct}, file {reading.words}"
        for field, fine in agree.items()
        if not fine and not re.search(oracle.SAID[field], said)
    ]


@pytest.mark.parametrize("name", cases(ROWS_WRONG))
def test_every_record_is_a_row_that_agrees_with_it_or_says_what_not(name, tmp_path):
    path, dialect = written(tmp_path, name)

    predict(request(str(path), tmp_path / "out.csv", settings=SETTINGS), stub_model())

    rows = {int(row["index"]): row for row in rows_of(tmp_path / "out.csv")}
    _, triples = oracle.compared(path, dialect.made)
    ms2 = [triple for triple in triples if triple[0].level != 1]
    assert sorted(rows) == [spectrum.source.index for _, spectrum, _ in ms2]  # none of MS1
    assert len(rows) == 12
    assert not [
        fault
        for reading, spectrum, made in ms2
        for fault in faults_of_row(reading, made, rows[spectrum.source.index])
    ]
    assert sum(row["status"] == "ok" for row in rows.values()) > 6


def test_an_exchange_file_of_agilent_is_refused(tmp_path):
    path = tmp_path / "a.cef"
    path.write_text(CEF)

    with pytest.raises(UnreadableError, match=r"a\.cef"):
        list(read(str(path)))


def test_a_person_sees_the_table_of_files_of_their_own(tmp_path):
    path, _ = written(tmp_path, "pyteomics MGF")

    done = subprocess.run(
        [sys.executable, str(ORACLE), str(path), str(tmp_path / "none.mgf")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    head, line, none = done.stdout.splitlines()
    assert head.split() == list(oracle.FIELDS)
    assert "ok 12" in line
    assert none.split() == [str(tmp_path / "none.mgf"), "said", "1"]
    assert "MissingInputError" in done.stderr or "FileNotFoundError" in done.stderr


SPELLINGS = """\
CHARGE=1- | CHARGE=-1 | CHARGE=-1- | CHARGE=(1-) | CHARGE=1-,2- | CHARGE=- | IONMODE=Negative
IONMODE=NEG | IONMODE=n | IONMODE=- | IONMODE=-ve | IONMODE=ESI- | IONMODE=ESI(-) | POLARITY=neg
IONMODE=negative ion mode | IONMODE=Negative ESI | ION_MODE=N | IONIZATION_MODE=negative
IONMODE=LC-ESI negative | POLARITY=\u2212 | POLARITY=0 | POLARITY=-1 | IONMODE=gibberish"""


@pytest.mark.parametrize(
    "line",
    [
        *re.split(r" \| |\n", SPELLINGS),
        *("CHARGE=-0", "CHARGE=0-"),
    ],
)
def test_a_polarity_however_it_is_written_is_read_or_said(line, tmp_path):
    path = tmp_path / "a.mgf"
    path.write_text(f"BEGIN IONS\nPEPMASS=301.0354\n{line}\n151.0037 1\nEND IONS\n", "utf-8")

    ((_, spectrum, _),) = oracle.compared(path)[1]

    said = " ".join([*spectrum.warnings, *getattr(spectrum, "assumptions", ())])
    assert spectrum.polarity == -1 or re.search(oracle.SAID["polarity"], said)


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ("PEPMASS=181.0718\nCHARGE=1-\n50 1\n", "polarity"),
        ("PEPMASS=181.0718\nRTINMINUTES=5\n50 1\n", "rt"),
        ("PEPMASS=181.0718\nMSLEVEL=1\n50 1\n", "level"),
        ("PEPMASS=181.0718\nCOLLISION_ENERGY=20 eV\n50 1\n", "energy"),
        ("PEPMASS=181.0718\nADDUCT=[M+H]+\n50 1\n", "adduct"),
        ("PEPMASS=181.0718\n50 1\n51 1\n", "peaks"),
        ("PEPMASS=181.0719\n50 1\n", "precursor"),
    ],
)
def test_a_reader_that_took_another_value_would_be_found(block, field, tmp_path):
    """The judge itself: a plain record's spectrum is judged by another record's reading."""
    plain, other = tmp_path / "plain.mgf", tmp_path / "other.mgf"
    plain.write_text("BEGIN IONS\nPEPMASS=181.0718\n50 1\nEND IONS\n")
    other.write_text(f"BEGIN IONS\n{block}END IONS\n")
    (spectrum,) = read(str(plain))

    verdicts = oracle.verdicts(oracle.read(other)[0], spectrum)

    assert verdicts[field] == "WRONG"
    assert set(oracle.verdicts(oracle.read(plain)[0], spectrum).values()) == {"ok"}
