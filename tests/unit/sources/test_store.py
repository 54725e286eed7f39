"""Databases under names: read once, looked up by formula, never half there."""

import gzip
import json
import os
import pickle
import shutil
from mmap import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.sources import database as module
from duallgd_cli.sources import store
from duallgd_cli.sources.database import Database
from duallgd_cli.sources.known import GuideFiles, Knowledge
from duallgd_cli.sources.structures import Analogues
from duallgd_cli.spectra.types import Feature
from tests.made_spectra import made_spectrum

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
    return [
        (smiles, name, counts.tolist(), bits.tolist())
        for smiles, name, counts, bits in zip(
            found.smiles,
            found.names,
            found.counts,
            np.split(found.bits, np.cumsum(found.n_bits)[:-1]) if len(found) else [],
            strict=True,
        )
    ]


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
    of_analogues = Analogues.read(path).of_formulas(wanted)

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
    assert len(Analogues.read(table).of_formulas(formulas("C2H262O", "C260H10O"))) == 0


def test_a_feature_that_a_row_names_is_said_not_to_count(tmp_path, databases, caplog):
    table = tmp_path / "mine.csv"
    table.write_text("smiles,feature_id\nCCO,7\nCCN,8\n")

    _, made = store.add(table)

    assert made.structures == 2
    assert caplog.text.count(f"{table}: its feature_id is not looked at") == 1


def test_it_is_read_once_and_says_what_it_is(table, databases, caplog):
    _, made = store.add(table)
    table.unlink()

    (listed,) = store.entries()
    found = Database.open(store.located("mine")).of_formulas(formulas("C2H6O"))

    assert listed == ("mine", made)
    assert (made.file, made.structures, made.formulas) == ("mine.smi", 5, 3)
    assert made.left_out["not a molecule"] == 1
    assert sum(made.left_out.values()) == 3
    assert "1 molecule left out (not a molecule)" in caplog.text
    assert list(found.names) == ["b", "d"]
    assert {path.name for path in databases.iterdir()} == {"mine"}
    suffixes = {path.suffix for path in (databases / "mine").iterdir()}
    assert suffixes == {".npy", ".json"}


def test_its_arrays_lie_on_disk_and_only_the_formulas_of_a_feature_are_sent(tmp_path):
    rows = (f"{'C' * (2 + n % 20)}O molecule-number-{n}\n" for n in range(2_000))
    (tmp_path / "many.smi").write_text("".join(rows))
    store.add(tmp_path / "many.smi")
    knowledge = Knowledge.read(None, GuideFiles(databases=("many",)))
    known = knowledge.of(Feature((made_spectrum(precursor_mz=75.08),)))

    for array in known.databases[0].arrays.values():
        assert isinstance(array.base, np.memmap | mmap)
    assert len(pickle.dumps(known.within(formulas("C4H10O")))) < 30_000  # of 100 structures
    assert len(list(known.isomers(formulas("C4H10O")[0]))) == 100


def test_several_processes_give_the_same_bytes(tmp_path, databases, monkeypatch):
    monkeypatch.setattr(module, "_AT_HAND", 3)
    text = "".join(f"{SMILES[n % 7]} {n}\n" for n in range(40))
    (tmp_path / "a.smi").write_text(text + "no(\n")
    seen = []

    store.add(tmp_path / "a.smi", "one")
    store.add(tmp_path / "a.smi", "other", workers=2, advance=seen.append)

    files = [sorted((databases / name).glob("*.npy")) for name in ("one", "other")]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]
    assert sum(seen) == 41


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("coconut.csv.gz", "coconut"),
        ("PubChemLite_exposomics_20240101.csv", "PubChemLite_exposomics_20240101"),
        ("a.b.sdf.xz", "a.b"),
        ("mine.smi", "mine"),
        ("list.TXT", "list"),
    ],
)
def test_it_is_named_after_its_file(tmp_path, monkeypatch, file, name):
    (tmp_path / file).write_bytes(b"")
    monkeypatch.setattr(store, "make", lambda *_, **__: module.About(file, "", 1, 1, {}, 1, 1))

    assert store.add(tmp_path / file)[0] == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/b", "a b", ".hidden", "-x", "é", "a\n", "a" * 101, "a\0"]
)
def test_names_that_are_none_are_refused(table, databases, name):
    with pytest.raises(UsageError, match=r"letters, digits, \. _ and -"):
        store.add(table, name or " ")
    with pytest.raises((UsageError, MissingInputError, UnreadableError)):
        store.remove(name)
    assert not databases.exists()


