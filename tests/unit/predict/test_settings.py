from pathlib import Path

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.predict.settings import PredictRequest, Shard


@pytest.mark.parametrize("text", ["2", "a/b", "1/2/3", "-1/2", "", "²/8", "1/" + "9" * 20])
def test_what_is_no_shard_is_a_usage_error(text):
    with pytest.raises(UsageError, match="is not of the form 2/8, with at most 100000 shards"):
        Shard.parse(text)


@pytest.mark.parametrize(("number", "count"), [(0, 3), (4, 3), (1, 0), (1, 100_001)])
def test_a_shard_that_cannot_be_is_a_usage_error(number, count):
    for made in (lambda: Shard.parse(f"{number}/{count}"), lambda: Shard(number, count)):
        with pytest.raises(UsageError, match=f"{number}/{count} does not exist; .* at most 100000"):
            made()


def test_the_journal_lies_beside_the_output_and_names_its_shard():
    assert PredictRequest(("a",), "x/out.csv").journal_path() == Path("x/out.csv.journal.jsonl")
    second = PredictRequest(("a",), "out.sdf", shard=Shard(2, 8)).journal_path()
    assert second == Path("out.sdf.shard-2-of-8.journal.jsonl")


@pytest.mark.parametrize("asked", [{"resume": True}, {"shard": Shard(1, 2)}])
def test_resuming_or_sharding_to_standard_output_needs_a_journal(asked):
    with pytest.raises(UsageError, match="--journal"):
        PredictRequest(("a",), "-", **asked)


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"shard": Shard(1, 2)}, "needs a whole run"), ({"output": "-"}, "needs an output file")],
)
def test_tables_for_other_programs_lie_beside_the_output_of_a_whole_run(asked, said):
    with pytest.raises(UsageError, match=f"--summary {said}"):
        PredictRequest(("a",), **{"output": "out.csv"} | asked, summaries=("gnps",))
