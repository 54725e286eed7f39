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
from tests.fuzz.kills import kill_and_resume
from tests.fuzz.loop import assert_sentence, fuzz, mutate, packed_as, run
from tests.fuzz.weights import fuzz_weights
from tests.memory import bounded_memory
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=2))
MOST_MIB = 512  # above what the process held before


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
    return fuzz(count, seed, lambda rng: _statuses(broken_file(rng, folder)))


def fuzz_archives(count, seed, folder):
    """The same with archives; spectra are read and not predicted."""
    return fuzz(count, seed, lambda rng: _read(broken_archive(rng, folder)))


def _read(path):
    for index, item in enumerate(read(str(path))):
        assert item.source.index == index
        if item.failure is not None:
            assert_sentence(item.failure.message)
        yield "spectra" if item.failure is None else "unreadable"


def _statuses(path):
    seen = Counter()
    with Inputs((str(path),)) as inputs:
        features = list(enumerate(inputs.features(SETTINGS.group_by)))
        found = [one for of in results(features, stub_model(), SETTINGS) for one in of]
    assert {one.feature for one in found} == {number for number, _ in features}, "one vanished"
    for result in found:
        seen[result.status] += 1
        if result.status != "ok":
            assert_sentence(result.message)
    return seen


def fuzz_command(count, seed, folder):
    """Run `duallgd predict` on `count` broken files; how often it exited with each code."""

    def try_one(rng):
        path, ending = broken_file(rng, folder), rng.choice(("csv", "tsv", "jsonl", "sdf"))
        output = folder / f"out.{ending}"
        code, err = run("predict", path, "-o", output, "--samples", "2", "--force")
        assert code in {0, 2, 65}, f"exit code {code}: {err}"
        if code:
            assert_sentence(err.splitlines()[-1])
        yield f"exit code {code}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "load", lambda *_, **__: stub_model())
        return fuzz(count, f"command {seed}", try_one)


def sound_tables():
    """Content by program; features are called as in the sound spectra."""
    row = "{rank}\t{formula}\t{spaced}\t{formula}\t-1.2\t12.5\t9\t0.87\t"
    head = "rank\tmolecularFormula\tadduct\tprecursorFormula\tZodiacScore\tSiriusScore\t"
    head += "numExplainedPeaks\texplainedIntensity\t"
    return {
        "SIRIUS 6": _table(
            head + "formulaId\talignedFeatureId\tmappingFeatureId", row + "88\t61{n}\t{name}"
        ),
        "msbuddy": _table(
            "identifier\tmz\trt\tadduct\tformula_rank_1\testimated_fdr\tformula_rank_2",
            "{name}\t195.0\t60\t{adduct}\t{formula}\t0.05\tC4H5N",
        ),
        "spreadsheet": _table("\ufeffid;formula;score", "{name};{formula};0,9", "\r\n"),
        "plain": _table("feature_id,formula,rank", '"{name}",{formula},{rank}'),
    }


def _table(header, row, end="\n"):
    rows = [
        row.format(n=n, **vars(made), spaced=" ".join(made.adduct), rank=rank)
        for n, made in enumerate(FEW)
        for rank in (1, 2)
    ]
    return end.join([header, *rows, ""]).encode()


def fuzz_tables(count, seed, folder):
    """Look formulas up in `count` broken tables: hypotheses or one sentence a feature."""
    path = folder / "formulas"
    spectra = folder / "features.mgf"
    spectra.write_text(features(), encoding="utf-8")
    with Inputs((str(spectra),)) as inputs:
        asked = list(inputs.features("feature"))
    tables = sound_tables()

    def try_one(rng):
        content = mutate(tables[rng.choice(sorted(tables))], rng)
        path.write_bytes(
            packed_as(rng.choice(("gz", "xz", "bz2")), content, rng)
            if rng.random() < 0.1
            else content
        )
        source = table_source(str(path))
        for feature in asked:
            found = source(feature)
            if isinstance(found, Failure):
                assert_sentence(found.message)
                yield found.status
            else:
                yield "hypotheses"
                for hypothesis in itertools.islice(found, 9):
                    assert hypothesis.log_prior <= 1e-9, "a prior above 1"

    return fuzz(count, seed, try_one)


_VALUES = (
    "null", "true", "-1", "0", "1e309", ".nan", "-.inf", "99999999999999999999", "1_000", "0x1F",
    "[1, 2]", "{a: 1}", "''", "'x'", "2026-01-01", "!!python/object:os.system", "&a [*a]", "*b",
    "<<: 1", "- 1", "? x", "|", ">-", "9" * 5000, "1:30", "\"\\x1b[31m\"", "[" * 3000,
    "{a: " * 3000, "&a [&b [*a], *b, *a]", "é\u2028", "~",
)  # fmt: skip


def fuzz_settings(count, seed, folder):
    """Read `count` broken settings of `predict` and `train`."""
    path = folder / "settings.yaml"
    sound = {"predict": PredictSettings(), "train": RecipeSettings(("a.mgf",), ("b.smi",))}

    def try_one(rng):
        command = rng.choice(sorted(sound))
        text = commented_yaml(sound[command]).encode()
        for _ in range(rng.randint(1, 2)):
            text = rng.choice((mutate, _value, _value, _indent))(text, rng)
        path.write_bytes(text)
        try:
            found = parse(type(sound[command]), read_mapping(path))
            assert parse(type(found), dump(found)) == found, "settings that are not read back"
            yield f"{command} settings"
            yield from _assigned(found, rng)
        except UsageError as error:  # ConfigError is one: exit code 2
            assert_sentence(str(error))
            yield f"{command} refused"

    return fuzz(count, seed, try_one)


def _assigned(settings, rng):
    """``--set`` with another value for one setting, or for something that is none."""
    name = rng.choice((*_names(dump(settings)), "a..b", "", ".", "é", "x" * 999))
    try:
        changes = assigned([f"{name}={rng.choice(_VALUES)}"])
        parse(type(settings), merge(dump(settings), changes))
    except ConfigError as error:
        assert_sentence(str(error))
        yield "assignment refused"
    else:
        yield "assignment"


def _names(values, path=""):
    for name, value in values.items():
        yield from _names(value, f"{path}{name}.") if isinstance(value, dict) else [path + name]


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
        pytest.param(fuzz_weights, 20, {"predict 69": 5, "predict 0": 1}, marks=pytest.mark.slow),
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
        seen = fuzz(TIMES * count, "tests", tmp_path)

    sys.stdout.write(f"{fuzz.__name__} of {TIMES * count}: {dict(seen)}, {grown} MiB more\n")
    assert all(seen[name] >= n for name, n in least.items())


@pytest.mark.slow
def test_a_command_that_was_ended_gives_the_same_bytes_when_it_is_run_again(tmp_path):
    kills = 2 if TIMES == 1 else 60

    seen = kill_and_resume(kills, "tests", tmp_path)

    sys.stdout.write(f"{kills} kills: {dict(sorted(seen.items()))}\n")
    assert seen.total() == kills
