"""`duallgd info` and `duallgd selftest`."""

import json
from dataclasses import replace

from duallgd_cli.predict import api
from duallgd_cli.predict import selftest as bundled
from tests.made_reference import converted, decoder_file, fine_tuned_file, stirred_network
from tests.stub_model import stub_model


def test_info_fits_a_screen_and_tells_more_to_who_asks(duallgd):
    short = duallgd("info").out
    whole = duallgd("info", "--device", "cpu", "--parameters").out

    assert len(short.splitlines()) <= 20
    for fact in ("torch ", "name: stub", "Se H", "[M+CH3COO]-", "all: "):
        assert fact in whole


def test_info_tells_how_good_the_weights_are(duallgd, monkeypatch):
    fitted = {"top1": 0.15900383, "top10": 0.26436, "first": {"count": 522.0}}
    model = replace(stub_model(), record={"ranking_validation": fitted})
    monkeypatch.setattr(api, "load", lambda *_, **__: model)

    told = duallgd("info").out

    assert "first candidate right: 15.9%" in told
    assert "among the first ten: 26.4%" in told
    assert "522 held-out molecules" in told


def test_info_is_also_json(duallgd):
    facts = json.loads(duallgd("info", "--json").out)

    assert facts["weights"]["name"] == "stub"
    assert facts["elements"].split()[0] == "C"
    assert len(facts["adducts"].split()) == 10


def test_converted_weights_are_described_whole_or_in_part(duallgd, tmp_path):
    network = stirred_network()
    whole = converted(tmp_path, fine_tuned_file(network), "whole")
    part = converted(tmp_path, decoder_file(network), "part")

    facts, decoder = (
        json.loads(duallgd("info", "--weights", path, "--parameters", "--json").out)
        for path in (whole, part)
    )

    assert facts["weights"]["parts"] == "denoiser encoder projection"
    assert facts["weights"]["conversion"]["source"] == "whole.ckpt"
    assert facts["elements"] == "C O P N S Cl F H"
    assert facts["adducts"].split() == (
        ["[M+H]+", "[M+Na]+", "[M+K]+", "[M+NH4]+", "[M-H2O+H]+", "[M]+"]
    )
    own = sum(p.numel() for p in network.denoiser.parameters())
    counts = {name: n for name, n in facts["parameters"].items() if name.startswith("denoiser.")}
    assert sum(counts.values()) == decoder["parameters"].pop("all") == own
    assert counts == decoder["parameters"]
    assert {name.partition(".")[0] for name in facts["parameters"]} == (
        {"denoiser", "encoder", "projection", "all"}
    )


def test_selftest_passes_where_the_path_is_whole(duallgd):
    done = duallgd("selftest")

    assert done.code == 0, done.out
    assert "12 of 12 checks passed" in done.out
    assert "FAILED" not in done.out


def test_selftest_fails_aloud_where_it_is_not(duallgd, monkeypatch):
    wrong = (("caffeine", "no_peaks", ""), *bundled.EXPECTED[1:])
    monkeypatch.setattr(bundled, "EXPECTED", wrong)

    done = duallgd("selftest")

    assert done.code == 1
    assert "FAILED  caffeine: no_peaks (ok, " in done.out
    assert "11 of 12 checks passed" in done.out


def test_the_bundled_spectra_name_no_structure():
    text = bundled.SPECTRA.read_text(encoding="utf-8").upper()

    assert len(bundled.EXPECTED) == text.count("BEGIN IONS")
    for word in ("SMILES", "INCHI", "CAFFEINE"):
        assert word not in text
