from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.errors import DuallgdError, UsageError
from duallgd_cli.predict.journal import FinishedRun, Journal, scan
from tests.unit.predict.test_journal import HEADER, feature, fill

FEATURES = [feature(0), feature(1, n_hypotheses=3), feature(2, text="timeout"), feature(3)]


def run(path, header=HEADER):
    """Resume a journal and finish it; its bytes."""
    with Journal.resume(path, header) as journal:
        fill(journal, *FEATURES)
        if not journal.end:
            journal.finish({"cases": len(FEATURES), "ms1": 0})
    return path.read_bytes()


@given(st.lists(st.integers(min_value=0), min_size=1, max_size=3))
def test_a_journal_torn_at_any_byte_is_completed_to_the_same_content(tears):
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        whole = run(path)
        for tear in tears:
            path.write_bytes(path.read_bytes()[: tear % (len(whole) + 1)])
        assert run(path) == whole


@given(st.data())
def test_garbage_after_the_last_whole_line_is_dropped(data):
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        whole = run(path)
        ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
        kept = data.draw(st.sampled_from(ends))
        # A crash of the machine may leave any bytes in the last block, but no whole further line.
        garbage = data.draw(st.binary(max_size=40)).replace(b"\n", b"")
        path.write_bytes(whole[:kept] + garbage)
        assert run(path) == whole


@given(st.integers(min_value=0, max_value=3), st.permutations(range(4)))
def test_features_are_read_the_same_in_whatever_order_they_were_finished(stop, order):
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        with Journal.create(path, HEADER) as journal:
            fill(journal, *(FEATURES[number] for number in order[:stop]))
        run(path)
        finished = FinishedRun([path])
        assert [finished.feature(number) for number in range(4)] == FEATURES
        found = [(tried[0].feature, place) for tried, place in finished.in_input_order()]
        assert found == [(number, place) for number in range(4) for place in (0, 1)]


@given(st.data())
def test_a_byte_that_changed_is_noticed_wherever_it_is(data):
    """What stands before it counts as it was written, what comes after does not count."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        whole = run(path)
        place = data.draw(st.integers(0, len(whole) - 1))
        other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
        path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])

        if place < len('{"duallgd_journal":3,'):
            return  # see the next law
        found = scan(path)
        assert found.end is None
        assert found.good_bytes <= place
        n_lines = whole[:place].count(b"\n")
        assert len(found.hypotheses) == max(0, n_lines - 1)
        if found.header is not None:
            kept = FinishedRun([path], partial=True)
            assert all(kept.feature(number) == FEATURES[number] for number in found.finished)
        if not found.is_damaged:  # as a crash leaves it
            assert n_lines >= whole.count(b"\n") - 2
            assert run(path) == whole
            return
        with pytest.raises(UsageError, match=f"is damaged after byte {found.good_bytes}"):
            run(path)


@pytest.mark.parametrize("place", range(len('{"duallgd_journal":3,')))
def test_a_file_whose_first_bytes_changed_is_refused_and_left_as_it_is(tmp_path, place):
    path = tmp_path / "j"
    whole = run(path)
    for other in {*range(256)} - {whole[place]}:
        changed = whole[:place] + bytes([other]) + whole[place + 1 :]
        path.write_bytes(changed)

        with pytest.raises(DuallgdError, match="journal"):
            run(path)
        with pytest.raises(DuallgdError, match="journal"):
            FinishedRun([path], partial=True)

        assert path.read_bytes() == changed


@given(st.permutations(range(8)), st.integers(0, 8))
def test_lines_that_are_moved_or_taken_out_are_noticed(order, n_kept):
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        lines = run(path).splitlines(keepends=True)
        moved = [lines[number] for number in order[:n_kept]]
        same = next((n for n in range(n_kept) if order[n] != n), n_kept)
        path.write_bytes(b"".join(moved))

        if moved and order[0] != 0:
            with pytest.raises(UsageError, match="is not a duallgd journal"):
                scan(path)
            return
        found = scan(path)

        assert len(found.hypotheses) == max(0, min(same, len(lines) - 1) - 1)
        assert (found.end is not None) == (same == len(lines))
