"""The authors' checkpoints on the command line: converted, then used like any other weights."""

import json
import os
import re
import tomllib
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

import duallgd_authors_network
from duallgd_authors_network import weights_file
from duallgd_authors_network.__main__ import app
from duallgd_authors_network.encoder import ReferenceEncoder
from duallgd_authors_network.settings import ReferenceEncoderSettings
from duallgd_cli.__main__ import exit_codes
from duallgd_cli.predict import api
from plugins.authors_network.tests import made_reference as made
from tests.cli.conftest import python
from tests.made_plugins import GROUP
from tests.made_runs import rows_of
from tests.made_spectra import ALANINE, CAFFEINE, NICOTINE, block, mgf
from tests.privacy.test_nothing_is_sent import guarded

FEW = ("--samples", "12", "--steps", "5", "--device", "cpu")
REAL_LOAD = api.load
BROMOBENZENE = ("C6H5Br", "C6H5 C4H3")
PLUGIN = Path(__file__).resolve().parents[1]
ROOT = PLUGIN.parents[1]


@pytest.fixture
def duallgd(duallgd, monkeypatch):
    """The command with the real loader."""
    monkeypatch.setattr(api, "load", REAL_LOAD)
    return duallgd


@pytest.fixture
def convert(in_process):
    """Run the plug-in's command with arguments."""
    return partial(in_process, exit_codes()(app), "convert")


@pytest.fixture
def weights(convert, network, saved):
    """Their checkpoint, converted by the command."""
    saved(made.fine_tuned_file(network))
    done = convert("authors.ckpt", "-o", "ref.safetensors")
    assert done.code == 0, done.err
    return "ref.safetensors"


def test_a_converted_checkpoint_predicts_what_it_knows_and_says_what_not(
    duallgd, weights, tmp_path
):
    blocks = (block(CAFFEINE, title="a"), block(NICOTINE, title="b"))
    others = (block(BROMOBENZENE, title="c"), block(ALANINE, adduct="[M-H]-", title="d"))
    spectra = mgf(tmp_path / "s.mgf", *blocks, *others)

    done = duallgd("predict", spectra, "--weights", weights, "-o", "-", *FEW)

    assert done.code == 0, done.err
    rows = {row["spectrum_id"]: row for row in done.rows}
    assert {name: (row["status"], row["formula"]) for name, row in rows.items()} == {
        "a": ("ok", "C8H10N4O2"),
        "b": ("ok", "C10H14N2"),
        "c": ("unsupported_element", rows["c"]["formula"]),
        "d": ("unsupported_adduct", rows["d"]["formula"]),
    }
    assert all(len(rows[name]["inchikey"]) == 27 for name in "ab")
    assert "do not know Br" in rows["c"]["message"]


def test_an_encoder_is_converted_and_described(convert, duallgd, saved):
    settings = ReferenceEncoderSettings(width=8, heads=2, fragment_bits=4, fingerprint_sizes=(4, 8))
    saved(made.theirs(ReferenceEncoder(settings)), "encoder.pt")

    done = convert("encoder.pt", "-o", "out/encoder.safetensors")
    shown = duallgd("info", "--weights", "out/encoder.safetensors")

    assert (done.code, "tensors of encoder" in done.err) == (0, True)
    assert (shown.code, "the authors' encoder" in shown.out) == (0, True)


def test_info_refuses_a_file_that_lacks_a_tensor(weights, duallgd, tmp_path):
    checkpoint = weights_file.load(tmp_path / weights)
    del checkpoint.tensors["projection.bias"]
    weights_file.save(tmp_path / "short.safetensors", checkpoint)

    done = duallgd("info", "--weights", "short.safetensors")

    assert (done.code, "1 missing ['projection.bias']" in done.err) == (69, True)


