"""A short run of the whole recipe, which takes a minute."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from duallgd_cli.train.recipe import follow, read_recipe
from duallgd_cli.train.run import Displays
from tests.made_training import cpu

TINY = Path(__file__).resolve().parents[2] / "recipes" / "tiny.yaml"
# Steps that are enough to see that a stage was there.
SHORT = {
    "alike": {"limit": 20}, "large": {"limit": 5}, "evidence_steps": 2,
    "contrast_steps": 2, "simulate": {"limit": 12, "steps": 2},
    "decoder": {"training": {"steps": 4}}, "encoder": {"training": {"steps": 4}},
    "draws": [{"samples": 4, "steps": 2}],
}  # fmt: skip


def told(lines):
    """Displays that keep what is said in a list."""

    @contextmanager
    def silent(_):
        yield lambda *_: None

    return Displays(lines.append, silent, silent)


def recipe_run(out, overrides=SHORT, lines=None, path=TINY):
    return read_recipe(path, overrides, None, out, cpu(), told([] if lines is None else lines))


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folder of the run; leave it alone."""
    out = tmp_path_factory.mktemp("whole") / "run"
    follow(recipe_run(out))
    return out
