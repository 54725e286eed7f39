"""What messages repeat of a user's input."""

import pytest

from duallgd_cli.errors import LONGEST_QUOTE, counted, quote


@pytest.mark.parametrize(
    "given",
    [*("x" * 100_000, "\x1b" * 150, ["y" * 999] * 9999, 10**4000, {"a": "b" * 999})]
    + [f"a{sign}b" for sign in "\x1b\n\x85\u2028\x00\udc80"],
)
def test_a_quotation_is_short_and_steers_no_terminal(given):
    assert len(quote(given)) <= LONGEST_QUOTE
    assert quote(given).isprintable()


def test_one_thing_is_not_called_several():
    given = (0, "spectrum", "spectra"), (1, "spectrum", "spectra"), (1, "peak"), (1200, "peak")

    assert [counted(*words) for words in given] == [
        "0 spectra",
        "1 spectrum",
        "1 peak",
        "1200 peaks",
    ]
