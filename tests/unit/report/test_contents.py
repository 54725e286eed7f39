"""A finished run as plain values."""

import numpy as np
import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.report import contents
from duallgd_cli.report.contents import LONGEST_TEXT, ReportedRun, readable
from duallgd_cli.results import LikelyPart
from tests.made_runs import predicted
from tests.made_spectra import ASPIRIN, CAFFEINE, block


@pytest.fixture(scope="module")
def features(example_run):
    return list(ReportedRun([example_run], 3).features())


def test_every_feature_is_there_once_in_the_order_of_the_input(features):
    assert [feature["id"] for feature in features] == [str(n) for n in range(1, 12)]
    assert [len(feature["spectra"]) for feature in features][:2] == [2, 1]
    assert all(len(feature["candidates"]) <= 3 for feature in features)


def test_a_feature_whose_spectra_lie_apart_is_there_once(tmp_path):
    apart = (block(ASPIRIN, feature_id=1), block(CAFFEINE), block(ASPIRIN, feature_id=1))
    predicted(tmp_path, *apart)

    found = list(ReportedRun([tmp_path / "out.csv"]).features())

    assert [len(feature["spectra_ids"]) for feature in found] == [2, 1]


def test_explanations_point_at_the_measured_peaks(features):
    feature = features[0]
    explained = feature["hypotheses"][0]["explained"]
    found = {
        (formula, round(feature["spectra"][spectrum]["mz"][peak], 2))
        for spectrum, peak, formula, _, _ in explained
    }

    assert ("C6H8N3O", 138.07) in found
    assert len({(spectrum, peak) for spectrum, peak, *_ in explained}) == 12
    assert len(feature["spectra"][0]["mz"]) + len(feature["spectra"][1]["mz"]) == 18


def test_candidates_say_which_of_their_atoms_explain_which_peak(features):
    for feature in features:
        for candidate in feature["candidates"]:
            rows = len(feature["hypotheses"][candidate["hypothesis"]]["explained"])
            atoms = len(candidate["drawing"]["atoms"])
            assert all(row < rows for row, _ in candidate["explains"])
            assert all(max(own) < atoms for _, own in candidate["explains"])
            whole = [own for _, own in candidate["explains"] if len(own) == atoms]
            assert whole or not np.isclose(feature["mz"], 195.0877, atol=0.01)


def test_parts_are_said_in_words_and_bonds_have_a_certainty(example_run, monkeypatch):
    sure = LikelyPart("sugar", "hexose", "[OX2]", 0.94, 0.1, 0.9)
    monkeypatch.setattr(contents, "likely_parts", lambda *_: (sure,))

    feature = next(ReportedRun([example_run]).features())

    assert feature["sentence"] == "contains a hexose (0.94)"
    assert feature["part"] == ["hexose", 0.94]
    ((name, kind, probability, atoms),) = feature["parts"]
    assert (name, kind, probability) == ("hexose", "sugar", 0.94)
    assert len(atoms) == len(feature["candidates"])
    assert feature["other_parts"] == []
    for candidate in feature["candidates"]:
        assert len(candidate["certainty"]) == len(candidate["drawing"]["bonds"])
        assert all(0 < share <= 1 for share in candidate["certainty"])


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_without_the_input_explained_peaks_are_left_and_it_is_said(own_run, change):
    spectra = own_run.with_name("spectra.mgf")
    if change == "gone":
        spectra.unlink()
    else:
        spectra.write_text(spectra.read_text().replace("195.08773", "195.08774"))
    reported = ReportedRun([own_run])
    (peaks,) = next(reported.features())["spectra"]

    assert reported.missing_inputs == [str(spectra)]
    assert peaks["label"] == "explained peaks only"
    assert len(peaks["mz"]) == 12


def test_an_unfinished_run_is_refused_in_a_sentence(own_run):
    journal = own_run.with_name("out.csv.journal.jsonl")
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3]))

    with pytest.raises(UsageError, match=r"not finished.*--resume"):
        ReportedRun([own_run])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("caffeine µ 咖啡因", "caffeine µ 咖啡因"),
        ("a\x00b\nc\x1b[31m", "a b c [31m"),
        ("\u202egnp.exe\ud800\u2028\x9b", " gnp.exe   "),
        ("x" * 10_000, "x" * LONGEST_TEXT + "…"),
    ],
)
def test_texts_from_files_become_harmless_and_stay_readable(text, shown):
    assert readable(text) == shown
