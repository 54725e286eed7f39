"""Broken inputs of every kind and killed runs; ``make fuzz`` tries more and tells the counts."""

import os
import sys
from collections import Counter

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict import api
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.reading import read
from tests.fuzz.corpus import sound_files
from tests.fuzz.kills import JOBS, WAYS, kill_and_resume
from tests.fuzz.loop import assert_sentence, fuzz, mutate, packed_as, run
from tests.memory import bounded_memory
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=2))
MOST_MIB = 512  # above what the process held before


def broken_file(rng, folder):
    """Write a broken file."""
    files = sound_files()
    path = folder / rng.choice(sorted(files))
    path.write_bytes(mutate(files[path.name], rng))
    return path


def fuzz_reading(count, seed, folder):
    """Predict `count` broken files with the stand-in; how often each status or error came."""

    def try_one(rng):
        with Inputs((str(broken_file(rng, folder)),)) as inputs:
            given = list(enumerate(inputs.features(SETTINGS.group_by)))
            answers = list(results(given, stub_model(), SETTINGS))
        assert {one.number for one in answers} == {number for number, _ in given}, "one vanished"
        for result in (one for answer in answers for one in answer.hypotheses):
            if result.status != "ok":
                assert_sentence(result.message)
            yield result.status

    return fuzz(count, seed, try_one)


def fuzz_archives(count, seed, folder):
    """Read `count` broken archives of sound files, or sound ones of broken files."""
    files = {name: text for name, text in sound_files().items() if not name.endswith(".gz")}

    def try_one(rng):
        name, ending = rng.choice(sorted(files)), rng.choice(("gz", "xz", "bz2", "bz2", "zip"))
        content = mutate(files[name], rng) if rng.random() < 0.3 else files[name]
        path = folder / f"{name}.{ending}"
        path.write_bytes(packed_as(ending, content * rng.choice((1, 1, 30)), rng))
        for index, item in enumerate(read(str(path))):
            assert item.source.index == index
            if item.failure is not None:
                assert_sentence(item.failure.message)
            yield "spectra" if item.failure is None else "unreadable"

    return fuzz(count, seed, try_one)


def fuzz_command(count, seed, folder):
    """Run `duallgd predict` on `count` broken files; how often it exited with each code."""

    def try_one(rng):
        output = folder / f"out.{rng.choice(('csv', 'tsv', 'jsonl', 'sdf'))}"
        given = ("predict", broken_file(rng, folder), "-o", output, "--samples", "2", "--force")
        yield f"exit code {run(*given, codes={0, 2, 65})}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "load", lambda *_, **__: stub_model())
        return fuzz(count, f"command {seed}", try_one)


TIMES = int(os.environ.get("DUALLGD_FUZZ", "1"))


@pytest.mark.parametrize(
    ("fuzz", "count", "least"),
    [
        pytest.param(fuzz_reading, 200, {"ok": 50, "unreadable": 5}, marks=pytest.mark.slow),
        pytest.param(fuzz_command, 20, {"exit code 0": 5}, marks=pytest.mark.slow),
        (fuzz_archives, 100, {"spectra": 1}),
    ],
)
def test_broken_input_gives_one_sentence_or_what_sound_input_gives(
    tmp_path, monkeypatch, fuzz, count, least
):
    monkeypatch.chdir(tmp_path)

    with bounded_memory(MOST_MIB) as grown:
        seen = Counter(fuzz(TIMES * count, "tests", tmp_path))

    sys.stdout.write(f"{fuzz.__name__} of {TIMES * count}: {dict(seen)}, {grown} MiB more\n")
    assert seen >= Counter(least)


@pytest.mark.slow
def test_a_command_that_was_ended_gives_the_same_bytes_when_it_is_run_again(tmp_path):
    kills = 2 if TIMES == 1 else 3 * len(JOBS) * len(WAYS)

    seen = kill_and_resume(kills, "tests", tmp_path)

    sys.stdout.write(f"{kills} kills: {dict(sorted(seen.items()))}\n")
    assert seen.total() == kills