def test_converted_weights_are_described_whole_or_in_part(duallgd, network, tmp_path):
    files = {"whole": made.fine_tuned_file(network), "part": made.decoder_file(network)}
    facts, decoder = (
        json.loads(duallgd("info", "--weights", path, "--parameters", "--json").out)
        for path in (made.converted(tmp_path, content, name) for name, content in files.items())
    )

    assert facts["weights"]["network"] == "the authors' denoiser, encoder, projection"
    assert facts["weights"]["conversion"]["source"] == "whole.ckpt"
    assert facts["elements"] == "C O P N S Cl F H"
    assert facts["adducts"] == "[M+H]+ [M+Na]+ [M+K]+ [M+NH4]+ [M-H2O+H]+ [M]+"
    own = sum(parameter.numel() for parameter in network.denoiser.parameters())
    counts = {name: n for name, n in facts["parameters"].items() if name.startswith("denoiser.")}
    assert sum(counts.values()) == decoder["parameters"].pop("all") == own
    assert counts == decoder["parameters"]
    parts = {name.partition(".")[0] for name in facts["parameters"]}
    assert parts == {"denoiser", "encoder", "projection", "all"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("none.ckpt -o w.safetensors", 69, "none.ckpt does not exist"),
        ("notes.ckpt -o w.safetensors", 69, "notes.ckpt cannot be read as a file of torch.save"),
        ("notes.ckpt -o notes.ckpt --force", 2, "would overwrite an input"),
        ("notes.ckpt -o there.safetensors", 2, "exists; name another output"),
        (f"notes.ckpt -o {'a' * 248}", 2, "File name too long"),
        (f"{'a' * 300} -o w.safetensors", 2, "File name too long"),
        ("notes.ckpt", 2, "--output"),
        ("notes.ckpt -o w.safetensors --seed -1", 2, "--seed"),
    ],
)
def test_what_is_wrong_gets_one_sentence_and_changes_nothing(
    convert, tmp_path, arguments, code, message
):
    (tmp_path / "notes.ckpt").write_text("nothing")
    (tmp_path / "there.safetensors").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    done = convert(*arguments.split())

    assert done.code == code, done.err
    assert message in done.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_one_module_imports_from_duallgd():
    """Whatever moves there, this module alone has to follow."""
    importing = [
        path.name
        for path in (PLUGIN / "duallgd_authors_network").glob("*.py")
        if re.search(r"^ *(from|import) duallgd_cli", path.read_text("utf-8"), re.MULTILINE)
    ]

    assert importing == ["core.py"]


def test_an_entry_point_of_the_group_is_this_module():
    about = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]

    assert about["entry-points"] == {GROUP: {"authors": "duallgd_authors_network"}}
    assert duallgd_authors_network in [entry.load() for entry in entry_points(group=GROUP)]


@pytest.mark.slow
def test_what_pip_installs_is_found_by_the_program(saved, network, tmp_path):
    site, spectra = tmp_path / "site", mgf(tmp_path / "s.mgf", block(CAFFEINE))
    saved(made.fine_tuned_file(network))
    options = ("-q", "--no-deps", "--no-build-isolation", "--root-user-action=ignore")
    python("-m", "pip", "install", *options, "--target", site, PLUGIN).check_returncode()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}

    for command in (
        ("duallgd_authors_network", "convert", "authors.ckpt", "-o", "ref.safetensors"),
        ("duallgd_cli", "predict", spectra, "--weights", "ref.safetensors", "-o", "a.csv", *FEW),
    ):
        done = python("-m", *command, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
    assert {row["status"] for row in rows_of((tmp_path / "a.csv").read_text())} == {"ok"}


@pytest.mark.slow
def test_converting_sends_nothing_and_leaves_the_home_directory_alone(network, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    torch.save(made.fine_tuned_file(network), folder / "authors.ckpt")
    program = (
        f"import sys; sys.path.insert(0, {str(PLUGIN)!r})\n"
        "from duallgd_authors_network.__main__ import app\n"
        "app(['convert', 'authors.ckpt', '-o', 'made.safetensors'])"
    )

    done = guarded(["-c", program], folder)

    assert done.code == 0, done.said
    assert (done.network, done.programs, done.home, done.left) == ([], set(), set(), [])
