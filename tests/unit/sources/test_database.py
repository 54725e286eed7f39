"""Databases: read once, looked up by formula, under names or in the cache, never half there."""

import gzip
import os
import sqlite3
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.sources import database as module
from duallgd_cli.sources.database import (
    Database,
    add,
    entries,
    located,
    opened,
    read_analogues,
    remove,
)
from duallgd_cli.sources.known import GuideFiles

pytestmark = pytest.mark.usefixtures("databases")

SMILES = ("CCCCO", "CCO", "CC(C)CO", "COC", "c1ccccc1", "NCC(=O)O", "C[N+](C)(C)CC(=O)[O-]", "CCBr")
TABLE = "CCCCO a\nCCO b\nno(\n[Fe] iron\nCC(C)CO c\nCOC d\nC.C\nc1ccccc1 e\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "mine.smi").write_text(TABLE)
    return tmp_path / "mine.smi"


def formulas(*texts):
    return [Formula.parse(text) for text in texts]


def held(found):
    """What was found, as values that can be compared."""
    bits = np.split(found.bits, np.cumsum(found.n_bits)[:-1]) if len(found) else []
    parts = (found.smiles, found.names, found.counts.tolist(), [own.tolist() for own in bits])
    return list(zip(*parts, strict=True))


@settings(max_examples=15)
@given(
    rows=st.lists(st.sampled_from([*SMILES, "no("]), min_size=1, max_size=30),
    asked=st.lists(st.sampled_from([*SMILES, "CCI", "CCCCCCCC"]), max_size=4),
)
def test_a_look_up_by_formula_equals_a_scan_of_the_file(tmp_path_factory, rows, asked):
    rows = [*rows, "CCO"]
    path = tmp_path_factory.mktemp("law") / "all.smi"
    path.write_text("".join(f"{smiles} row-{number}\n" for number, smiles in enumerate(rows)))
    wanted = [formula_of(parse_smiles(smiles)) for smiles in asked]

    found = Database.of_file(path).of_formulas(wanted)
    of_analogues = read_analogues(path).of_formulas(wanted)

    scanned = []
    for number, smiles in enumerate(rows):
        if smiles != "no(" and formula_of(mol := parse_smiles(smiles)) in wanted:
            counts = formula_of(mol).array.tolist()
            scanned.append((smiles, f"row-{number}", counts, fingerprint(mol).tolist()))
    assert sorted(held(found)) == sorted(scanned) == sorted(held(of_analogues))
    for formula in set(wanted):  # and those of one formula stand as they do in the file
        each = [row for row in scanned if row[2] == formula.array.tolist()]
        assert held(Database.of_file(path).of_formulas([formula])) == each


def test_more_atoms_than_a_byte_counts_are_no_molecule_of_few(table):
    """258 atoms of hydrogen are not two."""
    assert len(Database.of_file(table).of_formulas(formulas("C2H262O", "C260H10O"))) == 0
    assert len(read_analogues(table).of_formulas(formulas("C2H262O", "C260H10O"))) == 0


def test_it_is_read_once_and_says_what_it_is(table, databases, caplog):
    _, made = add(table)
    table.unlink()

    ((name, listed),) = entries()
    found = opened("mine").of_formulas(formulas("C2H6O"))

    assert (name, listed.about) == ("mine", made)
    assert (made.file, made.structures, made.formulas) == ("mine.smi", 5, 3)
    assert made.refused["not a molecule"] == 1
    assert sum(made.refused.values()) == 3
    assert caplog.text.count("1 molecule left out (not a molecule)") == 2  # added, and opened
    assert list(found.names) == ["b", "d"]
    assert [path.name for path in databases.iterdir()] == ["mine.sqlite"]


def test_a_feature_that_a_row_names_is_said_not_to_count_where_it_does_not(tmp_path, caplog):
    table = tmp_path / "mine.csv"
    table.write_text("smiles,feature_id\nCCO,7\nCCN,8\n")

    assert list(read_analogues(table).features) == ["7", "8"]
    assert not caplog.text
    add(table)
    assert caplog.text.count(f"{table}: its feature_id is not looked at") == 1


@pytest.mark.slow  # starts processes
def test_several_processes_give_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_AT_HAND", 3)
    monkeypatch.setattr(module, "in_order", partial(module.in_order, at_a_time=5))
    rows = [f"{SMILES[n % 7]} {n}\n" for n in range(40)]
    (tmp_path / "a.smi").write_text("".join([*rows, "no(\n"]))
    seen = []

    add(tmp_path / "a.smi", "one")
    add(tmp_path / "a.smi", "other", workers=2, advance=seen.append)

    wanted = [formula_of(parse_smiles(smiles)) for smiles in SMILES]
    (_, one), (_, other) = entries()
    assert one.about == other.about
    assert held(one.of_formulas(wanted)) == held(other.of_formulas(wanted))
    assert sum(seen) == 41


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("coconut.csv.gz", "coconut"),
        ("PubChemLite_20240101.csv", "PubChemLite_20240101"),
        ("a.b.smi.xz", "a.b"),
    ],
)
def test_it_is_named_after_its_file(tmp_path, monkeypatch, file, name):
    (tmp_path / file).write_bytes(b"")
    made = Database(tmp_path, module.About(file, "", 1, 1, 0, {}))
    monkeypatch.setattr(module, "_made", lambda *_: made)

    assert add(tmp_path / file)[0] == name


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a b", ".hidden", "-x", "é", "a\n", "a\0"])
def test_names_that_are_none_are_refused(table, databases, name):
    with pytest.raises(UsageError, match=r"letters, digits, \. _ and -"):
        add(table, name or " ")
    with pytest.raises(MissingInputError, match="there is no database"):
        remove(name)
    assert not databases.exists()


