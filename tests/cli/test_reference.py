"""The authors' checkpoints on the command line: converted, then used like any other weights."""

import pytest
import torch

from duallgd_cli.predict import api
from tests.made_reference import fine_tuned_file, stirred_network
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
    return done.rows


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
