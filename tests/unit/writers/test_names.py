"""Names and classes of molecules from a table of the user's."""

import csv
import gzip
import io
import json
import pickle

import pytest

from duallgd_cli.errors import DuallgdError
from duallgd_cli.writers.formats import COLUMNS, pieces
from duallgd_cli.writers.names import NAME_COLUMNS, Names
from tests.unit.writers.test_writers import FAILED, RUN, candidate, prediction

ETHANOL = "LFQSCWFLJHTTHZ-UHFFFAOYSA-N"
FLAT, L, D = (f"QNAYBMKLOCPYGJ-{end}-N" for end in ("UHFFFAOYSA", "REOHCLBHSA", "UWTATZPHSA"))
HEAD = "inchikey\tname\tclass\n"
ALANINES = f"{HEAD}{L}\tL-alanine\tamino acids\n{D}\tD-alanine\tamino acids\n"


@pytest.fixture
def table(tmp_path):
    """Writes a table of names."""

    def written(text):
        (tmp_path / "names.tsv").write_text(text, encoding="utf-8")
        return tmp_path / "names.tsv"

    return written


def called(path, key=ETHANOL):
    return tuple(Names.read(path).of(key).values())


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}{ETHANOL}\tethanol\talcohols\n",
        f"# mine\nclass\tnumber\tInChI Key\tCompound Name\nalcohols\t7\t{ETHANOL}\tethanol\n",
        f"\ufeffInChIKey2D,Name,Class\r\n{ETHANOL[:14]},ethanol,alcohols\r\n",
        f"inchikey;name;class\nInChIKey={ETHANOL};ethanol;alcohols\n",
        f"{HEAD}{ETHANOL.lower()}\tethanol\talcohols\n{ETHANOL}\tethanol\talcohols\n",
    ],
)
def test_a_table_may_have_any_of_these_forms(table, text):
    assert called(table(text)) == ("ethanol", "alcohols")
    assert called(table(text), "RYYVLZVUVIJVGH-UHFFFAOYSA-N") == ("", "")


def test_a_packed_table_is_read_and_a_process_gets_its_place_alone(tmp_path):
    text = HEAD + f"{ETHANOL}\tethanol\t\n" * 1000
    (tmp_path / "names.tsv.gz").write_bytes(gzip.compress(text.encode()))

    kept = pickle.dumps(Names.read(tmp_path / "names.tsv.gz"))

    assert len(kept) < 500
    assert tuple(pickle.loads(kept).of(ETHANOL).values()) == ("ethanol", "")


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", "L-alanine | D-alanine"),
        (f"{FLAT}\talanine\t\n", "alanine"),  # the very key
        (f"{FLAT[:14]}\tAla\t\n{FLAT[:14]}\tA\t\n", "L-alanine | D-alanine | Ala | 1 more"),
    ],
)
def test_of_several_names_of_a_block_none_is_guessed(table, more, names):
    assert called(table(ALANINES + more), FLAT)[0] == names


def test_bad_rows_are_one_warning(table, caplog):
    path = table(f"{HEAD}{ETHANOL}\tethanol\tx\nno key\tx\ty\n{ETHANOL}\t\t\n\tz\t\n")

    assert called(path) == ("ethanol", "x")
    (record,) = caplog.records
    said = "names.tsv: 3 of 4 rows left out, the first in line 3: 'no key' is no InChIKey"
    assert record.getMessage().endswith(said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\tclass\nethanol\talcohols\n", "has no column inchikey; it has name, class"),
        (f"{ETHANOL}\tethanol\talcohols\n", "has no column inchikey"),
        (f"{HEAD}{ETHANOL}\ta\tb\tc\n", "line 2: the row has more cells"),
        ("inchikey\tname\nx\ty\n", "names no molecule: line 2: 'x' is no InChIKey"),
        ("inchikey\tname\n", "names no molecule$"),
        ("", "has no column inchikey"),
    ],
)
def test_what_names_nothing_is_refused(table, text, message):
    path = table(text)

    with pytest.raises(DuallgdError, match=message):
        Names.read(path)
    with pytest.raises(DuallgdError, match="does not exist"):
        Names.read(path.with_name("absent.tsv"))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "sdf"])
def test_outputs_say_what_listed_candidates_are_called(table, kind):
    names = Names(table(f"{HEAD}{ETHANOL}\t=ethanol\talcohols\n"))
    other = candidate(2, "COC", inchikey="LCGLNKUTAGEVQW-UHFFFAOYSA-N")

    text = "".join(pieces([FAILED, prediction(candidate(), other)], kind, RUN, names))

    if kind == "sdf":
        assert text.count(">  <CANDIDATE_NAME>\n=ethanol\n") == 1
    elif kind == "jsonl":
        found = json.loads(text.splitlines()[1])["candidates"]
        assert [one["candidate_name"] for one in found] == ["=ethanol", ""]
    else:
        head, *rows = csv.reader(io.StringIO(text), delimiter="," if kind == "csv" else "\t")
        assert head == [*COLUMNS, *NAME_COLUMNS]
        assert [row[-2:] for row in rows] == [["", ""], ["'=ethanol", "alcohols"], ["", ""]]
