"""Broken inputs of every kind and killed runs; ``make fuzz`` tries more and tells the counts."""

import itertools
import os
import sys
from collections import Counter

import pytest

from duallgd_cli.config import (
    SamplingSettings,
    assigned,
    commented_yaml,
    dump,
    flatten,
    merge,
    parse,
    read_mapping,
)
from duallgd_cli.errors import ConfigError, Failure, UsageError
from duallgd_cli.predict import api
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.formulas import table_source
from duallgd_cli.spectra.reading import read
from duallgd_cli.train.settings import RecipeSettings
from tests.fuzz.corpus import FEW, features, sound_files
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
            answers = [one for of in results(given, stub_model(), SETTINGS) for one in of]
        assert {one.feature for one in answers} == {number for number, _ in given}, "one vanished"
        for result in answers:
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


# Head and rows, of two ranks each, of tables that say the formulas of the sound features.
TABLES = {
    "SIRIUS 6": "rank\tmolecularFormula\tadduct\tprecursorFormula\tZodiacScore\tSiriusScore\t"
    "numExplainedPeaks\texplainedIntensity\tformulaId\talignedFeatureId\tmappingFeatureId\n"
    "{rank}\t{formula}\t{spaced}\t{formula}\t-1.2\t12.5\t9\t0.87\t88\t61{n}\t{name}\n",
    "msbuddy": "identifier\tmz\trt\tadduct\tformula_rank_1\testimated_fdr\tformula_rank_2\n"
    "{name}\t195.0\t60\t{adduct}\t{formula}\t0.05\tC4H5N\n",
    "spreadsheet": "\ufeffid;formula;score\r\n{name};{formula};0,9\r\n",
    "plain": 'feature_id,formula,rank\n"{name}",{formula},{rank}\n',
}


def fuzz_tables(count, seed, folder):
    """Look formulas up in `count` broken tables: hypotheses or one sentence a feature."""
    path, spectra = folder / "formulas", folder / "features.mgf"
    spectra.write_text(features(), encoding="utf-8")
    with Inputs((str(spectra),)) as inputs:
        asked = list(inputs.features("feature"))
    tables = {}
    for program, text in TABLES.items():
        head, row = text.splitlines(keepends=True)
        rows = (
            row.format(n=n, **vars(made), spaced=" ".join(made.adduct), rank=rank)
            for n, made in enumerate(FEW)
            for rank in (1, 2)
        )
        tables[program] = (head + "".join(rows)).encode()

    def try_one(rng):
        content = mutate(tables[rng.choice(sorted(tables))], rng)
        if rng.random() < 0.1:
            content = packed_as(rng.choice(("gz", "xz", "bz2")), content, rng)
        path.write_bytes(content)
        source = table_source(str(path))
        for answer in map(source, asked):
            if isinstance(answer, Failure):
                assert_sentence(answer.message)
                yield answer.status
            else:
                yield "hypotheses"
                for hypothesis in itertools.islice(answer, 9):
                    assert hypothesis.log_prior <= 1e-9, "a prior above 1"

    return fuzz(count, seed, try_one)


_VALUES = (
    "null", "true", "-1", "0", "1e309", ".nan", "-.inf", "99999999999999999999", "1_000", "0x1F",
    "[1, 2]", "{a: 1}", "''", "'x'", "2026-01-01", "!!python/object:os.system", "&a [*a]", "*b",
    "<<: 1", "- 1", "? x", "|", ">-", "9" * 5000, "1:30", "\"\\x1b[31m\"", "[" * 3000,
    "{a: " * 3000, "&a [&b [*a], *b, *a]", "é\u2028", "~",
)  # fmt: skip


def fuzz_settings(count, seed, folder):
    """Read `count` broken settings of `predict` and `train`, and ``--set`` with other values."""
    path = folder / "settings.yaml"
    sound = {"predict": PredictSettings(), "train": RecipeSettings(("a.mgf",), ("b.smi",))}

    def try_one(rng):
        command = rng.choice(sorted(sound))
        kind, text = type(sound[command]), commented_yaml(sound[command]).encode()
        for _ in range(rng.randint(1, 2)):
            text = rng.choice((mutate, _value, _value, _indent))(text, rng)
        path.write_bytes(text)
        try:
            settings = parse(kind, read_mapping(path))
        except UsageError as error:  # ConfigError is one: exit code 2
            assert_sentence(str(error))
            yield f"{command} refused"
            return
        assert parse(kind, dump(settings)) == settings, "settings that are not read back"
        yield f"{command} settings"
        name = rng.choice((*flatten(dump(settings)), "a..b", "", ".", "é", "x" * 999))
        try:
            parse(kind, merge(dump(settings), assigned([f"{name}={rng.choice(_VALUES)}"])))
            yield "assignment"
        except ConfigError as error:
            assert_sentence(str(error))
            yield "assignment refused"

    return fuzz(count, seed, try_one)


def _value(text, rng):
    """Another value behind a colon."""
    lines = text.split(b"\n")
    places = [at for at, line in enumerate(lines) if b": " in line and line.lstrip()[:1] != b"#"]
    if places:
        at = rng.choice(places)
        lines[at] = lines[at].partition(b": ")[0] + b": " + rng.choice(_VALUES).encode()
    return b"\n".join(lines)


def _indent(text, rng):
    """A line that stands elsewhere."""
    lines = text.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = b" " * rng.choice((1, 2, 4, 999)) + lines[at].lstrip()
    return b"\n".join(lines)


TIMES = int(os.environ.get("DUALLGD_FUZZ", "1"))


@pytest.mark.parametrize(
    ("fuzz", "count", "least"),
    [
        pytest.param(fuzz_reading, 200, {"ok": 50, "unreadable": 5}, marks=pytest.mark.slow),
        pytest.param(fuzz_command, 20, {"exit code 0": 5}, marks=pytest.mark.slow),
        (fuzz_archives, 100, {"spectra": 1}),
        (fuzz_tables, 60, {"hypotheses": 1}),
        (fuzz_settings, 20, {"predict settings": 1}),
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
    kills = len(JOBS) if TIMES == 1 else 3 * len(JOBS) * len(WAYS)

    seen = kill_and_resume(kills, "tests", tmp_path)

    sys.stdout.write(f"{kills} kills: {dict(sorted(seen.items()))}\n")
    assert seen.total() == kills
