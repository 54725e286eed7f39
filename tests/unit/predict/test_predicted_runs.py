"""Runs whose formulas are predicted: killed, resumed, cut into shards, repeated: the same bytes."""

import json

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictSettings
from tests.made_runs import request
from tests.made_spectra import (
    ASPIRIN,
    BROMINATED,
    CAFFEINE,
    CHLORINATED,
    NICOTINE,
    block,
    mgf,
    ms1_block,
)
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=2, samples=30), top_k=20)


@pytest.fixture
def spectra(tmp_path):
    """Features with and without MS1, one with a formula of its own, one that nothing fits."""
    return mgf(
        tmp_path / "in.mgf",
        *(ms1_block(CHLORINATED, feature_id=1), block(CHLORINATED, formula=None, feature_id=1)),
        block(BROMINATED, formula=None, feature_id=2),
        block(ASPIRIN, formula=None, feature_id=3).replace("ADDUCT=[M+H]+\n", "IONMODE=positive\n"),
        block(CAFFEINE, feature_id=4),
        block(NICOTINE, formula=None, feature_id=5, pepmass="2300.5"),
        block(CHLORINATED, formula=None, feature_id=1, scale=2.0),
    )


def run(spectra, output, model=None, **values):
    return predict(
        request(spectra, output, **({"settings": SETTINGS} | values)), model or stub_model()
    )


def journal_of(output):
    return output.with_name(f"{output.name}.journal.jsonl")


def test_a_run_killed_between_two_formulas_goes_on_to_the_same_bytes(spectra, tmp_path):
    whole, torn = tmp_path / "whole.csv", tmp_path / "torn.csv"
    run(spectra, whole)
    lines = journal_of(whole).read_bytes().splitlines(True)
    several = [len(json.loads(line)["hypotheses"]) for line in lines[1:-1]]
    assert max(several) > 2

    for kept in (1, several.index(max(several)) + 1, len(lines) - 1):
        journal_of(torn).write_bytes(b"".join(lines[:kept]) + lines[kept][: len(lines[kept]) // 2])
        run(spectra, torn, resume=True)
        assert torn.read_bytes() == whole.read_bytes()
        assert journal_of(torn).read_bytes().count(b"\n") == len(lines)
