from pathlib import Path

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import ConfigError, UsageError
from duallgd_cli.predict.settings import (
    PRESETS,
    PredictRequest,
    PredictSettings,
    Shard,
    journal_beside,
    preset_of,
)


def test_shards_are_written_from_one():
    assert Shard.parse(" 2 / 8 ") == Shard(2, 8)
    assert str(Shard(2, 8)) == "2/8"


@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "2", "a/b", "1/2/3", "-1/2", ""])
def test_an_impossible_shard_is_a_usage_error(text):
    with pytest.raises(UsageError):
        Shard.parse(text)


def test_every_case_belongs_to_exactly_one_shard():
    shards = [Shard(number, 3) for number in (1, 2, 3)]

    assert all(sum(shard.holds(case) for shard in shards) == 1 for case in range(20))


def test_an_input_named_twice_is_refused():
    with pytest.raises(UsageError, match=r"a\.mgf is named twice"):
        PredictRequest(("a.mgf", "b.mgf", "a.mgf"), "out.csv")


def test_a_request_without_inputs_is_refused():
    with pytest.raises(UsageError, match="no input"):
        PredictRequest((), "out.csv")


def test_the_journal_lies_beside_the_output_and_names_its_shard():
    assert PredictRequest(("a",), "x/out.csv").journal_path() == Path("x/out.csv.journal.jsonl")
    assert journal_beside(Path("out.sdf"), Shard(2, 8)).name == "out.sdf.shard-2-of-8.journal.jsonl"


def test_standard_output_has_no_journal_unless_one_is_named():
    assert PredictRequest(("a",), "-").journal_path() is None
    assert PredictRequest(("a",), "-", journal=Path("j"), resume=True).journal_path() == Path("j")


@pytest.mark.parametrize("asked", [{"resume": True}, {"shard": Shard(1, 2)}])
def test_resuming_or_sharding_to_standard_output_needs_a_journal(asked):
    with pytest.raises(UsageError, match="--journal"):
        PredictRequest(("a",), "-", **asked).journal_path()


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="top_k must be at least 1"):
        PredictSettings(top_k=0)
    with pytest.raises(UsageError, match="workers must be at least 1"):
        PredictRequest(("a",), "-", workers=0)


def test_a_preset_stands_for_samples_and_steps():
    assert [tuple(preset_of(name).values()) for name in PRESETS] == [(30, 6), (100, 10), (300, 20)]
    assert SamplingSettings(**preset_of("default")) == SamplingSettings()
    assert preset_of(None) == {}


@pytest.mark.parametrize("name", ["Fast", "", 3])
def test_an_unknown_preset_is_refused_with_the_known_ones(name):
    with pytest.raises(UsageError, match="preset must be one of fast, default, thorough, not"):
        preset_of(name)
