"""Broken files through reading, formulas, annotation and a stand-in model: rows or one sentence."""

from collections import Counter

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.candidates import Workers
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.reading import read
from tests.fuzz.corpus import sound_files
from tests.fuzz.loop import assert_sentence, fuzz
from tests.fuzz.mutate import mutate, packed_as
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=2))


def broken_file(rng, folder):
    """Write a broken file."""
    files = sound_files()
    name = rng.choice(sorted(files))
    path = folder / name
    path.write_bytes(mutate(files[name], rng))
    return path


def broken_archive(rng, folder):
    """Write a broken archive of a sound file, or a sound one of a broken file."""
    files = {name: text for name, text in sound_files().items() if not name.endswith(".gz")}
    name, ending = rng.choice(sorted(files)), rng.choice(("gz", "xz", "bz2", "bz2", "zip"))
    content = mutate(files[name], rng) if rng.random() < 0.3 else files[name]
    path = folder / f"{name}.{ending}"
    path.write_bytes(packed_as(ending, content * rng.choice((1, 1, 30)), rng))
    return path


def fuzz_reading(count, seed, folder):
    """Predict `count` broken files with the stand-in; how often each status or error came."""
    with Workers(1) as workers:
        return fuzz(count, seed, lambda rng: _statuses(broken_file(rng, folder), workers))


def fuzz_archives(count, seed, folder):
    """The same with archives; spectra are read and not predicted."""
    return fuzz(count, seed, lambda rng: _read(broken_archive(rng, folder)))


def _read(path):
    for index, item in enumerate(read(str(path))):
        assert item.source.index == index
        if item.failure is not None:
            assert_sentence(item.failure.message)
        yield "spectra" if item.failure is None else "unreadable"


def _statuses(path, workers):
    seen = Counter()
    with Inputs((str(path),)) as inputs:
        features = list(enumerate(inputs.features(SETTINGS.group_by)))
        found = list(results(features, stub_model(), SETTINGS, workers))
    assert {one.feature for one in found} == {number for number, _ in features}, "one vanished"
    for result in found:
        seen[result.status] += 1
        if result.status != "ok":
            assert_sentence(result.message)
    return seen
