"""Runs that are impossible, interrupted, resumed, cut into shards or shared by processes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import InterruptedRunError, UsageError
from duallgd_cli.predict.api import with_own
from duallgd_cli.predict.journal import scan
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.run import merge, predict, run_header
from duallgd_cli.predict.settings import PredictRequest, Shard
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.spectra.features import Inputs
from tests.made_runs import SETTINGS, TWELVE, Given, Stopping, model_with, request
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.stub_model import stub_model

NO_SHARD = "is not of the form 2/8, with at most 100000 shards"
SECOND = {"shard": Shard(2, 8)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, NO_SHARD) for text in ("2", "a/b", "1/2/3", "-1/2", "", "²/8", "1/" + "9" * 20)),
        *((text, f"{text} does not exist; .* at most 1") for text in ("0/3", "4/3", "1/0")),
        ("1/100001", "1/100001 does not exist; .* at most 1"),
    ],
)
def test_what_is_no_shard_is_a_usage_error(text, said):
    with pytest.raises(UsageError, match=said):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("output", "asked", "journal"),
    [
        ("x/out.csv", {}, "x/out.csv.journal.jsonl"),
        ("out.sdf", SECOND, "out.sdf.shard-2-of-8.journal.jsonl"),
        ("out.sdf", SECOND | {"journal": Path("j")}, "j"),
        ("-", {}, ""),
        ("-", {"resume": True}, "need --journal FILE"),
        ("-", SECOND, "need --journal FILE"),
        ("out.csv", SECOND | {"summaries": ("gnps",)}, "--summary needs a whole run"),
        ("out.csv", SECOND | {"names": Path("n.csv")}, "--names needs a whole run"),
        ("-", {"summaries": ("gnps",)}, "--summary needs an output file"),
        ("-", {"features": Path("f.csv")}, "--features needs an output file"),
        ("out.csv", {"inputs": ("a", "b", "a")}, "input a is named twice"),
        ("out.csv", {"workers": 257}, "workers must be"),
        ("out.csv", {"workers": 0}, "workers must be"),
    ],
)
def test_a_run_has_a_journal_or_cannot_be(output, asked, journal):
    asked = {"inputs": ("a",), "output": output} | asked
    if " " in journal:
        with pytest.raises(UsageError, match=journal):
            PredictRequest(**asked)
    else:
        assert str(PredictRequest(**asked).journal_path() or "") == journal


@pytest.fixture
def spectra(tmp_path):
    return mgf(tmp_path / "in.mgf", *TWELVE)


@pytest.fixture
def whole(spectra, tmp_path):
    """Output of a run in one go, by its ending."""

    def written(ending="csv"):
        predict(request(spectra, tmp_path / f"whole.{ending}"), stub_model())
        return tmp_path / f"whole.{ending}"

    return written


def interrupted(spectra, output, after):
    stopping = model_with(Stopping(after, KeyboardInterrupt()))
    with pytest.raises(InterruptedRunError) as stopped:
        predict(request(spectra, output), stopping)
    assert not output.exists()
    return str(stopped.value)


@pytest.mark.parametrize(("ending", "after"), [("csv", 0), ("jsonl", 4), ("sdf", 1)])
def test_an_interrupted_and_resumed_run_writes_the_same_bytes(
    spectra, tmp_path, whole, ending, after
):
    expected, resumed = whole(ending), tmp_path / f"resumed.{ending}"

    assert "with --resume" in interrupted(spectra, resumed, after)
    summary = predict(request(spectra, resumed, resume=True), stub_model())

    assert resumed.read_bytes() == expected.read_bytes()
    assert summary.n_resumed >= after
    journals = [Path(f"{path}.journal.jsonl").read_bytes() for path in (resumed, expected)]
    assert journals[0].count(b"\n") == journals[1].count(b"\n")  # nothing is predicted twice


def test_what_is_finished_of_an_interrupted_run_can_be_written(spectra, tmp_path, whole):
    said = interrupted(spectra, tmp_path / "cut.csv", 3)
    asked = request(str(tmp_path / "cut.csv"), tmp_path / "so-far.csv")
    with pytest.raises(UsageError, match="--partial"):
        merge(asked)

    summary = merge(asked, partial=True)

    assert f"{summary.n_features} finished features" in said
    assert 0 < summary.n_ok < 7
    assert whole().read_bytes().startswith((tmp_path / "so-far.csv").read_bytes())


@pytest.mark.parametrize("count", [3, 20])
def test_shards_merge_to_the_same_bytes(spectra, tmp_path, whole, count):
    joined = tmp_path / "joined.csv"

    for number in range(count, 0, -1):
        shard = request(spectra, joined, shard=Shard(number, count))
        predict(shard, stub_model())
        assert scan(shard.journal_path()).finished == {*range(number - 1, 11, count)}
    assert not joined.exists()
    summary = merge(request(str(joined), joined))

    assert joined.read_bytes() == whole().read_bytes()
    record = json.loads((tmp_path / "joined.csv.run.json").read_text())
    assert summary.n_spectra == record["spectra"] == 12


def test_a_header_ranks_with_the_steps_that_are_drawn_with(spectra, tmp_path):
    """Whoever compares a finished run with a request asks for it apart from the run."""
    settings = replace(SETTINGS, sampling=SamplingSettings(steps=7))
    with Inputs((spectra,)) as inputs:
        header = run_header(request(spectra, tmp_path, settings=settings), stub_model(), inputs)

    assert header.model["ranking"]["steps"] == 7


@pytest.fixture
def eight(tmp_path):
    molecules = (ASPIRIN, CAFFEINE, ALANINE, ASPIRIN, CAFFEINE, ALANINE, ASPIRIN)
    scaled = (block(one, scale=1 + n) for n, one in enumerate(molecules))
    return mgf(tmp_path / "in.mgf", *scaled, "BEGIN IONS\nPEPMASS=x\nEND IONS\n")


def test_results_of_processes_are_the_same_bytes_whatever_decides_them(eight, tmp_path, databases):
    """A guide, a database, a source of the user's, and formulas of a table."""
    smiles = ("CC(=O)Oc1ccccc1C(=O)O", "O=C(O)C=Cc1ccc(O)c(O)c1", "Cn1c(=O)c2c(ncn2C)n(C)c1=O")
    (tmp_path / "all.smi").write_text("\n".join(smiles))
    (tmp_path / "formulas.csv").write_text("id,formula\n1,C9H8O4\n1,C8H8N2O3\n")
    sampling = replace(SETTINGS.sampling, samples=8)
    about = {
        "settings": replace(SETTINGS, require=("[#6]=[#8]",), group_by="none", sampling=sampling),
        "guide": GuideFiles(databases=(str(tmp_path / "all.smi"),)),
        "formulas": tmp_path / "formulas.csv",
    }
    own = Given(smiles[0], "O=C(O)c1ccccc1OC=O")
    model = with_own(replace(stub_model(), again=stub_model), [own])

    for workers in (1, 2):
        predict(request(eight, tmp_path / f"{workers}.jsonl", workers=workers, **about), model)

    alone, shared = ((tmp_path / f"{workers}.jsonl").read_text() for workers in (1, 2))
    assert alone == shared
    assert alone.count("\n") == 8
    for said in ("2 structures of the database among the", "samples are as asked for", '"mine"'):
        assert said in alone


def _full():
    raise torch.OutOfMemoryError("CUDA out of memory\nand how much of it")


def test_a_process_that_cannot_load_the_network_is_a_sentence_that_says_how_to_go_on(eight):
    said = (
        r"\(CUDA out of memory\); finished work is kept, and --resume with fewer --workers goes on"
    )
    with Inputs((eight,)) as inputs, pytest.raises(UsageError, match=said):
        list(results(enumerate(inputs.features("none")), model_with(again=_full), SETTINGS, 2))
