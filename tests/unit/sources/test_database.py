"""Databases: read once, looked up by formula, under names or in the cache, never half there."""

import gzip
import os
import sqlite3

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

SMILES = ("CCCCO", "CCO", "CC(C)CO", "COC", "c1ccccc1", "NCC(=O)O", "C[N+](C)(C)CC(=O)[O-]", "CCBr")


@pytest.fixture
def table(tmp_path):
    """Five structures of three formulas, and three rows that are none."""
    rows = (
        *("CCCCO a", "CCO b", "no(", "[Fe] iron", "CC(C)CO c", "COC d"),
        *("CCCCCCC.CCCCCCO", "c1ccccc1 e"),
    )
    (tmp_path / "mine.smi").write_text("\n".join(rows) + "\n")
    return tmp_path / "mine.smi"


def names_of(structures, *formulas):
    """Names of the structures of these formulas."""
    return list(structures.of_formulas(map(Formula.parse, formulas)).names)


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
    path = tmp_path_factory.mktemp("law") / "all.smi"
    rows = [f"{smiles} row-{number}" for number, smiles in enumerate([*rows, "CCO"])]
    path.write_text("\n".join(rows))
    wanted = [formula_of(parse_smiles(smiles)) for smiles in asked]

    found = Database.of_file(path).of_formulas(wanted)
    of_analogues = read_analogues(path).of_formulas(wanted)

    scanned = []
    for smiles, name in map(str.split, rows):
        if smiles != "no(" and formula_of(mol := parse_smiles(smiles)) in wanted:
            counts = formula_of(mol).array.tolist()
            scanned.append((smiles, name, counts, fingerprint(mol).tolist()))
    assert sorted(held(found)) == sorted(scanned) == sorted(held(of_analogues))
    for formula in set(wanted):  # and those of one formula stand as they do in the file
        each = [row for row in scanned if row[2] == formula.array.tolist()]
        assert held(Database.of_file(path).of_formulas([formula])) == each


@pytest.mark.parametrize("read", [Database.of_file, read_analogues])
def test_258_atoms_of_hydrogen_are_not_the_two_that_a_byte_counts(table, read):
    assert names_of(read(table), "C2H262O", "C260H10O") == []


def test_it_is_read_once_and_says_what_it_is(table, databases, caplog):
    _, made = add(table)
    table.unlink()

    ((name, listed),) = entries()
    assert names_of(opened("mine"), "C2H6O") == ["b", "d"]
    assert (name, listed.about) == ("mine", made)
    assert (made.file, made.structures, made.formulas) == ("mine.smi", 5, 3)
    assert made.remarks == (
        "1 molecule left out (not a molecule) in line 3; 1 molecule left out (the molecule has 2 "
        "fragments; exactly one is needed) in line 7; 1 molecule left out (unsupported element) in "
        "line 4"
    )
    assert caplog.text.count(made.remarks) == 2  # added, and opened
    assert [path.name for path in databases.iterdir()] == ["mine.sqlite"]


def test_salts_are_found_by_the_formula_of_their_parents(tmp_path):
    rows = "CCN.Cl a", "CC(=O)[O-].[Na+] b", "CCN c", "CCO.O d", *["xx(", "[Fe]"] * 4
    (tmp_path / "mine.smi").write_text("\n".join(rows))

    found = Database.of_file(tmp_path / "mine.smi")

    each = [names_of(found, formula) for formula in ("C2H7N", "C2H4O2", "C2H6O", "C2H8ClN")]
    assert each == [["a", "c"], ["b"], ["d"], []]
    assert list(found.of_formulas([Formula.parse("C2H4O2")]).smiles) == ["CC(=O)O"]
    assert found.about.remarks == (
        "4 molecules left out (not a molecule) in lines 5, 7, 9 and others; 4 molecules left out "
        "(unsupported element) in lines 6, 8, 10 and others; 3 salts are read as their parent "
        "molecules"
    )


