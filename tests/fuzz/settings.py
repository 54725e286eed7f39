"""Broken files of settings and ``--set`` assignments: settings, or one sentence and exit code 2."""

from duallgd_cli.cli import options
from duallgd_cli.config import assigned, commented_yaml, dump, merge, parse
from duallgd_cli.errors import ConfigError, UsageError
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.train.settings import run_settings
from tests.fuzz.loop import assert_sentence, fuzz
from tests.fuzz.mutate import mutate

_VALUES = (
    "null", "true", "-1", "0", "1e309", ".nan", "-.inf", "99999999999999999999", "1_000", "0x1F",
    "[1, 2]", "{a: 1}", "''", "'x'", "2026-01-01", "!!python/object:os.system", "&a [*a]", "*b",
    "<<: 1", "- 1", "? x", "|", ">-", "9" * 5000, "1:30", "\"\\x1b[31m\"", "[" * 3000,
    "{a: " * 3000, "&a [&b [*a], *b, *a]", "é\u2028", "~",
)  # fmt: skip


def fuzz_settings(count, seed, folder):
    """Read `count` broken settings of `predict` and `train`."""
    path = folder / "settings.yaml"
    sound = {
        "predict": commented_yaml(PredictSettings()),
        "train": commented_yaml(run_settings(None, [])),
    }

    def try_one(rng):
        command = rng.choice(sorted(sound))
        text = sound[command].encode()
        for _ in range(rng.randint(1, 2)):
            text = rng.choice((mutate, _value, _value, _indent))(text, rng)
        path.write_bytes(text)
        try:
            if command == "predict":
                found = options.settings_of(PredictSettings, path, {}, [])
            else:
                found = run_settings(str(path), [])
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