def test_a_second_of_the_same_name_is_refused_unless_it_is_to_replace_it(
    table, tmp_path, databases
):
    first = store.add(table)
    (tmp_path / "other.smi").write_text("CCN amine\n")

    with pytest.raises(UsageError, match=r"mine.*exists.*mine\.smi.*--force"):
        store.add(tmp_path / "other.smi", "mine")
    assert store.entries() == [first]
    second = store.add(tmp_path / "other.smi", "mine", force=True)

    assert store.entries() == [second]
    assert [path.name for path in databases.iterdir()] == ["mine"]
    assert list(Database.open(databases / "mine").of_formulas(formulas("C2H7N")).names) == ["amine"]


def test_of_two_that_are_added_at_once_the_first_stays(table, tmp_path, databases):
    (tmp_path / "other.smi").write_text("CCN amine\n")
    other = []

    def meanwhile(_):
        if not other:
            other.append(store.add(tmp_path / "other.smi", "mine"))

    with pytest.raises(UsageError, match="mine cannot be written"):
        store.add(table, advance=meanwhile)

    assert store.entries() == other
    assert [path.name for path in databases.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", UsageError, "holds no molecule"),
        ("no(\n\nneither)\n", UsageError, r"bad\.smi holds no molecule.*2 molecules left out"),
        (b"\x93NUMPY..", UnreadableError, "NumPy"),
        (gzip.compress(b"CCO\n" * 9000)[:-20], UnreadableError, "cut off"),
    ],
)
def test_a_file_without_structures_is_one_sentence_and_leaves_what_was_there(
    table, tmp_path, databases, text, error, said
):
    path = tmp_path / ("bad.smi.gz" if text[:2] == b"\x1f\x8b" else "bad.smi")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    first = store.add(table)

    for name in ("bad", "mine"):
        with pytest.raises(error, match=said):
            store.add(path, name, force=True)

    assert store.entries() == [first]
    assert [path.name for path in databases.iterdir()] == ["mine"]


