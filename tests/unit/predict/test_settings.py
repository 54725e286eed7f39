from pathlib import Path

import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.predict.settings import PredictRequest, Shard

NO_SHARD = "is not of the form 2/8, with at most 100000 shards"
SECOND = {"shard": Shard(2, 8)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, NO_SHARD) for text in ("2", "a/b", "1/2/3", "-1/2", "", "²/8", "1/" + "9" * 20)),
        *(
            (text, f"{text} does not exist; .* at most 100000")
            for text in ("0/3", "4/3", "1/0", "1/100001")
        ),
    ],
)
def test_what_is_no_shard_is_a_usage_error(text, said):
    with pytest.raises(UsageError, match=said):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("output", "asked", "journal"),
    [
        ("x/out.csv", {}, "x/out.csv.journal.jsonl"),
        ("out.sdf", SECOND, "out.sdf.shard-2-of-8.journal.jsonl"),
        ("out.sdf", SECOND | {"journal": Path("j")}, "j"),
    ],
)
def test_the_journal_lies_beside_the_output_and_names_its_shard(output, asked, journal):
    assert PredictRequest(("a",), output, **asked).journal_path() == Path(journal)
    assert PredictRequest(("a",), "-").journal_path() is None


@pytest.mark.parametrize(
    ("output", "asked", "said"),
    [
        ("-", {"resume": True}, "need --journal FILE"),
        ("-", SECOND, "need --journal FILE"),
        ("out.csv", SECOND | {"summaries": ("gnps",)}, "--summary needs a whole run"),
        ("out.csv", SECOND | {"names": Path("n.csv")}, "--names needs a whole run"),
        ("-", {"summaries": ("gnps",)}, "--summary needs an output file"),
        ("-", {"features": Path("f.csv")}, "--features needs an output file"),
        ("out.csv", {"inputs": ("a", "b", "a")}, "input a is named twice"),
        ("out.csv", {"workers": 257}, "workers"),
        ("out.csv", {"workers": 0}, "workers"),
    ],
)
def test_what_a_run_cannot_be_is_a_usage_error(output, asked, said):
    with pytest.raises(UsageError, match=said):
        PredictRequest(**{"inputs": ("a",), "output": output} | asked)
