"""Texts in one array are the texts that were put there."""

from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.sources.kept import Lines, text_of

TEXTS = st.lists(st.text(max_size=20), max_size=30)


@given(TEXTS)
def test_lines_are_the_texts_with_blanks_for_line_breaks(texts):
    lines = Lines(text_of(texts))
    # What is no text has no bytes; it is read back as a question mark.
    expected = [" ".join(text.split()).encode("utf-8", "replace").decode() for text in texts]

    assert len(lines) == len(texts)
    assert list(lines) == expected
    assert [lines[place] for place in range(len(lines))] == expected
    assert [lines[place - len(lines)] for place in range(len(lines))] == expected


def test_more_lines_than_are_read_at_once_keep_their_order():
    texts = [str(number) for number in range(25_000)]
    lines = Lines(text_of(texts))

    assert list(lines) == texts
    assert (lines[0], lines[12_345], lines[-1]) == ("0", "12345", "24999")
    assert "24999" in lines
    assert "25000" not in lines
