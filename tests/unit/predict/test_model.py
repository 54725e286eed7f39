"""From a weights file to what predicts, how samples are shared out, and what is not calibrated."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.errors import RefusedError, UsageError, WeightsError
from duallgd_cli.files import sha256
from duallgd_cli.predict.model import Encoder, load_model, sources_of
from duallgd_cli.predict.pipeline import noise_seed, quotas_of
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.sources import MOST_OF_A_DATABASE, Query
from duallgd_cli.sources.collection import Collection
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.sources.network import Noise
from duallgd_cli.spectra.types import Feature, Hypothesis
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_queries import Told
from tests.made_runs import model_with
from tests.made_spectra import ALANINE, annotated, block, made_spectrum, mgf
from tests.made_training import cpu
from tests.stub_model import stub_model


@pytest.fixture(scope="module")
def network():
    return stirred(small_settings(layers=1))


def explained(n_rows=4, formula="C4H7NO2S"):
    rng = np.random.default_rng(1)
    mz = np.sort(rng.random(n_rows) * 100 + 50)
    counts = np.minimum(rng.integers(0, 4, (n_rows, N_ELEMENTS)), Formula.parse(formula).array)
    return annotated(counts, formula, mz=mz, intensity=rng.random(n_rows))


def test_a_spectrum_is_encoded_by_what_explains_its_peaks_on_one_thread(network):
    for n_rows in (0, 1, 4):
        fingerprint, odds = Encoder(network.encoder, cpu())(explained(n_rows))
        assert (fingerprint.shape, fingerprint.dtype, odds) == ((4096,), np.float32, None)
        assert ((fingerprint > 0) & (fingerprint < 1)).all()
    seen = []

    def watched(peaks):
        seen.append(torch.get_num_threads())  # on which digits must not depend
        return torch.zeros(1, 4096)

    torch.set_num_threads(2)
    Encoder(watched, cpu(), isomers=watched)(explained())
    assert (seen, torch.get_num_threads()) == ([1, 1], 2)


@pytest.mark.parametrize(("known", "names"), [((), []), (("CCCCO",), ["enumerated", "templates"])])
def test_a_loaded_model_is_what_its_file_holds(tmp_path, network, known, names):
    path = tmp_path / "mine.safetensors"
    templates = Collection(molecules_of(*known)).tensors() if known else {}
    held = {"record": {"step": 9}, "ranking": {"log_share": 0.7, "n_spectra": 5}}
    weights = network.settings, dict(network.state_dict())
    save(path, Checkpoint(*weights, **held, templates=templates))

    loaded = load_model(path, cpu())

    said = loaded.name, loaded.sha256, loaded.record, loaded.ranking.log_share, len(loaded.known)
    assert said == ("mine.safetensors", sha256(path), {"step": 9}, 0.7, len(known))
    assert sum(loaded.parameters.values()) == sum(p.numel() for p in network.parameters())
    scores = ["fingerprint_log_likelihood", "fingerprint_tanimoto"]
    assert [one.name for one in loaded.scores][:2] == scores
    every = ["library", "database", "analogues", *names, "noise"]
    assert [source.name for source in loaded.sources] == every
    own = sources_of(loaded.sampler, Collection.of(templates) if known else None)
    assert [type(one) for one in own] == [type(one) for one in loaded.sources]
    fingerprint, _ = loaded.encode(explained())
    sampling, drawn = SamplingSettings(steps=2, samples=5), []
    for source in (loaded.sources[-1], Noise(Sampler(network, cpu()))):
        query = Query(explained(), fingerprint, sampling=sampling)
        drawn.append([one.log_likelihood for one in source.propose(query, 5, seed=1)])
    np.testing.assert_allclose(*drawn, rtol=1e-4)


@pytest.mark.parametrize("name", ["ranking", "database"])
def test_a_checkpoint_with_an_unknown_ranking_value_is_refused(tmp_path, network, name):
    path, weights = tmp_path / "a.safetensors", (network.settings, dict(network.state_dict()))
    save(path, Checkpoint(*weights, **{name: {"charm": 1.0}}))

    with pytest.raises(WeightsError, match=r"charm.*take the weights that come with this one"):
        load_model(path, cpu())


def seed_of(*spectra, seed=7, formula="C9H8O4", adduct="[M+H]+"):
    feature = Feature(spectra or (peaks(),))
    return noise_seed(seed, Hypothesis(feature, Formula.parse(formula), parse_adduct(adduct)))


def peaks(mz=(50.0, 80.5), intensity=(0.5, 1.0), **fields):
    return made_spectrum(mz, intensity, **fields)


def test_the_noise_seed_is_of_peaks_formula_adduct_and_seed_alone_on_every_machine():
    other, fields = peaks((51.0, 80.5)), {"metadata": {"smiles": "CCO"}, "scans": "4"}
    moved = [
        seed_of(), seed_of(seed=8), seed_of(formula="C8H4O5"), seed_of(adduct="[M+Na]+"),
        seed_of(peaks((50.0, 80.6))), seed_of(peaks(intensity=(0.4, 1.0))),
        seed_of(peaks(), peaks()),
    ]  # fmt: skip

    assert seed_of() == 5590671863254926084
    elsewhere = peaks(file="b.mzML", index=9, spectrum_id="two", **fields)
    assert seed_of(peaks(), other) == seed_of(other, elsewhere)
    assert len(set(moved)) == len(moved)
    assert all(0 <= one < 2**63 for one in moved)


ANALOGUES, DATABASE = GuideFiles(analogues=("mine.smi",)), GuideFiles(databases=("all.smi",))
FITTED = RankingModel(n_spectra=500, most_samples=300, least_steps=1, most_steps=50)
HERE, THERE, NEVER = {"ranking": FITTED}, {"ranking": FITTED, "database": FITTED}, {}
ALONE, MANY = {"database_share": 1.0}, {"samples": 301}
ALIKE = "for a core, parts or analogues that are known"
IN_IT = "for the case that the structure is in the database"
OF_DATABASE = "not calibrated for structures of a database:"
BEYOND = "(but 1 to 300 samples and 1 to 50 steps)"


@pytest.mark.parametrize(
    ("model", "sampling", "files", "words"),
    [
        (HERE, {}, None, []),
        (HERE, {}, ANALOGUES, [ALIKE]),
        (HERE, {"steps": 1, "samples": 1}, None, []),
        (HERE, {"steps": 50, "samples": 300}, None, []),
        (HERE, MANY, None, [BEYOND]),
        (HERE, {"steps": 51}, None, ["not calibrated for 100 samples and 51 steps"]),
        (HERE, {"steps": 51, "sources": "noise=1"}, None, ["steps) and sources noise=1:"]),
        (HERE, {"core": "CCO"}, None, [ALIKE]),
        (NEVER, {}, None, ["never fitted"]),
        (THERE, ALONE | MANY | {"steps": 51}, DATABASE, [IN_IT]),
        (THERE, ALONE | {"core": "CCO"}, DATABASE, [IN_IT, ALIKE]),
        (HERE, ALONE, DATABASE, [IN_IT, OF_DATABASE]),
        (THERE, {}, DATABASE, []),
        (THERE, MANY, DATABASE, [BEYOND]),
        (HERE, {}, DATABASE, [OF_DATABASE]),
    ],
)
def test_confidence_outside_what_was_calibrated_is_warned_of(model, sampling, files, words, caplog):
    settings = PredictSettings(sampling=SamplingSettings(**sampling))

    replace(stub_model(), **model).ranking_for(settings, files)

    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(words)
    assert all(word in said for word, said in zip(words, messages, strict=True))


BUILT_IN = ("database", "analogues", "enumerated", "templates", "noise")
NAMES = st.sampled_from((*BUILT_IN[1:], "own", "other"))


def knows(analogues=0, databases=0):
    """What a user knows: so many molecules that are like it, and databases."""
    return Told(None, *["CCO"] * analogues, databases=("a database",) * databases)


def quotas(text=None, samples=100, names=BUILT_IN, told=None, share=0.5):
    asked = {} if text is None else {"sources": text}
    sampling = SamplingSettings(samples=samples, database_share=share, **asked)
    about = {"known": told or knows(), "sampling": sampling}
    query = Query(annotated([], "C3H7NO2"), np.zeros(4096, np.float32), **about)
    return quotas_of(samples, query, [SimpleNamespace(name=name) for name in names])


DEFAULT = {"enumerated": 60, "templates": 15, "noise": 25}
MINE, WITH_OWN = "analogues=80 noise=20", {"names": (*BUILT_IN, "own")}
DRAWING, NOT_BUILT = {"names": ("enumerated", "noise")}, {"names": ("database", "noise")}
WITH_MINE = {"analogues": 50, "enumerated": 30, "templates": 7, "noise": 13}
ONE_EACH = "noise=1 templates=1 enumerated=1"


@pytest.mark.parametrize(
    ("text", "samples", "others", "expected"),
    [
        (None, 100, {}, DEFAULT),
        (None, 7, {}, {"enumerated": 4, "templates": 1, "noise": 2}),  # the last takes the rest
        (None, 1, {}, {"enumerated": 0, "templates": 0, "noise": 1}),
        (ONE_EACH, 10, {}, {"noise": 3, "templates": 3, "enumerated": 4}),
        ("noise=0 enumerated=5", 10, {}, {"enumerated": 10}),
        # What is not there leaves its part to the others.
        (None, 100, NOT_BUILT, {"noise": 100}),
        ("enumerated=70 templates=15 noise=30", 100, DRAWING, {"enumerated": 70, "noise": 30}),
        # Half begin with molecules that the user knows, or as many as the setting says.
        (None, 100, {"told": knows(3)}, WITH_MINE),
        (None, 1, {"told": knows(3)}, {"enumerated": 0, "templates": 0, "noise": 1}),
        (None, 100, {"told": knows()}, DEFAULT),
        (MINE, 50, {"told": knows(3)}, {"analogues": 40, "noise": 10}),
        (MINE, 50, {"told": knows()}, {"analogues": 40, "noise": 10}),  # passed on
        ("noise=1 analogues=0", 50, {"told": knows(3)}, {"noise": 50}),
        # Structures of a database stand beside, or alone.
        (None, 100, {"told": knows(0, 2)}, {"database": MOST_OF_A_DATABASE, **DEFAULT}),
        (None, 20, {"told": knows(3, 1), "share": 1.0}, {"database": MOST_OF_A_DATABASE}),
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
    told=st.builds(knows, st.integers(0, 2), st.integers(0, 2)),
)
def test_quotas_are_the_samples_for_any_setting(parts, between, samples, there, told):
    text = between.join(f"{name}={part}" for name, part in parts.items())
    there |= {name for name, n in (("analogues", told.own), ("database", told.databases)) if n}
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
    for told, said in ((knows(1), "take no analogues"), (knows(0, 1), "take no database")):
        with pytest.raises(RefusedError) as refused:
            quotas(names=("noise",), told=told)
        assert said in refused.value.failure.message
    for text in ("enumerate=1", "noise=1 library=1"):
        name = text.split()[-1].partition("=")[0]
        said = f"no source '{name}' to draw samples from; there are analogues, enumerated, n"
        with pytest.raises(UsageError, match=said):  # before anything is read
            model_with(SimpleNamespace(name="noise")).predict([], sources=text)[0]


@pytest.mark.parametrize(
    ("limit", "status", "least", "most"),
    [(None, "ok", 0, 0), (1000.0, "ok", 4, 20), (1e-9, "timeout", 1, 1)],
)
def test_the_device_is_waited_for_only_under_a_time_limit(
    tmp_path, network, limit, status, least, most
):
    made, waits = mgf(tmp_path / "s.mgf", block(ALANINE)), []
    drawing = sources_of(Sampler(network, cpu()))
    model = model_with(*drawing, synchronise=lambda: waits.append(1))

    (row,) = model.predict(made, steps=4, samples=2, timeout_s=limit)

    assert row.status == status
    assert least <= len(waits) <= most  # at least once an evaluation
    late = "stopped after 1e-09 s; raise --timeout-per-spectrum"
    assert (late in row.message) == (status == "timeout")
