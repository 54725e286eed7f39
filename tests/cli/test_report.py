"""`duallgd report`: one file, nothing loaded, hostile texts harmless."""

import re
from pathlib import Path

import pytest

from tests.made_runs import rows_of
from tests.made_spectra import ALANINE, CAFFEINE, block, mgf

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
    assert "11 features" in done.err
    assert "out.html; open it in a browser" in done.err
    assert text.startswith("<!doctype html>")
    assert text.count("text/plain") == 11
    assert "default-src 'none'" in text
    assert re.search(r"script-src 'sha256-[\w+/=]+'", text)
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(""", text)
    assert Path("again.html").read_text(encoding="utf-8") == text


def test_nothing_of_a_hostile_file_is_markup(duallgd, tmp_path):
    (tmp_path / "bad.mgf").write_text(hostile_mgf(HOSTILE), encoding="utf-8")
    duallgd("predict", "bad.mgf", "-o", "out.csv", "--quiet", "--samples", "4")

    done = duallgd("report", "out.csv", "-o", "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")

    assert done.code == 0, done.err
    assert "<img" not in text
    assert "alert(1)</script>" not in text
    assert len(re.findall(r"<script", text)) == 2 + 1 + 2  # two features, the script, two of data
    assert "\x1b" not in text
    assert "A" * 400 not in text


@pytest.mark.parametrize("journal", ["b.csv.journal.jsonl", "kept.jsonl"])
def test_predict_writes_a_page_at_once_wherever_its_journal_is(duallgd, tmp_path, journal):
    made = mgf(tmp_path / "in.mgf", block(ALANINE), block(CAFFEINE))
    given = ("--report", "b.html", "--samples", "4", "--journal", journal)

    done = duallgd("predict", made, "-o", "b.csv", *given)

    assert done.code == 0, done.err
    assert duallgd("merge", journal, "-o", "again.csv").code == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert "b.html; open it in a browser" in done.err
    assert (tmp_path / "b.html").read_text(encoding="utf-8").count("text/plain") == 2


def test_an_input_that_is_gone_and_one_that_has_changed_are_told_apart(duallgd, tmp_path):
    names = {how: mgf(tmp_path / f"{how}.mgf", block(ALANINE)) for how in ("gone", "changed")}
    duallgd("predict", *names.values(), "-o", "out.csv", "--quiet", "--samples", "4")
    Path(names["gone"]).unlink()
    mgf(tmp_path / "changed.mgf", block(CAFFEINE))

    done = duallgd("report", "out.csv")

    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert done.code == 0
    for how, name in names.items():
        assert f"{how} since the run: {name}; the report shows explained peaks alone" in done.err
        assert f'"{how}": ["{name}"]' in text


def test_names_stand_in_the_table_and_on_the_page(duallgd, tmp_path):
    made = mgf(tmp_path / "in.mgf", block(ALANINE))
    duallgd("predict", made, "-o", "a.csv", "--samples", "4")
    key = rows_of(tmp_path / "a.csv")[0]["inchikey"]
    (tmp_path / "names.tsv").write_text(
        f"inchikey\tname\tclass\n{key[:14]}\tmy alanine\tamino acids\nbad\t\t\n"
    )
    given = ("--names", "names.tsv")

    done = duallgd("predict", made, "-o", "b.csv", "--report", "b.html", "--samples", "4", *given)
    merged = duallgd("merge", "a.csv", "-o", "c.csv", *given)
    reported = duallgd("report", "a.csv", *given)

    assert (done.code, merged.code, reported.code) == (0, 0, 0)
    assert rows_of(tmp_path / "b.csv")[0]["candidate_name"] == "my alanine"
    assert (tmp_path / "c.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert (tmp_path / "b.html").read_text("utf-8").count("my alanine \\u00b7 amino acids") == 1
    warned = "names.tsv: 1 of 2 rows left out, the first in line 3: 'bad' is no InChIKey"
    assert done.err.count(warned) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--names", "in.mgf"), 65, "in.mgf has no column inchikey"),
        (("--names", "x.tsv", "--shard", "1/2"), 2, "--names needs a whole run; join it with"),
    ],
)
def test_names_that_cannot_be_are_refused_before_anything_is_computed(
    duallgd, tmp_path, arguments, code, message
):
    mgf(tmp_path / "in.mgf", block(ALANINE))

    done = duallgd("predict", "in.mgf", "-o", "out.csv", *arguments)

    assert done.code == code
    assert message in done.err
    assert not (tmp_path / "out.csv").exists()
