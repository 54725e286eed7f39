"""The authors' checkpoints on the command line: converted, then used like any other weights."""

import csv
import io
import json

import pytest
import torch

from duallgd_cli.predict import api
from tests.made_reference import decoder_file, fine_tuned_file, stirred_network
from tests.made_spectra import ALANINE, CAFFEINE, NICOTINE, block, mgf

FEW = ("--samples", "12", "--steps", "5", "--device", "cpu")
REAL_LOAD = api.load
BROMOBENZENE = ("C6H5Br", "C6H5 C4H3")


@pytest.fixture(scope="module")
def network():
    return stirred_network()


@pytest.fixture
def duallgd(duallgd, monkeypatch):
    """The command with the real loader."""
    monkeypatch.setattr(api, "load", REAL_LOAD)
    return duallgd


@pytest.fixture
def weights(duallgd, network, tmp_path):
    """Their checkpoint, converted by the command."""
    torch.save(fine_tuned_file(network), tmp_path / "authors.ckpt")
    done = duallgd("weights", "convert", "authors.ckpt", "-o", "ref.safetensors")
    assert done.code == 0, done.err
    return "ref.safetensors"


def predicted(duallgd, spectra, weights, *more):
    done = duallgd("predict", spectra, "--weights", weights, "-o", "-", *FEW, *more)
    assert done.code == 0, done.err
    return list(csv.DictReader(io.StringIO(done.out)))


def without_place(rows):
    return [{k: v for k, v in row.items() if k not in ("file", "index", "indices")} for row in rows]


def test_a_converted_checkpoint_predicts_unlabelled_spectra(duallgd, weights, tmp_path):
    spectra = mgf(tmp_path / "s.mgf", block(CAFFEINE, title="a"), block(NICOTINE, title="b"))

    rows = predicted(duallgd, spectra, weights)

    assert {row["spectrum_id"] for row in rows} == {"a", "b"}
    assert {row["status"] for row in rows} == {"ok"}
    assert {(row["spectrum_id"], row["formula"]) for row in rows} == {
        ("a", "C8H10N4O2"),
        ("b", "C10H14N2"),
    }
    assert all(len(row["inchikey"]) == 27 for row in rows)


def test_a_spectrum_alone_gives_what_it_gives_among_others(duallgd, weights, tmp_path):
    wanted = block(NICOTINE, title="b")
    among = mgf(tmp_path / "s.mgf", block(CAFFEINE, title="a"), wanted, block(ALANINE, title="c"))
    alone = mgf(tmp_path / "one.mgf", wanted)

    rows = [row for row in predicted(duallgd, among, weights) if row["spectrum_id"] == "b"]

    assert without_place(rows) == without_place(predicted(duallgd, alone, weights))


def test_the_true_structure_in_the_record_changes_nothing(duallgd, weights, tmp_path):
    bare = mgf(tmp_path / "bare.mgf", block(NICOTINE, title="b"))
    told = mgf(
        tmp_path / "told.mgf",
        block(NICOTINE, title="b", smiles="CN1CCCC1c1cccnc1", inchikey="SNICXCGAKADSCV"),
    )

    first, second = (without_place(predicted(duallgd, name, weights)) for name in (bare, told))

    assert first == second


def test_what_the_weights_do_not_know_gets_a_row_that_says_so(duallgd, weights, tmp_path):
    spectra = mgf(
        tmp_path / "s.mgf",
        block(BROMOBENZENE, title="a"),
        block(ALANINE, adduct="[M-H]-", title="b"),
        block(ALANINE, title="c"),
    )

    rows = {row["spectrum_id"]: row for row in predicted(duallgd, spectra, weights)}

    assert rows["a"]["status"] == "unsupported_element"
    assert "do not know Br" in rows["a"]["message"]
    assert rows["b"]["status"] == "unsupported_adduct"
    assert rows["c"]["status"] == "ok"


def test_a_decoder_alone_is_refused_in_one_sentence(duallgd, network, tmp_path):
    torch.save(decoder_file(network), tmp_path / "decoder.ckpt")
    duallgd("weights", "convert", "decoder.ckpt", "-o", "part.safetensors")
    spectra = mgf(tmp_path / "s.mgf", block(ALANINE))

    done = duallgd("predict", spectra, "--weights", "part.safetensors", "-o", "-")

    assert done.code == 69
    assert "no encoder and no projection, so they cannot predict" in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_the_run_record_names_the_converted_file(duallgd, weights, tmp_path):
    spectra = mgf(tmp_path / "s.mgf", block(ALANINE))

    duallgd("predict", spectra, "--weights", weights, "-o", "out.csv", *FEW)

    record = json.loads((tmp_path / "out.csv.run.json").read_text())
    assert record["weights"]["name"] == "ref.safetensors"
    assert record["notes"] == {}
