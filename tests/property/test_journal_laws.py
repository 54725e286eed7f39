"""A journal that was torn, changed or shuffled is completed, noticed or refused."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.errors import DuallgdError, UnreadableError, UsageError
from duallgd_cli.predict.journal import Journal, read, scan
from tests.unit.predict.test_journal import HEADER, feature, fill

FEATURES = [feature(0), feature(1, n_hypotheses=3), feature(2, text="timeout"), feature(3)]
START = '{"duallgd_journal":6,'


def finish(path):
    """Resume a journal and finish it; its bytes."""
    with Journal.opened(path, HEADER, resume=True) as journal:
        fill(journal, *FEATURES)
        if not journal.end:
            journal.finish({"cases": len(FEATURES), "ms1": 0})
    return path.read_bytes()


@pytest.fixture(scope="module")
def path():
    """The file whose content each example writes anew."""
    with TemporaryDirectory() as folder:
        yield Path(folder, "j")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The bytes of a finished journal."""
    return finish(tmp_path_factory.mktemp("written") / "j")


@given(st.lists(st.integers(min_value=0), min_size=1, max_size=3), st.binary(max_size=40))
def test_a_journal_torn_at_any_byte_is_completed_to_the_same_content(path, written, tears, garbage):
    """A crash of the machine may leave any bytes in the last block, but no whole further line."""
    kept = written
    for tear in tears:
        kept = kept[: tear % (len(kept) + 1)]
    path.write_bytes(kept + garbage.replace(b"\n", b"") if kept[-1:] == b"\n" else kept)

    assert finish(path) == written


@given(st.integers(min_value=0, max_value=3), st.permutations(range(4)))
def test_features_are_read_in_their_order_and_any_other_is_refused(path, stop, order):
    with Journal.opened(path, HEADER) as journal:
        fill(journal, *FEATURES[:stop])
    finish(path)
    assert list(read([path]).features()) == FEATURES
    with Journal.opened(path, HEADER) as journal:
        fill(journal, *(FEATURES[number] for number in order))

    if order == sorted(order):
        assert scan(path).finished == {*order}
    else:
        with pytest.raises(UnreadableError, match="another version"):
            scan(path)


@given(st.data())
def test_a_byte_that_changed_is_noticed_wherever_it_is(path, written, data):
    """What stands before it counts as it was written, what comes after does not count."""
    first = st.integers(0, len(START) - 1)
    place = data.draw(first | st.integers(len(START), len(written) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[place]))
    changed = written[:place] + bytes([other]) + written[place + 1 :]
    path.write_bytes(changed)
    n_lines = written[:place].count(b"\n")

    if place < len(START):  # it may be any other file, and is left as it is
        for opened in (finish, lambda path: read([path], partial=True)):
            with pytest.raises(DuallgdError, match="journal"):
                opened(path)
        assert path.read_bytes() == changed
        return
    kept = scan(path)

    assert (kept.end, len(kept.finished)) == (None, max(0, n_lines - 1))
    assert kept.good_bytes <= place
    if kept.header is not None:
        assert list(read([path], partial=True).features()) == FEATURES[: n_lines - 1]
    if not kept.is_damaged:  # as a crash leaves it
        assert n_lines >= written.count(b"\n") - 2
        assert finish(path) == written
    else:
        with pytest.raises(UsageError, match=f"is damaged after byte {kept.good_bytes}"):
            finish(path)


@given(st.permutations(range(6)), st.integers(0, 6))
def test_lines_that_are_moved_or_taken_out_are_noticed(path, written, order, n_kept):
    lines = written.splitlines(keepends=True)
    same = next((n for n in range(n_kept) if order[n] != n), n_kept)
    path.write_bytes(b"".join(lines[number] for number in order[:n_kept]))

    if n_kept and order[0] != 0:
        with pytest.raises(UsageError, match="is not a duallgd journal"):
            scan(path)
    else:
        kept = scan(path)
        assert len(kept.finished) == max(0, min(same, len(lines) - 1) - 1)
        assert (kept.end is not None) == (same == len(lines))
