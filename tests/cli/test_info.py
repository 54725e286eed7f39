"""`duallgd info` and `duallgd selftest`."""

import json
from dataclasses import replace

import pytest

from duallgd_cli.predict import api
from duallgd_cli.predict import selftest as bundled
from tests.stub_model import stub_model


def test_info_fits_a_screen_and_tells_more_to_who_asks(duallgd):
    short = duallgd("info").out
    whole = duallgd("info", "--device", "cpu", "--parameters").out

    assert len(short.splitlines()) <= 20
    for fact in ("torch ", "name: stub", "Se H", "[M+CH3COO]-", "all: "):
        assert fact in whole
    facts = json.loads(duallgd("info", "--json").out)
    assert facts["weights"]["name"] == "stub"
    assert len(facts["adducts"].split()) == 10


def test_info_tells_how_good_the_weights_are(duallgd, monkeypatch):
    fitted = {"top1": 0.15900383, "top10": 0.26436, "first": {"count": 522.0}}
    model = replace(stub_model(), record={"ranking_validation": fitted})
    monkeypatch.setattr(api, "load", lambda *_, **__: model)

    told = duallgd("info").out

    assert "first candidate right: 15.9%" in told
    assert "among the first ten: 26.4%" in told
    assert "522 validation molecules" in told


def test_info_of_weights_that_a_plug_in_reads_is_what_the_plug_in_says(duallgd, made_plugin):
    facts = json.loads(duallgd("info", "--weights", made_plugin, "--parameters", "--json").out)

    assert facts["weights"]["network"] == "made of text"
    assert facts["parameters"] == {"all of it": 3, "all": 3}
    assert "parameters" not in duallgd("info", "--weights", made_plugin).out


@pytest.mark.parametrize("is_whole", [True, False])
def test_selftest_passes_where_the_path_is_whole_and_fails_aloud_where_not(
    duallgd, monkeypatch, is_whole
):
    if not is_whole:
        wrong = (("caffeine", "no_peaks", ""), *bundled.EXPECTED[1:])
        monkeypatch.setattr(bundled, "EXPECTED", wrong)

    done = duallgd("selftest")

    assert done.code == (not is_whole), done.out
    assert f"{12 if is_whole else 11} of 12 checks passed" in done.out
    assert ("FAILED  caffeine: no_peaks (ok, " in done.out) != is_whole


def test_the_bundled_spectra_name_no_structure():
    text = bundled.SPECTRA.read_text(encoding="utf-8").upper()

    assert len(bundled.EXPECTED) == text.count("BEGIN IONS")
    for word in ("SMILES", "INCHI", "CAFFEINE"):
        assert word not in text


def test_the_catalogue_of_parts_can_be_searched(duallgd):
    head, *rows = duallgd("parts", "HEXOSE").out.splitlines()

    assert head == "name\tkind\tsmarts"
    assert "hexose" in [row.split("\t")[0] for row in rows]
    assert all("hexos" in row.lower() for row in rows)
    assert len(duallgd("parts").out.splitlines()) > 700
    missed = duallgd("parts", "hexsoe")
    assert missed.code == 2
    assert "duallgd parts lists all" in missed.err
