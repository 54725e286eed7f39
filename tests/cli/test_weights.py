"""`duallgd weights`: files checked, molecules listed, templates and scores added."""

import re
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from duallgd_cli import load as load_model
from duallgd_cli import predict_spectra
from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.chem.formula import Formula
from duallgd_cli.cli import app
from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.sources.collection import Collection
from tests.fuzz.weights import sound_weights
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import spectra_folder, structures_folder
from tests.made_spectra import ASPIRIN, annotated, block, mgf
from tests.made_training import cpu


def invoked(*arguments):
    return CliRunner().invoke(app, ["weights", *map(str, arguments)], catch_exceptions=False)


def added(weights, what, *options):
    """The weights that `duallgd weights WHAT` writes beside these, and what it says."""
    output = weights.with_stem(f"{weights.stem}-{what}")
    got = invoked(what, weights, *options, "-o", output)
    assert got.exit_code == 0, got.stderr
    return output, got.stderr


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    model = stirred(small_settings())
    path = tmp_path_factory.mktemp("weights") / "plain.safetensors"
    save(path, Checkpoint(model.settings, dict(model.state_dict()), {"step": 7}))
    return path


@pytest.fixture(scope="module")
def measured(plain):
    return spectra_folder(plain.parent / "spectra")


@pytest.fixture(scope="module")
def asking(plain, measured):
    structures = structures_folder(plain.parent / "structures")
    folders = ("--structures", structures, "--spectra", measured)
    outdated = plain.with_stem("outdated")
    save(outdated, replace(load(plain), ranking={"charm": 1.0}))  # which nothing could rank by
    return added(outdated, "evidence", *folders, "--steps", 20)[0]


@pytest.fixture(scope="module")
def starting(plain, measured):
    before = plain.with_stem("asking")
    evidence = {"log_prevalence": torch.ones(3)}
    save(before, replace(load(plain), reranker=evidence, ranking={"log_share": 0.7}))
    return added(before, "analogues", "--molecules", measured)


def test_the_network_stays_the_ranking_goes_and_the_record_says_what_was_added(
    plain, asking, starting
):
    before, scores, known = load(plain), load(asking), load(starting[0])

    for after in (scores, known):
        assert before.tensors.keys() == after.tensors.keys()
        assert all(torch.equal(before.tensors[name], t) for name, t in after.tensors.items())
        assert (after.record["step"], after.ranking) == (7, {})
    assert scores.record["evidence"]["structures"] == 12
    assert scores.reranker["log_prevalence"].shape == (4096,)
    assert (scores.reranker["log_prevalence"] <= 0).all()
    assert not any(name.startswith("intensity") for name in scores.reranker)
    assert torch.equal(known.reranker["log_prevalence"], torch.ones(3))
    assert known.kernel.keys() == {"n_places", "place", "weight", "mixing"}
    for what in ("3 templates with ", "fragments and losses", "building blocks"):  # of fold train
        assert what in starting[1]


def blocks_of(weights):
    """How many molecules have each building block."""
    blocks = Collection.of(load(weights).templates).blocks
    return dict(zip(blocks.smiles, blocks.seen.tolist(), strict=True))


def test_building_blocks_of_other_structures_are_added_and_structures_alone_have_no_spectra(
    plain, measured, starting
):
    own, structures = blocks_of(starting[0]), structures_folder(plain.parent / "others")
    weights, alone = plain.with_stem("again"), plain.with_stem("alone")
    for copy in (weights, alone):
        save(copy, load(plain))

    output, _ = added(weights, "analogues", "--molecules", measured, "--structures", structures)
    bare, said = added(alone, "analogues", "--molecules", structures)

    more = blocks_of(output)
    assert own.keys() <= more.keys()
    assert all(more[text] >= seen for text, seen in own.items())
    assert sum(more.values()) > sum(own.values())
    assert (load(bare).kernel, "fragments" in said) == ({}, False)


def candidates(weights, path):
    spectra = mgf(path, block(ASPIRIN))
    settings = PredictSettings(sampling=SamplingSettings(steps=2, samples=6))
    (one,) = predict_spectra(load_model(weights, runtime=cpu()), spectra, settings, workers=1)
    return one.candidates


def test_every_candidate_is_asked_and_nothing_else_changes(asking, tmp_path):
    silent = tmp_path / "silent.safetensors"
    save(silent, replace(load(asking), reranker={}))

    without, asked = (candidates(weights, tmp_path / "made.mgf") for weights in (silent, asking))

    assert len(asked) > 1
    # The score was never fitted.
    assert [(one.smiles, one.score) for one in asked] == [(o.smiles, o.score) for o in without]
    asks = ("familiarity", "peaks_found", "peaks_missed")
    assert all(one.extra_scores[name] == 0 for one in without for name in asks)
    said = {name: [one.extra_scores[name] for one in asked] for name in asks}
    assert len(set(said["familiarity"])) > 1
    assert max(said["peaks_found"]) == max(said["peaks_missed"]) == 0
    assert min(said["peaks_missed"]) < 0


def test_spectra_of_known_molecules_have_a_say_in_the_fingerprint(starting, tmp_path):
    path = tmp_path / "known.safetensors"
    checkpoint = replace(load(starting[0]), reranker={})
    save(path, checkpoint)
    encode = load_model(path, runtime=cpu()).encode
    aspirin = annotated([Formula.parse(text).counts for text in ("C7H5O2", "C9H7O3")], "C9H8O4")
    save(tmp_path / "silent.safetensors", replace(checkpoint, kernel={}))
    silent = load_model(tmp_path / "silent.safetensors", runtime=cpu()).encode

    assert (encode(aspirin)[0] != silent(aspirin)[0]).any()


def test_weights_are_verified_and_those_of_no_use_are_said_to_be(tmp_path, made_plugin):
    """A plug-in verifies its own; of the others both parts must have been trained."""
    path = sound_weights(tmp_path / "w.safetensors")
    save(path, replace(load(path), record={"trained": ["denoiser"]}))

    own, useless = invoked("verify", made_plugin), invoked("verify", path)

    assert own.stdout.split(maxsplit=2)[1:] == [str(made_plugin), "made of text\n"]
    assert (own.exit_code, useless.exit_code) == (0, 0)
    assert re.search(r"the encoder of weights .* was never trained.*--stage enc", useless.stderr)


def test_the_molecules_of_fold_train_are_listed_as_hashes_and_more_are_added(tmp_path):
    structures_folder(tmp_path / "first", "CCO", "CCCCCC", "CCN", fold=[0, 0, 3])
    structures_folder(tmp_path / "next", "CCN", "CCO")
    ethanol, hexane, ethylamine = "LFQSCWFLJHTTHZ", "VLKZOEOYAKHREP", "QUSNBJAOOMFDIB"
    list_ = tmp_path / "w.train.hashes"

    listed = invoked("hashes", tmp_path / "first", "--max-atoms", "5", "-o", list_)
    first = TrainingHashes.read(list_).contains([ethanol, hexane, ethylamine])
    more = invoked("hashes", tmp_path / "next", "--also", list_, "-o", tmp_path / "both.hashes")
    both = TrainingHashes.read(tmp_path / "both.hashes").contains([ethanol, hexane, ethylamine])

    assert listed.exit_code == more.exit_code == 0
    assert more.stderr == f"2 molecules in {tmp_path / 'both.hashes'}\n"
    assert (first.tolist(), both.tolist()) == ([True, False, False], [True, False, True])