def test_a_feature_that_a_row_names_is_said_not_to_count_where_it_does_not(tmp_path, caplog):
    (tmp_path / "mine.csv").write_text("smiles,feature_id\nCCO,7\nCCN,8\n")

    assert list(read_analogues(tmp_path / "mine.csv").features) == ["7", "8"]
    assert not caplog.text
    add(tmp_path / "mine.csv")
    assert caplog.text.count("mine.csv: its feature_id is not looked at") == 1


def test_rows_that_are_written_a_few_at_a_time_are_all_there(tmp_path, monkeypatch):
    rows = [f"{SMILES[n % 7]} {n}\n" for n in range(40)]
    (tmp_path / "a.smi").write_text("".join([*rows, "no(\n"]))

    add(tmp_path / "a.smi", "one")
    monkeypatch.setattr(module, "_AT_HAND", 3)
    add(tmp_path / "a.smi", "other")

    wanted = [formula_of(parse_smiles(smiles)) for smiles in SMILES]
    (_, one), (_, other) = entries()
    assert one.about == other.about
    assert held(one.of_formulas(wanted)) == held(other.of_formulas(wanted))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("coconut.csv.gz", "coconut"), ("COCONUT.CSV.GZ", "COCONUT"), ("a.b.smi.xz", "a.b"),
        ("PubChemLite_20240101.csv", "PubChemLite_20240101"),
    ],
)  # fmt: skip
def test_it_is_named_after_its_file(tmp_path, monkeypatch, file, name):
    (tmp_path / file).write_bytes(b"")
    made = Database(tmp_path, module.About(file, "", 1, 1, 0, ""))
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
    assert names_of(opened("mine"), "C2H7N") == ["amine"]


CUT = gzip.compress(b"CCO\n" * 90, mtime=0)[:-9]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (b"", UsageError, "holds no molecule that can be used: it is empty"),
        (b"no(\n\nneither)\n", UsageError, r"bad\.smi holds no molecule.*2 molecules left out"),
        (b"%PDF-1.7", UnreadableError, "PDF"),
        (CUT, UnreadableError, "cut off"),
        (b"CCO\n" * 95, UsageError, "more than 90 rows"),
    ],
)
def test_a_file_without_structures_is_one_sentence_and_leaves_what_was_there(
    table, tmp_path, databases, monkeypatch, text, error, said
):
    path = tmp_path / ("bad.smi.gz" if text == CUT else "bad.smi")
    path.write_bytes(text)
    add(table)
    monkeypatch.setattr(module, "_MOST_ROWS", 90)

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
        names_of(opened("mine"), "C2H6O")
    assert [name for name, _ in entries()] == ["mine"]
    add(table, force=True)
    assert names_of(opened("mine"), "C2H6O") == ["b", "d"]
    DAMAGES[what](databases / "mine.sqlite")
    remove("mine")
    assert entries() == []


def test_a_database_that_goes_is_gone_and_others_stay(table):
    for name in ("one", "two"):
        add(table, name)

    for name, others in (("one", "there are: two"), ("two", "database add")):
        remove(name)
        with pytest.raises(MissingInputError, match=f"no database {name}.*{others}"):
            remove(name)


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
    def names():
        caplog.clear()
        return names_of(opened(str(table)), "C2H6O", "C6H6")

    whole = names()
    (kept,) = (tmp_path / "cache" / "structures").iterdir()
    before = kept.stat().st_mtime_ns

    assert names() == whole
    assert f"{table}: 1 molecule left out (not a molecule)" in caplog.text
    assert kept.stat().st_mtime_ns == before
    kept.write_text("no database")
    assert names() == whole
    assert "is made again" in caplog.text


def test_a_file_is_read_where_nothing_can_be_kept(table, tmp_path, caplog):
    (tmp_path / "cache").write_text("a file in the way")

    assert names_of(opened(str(table)), "C2H6O") == ["b", "d"]
    assert "cannot be kept for the next run" in caplog.text
