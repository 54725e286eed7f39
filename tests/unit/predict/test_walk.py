"""How much of the package one spectrum passes on its way from a file to rows of a table."""

import sys
import threading
from pathlib import Path

import pytest

import duallgd_cli
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict import api
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.runtime import Runtime
from tests.made_spectra import CAFFEINE, block, mgf

PACKAGE = str(Path(duallgd_cli.__file__).parent)
# What a spectrum passes: reading (12 modules), its ion and formula, the network, three sources, the
# scores, the list, the journal and the table; chemistry is nine modules of it.
MOST_MODULES, MOST_TYPES, DEEPEST = 47, 32, 14


class Walk:
    """Modules whose functions ran, types that were made, and the deepest stack of own functions."""

    def __init__(self):
        self.modules, self.types, self.depth = set(), set(), 0

    def __call__(self, frame, event, _):
        if event != "call":
            return
        code = frame.f_code
        if code.co_name in ("__init__", "__new__"):
            first = frame.f_locals.get("self", frame.f_locals.get("_cls"))
            kind = first if isinstance(first, type) else type(first)
            if kind.__module__.startswith("duallgd_cli."):
                self.types.add(f"{kind.__module__}.{kind.__qualname__}")
        if not code.co_filename.startswith(PACKAGE) or code.co_name == "<module>":
            return
        self.modules.add(code.co_filename)
        depth = 0
        while frame is not None:
            depth += frame.f_code.co_filename.startswith(PACKAGE)
            frame = frame.f_back
        self.depth = max(self.depth, depth)


@pytest.mark.slow
def test_the_walk_of_one_spectrum_does_not_grow(tmp_path):
    model = api.load(runtime=Runtime.resolve("cpu", "float32", threads=1))
    made = mgf(tmp_path / "in.mgf", block(CAFFEINE))
    settings = PredictSettings(sampling=SamplingSettings(steps=2, samples=8))
    asked = PredictRequest((made,), str(tmp_path / "out.csv"), settings=settings, force=True)
    predict(asked, model)  # tables that are built once are no part of a spectrum's walk
    walk = Walk()

    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        predict(asked, model)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

    assert (tmp_path / "out.csv").read_text().count("\n") > 1
    assert len(walk.modules) <= MOST_MODULES, sorted(walk.modules)
    assert len(walk.types) <= MOST_TYPES, sorted(walk.types)
    assert walk.depth <= DEEPEST
