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
ALANINES = (
    "QNAYBMKLOCPYGJ-REOHCLBHSA-N\tL-alanine\tamino acids\n"
    "QNAYBMKLOCPYGJ-UWTATZPHSA-N\tD-alanine\tamino acids\n"
)


def called(path, key=ETHANOL):
    return tuple(Names.read(path).of(key).values())


@pytest.mark.parametrize(
    "text",
    [
        f"inchikey\tname\tclass\n{ETHANOL}\tethanol\talcohols\n",
        f"# mine\nclass\tnumber\tInChI Key\tCompound Name\nalcohols\t7\t{ETHANOL}\tethanol\n",
        f"\ufeffInChIKey2D,Name,Class\r\n{ETHANOL[:14]},ethanol,alcohols\r\n",
        f"inchikey;name;class\nInChIKey={ETHANOL};ethanol;alcohols\n",
        f"inchikey\tname\tclass\n{ETHANOL.lower()}\tethanol\talcohols\n{ETHANOL}\tethanol\talcohols\n",
    ],
)
def test_a_table_may_have_any_of_these_forms(tmp_path, text):
    (tmp_path / "names.txt").write_text(text, encoding="utf-8")

    assert called(tmp_path / "names.txt") == ("ethanol", "alcohols")
    assert called(tmp_path / "names.txt", "RYYVLZVUVIJVGH-UHFFFAOYSA-N") == ("", "")


def test_a_packed_table_is_read_and_a_process_gets_its_place_alone(tmp_path):
    with gzip.open(tmp_path / "names.tsv.gz", "wt") as file:
        file.write("inchikey\tname\n" + f"{ETHANOL}\tethanol\n" * 1000)

    kept = pickle.dumps(Names.read(tmp_path / "names.tsv.gz"))

    assert len(kept) < 500
    assert tuple(pickle.loads(kept).of(ETHANOL).values()) == ("ethanol", "")


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", "L-alanine | D-alanine"),
        ("QNAYBMKLOCPYGJ-UHFFFAOYSA-N\talanine\t\n", "alanine"),  # the very key
        ("QNAYBMKLOCPYGJ\tAla\t\nQNAYBMKLOCPYGJ\tA\t\n", "L-alanine | D-alanine | Ala | 1 more"),
    ],
)
def test_of_several_names_of_a_block_none_is_guessed(tmp_path, more, names):
    (tmp_path / "names.tsv").write_text("inchikey\tname\tclass\n" + ALANINES + more)

    assert called(tmp_path / "names.tsv", "QNAYBMKLOCPYGJ-UHFFFAOYSA-N")[0] == names


def test_bad_rows_are_one_warning(tmp_path, caplog):
    rows = (
        "inchikey\tname\tclass",
        f"{ETHANOL}\tethanol\tx",
        "no key\tx\ty",
        f"{ETHANOL}\t\t",
        "\tz\t",
    )
    (tmp_path / "names.tsv").write_text("\n".join(rows) + "\n")

    assert called(tmp_path / "names.tsv") == ("ethanol", "x")
    (record,) = caplog.records
    said = "names.tsv: 3 of 4 rows left out, the first in line 3: 'no key' is no InChIKey"
    assert record.getMessage().endswith(said)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\tclass\nethanol\talcohols\n", "has no column inchikey; it has name, class"),
        (f"{ETHANOL}\tethanol\talcohols\n", "has no column inchikey"),
        (f"inchikey\tname\tclass\n{ETHANOL}\ta\tb\tc\n", "line 2: the row has more cells"),
        ("inchikey\tname\nx\ty\n", "names no molecule: line 2: 'x' is no InChIKey"),
        ("inchikey\tname\n", "names no molecule$"),
        ("", "has no column inchikey"),
        (None, "does not exist"),
    ],
)
def test_what_names_nothing_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "names.tsv").write_text(text)

    with pytest.raises(DuallgdError, match=message):
        Names.read(tmp_path / "names.tsv")


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "sdf"])
def test_outputs_say_what_listed_candidates_are_called(tmp_path, kind):
    (tmp_path / "names.tsv").write_text(f"inchikey\tname\tclass\n{ETHANOL}\t=ethanol\talcohols\n")
    other = candidate(2, "COC", inchikey="LCGLNKUTAGEVQW-UHFFFAOYSA-N")
    predictions = [FAILED, prediction(candidate(), other)]

    text = "".join(pieces(predictions, kind, RUN, Names(tmp_path / "names.tsv")))

    if kind == "sdf":
        assert text.count(">  <CANDIDATE_NAME>\n=ethanol\n") == 1
    elif kind == "jsonl":
        found = json.loads(text.splitlines()[1])["candidates"]
        assert [one["candidate_name"] for one in found] == ["=ethanol", ""]
    else:
        names, *rows = csv.reader(io.StringIO(text), delimiter="," if kind == "csv" else "\t")
        assert names == [*COLUMNS, *NAME_COLUMNS]
        assert [row[-2:] for row in rows] == [["", ""], ["'=ethanol", "alcohols"], ["", ""]]
