"""`duallgd report`: one file, nothing loaded, hostile texts harmless."""

import re
from pathlib import Path

import pytest

from tests.made_runs import rows_of
from tests.made_spectra import ALANINE, CAFFEINE, block, mgf

FEW = ("--quiet", "--samples", "4")
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}&lt;" + "A" * 10_000
)


def hostile_mgf(text):
    """Spectra with the same text in every field that takes one, control characters too."""
    fields = ("TITLE", "NAME", "SCANS", "SPECTRUMID", "INSTRUMENT", "COMMENT")
    lines = [f"{field}={text}{field}\x1b[31m\x07" for field in fields]
    lines += ["PEPMASS=195.0877", "CHARGE=1+", "138.0662 100", "195.0877 50", "END IONS", "\n"]
    first = ["BEGIN IONS", f"FEATURE_ID={text}", "ADDUCT=[M+H]+", "FORMULA=C8H10N4O2"]
    second = ["BEGIN IONS", f"FEATURE_ID={text}2", f"ADDUCT={text}", f"FORMULA={text}"]
    return "\n".join([*first, *lines, *second, *lines])


def test_the_page_lies_beside_the_output_loads_nothing_and_is_always_the_same(duallgd, own_run):
    done = duallgd("report", own_run)
    again = duallgd("report", own_run, "-o", "again.html")

    text = own_run.with_suffix(".html").read_text(encoding="utf-8")
    assert (done.code, again.code) == (0, 0), done.err
    assert re.search(r"11 features, .*out\.html; open it in a browser", done.err)
    assert text.startswith("<!doctype html>")
    assert (text.count("text/plain"), text.count("default-src 'none'")) == (11, 1)
    assert re.search(r"script-src 'sha256-[\w+/=]+'", text)
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(""", text)
    assert Path("again.html").read_text(encoding="utf-8") == text


def test_nothing_of_a_hostile_file_is_markup(duallgd, tmp_path):
    (tmp_path / "bad.mgf").write_text(hostile_mgf(HOSTILE), encoding="utf-8")

    duallgd("predict", "bad.mgf", "-o", "out.csv", *FEW)
    done = duallgd("report", "out.csv", "-o", "out.html")

    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert done.code == 0, done.err
    assert text.count("<script") == 2 + 1 + 2  # two features, the script, two of data
    for word in ("<img", "alert(1)</script>", "\x1b", "A" * 400):
        assert word not in text


@pytest.mark.parametrize("journal", ["b.csv.journal.jsonl", "kept.jsonl"])
def test_predict_writes_a_page_at_once_wherever_its_journal_is(duallgd, tmp_path, journal):
    made = mgf(tmp_path / "in.mgf", block(ALANINE), block(CAFFEINE))
    given = ("--report", "b.html", "--samples", "4", "--journal", journal)

    done = duallgd("predict", made, "-o", "b.csv", *given)

    assert "b.html; open it in a browser" in done.err
    assert (tmp_path / "b.html").read_text(encoding="utf-8").count("text/plain") == 2
    assert duallgd("merge", journal, "-o", "again.csv").code == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_page_is_the_same_whatever_became_of_the_input(duallgd, tmp_path):
    made = mgf(tmp_path / "in.mgf", block(ALANINE), block(CAFFEINE))
    duallgd("predict", made, "-o", "out.csv", *FEW, "--report", "before.html")
    Path(made).unlink()

    done = duallgd("report", "out.csv")

    assert (done.code, done.err.count("\n")) == (0, 1)
    assert (tmp_path / "out.html").read_bytes() == (tmp_path / "before.html").read_bytes()


def test_names_stand_in_the_table_and_on_the_page(duallgd, tmp_path):
    made = mgf(tmp_path / "in.mgf", block(ALANINE))
    duallgd("predict", made, "-o", "a.csv", *FEW)
    key = rows_of(tmp_path / "a.csv")[0]["inchikey"]
    table = f"inchikey\tname\tclass\n{key[:14]}\tmy alanine\tamino acids\nbad\t\t\n"
    (tmp_path / "names.tsv").write_text(table)
    names, page = ("--names", "names.tsv"), ("--report", "b.html", "--samples", "4")

    done = duallgd("predict", made, "-o", "b.csv", *page, *names)

    assert duallgd("merge", "a.csv", "-o", "c.csv", *names).code == 0
    assert duallgd("report", "a.csv", *names).code == 0
    assert rows_of(tmp_path / "b.csv")[0]["candidate_name"] == "my alanine"
    assert (tmp_path / "c.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert (tmp_path / "b.html").read_text("utf-8").count("my alanine \\u00b7 amino acids") == 1
    warned = "names.tsv: 1 of 2 rows left out, the first in line 3: 'bad' is no InChIKey"
    assert done.err.count(warned) == 1
