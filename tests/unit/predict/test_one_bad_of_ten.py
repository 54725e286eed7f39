"""One feature of ten is broken: nine have candidates, and one row says what was wrong."""

import pytest

from tests.made_runs import first_rows, predicted
from tests.made_spectra import ASPIRIN, CAFFEINE, block

BAD = 4
SOUND = block(ASPIRIN, title=str(BAD))
TEN = [block(CAFFEINE, title=str(n), scale=1 + n / 10) for n in range(10)]
DIGITS = "9" * 5000
NO_PEAKS = f"BEGIN IONS\nTITLE={BAD}\nPEPMASS=181.05\nEND IONS\n"


def bad_row(rows):
    """The broken feature's status, what it says and its name, once the others are as they should.

    No text of the file is repeated at length.
    """
    first = {int(index): row for index, row in first_rows(rows).items()}
    bad = first.pop(BAD)
    assert {index: row["status"] for index, row in first.items()} == {
        index: "ok" for index in range(10) if index != BAD
    }
    assert len(bad["message"]) < 600
    return bad["status"], f"{bad['message']}; {bad['warnings']}", bad["spectrum_id"]


# What is written in place of what in the sound block, and what its row then says.
@pytest.mark.parametrize(
    ("changed", "into", "status", "words"),
    [
        ("C9H8O4", f"C{DIGITS}", "no_formula", "is not a molecular formula"),
        ("[M+H]+", f"[M+{DIGITS}H]+", "unsupported_adduct", "is not supported"),
        ("C9H8O4", "C9H\0O4", "formula_mismatch", "has m/z"),
        ("C9H8O4", "C11H12Xx", "unsupported_element", "holds Xx"),
        (
            *("PEPMASS=181.04954", "PEPMASS=1e300", "no_precursor"),
            "is not a positive number below 1,000,000",
        ),
        ("END IONS", "1e300 1\nEND IONS", "ok", ""),
        (
            *("END IONS", f"COLLISION_ENERGY={DIGITS}\nEND IONS", "ok"),
            "gives no one value in eV",
        ),
        (SOUND, NO_PEAKS, "no_peaks", "export MS2 spectra together with their peaks"),
        (
            *(SOUND, NO_PEAKS.replace("END", "none\nEND"), "unreadable"),
            "no m/z and intensity in 1 peak line;",
        ),
    ],
)
def test_nine_features_are_predicted_and_one_row_says_what_was_wrong(
    tmp_path, changed, into, status, words
):
    blocks = [*TEN[:BAD], SOUND.replace(changed, into), *TEN[BAD + 1 :]]

    is_now, said, name = bad_row(predicted(tmp_path, *blocks))

    assert (is_now, name) == (status, str(BAD))
    assert words in said


@pytest.mark.parametrize(
    ("cell", "status", "words"),
    [
        (f"C{DIGITS},0.9", "no_formula", "is not a molecular formula"),
        ("C8H10N4O2Pt,0.9", "unsupported_element", "holds Pt"),
        (f"C9999H9999,{DIGITS}", "formula_mismatch", "has m/z"),
        ("=1+1,nan", "no_formula", "'=1+1' is not a molecular formula"),
    ],
)
def test_one_broken_cell_of_a_table_costs_one_feature(tmp_path, cell, status, words):
    blocks = [text.replace("FORMULA=C8H10N4O2\n", "") for text in TEN]
    cells = [cell if n == BAD else "C8H10N4O2,0.9" for n in range(10)]
    table = tmp_path / "table.csv"
    table.write_text("title,formula,score\n" + "".join(f"{n},{c}\n" for n, c in enumerate(cells)))

    is_now, said, _ = bad_row(predicted(tmp_path, *blocks, formulas=table))

    assert is_now == status
    assert words in said
