"""`duallgd info` and `duallgd selftest`."""

import json

from duallgd_cli.inference import selftest as bundled
from tests.stub_model import stub_model


def test_info_tells_versions_weights_and_what_is_supported(duallgd):
    done = duallgd("info", "--device", "cpu", "--parameters")

    assert done.code == 0
    for fact in ("torch: ", "name: stub", "a stand-in", "Se H", "[M+CH3COO]-", "all: "):
        assert fact in done.out


def test_info_is_also_json(duallgd):
    facts = json.loads(duallgd("info", "--json").out)

    assert facts["weights"]["name"] == "stub"
    assert facts["elements"].split()[0] == "C"
    assert len(facts["adducts"].split()) == 10


def test_selftest_passes_where_the_path_is_whole(duallgd):
    done = duallgd("selftest")

    assert done.code == 0, done.out
    assert "12 of 12 checks passed" in done.out
    assert "FAILED" not in done.out


def test_selftest_fails_aloud_where_it_is_not(duallgd, monkeypatch):
    wrong = (bundled.Expected("caffeine", "no_peaks"), *bundled.EXPECTED[1:])
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


def test_selftest_checks_do_not_depend_on_luck():
    first, second = (bundled.selftest(stub_model()) for _ in range(2))

    assert [check.found for check in first] == [check.found for check in second]