def test_a_second_of_the_same_name_is_refused_unless_it_is_to_replace_it(table, tmp_path):
    add(table)
    (tmp_path / "other.smi").write_text("CCN amine\n")

    with pytest.raises(UsageError, match=r"mine exists \(of mine\.smi\).*--force"):
        add(tmp_path / "other.smi", "mine")
    assert opened("mine").about.structures == 5
    add(tmp_path / "other.smi", "mine", force=True)

    assert list(opened("mine").of_formulas(formulas("C2H7N")).names) == ["amine"]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (b"", UsageError, "holds no molecule that can be used: it is empty"),
        (b"no(\n\nneither)\n", UsageError, r"bad\.smi holds no molecule.*2 molecules left out"),
        (b"\x93NUMPY..", UnreadableError, "NumPy"),
        (gzip.compress(b"CCO\n" * 9000, mtime=0)[:-20], UnreadableError, "cut off"),
        (b"CCO\n" * 9_500, UsageError, "more than 9000 rows"),
    ],
)
def test_a_file_without_structures_is_one_sentence_and_leaves_what_was_there(
    table, tmp_path, databases, monkeypatch, text, error, said
):
    path = tmp_path / ("bad.smi.gz" if text[:2] == b"\x1f\x8b" else "bad.smi")
    path.write_bytes(text)
    add(table)
    monkeypatch.setattr(module, "_MOST_ROWS", 9_000)

    for name in ("bad", "mine"):
        with pytest.raises(error, match=said):
            add(path, name, force=True)

    assert [path.name for path in databases.iterdir()] == ["mine.sqlite"]
    assert opened("mine").about.structures == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interruption_and_a_full_disk_leave_nothing(table, databases, monkeypatch, error):
    def stop(_):
        raise error

    monkeypatch.setattr(module.json, "dumps", stop)  # when all is read and half is written

    with pytest.raises((KeyboardInterrupt, UsageError), match=r"cannot be written: No space|^$"):
        add(table)
    assert not list(databases.iterdir())


def version(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")


DAMAGES = {
    "another version": version,
    "cut off": lambda path: os.truncate(path, 5000),
    "empty": lambda path: os.truncate(path, 0),
    "of another kind": lambda path: path.write_text("smiles\nCCO\n" * 99),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_one_says_to_add_it_again_and_that_goes(table, databases, what):
    add(table)
    DAMAGES[what](databases / "mine.sqlite")

    with pytest.raises(UnreadableError, match=r"mine.*database add FILE --name mine --force"):
        opened("mine").of_formulas(formulas("C2H6O"))
    assert [name for name, _ in entries()] == ["mine"]
    add(table, force=True)
    assert len(opened("mine").of_formulas(formulas("C2H6O"))) == 2
    DAMAGES[what](databases / "mine.sqlite")
    remove("mine")
    assert entries() == []


def test_a_database_that_goes_is_gone_and_others_stay(table):
    add(table, "one")
    add(table, "two")

    remove("one")

    with pytest.raises(MissingInputError, match=r"no database one.*there are: two"):
        remove("one")
    remove("two")
    with pytest.raises(MissingInputError, match=r"no database two.*database add"):
        remove("two")


def test_a_file_wins_over_a_name_and_a_folder_does_not(table, tmp_path, monkeypatch, databases):
    monkeypatch.chdir(tmp_path)
    add(table, "coconut")
    (tmp_path / "coconut").mkdir()
    assert located("coconut") == databases / "coconut.sqlite"

    (tmp_path / "coconut").rmdir()
    (tmp_path / "coconut").write_text("CCO\n")
    assert located("coconut").samefile(tmp_path / "coconut")


@pytest.mark.parametrize("text", ["cocnut", "nowhere/cocnut.smi", "../mine", "x" * 5000, "a\0b"])
def test_what_is_neither_is_a_sentence_with_the_names_there_are(table, text):
    add(table, "coconut")
    with pytest.raises((MissingInputError, UnreadableError)) as refused:
        located(text)

    assert text != "cocnut" or "there are: coconut" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_identity_of_a_run_follows_the_file_that_was_added(table):
    add(table)
    files = GuideFiles(databases=("mine", str(table)))
    by_name, by_file = files.identity()["databases"]
    assert (by_name["name"], by_file["name"]) == ("mine", str(table))
    assert by_name["sha256"] == by_file["sha256"]

    table.write_text("CCO\n")
    assert files.identity()["databases"][0] == by_name
    add(table, force=True)
    assert files.identity()["databases"][0]["sha256"] != by_name["sha256"]


def test_a_file_is_kept_in_the_cache_and_made_again_where_that_is_broken(table, tmp_path, caplog):
    wanted = formulas("C2H6O", "C6H6")
    whole = held(opened(str(table)).of_formulas(wanted))
    (kept,) = (tmp_path / "cache" / "structures").iterdir()
    before = kept.stat().st_mtime_ns
    caplog.clear()

    assert held(opened(str(table)).of_formulas(wanted)) == whole
    assert f"{table}: 1 molecule left out (not a molecule)" in caplog.text
    assert kept.stat().st_mtime_ns == before
    kept.write_text("no database")
    assert held(opened(str(table)).of_formulas(wanted)) == whole
    assert "is made again" in caplog.text


def test_a_file_is_read_where_nothing_can_be_kept(table, tmp_path, caplog):
    (tmp_path / "cache").write_text("a file in the way")

    found = opened(str(table)).of_formulas(formulas("C2H6O"))

    assert list(found.names) == ["b", "d"]
    assert "cannot be kept for the next run" in caplog.text
