"""How the samples are shared out among sources, and how long they may take."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.errors import OutOfTimeError, RefusedError, UsageError
from duallgd_cli.predict import pipeline
from duallgd_cli.predict.model import Encoder, LoadedModel, sources_of
from duallgd_cli.predict.pipeline import quotas_of
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.sources import MOST_OF_A_DATABASE, Query
from duallgd_cli.sources.known import Known
from tests.made_graphs import small_settings, stirred
from tests.made_runs import model_with
from tests.made_spectra import ALANINE, annotated, block, mgf
from tests.made_training import cpu

BUILT_IN = ("database", "analogues", "enumerated", "templates", "noise")
NAMES = st.sampled_from((*BUILT_IN[1:], "own", "other"))


class Told(Known):
    """What a user knows: some molecules that are like it, and a database."""

    def __init__(self, analogues=0, databases=0):
        super().__init__(None, databases=("a database",) * databases)
        object.__setattr__(self, "count", analogues)

    def graphs(self, probability, formula):
        return ["a molecule"] * self.count


def quotas(text=None, samples=100, names=BUILT_IN, told=None, share=0.5):
    asked = {} if text is None else {"sources": text}
    sampling = SamplingSettings(samples=samples, database_share=share, **asked)
    about = {"known": told, "sampling": sampling}
    query = Query(annotated([], "C3H7NO2"), np.zeros(4096, np.float32), **about)
    return quotas_of(samples, query, [SimpleNamespace(name=name) for name in names])


DEFAULT = {"enumerated": 60, "templates": 15, "noise": 25}
MINE = "analogues=80 noise=20"
WITH_OWN = {"names": (*BUILT_IN, "own")}
DRAWING = {"names": ("enumerated", "noise")}
WITH_MINE = {"analogues": 50, "enumerated": 30, "templates": 7, "noise": 13}


@pytest.mark.parametrize(
    ("text", "samples", "others", "expected"),
    [
        (None, 100, {}, DEFAULT),
        (None, 7, {}, {"enumerated": 4, "templates": 1, "noise": 2}),  # the last takes the rest
        (None, 1, {}, {"enumerated": 0, "templates": 0, "noise": 1}),
        ("noise=1 templates=1 enumerated=1", 10, {}, {"noise": 3, "templates": 3, "enumerated": 4}),
        ("noise=0 enumerated=5", 10, {}, {"enumerated": 10}),
        # What is not there leaves its part to the others.
        (None, 100, {"names": ("database", "analogues", "noise")}, {"noise": 100}),
        ("enumerated=70 templates=15 noise=30", 100, DRAWING, {"enumerated": 70, "noise": 30}),
        # Half begin with molecules that the user knows, or as many as the setting says.
        (None, 100, {"told": Told(3)}, WITH_MINE),
        (None, 1, {"told": Told(3)}, {"enumerated": 0, "templates": 0, "noise": 1}),
        (None, 100, {"told": Told()}, DEFAULT),
        (MINE, 50, {"told": Told(3)}, {"analogues": 40, "noise": 10}),
        (MINE, 50, {"told": Told()}, {"analogues": 40, "noise": 10}),  # passed on
        ("noise=1 analogues=0", 50, {"told": Told(3)}, {"noise": 50}),
        # Structures of a database stand beside, or alone.
        (None, 100, {"told": Told(0, 2)}, {"database": MOST_OF_A_DATABASE, **DEFAULT}),
        (None, 20, {"told": Told(3, 1), "share": 1.0}, {"database": MOST_OF_A_DATABASE}),
        # So does a source of the user's, or as the setting says.
        (None, 100, WITH_OWN, DEFAULT | {"own": 20}),
        ("own=30 noise=70", 100, WITH_OWN, {"own": 30, "noise": 70}),
        ("own=0 noise=70", 10, WITH_OWN, {"noise": 10}),
    ],
)
def test_the_samples_are_shared_out_as_the_setting_says(text, samples, others, expected):
    assert quotas(text, samples, **others) == expected


@given(
    parts=st.dictionaries(NAMES, st.integers(0, 999)).filter(lambda parts: any(parts.values())),
    between=st.sampled_from([" ", ",", ", "]),
    samples=st.integers(1, 2000),
    there=st.sets(NAMES),
    told=st.builds(Told, st.integers(0, 2), st.integers(0, 2)),
)
def test_quotas_are_the_samples_for_any_setting(parts, between, samples, there, told):
    text = between.join(f"{name}={part}" for name, part in parts.items())
    there |= {name for name, n in (("analogues", told.count), ("database", told.databases)) if n}
    asked = {name: part for name, part in parts.items() if part and name in there}
    if not asked:
        with pytest.raises(UsageError, match="none of the sources"):
            quotas(text, samples, sorted(there), told)
        return

    found = quotas(text, samples, sorted(there), told)

    assert found.pop("database", 0) == MOST_OF_A_DATABASE * bool(told.databases)
    beside = {"own", "other"} & there - parts.keys()
    assert all(found.pop(name) == 20 for name in beside)
    assert sum(found.values()) == samples
    assert found.keys() <= there
    assert min(found.values()) >= 0
    whole, total = sum(found[name] for name in asked), sum(asked.values())
    assert all(abs(found[name] - whole * part / total) < len(asked) for name, part in asked.items())


def test_what_is_known_and_no_source_takes_is_refused():
    for told, said in ((Told(1), "take no analogues"), (Told(0, 1), "take no database")):
        with pytest.raises(RefusedError) as refused:
            quotas(names=("noise",), told=told)
        assert said in refused.value.failure.message


@pytest.mark.parametrize("text", ["enumerate=1", "noise=1 library=1"])
def test_what_cannot_have_a_part_of_the_samples_is_refused_before_anything_is_read(text):
    name = text.split()[-1].partition("=")[0]
    said = f"no source '{name}' to draw samples from; there are analogues, enumerated, n"

    with pytest.raises(UsageError, match=said):
        list(model_with(SimpleNamespace(name="noise")).predict([], sources=text))


@pytest.fixture
def alanine(tmp_path):
    return mgf(tmp_path / "s.mgf", block(ALANINE))


def network_model(waits):
    """A model that draws from noise with a small network, and counts how often it is waited for."""
    network = stirred(small_settings(layers=1))
    return LoadedModel(
        encode=Encoder(network.encoder, cpu()),
        sources=sources_of(Sampler(network, cpu())),
        scores=(),
        ranking=RankingModel(),
        name="w",
        sha256="0" * 64,
        synchronise=lambda: waits.append(1),
    )


@pytest.mark.parametrize(("limit", "least", "most"), [(None, 0, 0), (1000.0, 4, 20)])
def test_the_device_is_waited_for_only_under_a_time_limit(alanine, limit, least, most):
    waits = []

    found = network_model(waits).predict(alanine, steps=4, samples=2, timeout_s=limit)

    assert [one.status for one in found] == ["ok"]
    assert least <= len(waits) <= most  # at least once an evaluation


def test_a_spectrum_whose_time_is_up_is_a_row_that_says_so(alanine):
    (row,) = network_model([]).predict(alanine, steps=4, samples=2, timeout_s=1e-9)

    assert row.status == "timeout"
    assert "stopped after 1e-09 s; raise --timeout-per-spectrum" in row.message


def test_the_clock_is_looked_at_when_the_device_is_done(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pipeline.time, "monotonic", lambda: now[0])

    def finish():
        now[0] += 2.0  # what was begun takes the device two seconds

    check = pipeline._deadline(3.0, finish)

    check()
    with pytest.raises(OutOfTimeError):
        check()
