"""Runs that are interrupted, resumed or cut into shards: the same bytes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import InterruptedRunError, UsageError
from duallgd_cli.predict.journal import scan
from duallgd_cli.predict.run import merge, predict, run_header
from duallgd_cli.predict.settings import Shard
from duallgd_cli.spectra.features import Inputs
from tests.made_runs import SETTINGS, Stopping, model_with, request
from tests.made_spectra import ASPIRIN, block, mgf
from tests.stub_model import stub_model


@pytest.fixture
def whole(spectra, tmp_path):
    """The output of a run in one go."""

    def written(ending="csv"):
        path = tmp_path / f"whole.{ending}"
        predict(request(spectra, path), stub_model())
        return path

    return written


@pytest.mark.parametrize(("ending", "after"), [("csv", 0), ("jsonl", 4), ("sdf", 1)])
def test_an_interrupted_and_resumed_run_writes_the_same_bytes(
    spectra, tmp_path, whole, ending, after
):
    expected, resumed = whole(ending), tmp_path / f"resumed.{ending}"

    with pytest.raises(InterruptedRunError, match="--resume"):
        predict(request(spectra, resumed), model_with(Stopping(after, KeyboardInterrupt())))
    assert not resumed.exists()
    summary = predict(request(spectra, resumed, resume=True), stub_model())

    assert resumed.read_bytes() == expected.read_bytes()
    assert summary.n_resumed >= after
    lines = [
        Path(f"{path}.journal.jsonl").read_bytes().count(b"\n") for path in (resumed, expected)
    ]
    assert lines[0] == lines[1]  # nothing is predicted twice


def test_resuming_another_run_is_refused_and_says_what_changed(spectra, tmp_path, whole):
    again = request(spectra, whole(), resume=True)

    with pytest.raises(UsageError, match=r"settings\.seed 0 -> 5"):
        predict(replace(again, settings=replace(SETTINGS, seed=5)), stub_model())
    with pytest.raises(UsageError, match=r"weights\.sha256"):
        predict(again, replace(stub_model(), sha256="1" * 64))
    mgf(tmp_path / "in.mgf", block(ASPIRIN))
    with pytest.raises(UsageError, match=r"in\.mgf\.bytes"):
        predict(again, stub_model())


@pytest.mark.parametrize("count", [3, 20])
def test_shards_merge_to_the_same_bytes(spectra, tmp_path, whole, count):
    joined = tmp_path / "joined.csv"

    for number in range(count, 0, -1):
        shard = request(spectra, joined, shard=Shard(number, count))
        predict(shard, stub_model())
        assert scan(shard.journal_path()).finished == {*range(number - 1, 11, count)}
    assert not joined.exists()
    summary = merge(request(str(joined), joined))

    assert joined.read_bytes() == whole().read_bytes()
    record = json.loads((tmp_path / "joined.csv.run.json").read_text())
    assert summary.n_spectra == record["spectra"] == 12


def test_what_is_finished_of_an_interrupted_run_can_be_written(spectra, tmp_path, whole):
    with pytest.raises(InterruptedRunError, match=r"[1-9]\d* finished features .* --partial"):
        predict(
            request(spectra, tmp_path / "cut.csv"), model_with(Stopping(3, KeyboardInterrupt()))
        )
    asked = request(str(tmp_path / "cut.csv"), tmp_path / "so-far.csv")
    with pytest.raises(UsageError, match="--partial"):
        merge(asked)

    summary = merge(asked, partial=True)

    assert 0 < summary.n_ok < 7
    assert whole().read_bytes().startswith((tmp_path / "so-far.csv").read_bytes())


def test_a_header_ranks_with_the_steps_that_are_drawn_with(spectra, tmp_path):
    """Whoever compares a finished run with a request asks for it apart from the run."""
    settings = replace(SETTINGS, sampling=SamplingSettings(steps=7))
    with Inputs((spectra,)) as inputs:
        header = run_header(request(spectra, tmp_path, settings=settings), stub_model(), inputs)

    assert header.model["ranking"]["steps"] == 7