def test_too_many_rows_a_full_disk_and_an_interruption_leave_nothing(table, databases, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    def stop(_):
        raise KeyboardInterrupt("Ctrl-C")

    for error, said, name, value, advance in (
        (UsageError, "more than 7 rows", "_MOST_ROWS", 7, lambda _: None),
        (UsageError, "mine cannot be written: No space left", "_save", full, lambda _: None),
        (KeyboardInterrupt, "Ctrl-C", "_TOLD", 1, stop),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, value)
            with pytest.raises(error, match=said):
                store.add(table, advance=advance)
        assert not list(databases.iterdir())


def test_what_a_killed_process_left_is_no_database_and_goes_in_time(table, databases, monkeypatch):
    store.add(table)
    shutil.copytree(databases / "mine", databases / ".other.4711.part")

    assert [name for name, _ in store.entries()] == ["mine"]
    store.add(table, "second")
    assert (databases / ".other.4711.part").exists()
    monkeypatch.setattr(module, "_ABANDONED_S", -1.0)
    store.add(table, "third")
    assert sorted(path.name for path in databases.iterdir()) == ["mine", "second", "third"]


def about(**changes):
    """What makes the description of a store say something else."""

    def change(folder):
        path = folder / "about.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


DAMAGES = {
    "another format": about(format=999),
    "other types": about(structures="many"),
    "a list of reasons": about(left_out=["no"]),
    "no format": lambda folder: (folder / "about.json").write_text("{}"),
    "no JSON": lambda folder: (folder / "about.json").write_text("{"),
    "a list": lambda folder: (folder / "about.json").write_text("[]"),
    "an array is absent": lambda folder: (folder / "smiles.npy").unlink(),
    "an array is cut off": lambda folder: os.truncate(folder / "smiles.npy", 130),
    "an array is empty": lambda folder: (folder / "smiles.npy").write_bytes(b""),
    "an array is another": lambda folder: np.save(folder / "smiles.npy", np.zeros(3)),
    "an array is a pickle": lambda folder: np.save(
        folder / "bits.npy", np.array([{}], object), allow_pickle=True
    ),
    "an index of other bytes": lambda folder: np.save(
        folder / "formulas.npy", np.load(folder / "formulas.npy")[::-1]
    ),
    "too few rows": lambda folder: np.save(folder / "rows.npy", np.load(folder / "rows.npy")[:-1]),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_store_or_an_old_one_says_to_add_it_again(table, databases, what):
    store.add(table)
    DAMAGES[what](databases / "mine")

    with pytest.raises(UnreadableError, match=r"mine.*database add FILE --name mine --force"):
        Database.open(databases / "mine")
    ((name, listed),) = store.entries()
    assert name == "mine"
    assert "database add" in listed
    store.add(table, force=True)
    assert len(Database.open(databases / "mine")) == 5


@pytest.mark.parametrize("array", ["smiles", "names", "bits", "smiles_start", "bits_start"])
def test_every_byte_that_is_looked_up_is_checked(table, databases, array):
    store.add(table)
    path = databases / "mine" / f"{array}.npy"
    whole = bytearray(path.read_bytes())
    whole[-9] ^= 1
    path.write_bytes(whole)
    database = Database.open(databases / "mine")

    with pytest.raises(UnreadableError, match=r"damaged.*database add"):
        database.of_formulas(formulas("C2H6O", "C4H10O", "C6H6"))


def test_a_database_that_goes_is_gone_and_others_stay(table, databases):
    store.add(table, "one")
    store.add(table, "two")
    DAMAGES["an array is cut off"](databases / "one")

    store.remove("one")

    assert [path.name for path in databases.iterdir()] == ["two"]
    with pytest.raises(MissingInputError, match=r"no database one.*there are: two"):
        store.remove("one")
    store.remove("two")
    with pytest.raises(MissingInputError, match=r"no database two.*database add"):
        store.remove("two")


def test_a_folder_that_is_no_database_is_never_removed_or_replaced(table, databases):
    (databases / "photos").mkdir(parents=True)
    (databases / "photos" / "about.txt").write_text("mine")

    with pytest.raises(MissingInputError):
        store.remove("photos")
    for force in (False, True):
        with pytest.raises(UsageError, match=r"photos.*no database"):
            store.add(table, "photos", force=force)

    store.add(table, "own")
    (databases / "own" / "notes.txt").write_text("mine")
    store.remove("own")
    assert (databases / "photos" / "about.txt").read_text() == "mine"
    assert (databases / "own" / "notes.txt").read_text() == "mine"
    assert store.entries() == []


def test_a_file_wins_over_a_name_and_a_folder_does_not(table, tmp_path, monkeypatch, databases):
    monkeypatch.chdir(tmp_path)
    store.add(table, "coconut")
    (tmp_path / "coconut").mkdir()
    assert store.located("coconut") == databases / "coconut"

    (tmp_path / "coconut").rmdir()
    (tmp_path / "coconut").write_text("CCO\n")
    assert store.located("coconut").samefile(tmp_path / "coconut")


@pytest.mark.parametrize("text", ["cocnut", "nowhere/cocnut.smi", "../mine", "x" * 5000, "a\0b"])
def test_what_is_neither_is_a_sentence_with_the_names_there_are(table, text):
    with pytest.raises((MissingInputError, UnreadableError)) as nothing:
        store.located(text)
    store.add(table, "coconut")
    with pytest.raises((MissingInputError, UnreadableError)) as some:
        store.located(text)

    if text == "cocnut":
        assert "duallgd database add" in str(nothing.value)
        assert "coconut" in str(some.value)
    assert "\n" not in str(some.value)


def test_the_identity_of_a_run_follows_the_file_that_was_added(table, tmp_path):
    store.add(table)
    files = GuideFiles(databases=("mine", str(table)))
    by_name, by_file = files.identity()["databases"]
    assert (by_name["name"], by_file["name"]) == ("mine", str(table))
    assert by_name["sha256"] == by_file["sha256"]

    table.write_text("CCO\n")
    assert files.identity()["databases"][0] == by_name
    store.add(table, force=True)
    assert files.identity()["databases"][0]["sha256"] != by_name["sha256"]


def test_a_file_is_kept_in_the_cache_and_made_again_where_that_is_broken(table, tmp_path, caplog):
    first = store.opened(str(table))
    (kept,) = (tmp_path / "cache" / "databases").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    assert f"{table}: 1 molecule left out (not a molecule)" in caplog.text
    caplog.clear()
    second = store.opened(str(table))
    assert f"{table}: 1 molecule left out (not a molecule)" in caplog.text
    assert before == {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    wanted = formulas("C2H6O", "C6H6")
    whole = held(first.of_formulas(wanted))
    assert held(second.of_formulas(wanted)) == whole

    DAMAGES["an array is cut off"](kept)

    assert held(Database.of_file(table).of_formulas(wanted)) == whole
    assert "is made again" in caplog.text


def test_a_file_is_read_where_nothing_can_be_kept(table, tmp_path, monkeypatch, caplog):
    (tmp_path / "cache").write_text("a file in the way")

    found = Database.of_file(table).of_formulas(formulas("C2H6O"))

    assert list(found.names) == ["b", "d"]
    assert "cannot be kept for the next run" in caplog.text
