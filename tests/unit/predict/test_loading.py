"""From a weights file to what predicts: the encoder, the sources and the scores that it holds."""

import numpy as np
import pytest
import torch

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.errors import WeightsError
from duallgd_cli.files import sha256
from duallgd_cli.predict.model import Encoder, load_model, sources_of
from duallgd_cli.sources import Query
from duallgd_cli.sources.collection import Collection
from duallgd_cli.sources.network import Noise
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_spectra import annotated as made_annotated
from tests.made_training import cpu

SETTINGS = SamplingSettings(steps=2, samples=5)


@pytest.fixture(scope="module")
def network():
    return stirred(small_settings())


def saved(folder, network, record=None, **parts):
    path = folder / "mine.safetensors"
    save(path, Checkpoint(network.settings, dict(network.state_dict()), record or {}, **parts))
    return path


def annotated(formula="C4H7NO2S", n_rows=4):
    rng = np.random.default_rng(1)
    mz = np.sort(rng.random(n_rows) * 100 + 50)
    counts = np.minimum(rng.integers(0, 4, (n_rows, N_ELEMENTS)), Formula.parse(formula).array)
    return made_annotated(counts, formula, mz=mz, intensity=rng.random(n_rows))


@pytest.mark.parametrize("n_rows", [0, 1, 4])
def test_a_spectrum_is_encoded_by_what_explains_its_peaks(network, n_rows):
    fingerprint, odds = Encoder(network.encoder, cpu())(annotated(n_rows=n_rows))

    assert (fingerprint.shape, fingerprint.dtype, odds) == ((4096,), np.float32, None)
    assert ((fingerprint > 0) & (fingerprint < 1)).all()


def test_the_encoder_runs_on_one_thread_so_that_digits_do_not_depend_on_threads():
    seen = []

    def watched(peaks):
        seen.append(torch.get_num_threads())
        return torch.zeros(1, 4096)

    torch.set_num_threads(2)
    Encoder(watched, cpu(), isomers=watched)(annotated())

    assert (seen, torch.get_num_threads()) == ([1, 1], 2)


def test_a_loaded_model_says_what_it_is(tmp_path, network):
    path = saved(tmp_path, network, {"step": 9}, ranking={"log_share": 0.7, "n_spectra": 5})

    loaded = load_model(path, cpu())

    assert (loaded.name, loaded.sha256) == ("mine.safetensors", sha256(path))
    assert (loaded.record, loaded.ranking.log_share, loaded.ranking.n_spectra) == (
        *({"step": 9}, 0.7, 5),
    )
    assert sum(loaded.parameters.values()) == sum(p.numel() for p in network.parameters())
    assert [one.name for one in loaded.scores] == [
        *("fingerprint_log_likelihood", "fingerprint_tanimoto")
    ]
    fingerprint, _ = loaded.encode(annotated())
    drawn = []
    for source in (loaded.sources[-1], Noise(Sampler(network, cpu()))):
        query = Query(annotated(), fingerprint, sampling=SETTINGS)
        proposals = list(source.propose(query, 5, seed=1))
        drawn.append([one.log_likelihood for one in proposals])
    np.testing.assert_allclose(*drawn, rtol=1e-4)


@pytest.mark.parametrize(
    ("known", "names"),
    [((), []), (("CCCCO",), ["enumerated", "templates"])],
)
def test_the_sources_are_those_that_the_weights_have_something_for(tmp_path, network, known, names):
    templates = Collection(molecules_of(*known)).tensors() if known else {}

    loaded = load_model(saved(tmp_path, network, templates=templates), cpu())

    every = ["library", "database", "analogues", *names, "noise"]
    assert [source.name for source in loaded.sources] == every
    assert len(loaded.known) == len(known)
    own = sources_of(loaded.sampler, Collection.of(templates) if known else None)
    assert [type(one) for one in own] == [type(one) for one in loaded.sources]


@pytest.mark.parametrize("name", ["ranking", "database"])
def test_a_checkpoint_with_an_unknown_ranking_value_is_refused(tmp_path, network, name):
    path = saved(tmp_path, network, **{name: {"charm": 1.0}})

    with pytest.raises(WeightsError, match=r"charm.*take the weights that come with this one"):
        load_model(path, cpu())
