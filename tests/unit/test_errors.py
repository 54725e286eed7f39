"""What messages repeat of a user's input."""

import pytest

from duallgd_cli.errors import LONGEST_QUOTE, counted, quote


@pytest.mark.parametrize(
    "found", ["x" * 100_000, "\x1b" * 150, ["y" * 999] * 9999, 10**4000, {"a": "b" * 999}]
)
def test_what_is_long_is_cut_to_200_characters(found):
    assert len(quote(found)) <= LONGEST_QUOTE


@pytest.mark.parametrize("sign", ["\x1b", "\n", "\x85", "\u2028", "\x00", "\udc80"])
def test_control_characters_are_written_out(sign):
    assert quote(f"a{sign}b").isprintable()


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 spectra"), (1, "1 spectrum"), (1200, "1200 spectra")]
)
def test_one_thing_is_not_called_several(number, words):
    assert counted(number, "spectrum", "spectra") == words
    assert counted(number, "peak") == words.replace("spectrum", "peak").replace("spectra", "peaks")
