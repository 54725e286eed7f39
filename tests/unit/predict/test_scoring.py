"""Structures of one's own among all other candidates: a row for each, whatever becomes of it."""

from dataclasses import replace

import pytest

from duallgd_cli.cli.display import sentence
from duallgd_cli.errors import UsageError
from duallgd_cli.predict import scoring
from duallgd_cli.predict.scoring import check, read_structures, score_structures
from duallgd_cli.sources.known import GuideFiles
from tests.made_runs import SETTINGS, request, rows_of
from tests.made_spectra import ASPIRIN, CAFFEINE, NICOTINE, block, mgf
from tests.stub_model import stub_model

FILE = """CC(=O)Oc1ccccc1C(=O)O aspirin
O=C(O)c1ccc(C(=O)CO)cc1 isomer
Cn1c(=O)c2c(ncn2C)n(C)c1=O caffeine
nonsense broken
CC(=O)Oc1ccccc1C(=O)O again
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.smi").write_text(FILE)
    return tmp_path / "mine.smi"


def score(folder, mine, *blocks, model=None, **values):
    made = mgf(folder / "in.mgf", *blocks)
    asked = request(made, folder / "scores.csv", **values)
    structures, knowledge = check(asked, mine)
    score_structures(asked, structures, model or stub_model(), knowledge=knowledge)
    return rows_of(folder / "scores.csv")


def test_every_structure_has_a_row_with_every_spectrum(tmp_path, mine):
    rows = score(tmp_path, mine, block(ASPIRIN), block(CAFFEINE))

    assert [(row["index"], row["structure"], row["status"]) for row in rows] == [
        ("0", "aspirin", "ok"),
        ("0", "isomer", "ok"),
        ("0", "caffeine", "formula_mismatch"),
        ("0", "broken", "unreadable_structure"),
        ("0", "again", "ok"),
        ("1", "aspirin", "formula_mismatch"),
        ("1", "isomer", "formula_mismatch"),
        ("1", "caffeine", "ok"),
        ("1", "broken", "unreadable_structure"),
        ("1", "again", "formula_mismatch"),
    ]
    assert rows[2]["message"] == "its formula is C8H10N4O2, that of the spectrum C9H8O4"
    assert "not a molecule" in rows[3]["message"]


def test_the_summary_counts_structures_that_are_a_candidate_of_a_spectrum(tmp_path, mine):
    made = mgf(tmp_path / "in.mgf", block(ASPIRIN), block(ASPIRIN, scale=0.5), block(NICOTINE))
    asked = request(made, tmp_path / "scores.csv")
    structures, _ = check(asked, mine)

    summary = score_structures(asked, structures, stub_model())

    assert "3 of your 5 structures ranked" in sentence(summary)


def test_they_are_ranked_among_all_candidates_with_probability_and_peaks(tmp_path, mine):
    rows = score(tmp_path, mine, block(ASPIRIN))

    first, second = rows[0], rows[4]
    assert first["rank"] != rows[1]["rank"]
    assert 1 <= int(first["rank"]) <= int(first["candidates"])
    assert int(first["candidates"]) > 2  # those that were generated, too
    assert 0 < float(first["confidence"]) < 1
    assert first["sources"] in {"mine", "noise"}
    assert int(first["explained_peaks"]) == len(first["peaks"].split("; "))
    assert 0 < float(first["explained_intensity"]) <= 1
    assert float(first["fingerprint_tanimoto"]) > 0
    same = ("rank", "confidence", "score", "peaks")
    assert [first[name] for name in same] == [second[name] for name in same]


def test_without_a_formula_those_of_the_structures_that_fit_are_tried(tmp_path, mine):
    unlabelled = block(ASPIRIN).replace("FORMULA=C9H8O4\n", "")

    rows = score(tmp_path, mine, unlabelled)

    assert [row["status"] for row in rows[:3]] == ["ok", "ok", "formula_mismatch"]
    assert "the formula is that of a structure to be scored" in rows[0]["message"]


def test_where_no_formula_fits_each_row_says_so(tmp_path, mine):
    unlabelled = block(ASPIRIN, pepmass="300.1").replace("FORMULA=C9H8O4\n", "")

    rows = score(tmp_path, mine, unlabelled)

    assert {row["status"] for row in rows} == {"formula_mismatch", "unreadable_structure"}
    assert "none of the 2 formulas of the structures fits this precursor" in rows[0]["message"]


def test_structures_of_a_database_are_among_the_candidates(tmp_path, mine, monkeypatch):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "all.smi").write_text("CC(=O)Oc1ccccc1C(=O)O\nCOC(=O)c1ccc(C=O)cc1O\n")
    files = GuideFiles(databases=(str(tmp_path / "all.smi"),))
    settings = replace(SETTINGS, sampling=replace(SETTINGS.sampling, samples=1))

    rows = score(tmp_path, mine, block(ASPIRIN), guide=files, settings=settings)

    assert "database" in rows[0]["sources"]
    assert int(rows[0]["candidates"]) >= 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no structure: it is empty"),
        ("CCO a\n" * 4, "more than 3 structures"),
        ("no( a\nC1CC b\n", "holds no structure that can be read; of the first: 'no[(]' is not"),
        ("[Fe] a\n", "holds no structure that can be read; of the first: .* holds Fe"),
    ],
)
def test_a_file_of_none_or_too_many_is_refused(tmp_path, monkeypatch, text, words):
    monkeypatch.setattr(scoring, "MOST", 3)
    (tmp_path / "mine.smi").write_text(text)

    with pytest.raises(UsageError, match=words):
        read_structures(tmp_path / "mine.smi")
