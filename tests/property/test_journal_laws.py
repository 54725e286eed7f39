from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.predict.journal import FinishedRun, Journal
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
