"""One feature of ten is broken: nine have candidates, and one row says what was wrong."""

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.settings import PredictSettings
from tests.made_runs import first_rows, predicted
from tests.made_spectra import ASPIRIN, CAFFEINE, block

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=2))
BAD = 4
SOUND = block(ASPIRIN, title=str(BAD))
TEN = [block(CAFFEINE, title=str(n), scale=1 + n / 10) for n in range(10)]


def with_peaks(lines):
    return SOUND.replace("END IONS", lines + "END IONS")


# What the broken block is, and what its row says: a status and words of the message.
FAULTS = {
    "digits of a formula": (lambda: SOUND.replace("C9H8O4", "C" + "9" * 5000), "no_formula", "9"),
    "digits of an adduct": (
        lambda: SOUND.replace("[M+H]+", "[M+" + "9" * 5000 + "H]+"),
        "unsupported_adduct",
        "is not supported",
    ),
    "a NUL": (lambda: SOUND.replace("C9H8O4", "C9H\0O4"), "formula_mismatch", "has m/z"),
    "a formula of another kind": (
        lambda: SOUND.replace("FORMULA=C9H8O4", "FORMULA=C11H12Xx"),
        "unsupported_element",
        "holds Xx",
    ),
    "m/z above all measure": (
        lambda: with_peaks("1e300 1\n").replace("PEPMASS=181.04954", "PEPMASS=1e300"),
        "no_precursor",
        "is not a positive number below 1,000,000",
    ),
    "an energy of digits": (
        lambda: SOUND.replace("END IONS", f"COLLISION_ENERGY={'9' * 5000}\nEND IONS"),
        "ok",
        "gives no one value in eV",
    ),
    "no peaks": (
        lambda: f"BEGIN IONS\nTITLE={BAD}\nPEPMASS=181.05\nEND IONS\n",
        "no_peaks",
        "export MS2 spectra together with their peaks",
    ),
    "no numbers": (
        lambda: f"BEGIN IONS\nTITLE={BAD}\nPEPMASS=181.05\nnone\nEND IONS\n",
        "unreadable",
        "no m/z and intensity in 1 peak line;",
    ),
}


def bad_row(rows, status, words):
    """The first row of the broken feature, once it and the others are as they should be."""
    first = {int(index): row for index, row in first_rows(rows).items()}
    by_status = {index: row["status"] for index, row in first.items()}
    assert by_status == {index: status if index == BAD else "ok" for index in range(10)}
    assert words in f"{first[BAD]['message']}; {first[BAD]['warnings']}"
    assert len(first[BAD]["message"]) < 600
    return first[BAD]


@pytest.mark.parametrize("fault", FAULTS)
def test_nine_features_are_predicted_and_one_row_says_what_was_wrong(tmp_path, fault):
    broken, status, words = FAULTS[fault]
    blocks = [*TEN[:BAD], broken(), *TEN[BAD + 1 :]]

    rows = predicted(tmp_path, *blocks, settings=SETTINGS)

    assert bad_row(rows, status, words)["spectrum_id"] == str(BAD)


@pytest.mark.parametrize(
    ("cell", "status", "words"),
    [
        (f"C{'9' * 5000},0.9", "no_formula", "is not a molecular formula"),
        ("C8H10N4O2Pt,0.9", "unsupported_element", "holds Pt"),
        (f"C9999H9999,{'9' * 5000}", "formula_mismatch", "has m/z"),
        ("=1+1,nan", "no_formula", "'=1+1' is not a molecular formula"),
    ],
)
def test_one_broken_cell_of_a_table_costs_one_feature(tmp_path, cell, status, words):
    blocks = [text.replace("FORMULA=C8H10N4O2\n", "") for text in TEN]
    cells = [cell if n == BAD else "C8H10N4O2,0.9" for n in range(10)]
    table = tmp_path / "table.csv"
    table.write_text("title,formula,score\n" + "".join(f"{n},{c}\n" for n, c in enumerate(cells)))

    assert bad_row(predicted(tmp_path, *blocks, formulas=table, settings=SETTINGS), status, words)
