"""`duallgd weights`: files checked, molecules listed, templates and scores added."""

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
    command = ["weights", what, weights, *options, "-o", output]
    got = invoked(*command[1:])
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
    output, said = added(outdated, "evidence", *folders, "--steps", 20)
    assert "wrote" in said
    return output


def blocks_of(weights):
    """How many molecules have each building block."""
    blocks = Collection.of(load(weights).templates).blocks
    return dict(zip(blocks.smiles, blocks.seen.tolist(), strict=True))


@pytest.fixture(scope="module")
def starting(plain, measured):
    output, said = added(plain, "analogues", "--molecules", measured)
    assert "3 templates with " in said  # of fold train
    assert "fragments and losses" in said
    assert "building blocks" in said
    return output


def test_building_blocks_of_other_structures_are_added(plain, measured, starting):
    own, structures = blocks_of(starting), structures_folder(plain.parent / "others")
    weights = plain.with_stem("again")
    save(weights, load(plain))

    output, _ = added(weights, "analogues", "--molecules", measured, "--structures", structures)

    more = blocks_of(output)
    assert own.keys() <= more.keys()
    assert all(more[text] >= seen for text, seen in own.items())
    assert sum(more.values()) > sum(own.values())


def test_the_network_stays_and_the_record_says_what_was_added(plain, asking):
    before, after = load(plain), load(asking)

    assert before.tensors.keys() == after.tensors.keys()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert after.record["step"] == 7
    assert after.record["evidence"]["structures"] == 12
    assert after.reranker["log_prevalence"].shape == (4096,)
    assert (after.reranker["log_prevalence"] <= 0).all()
    assert not any(name.startswith("intensity") for name in after.reranker)


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


def test_the_network_and_its_evidence_stay_and_the_ranking_goes(plain, measured, tmp_path):
    before = replace(
        load(plain), reranker={"log_prevalence": torch.ones(3)}, ranking={"log_share": 0.7}
    )
    save(tmp_path / "asking.safetensors", before)

    after = load(added(tmp_path / "asking.safetensors", "analogues", "--molecules", measured)[0])

    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert torch.equal(after.reranker["log_prevalence"], torch.ones(3))
    assert after.record["step"] == 7
    assert after.ranking == {}


def test_structures_alone_have_no_spectra_to_compare_with(plain, starting):
    structures, other = structures_folder(plain.parent / "alone"), plain.with_stem("other")
    save(other, load(plain))
    output, said = added(other, "analogues", "--molecules", structures)

    assert load(starting).kernel.keys() == {"n_places", "place", "weight", "mixing"}
    assert load(output).kernel == {}
    assert "fragments" not in said


def test_spectra_of_known_molecules_have_a_say_in_the_fingerprint(starting, tmp_path):
    checkpoint = load(starting)
    encode = load_model(starting, runtime=cpu()).encode
    aspirin = annotated([Formula.parse(text).counts for text in ("C7H5O2", "C9H7O3")], "C9H8O4")
    save(tmp_path / "silent.safetensors", replace(checkpoint, kernel={}))
    silent = load_model(tmp_path / "silent.safetensors", runtime=cpu()).encode

    assert (encode(aspirin)[0] != silent(aspirin)[0]).any()


def test_weights_that_a_plug_in_reads_are_verified_by_it(made_plugin):
    verified = invoked("verify", made_plugin)

    assert verified.exit_code == 0
    assert verified.stdout.split(maxsplit=2)[1:] == [str(made_plugin), "made of text\n"]


def test_weights_of_which_a_part_was_never_trained_are_whole_and_said_to_be_of_no_use(tmp_path):
    path = sound_weights(tmp_path / "w.safetensors")
    record = {"training": {"stage": "decoder"}, "init": {}}
    save(path, replace(load(path), record=record))

    verified = invoked("verify", path)

    assert verified.exit_code == 0
    assert "the encoder of weights" in verified.stderr
    assert "was never trained" in verified.stderr
    assert "duallgd train --stage encoder" in verified.stderr


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
