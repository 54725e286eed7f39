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


def test_a_converted_checkpoint_predicts_what_it_knows_and_says_what_not(
    duallgd, weights, tmp_path
):
    spectra = mgf(
        tmp_path / "s.mgf",
        block(CAFFEINE, title="a"),
        block(NICOTINE, title="b"),
        block(BROMOBENZENE, title="c"),
        block(ALANINE, adduct="[M-H]-", title="d"),
    )

    done = duallgd("predict", spectra, "--weights", weights, "-o", "-", *FEW)

    assert done.code == 0, done.err
    rows = {row["spectrum_id"]: row for row in done.rows}
    assert {name: row["status"] for name, row in rows.items()} == {
        "a": "ok",
        "b": "ok",
        "c": "unsupported_element",
        "d": "unsupported_adduct",
    }
    assert [rows[name]["formula"] for name in "ab"] == ["C8H10N4O2", "C10H14N2"]
    assert all(len(rows[name]["inchikey"]) == 27 for name in "ab")
    assert "do not know Br" in rows["c"]["message"]
