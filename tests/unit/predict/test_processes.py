"""Whole features predicted in processes that have the network of their own."""

import multiprocessing
import os
import time
from dataclasses import replace
from itertools import islice

import pytest
import torch

from duallgd_cli import files
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError, WorkerDiedError
from duallgd_cli.files import memory_bytes
from duallgd_cli.guide import GuideFiles
from duallgd_cli.predict.api import predict_spectra
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.spectra.features import Inputs
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=8))
_SECONDS = 20.0
_STOPPED = 6  # the feature before which Ctrl-C comes


@pytest.fixture
def spectra(tmp_path):
    molecules = (ASPIRIN, CAFFEINE, ALANINE, ASPIRIN, CAFFEINE, ALANINE, ASPIRIN)
    scaled = (block(one, scale=1 + n) for n, one in enumerate(molecules))
    return mgf(tmp_path / "in.mgf", *scaled, "BEGIN IONS\nPEPMASS=x\nEND IONS\n")


def test_results_are_the_same_bytes_and_in_order(spectra, tmp_path):
    model = replace(stub_model(), again=stub_model)
    written = []
    for count in (1, 2):
        out = tmp_path / f"{count}.csv"
        predict(PredictRequest((str(spectra),), str(out), settings=SETTINGS, workers=count), model)
        written.append(out.read_bytes())

    assert written[0] == written[1]
    assert written[0].count(b"\n") > 8


def test_the_python_interface_takes_processes_too(spectra):
    model = replace(stub_model(), again=stub_model)

    alone, together = (
        [one.candidates for one in predict_spectra(model, str(spectra), SETTINGS, workers=count)]
        for count in (1, 2)
    )

    assert alone == together


def test_of_a_database_they_are_given_what_has_the_formula(spectra, tmp_path, monkeypatch):
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    smiles = (
        "CC(=O)Oc1ccccc1C(=O)O",
        "O=C(O)C=Cc1ccc(O)c(O)c1",
        "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
        "CCO",
    )
    (tmp_path / "all.smi").write_text("\n".join(smiles))
    files = GuideFiles(databases=(str(tmp_path / "all.smi"),))
    written = []
    for count in (1, 2):
        out = tmp_path / f"{count}.jsonl"
        asked = PredictRequest(
            (str(spectra),), str(out), guide=files, settings=SETTINGS, workers=count
        )
        predict(asked, replace(stub_model(), again=stub_model))
        written.append(out.read_text())

    assert written[0] == written[1]
    assert "2 structures of the database among the candidates" in written[0]
    assert "1 structure of the database among the candidates" in written[0]


def predicted(spectra, again, features=lambda inputs: inputs.features("none")):
    """Results of the spectra, by two processes."""
    with Inputs((str(spectra),)) as inputs:
        model = replace(stub_model(), again=again)
        return list(results(enumerate(features(inputs)), model, SETTINGS, 2))


def _die():
    os._exit(9)


def _wait():
    time.sleep(_SECONDS)


def _full():
    raise torch.OutOfMemoryError("CUDA out of memory\nand how much of it")


@pytest.mark.parametrize(
    ("again", "error", "said"),
    [
        (_die, WorkerDiedError, "is kept, and --resume with fewer --workers"),
        (_full, UsageError, r"\(CUDA out of memory\); finished work is kept, and --re"),
    ],
)
def test_a_process_that_ends_is_a_sentence_that_says_how_to_go_on(spectra, again, error, said):
    with pytest.raises(error, match=said):
        predicted(spectra, again)


def _stopped_while_two_are_at_work(inputs):
    for number, feature in enumerate(inputs.features("none")):
        while number == _STOPPED and len(multiprocessing.active_children()) < 2:
            time.sleep(0.01)
        if number == _STOPPED:
            raise KeyboardInterrupt
        yield feature


def test_whoever_stops_does_not_wait_for_what_is_under_way(spectra):
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        predicted(spectra, _wait, _stopped_while_two_are_at_work)
    for child in multiprocessing.active_children():
        child.join(_SECONDS)

    assert not multiprocessing.active_children()
    assert time.monotonic() - started < _SECONDS


def test_few_features_are_predicted_in_this_process(spectra):
    found = predicted(spectra, _die, lambda inputs: islice(inputs.features("none"), 3))

    assert [one.status for (one,) in found] == ["ok"] * 3


@pytest.mark.parametrize(
    ("said", "bytes_"), [("5000000\n", 5_000_000), ("max\n", None), (None, None)]
)
def test_memory_is_the_machines_or_what_a_container_allows(tmp_path, monkeypatch, said, bytes_):
    whole = memory_bytes()
    if said is not None:
        (tmp_path / "memory.max").write_text(said)
    monkeypatch.setattr(files, "_CGROUP_MEMORY", tmp_path / "memory.max")

    found = memory_bytes()

    assert found == bytes_ if bytes_ else found >= whole > 1 << 28
