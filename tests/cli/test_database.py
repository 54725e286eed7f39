"""`duallgd database`: structures under names, and runs that take them by these."""

import json
import re
import signal
import subprocess
import sys

import pytest

from tests.made_runs import rows_of

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
    assert "database mine holds 99 structures of 99 formulas" in added.err
    assert any(row["smiles"] == CAFFEINE for row in rows_of(tmp_path / "out.csv"))
    (database,) = json.loads((tmp_path / "out.csv.run.json").read_text())["settings"]["databases"]
    assert database["name"] == "mine"
    assert re.fullmatch("[0-9a-f]{64}", database["sha256"])


def test_databases_are_listed_named_where_one_is_misspelt_and_removed(duallgd, mine, databases):
    def said(*words):
        done = duallgd(*words)
        return done.code, " ".join(f"{done.out} {done.err}".split())

    assert said("database", "list")[1].endswith("duallgd database add FILE adds the first")
    assert [
        duallgd("database", "add", mine, *name).code for name in ((), ("--name", "b", "-q"))
    ] == [*(0, 0)]
    code, again = said("database", "add", mine)
    assert (code, "a database mine exists (of mine.csv); take another --name" in again) == (2, True)
    code, other = said("database", "remove", "coconut")
    assert (code, "there is no database coconut; there are: b, mine" in other) == (66, True)
    code, other = said("predict", mine, "-o", "out.csv", "--database", "mien")
    assert (code, "or name a database; there are: b, mine" in other) == (66, True)
    (databases / "mine.sqlite").write_text("no database")
    code, listed = said("database", "list")
    assert code == 0
    assert re.search(r"b │ +99 │ +99 │ +1 │ mine\.csv │ 1 molecule left out \(not a", listed)
    assert "duallgd database add FILE --name mine" in listed
    assert said("database", "remove", "mine") == (0, "database mine is deleted")
    assert said("database", "remove", "b")[0] == 0
    assert "duallgd database add FILE" in said("predict", mine, "-o", "x.csv", "--database", "b")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "workers"), [(signal.SIGKILL, 2), (signal.SIGTERM, 1), (signal.SIGINT, 2)]
)
def test_a_reading_that_is_ended_leaves_nothing(tmp_path, databases, how, workers):
    rows = "".join(f"{'C' * (2 + n % 40)}O molecule-{n}\n" for n in range(9000))
    (tmp_path / "large.smi").write_text(rows)
    # As the command, but telling sooner how far it is, and then waiting for what comes.
    program = (
        "import time; from duallgd_cli import stopping; from duallgd_cli.sources import database\n"
        "stopping._ENDING_S = 3600\n"
        "database._TOLD, say = 5000, database.logger.info\n"
        "database.logger.info = lambda *said: (say(*said), time.sleep(3600))\n"
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
