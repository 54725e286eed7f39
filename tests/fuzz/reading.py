"""Broken files through reading, formulas, annotation and a stand-in model: rows or one sentence."""

import random
from collections import Counter

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import DuallgdError
from duallgd_cli.predict.inputs import Inputs, formula_source
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.predict.workers import Workers
from tests.fuzz.corpus import sound_files
from tests.fuzz.mutate import mutate
from tests.stub_model import StubGenerator

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=2))


def broken_file(number, seed, folder):
    """Write the broken file of this number; the same for the same seed."""
    files = sound_files()
    rng = random.Random(f"{seed}:{number}")
    name = rng.choice(sorted(files))
    path = folder / name
    path.write_bytes(mutate(files[name], rng))
    return path


def fuzz_reading(count, seed, folder):
    """Predict `count` broken files with the stand-in; how often each status or error came."""
    seen = Counter()
    with Workers(1) as workers:
        for number in range(count):
            path = broken_file(number, seed, folder)
            try:
                seen += _statuses(path, workers)
            except DuallgdError as error:
                assert_sentence(str(error))
                seen[type(error).__name__] += 1
            except Exception as error:
                error.add_note(f"broken file {number} of seed {seed}: {path}")
                raise
    return seen


def _statuses(path, workers):
    seen = Counter()
    source = formula_source(SETTINGS, None)
    with Inputs((str(path),)) as inputs:
        features = list(enumerate(inputs.features(SETTINGS)))
        cases = list(results(features, source, StubGenerator(), SETTINGS, workers))
    assert {case.number for case in cases} == {number for number, _ in features}, "one vanished"
    for (outcome,) in (case.outcomes for case in cases):
        seen[outcome.status] += 1
        if outcome.status != "ok":
            assert_sentence(outcome.message)
    return seen


def assert_sentence(text):
    """A message is there, on one line, and of a length that somebody reads."""
    assert text.strip(), "an empty message"
    assert "\n" not in text, f"more than one line: {text!r}"
    assert len(text) < 600, f"too long: {text!r}"
