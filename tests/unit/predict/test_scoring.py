"""Structures of the user's among all other candidates: a row for each, whatever becomes of it."""

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
def score(tmp_path):
    """Rows of the structures with the spectra of blocks, and what the command says."""
    (tmp_path / "mine.smi").write_text(FILE)

    def scored(*blocks, output="scores.csv", **values):
        asked = request(mgf(tmp_path / "in.mgf", *blocks), tmp_path / output, **values)
        structures, knowledge = check(asked, tmp_path / "mine.smi")
        summary = score_structures(asked, structures, stub_model(), knowledge=knowledge)
        return rows_of(tmp_path / output), sentence(summary)

    return scored


OTHER, UNREADABLE = "formula_mismatch", "unreadable_structure"
OF_ASPIRIN, OF_CAFFEINE = (
    ["ok", "ok", OTHER, UNREADABLE, "ok"],
    [OTHER, OTHER, "ok", UNREADABLE, OTHER],
)


def test_every_structure_has_a_row_with_every_spectrum(score):
    rows, _ = score(block(ASPIRIN), block(CAFFEINE))

    names = ["aspirin", "isomer", "caffeine", "broken", "again"]
    assert [(row["index"], row["structure"], row["status"]) for row in rows] == [
        *zip("00000", names, OF_ASPIRIN, strict=True),
        *zip("11111", names, OF_CAFFEINE, strict=True),
    ]
    assert rows[2]["message"] == "its formula is C8H10N4O2, that of the spectrum C9H8O4"
    assert "not a molecule" in rows[3]["message"]
    aspirin, isomer, *_, again = rows[:5]
    assert aspirin["rank"] != isomer["rank"]
    assert 1 <= int(aspirin["rank"]) <= int(aspirin["candidates"])
    assert int(aspirin["candidates"]) > 2  # those that were generated, too
    assert 0 < float(aspirin["confidence"]) < 1
    assert aspirin["sources"] in {"mine", "noise"}
    assert int(aspirin["explained_peaks"]) == len(aspirin["peaks"].split("; "))
    assert 0 < float(aspirin["explained_intensity"]) <= 1
    assert float(aspirin["fingerprint_tanimoto"]) > 0
    assert aspirin | {"structure": "again"} == again


@pytest.mark.parametrize(
    ("fields", "statuses", "said"),
    [
        # Without a formula those of the structures that fit are tried.
        ({}, OF_ASPIRIN, "the formula is that of a structure to be scored"),
        (
            {"pepmass": "300.1"},
            [OTHER, OTHER, OTHER, UNREADABLE, OTHER],
            "none of the 2 formulas of the structures fits this precursor",
        ),
    ],
)
def test_without_a_formula_those_of_the_structures_are_tried(score, fields, statuses, said):
    rows, _ = score(block(ASPIRIN, formula=None, **fields))

    assert [row["status"] for row in rows] == statuses
    assert said in rows[0]["message"]


def test_a_salt_is_read_as_its_parent(tmp_path, caplog):
    (tmp_path / "salts.smi").write_text(
        "[Na+].CC(=O)Oc1ccccc1C([O-])=O\nCn1cnc2c1c(=O)n(C)c(=O)n2C.O\n"
    )

    salt, hydrate = read_structures(tmp_path / "salts.smi")

    assert (salt.formula, salt.smiles) == ("C9H8O4", "[Na+].CC(=O)Oc1ccccc1C([O-])=O")
    assert (hydrate.formula, hydrate.block) == ("C8H10N4O2", "RYYVLZVUVIJVGH")
    assert "salts.smi: 2 salts are read as their parent molecules" in caplog.text


def test_the_summary_counts_structures_that_are_a_candidate_of_a_spectrum(score):
    _, said = score(block(ASPIRIN), block(ASPIRIN, scale=0.5), block(NICOTINE))

    assert "3 of your 5 structures ranked" in said


def test_structures_of_a_database_are_among_the_candidates(tmp_path, score, databases):
    (tmp_path / "all.smi").write_text("CC(=O)Oc1ccccc1C(=O)O\nCOC(=O)c1ccc(C=O)cc1O\n")
    files = GuideFiles(databases=(str(tmp_path / "all.smi"),))
    settings = replace(SETTINGS, sampling=replace(SETTINGS.sampling, samples=1))

    rows, _ = score(block(ASPIRIN), guide=files, settings=settings)

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


def test_structures_of_molecules_are_no_output(score):
    with pytest.raises(UsageError, match="scores are written as csv, tsv or jsonl, not sdf"):
        score(block(ASPIRIN), output="scores.sdf")
