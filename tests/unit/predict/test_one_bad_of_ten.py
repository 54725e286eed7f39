"""One feature of ten is broken: nine have candidates, and one row says what was wrong."""

import csv

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=2))
BAD = 4
SOUND = block(ASPIRIN, title=str(BAD))


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
    "too many peaks": (
        lambda: with_peaks("121.0284 1\n" * 1_000_001),
        "unreadable",
        "1,000,000 peaks",
    ),
    "a line": (lambda: with_peaks("1" * (1 << 26) + "\n"), "unreadable", "32 million characters"),
    "a field": (
        lambda: SOUND.replace("TITLE=4", "TITLE=4\nNOTE=" + "x" * (1 << 26)),
        "unreadable",
        "32 million characters",
    ),
    "a NUL": (lambda: SOUND.replace("C9H8O4", "C9H\0O4"), "formula_mismatch", "has m/z"),
    "no numbers": (
        lambda: f"BEGIN IONS\nTITLE={BAD}\nPEPMASS=181.05\nnone\nEND IONS\n",
        "unreadable",
        "no m/z and intensity in 1 peak line;",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nine_features_are_predicted_and_one_row_says_what_was_wrong(tmp_path, fault):
    broken, status, words = FAULTS[fault]
    blocks = [block(CAFFEINE, title=str(n), scale=1 + n / 10) for n in range(10)]
    blocks[BAD] = broken()
    spectra, output = mgf(tmp_path / "ten.mgf", *blocks), tmp_path / "out.csv"

    predict(PredictRequest((spectra,), str(output), settings=SETTINGS), stub_model())

    with output.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    by_status = {row["spectrum_id"]: row["status"] for row in rows}
    assert by_status == {str(n): status if n == BAD else "ok" for n in range(10)}
    (row,) = (row for row in rows if row["spectrum_id"] == str(BAD))
    assert words in row["message"]
    assert len(row["message"]) < 600
