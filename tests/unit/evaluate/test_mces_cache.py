import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.mces import Interval
from duallgd_cli.evaluate.mces_cache import MCESCache

PAIR = ("CCO", "COC")


def test_what_was_saved_is_loaded(tmp_path):
    cache = MCESCache(tmp_path / "new" / "mces.sqlite")
    found = {PAIR: Interval(2.0, 2.0), ("C", "CC"): Interval(15.5, float("inf"), 3.0)}

    cache.save(found)

    assert cache.load([*found, ("N", "O")]) == found


def test_a_later_answer_replaces_an_earlier_one(tmp_path):
    cache = MCESCache(tmp_path / "mces.sqlite")

    cache.save({PAIR: Interval(1.0, 5.0, 1.0)})
    cache.save({PAIR: Interval(2.0, 2.0)})

    assert cache.load([PAIR]) == {PAIR: Interval(2.0, 2.0)}


def test_without_a_file_nothing_is_known_and_nothing_is_made(tmp_path):
    cache = MCESCache(tmp_path / "mces.sqlite")

    assert cache.load([PAIR]) == {}
    cache.save({})
    assert not cache.path.exists()


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    cache = MCESCache(tmp_path / "mces.sqlite")
    cache.path.write_text("not a database, but long enough to have a header of its own")

    with pytest.raises(UsageError, match="--mces-cache"):
        cache.load([PAIR])
    with pytest.raises(UsageError, match="--mces-cache"):
        cache.save({PAIR: Interval(2.0, 2.0)})
