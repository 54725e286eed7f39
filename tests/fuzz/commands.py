"""Broken files through the whole command in this process: exit codes and sentences."""

import contextlib
import io
import random
import sys
from collections import Counter

from duallgd_cli import __main__
from duallgd_cli.predict import api
from tests.fuzz.loop import assert_sentence
from tests.fuzz.reading import broken_file
from tests.stub_model import stub_model

EXIT_CODES = {0, 2, 65}
_ENDINGS = ("csv", "tsv", "jsonl", "sdf")


def fuzz_command(count, seed, folder):
    """Run `duallgd predict` on `count` broken files; how often it exited with each code."""
    codes = Counter()
    original, api.load = api.load, lambda *_, **__: stub_model()
    try:
        for number in range(count):
            rng = random.Random(f"command {seed}:{number}")
            path, ending = broken_file(rng, folder), rng.choice(_ENDINGS)
            output = folder / f"out.{ending}"
            code, err = run("predict", path, "-o", output, "--samples", "2", "--force")
            assert code in EXIT_CODES, f"exit code {code} for file {number} of seed {seed}: {err}"
            if code:
                assert_sentence(err.splitlines()[-1])
            codes[f"exit code {code}"] += 1
    finally:
        api.load = original
    return codes


def run(*arguments):
    err = io.StringIO()
    argv, sys.argv = sys.argv, ["duallgd", *map(str, arguments)]
    try:
        with contextlib.redirect_stderr(err):
            __main__.main()
    except SystemExit as stopped:
        return stopped.code or 0, err.getvalue()
    finally:
        sys.argv = argv
    raise AssertionError("the command did not exit")
