"""Whole features predicted in processes that have the network of their own."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest
import torch

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError, WorkerDiedError
from duallgd_cli.predict.api import with_own
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.spectra.features import Inputs
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=8))
_SECONDS = 3600.0
_STOPPED = 6  # the feature before which Ctrl-C comes
_AT_WORK = []  # processes at that moment


@pytest.fixture
def spectra(tmp_path):
    molecules = (ASPIRIN, CAFFEINE, ALANINE, ASPIRIN, CAFFEINE, ALANINE, ASPIRIN)
    scaled = (block(one, scale=1 + n) for n, one in enumerate(molecules))
    return mgf(tmp_path / "in.mgf", *scaled, "BEGIN IONS\nPEPMASS=x\nEND IONS\n")


class Salicylate:
    """A source of the user's own."""

    name = "mine"

    def propose(self, query, n, seed):
        return iter(["O=C(O)c1ccccc1OC=O", "CC(=O)Oc1ccccc1C(=O)O"])


def test_results_are_the_same_bytes_whatever_decides_them(spectra, tmp_path, monkeypatch):
    """A guide in several rounds, a database, a source of one's own, and formulas of a table."""
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    smiles = ("CC(=O)Oc1ccccc1C(=O)O", "O=C(O)C=Cc1ccc(O)c(O)c1", "Cn1c(=O)c2c(ncn2C)n(C)c1=O")
    (tmp_path / "all.smi").write_text("\n".join(smiles))
    (tmp_path / "formulas.csv").write_text("id,formula\n1,C9H8O4\n1,C8H8N2O3\n")
    files = GuideFiles(databases=(str(tmp_path / "all.smi"),))
    settings = replace(SETTINGS, require=("[#6]=[#8]",), group_by="none")
    model = with_own(replace(stub_model(), again=stub_model), [Salicylate()])
    written = []
    for count in (1, 2):
        out, about = tmp_path / f"{count}.jsonl", {"guide": files, "settings": settings}
        about["formulas"] = tmp_path / "formulas.csv"
        asked = PredictRequest((str(spectra),), str(out), workers=count, **about)
        predict(asked, model)
        written.append(out.read_text())

    assert written[0] == written[1]
    assert written[0].count("\n") == 8
    assert "2 structures of the database among the candidates" in written[0]
    assert "samples are as asked for" in written[0]
    assert '"mine"' in written[0]


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
            _AT_WORK[:] = multiprocessing.active_children()
            raise KeyboardInterrupt
        yield feature


def test_whoever_stops_does_not_wait_for_what_is_under_way(spectra):
    with pytest.raises(KeyboardInterrupt):
        predicted(spectra, _wait, _stopped_while_two_are_at_work)

    assert [child.exitcode for child in _AT_WORK] == [-signal.SIGKILL] * 2
