"""`duallgd database`: structures under names, and runs that take them by these."""

import json
import re
import signal
import subprocess
import sys

import pytest

from tests.made_runs import rows_of

pytestmark = pytest.mark.usefixtures("databases")

CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"


@pytest.fixture
def mine(tmp_path):
    """A hundred rows, one of which is broken."""
    rows = [f"{'C' * (2 + n)}O,alcohol {n}" for n in range(98)] + [f"{CAFFEINE},caffeine", "no(,x"]
    (tmp_path / "mine.csv").write_text("\n".join(["smiles,name", *rows]) + "\n")
    return tmp_path / "mine.csv"


def test_a_file_is_read_once_and_taken_by_its_name(duallgd, spectra, formulas, tmp_path, mine):
    added = duallgd("database", "add", mine)
    mine.unlink()
    options = ("--formulas", formulas, "--samples", 5, "--database", "mine", "--database-only")
    done = duallgd("predict", spectra, *options, "-o", "out.csv")

    assert added.code == done.code == 0, added.err + done.err
    assert "1 molecule left out (not a molecule)" in added.err
    assert re.search(r"database mine holds 99 structures of 99 formulas", added.err)
    assert any(row["smiles"] == CAFFEINE for row in rows_of(tmp_path / "out.csv"))
    record = json.loads((tmp_path / "out.csv.run.json").read_text())
    (database,) = record["settings"]["databases"]
    assert database["name"] == "mine"
    assert re.fullmatch("[0-9a-f]{64}", database["sha256"])


def test_the_list_says_what_there_is(duallgd, mine, databases):
    empty = duallgd("database", "list")
    duallgd("database", "add", mine)
    duallgd("database", "add", mine, "--name", "a-copy", "-q")
    (databases / "mine.sqlite").write_text("no database")
    listed = duallgd("database", "list")

    assert (empty.code, empty.out) == (0, "")
    assert "duallgd database add FILE" in empty.err
    assert listed.code == 0
    lines = listed.out.splitlines()
    (copy,) = (line for line in lines if "a-copy" in line)
    assert [part in copy for part in ("99", "mine.csv", "left out (not a molecule)")] == [True] * 3
    assert "duallgd database add FILE --name mine" in " ".join(listed.out.split())


def test_what_goes_wrong_is_one_sentence(duallgd, spectra, mine, tmp_path):
    (tmp_path / "none.smi").write_text("no(\n")
    duallgd("database", "add", mine)
    cases = {
        ("add", "nowhere.csv"): (66, "nowhere.csv does not exist"),
        ("add", "none.smi"): (2, "none.smi holds no molecule that can be used: 1 molecule left"),
        ("add", mine): (2, "a database mine exists (of mine.csv); take another --name, or add"),
        ("add", mine, "--name", "a/b"): (2, "letters, digits, . _ and -"),
        ("remove", "coconut"): (66, "there is no database coconut; there are: mine"),
    }

    for arguments, (code, said) in cases.items():
        done = duallgd("database", *arguments)
        assert (done.code, said in done.err) == (code, True), done.err
        assert len(done.err.strip().splitlines()) == 1

    options = ("predict", spectra, "-o", "out.csv", "--database")
    misspelt = duallgd(*options, "mien")
    said = "mien does not exist; check the path, or name a database; there are: mine"
    assert (misspelt.code, said in misspelt.err) == (66, True)
    removed = duallgd("database", "remove", "mine")
    assert (removed.code, "database mine is deleted" in removed.err) == (0, True)
    missing = duallgd(*options, "mine")
    assert (missing.code, "duallgd database add FILE" in missing.err) == (66, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "workers"), [(signal.SIGKILL, 2), (signal.SIGTERM, 1), (signal.SIGINT, 2)]
)
def test_a_reading_that_is_ended_leaves_nothing(tmp_path, databases, how, workers):
    rows = "".join(f"{'C' * (2 + n % 40)}O molecule-{n}\n" for n in range(60_000))
    (tmp_path / "large.smi").write_text(rows)
    # As the command, but telling sooner how far it is.
    program = (
        "from duallgd_cli.sources import database; database._TOLD = 5000; "
        "from duallgd_cli.__main__ import run; run()"
    )
    arguments = ("database", "add", tmp_path / "large.smi", "--workers", workers)
    command = [sys.executable, "-c", program, *map(str, arguments)]

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert "5,000 rows of" in process.stderr.readline()
        process.send_signal(how)
        said = process.stderr.read()

    assert process.returncode == (-how if how == signal.SIGKILL else 130), said
    assert "Traceback" not in said
    assert how == signal.SIGKILL or "nothing is kept; the same command starts again" in said
    assert not databases.exists()
