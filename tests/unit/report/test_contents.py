"""A finished run as plain values."""

import numpy as np
import pytest

from duallgd_cli.errors import UsageError
from duallgd_cli.predict.run import merge
from duallgd_cli.report import contents
from duallgd_cli.report.contents import LONGEST_TEXT, ReportedRun, readable
from duallgd_cli.results import LikelyPart
from tests.made_runs import aspirin_result, lines_of, predicted, written_run
from tests.made_spectra import ASPIRIN, CAFFEINE, block

FAMILY = "benzene ring + acetoxy or carboxymethyl + carboxyl, positions open"


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


def shown(folder, result, top_k=None, **settings):
    """The one feature of a run, as the page shows it."""
    return next(ReportedRun([written_run(folder, result, **settings)], top_k).features())


def test_candidates_of_one_family_stand_together_with_what_they_sum_to(tmp_path):
    feature = shown(tmp_path, aspirin_result())
    ranked = [one["smiles"] for one in feature["candidates"]]
    together, *alone = sorted(feature["families"], key=lambda each: -len(each[2]))
    name, confidence, places = together

    assert name == FAMILY
    assert {ranked[place] for place in places} == {
        *("CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Oc1cccc(C(=O)O)c1", "CC(=O)Oc1ccc(C(=O)O)cc1")
    }
    assert places == sorted(places)
    own = sum(feature["candidates"][place]["confidence"] for place in places)
    assert confidence == pytest.approx(own, abs=1e-5)
    assert [len(each[2]) for each in alone] == [1, 1]
    assert sorted(place for each in feature["families"] for place in each[2]) == [*range(5)]
    assert [each[2][0] for each in feature["families"]] == sorted(
        each[2][0] for each in feature["families"]
    )


def test_candidates_whose_family_no_journal_says_are_alone(tmp_path):
    result = aspirin_result()
    bare = tuple(one._replace(family="", scaffold="") for one in result.structures)

    feature = shown(tmp_path, aspirin_result(structures=bare))

    assert [places for _, _, places in feature["families"]] == [[0], [1], [2], [3], [4]]


def test_a_family_says_what_all_of_it_sums_to_when_few_are_shown(tmp_path):
    feature = shown(tmp_path, aspirin_result(), 2)
    (whole,) = (each for each in shown(tmp_path, aspirin_result())["families"] if len(each[2]) > 1)

    assert len(feature["candidates"]) == 2
    assert whole[1] in [confidence for _, confidence, _ in feature["families"]]


def test_of_many_features_the_best_of_each_of_the_first_families_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "LARGE", 0)
    feature = shown(tmp_path, aspirin_result())
    drawn = [place for place, one in enumerate(feature["candidates"]) if "drawing" in one]

    assert drawn == [places[0] for _, _, places in feature["families"]][:3]
    assert all("certainty" in feature["candidates"][place] for place in drawn)
    assert all(one["sources"] for one in feature["candidates"])
    assert all(len(atoms) == len(drawn) for *_, atoms in feature["parts"])


@pytest.mark.parametrize(
    ("certain", "level", "sentence"),
    [
        (0.1, "structure", "certain to the structure: "),
        (0.41, "family", "certain to the family: "),
        (0.99, "formula", "certain to the formula: 1.00"),
    ],
)
def test_the_level_is_said_with_its_probability(tmp_path, certain, level, sentence):
    feature = shown(tmp_path, aspirin_result(), certain=certain)
    rungs = {name: (probability, answer) for name, probability, answer in feature["ladder"]}

    assert feature["level"] == level
    assert feature["certain"].startswith(sentence)
    assert feature["certain"].endswith(f"{rungs[level][0]:.2f}")
    assert [*rungs][:3] == ["structure", "family", "scaffold"]
    assert (
        rungs["family"][1] == "benzene ring + acetoxy or carboxymethyl + carboxyl, positions open"
    )
    assert rungs["scaffold"][1] == "c1ccccc1"
    assert rungs["formula"] == (1.0, "C9H8O4")
    assert feature["schymanski"] == ("4" if level == "formula" else "3")


def test_where_nothing_is_certain_it_is_said(tmp_path):
    result = aspirin_result(log_prior=-2.0, formula_source="predicted", known={})
    feature = shown(tmp_path, result, certain=0.9)

    assert (feature["level"], feature["schymanski"]) == ("nothing", "5")
    assert feature["certain"] == "nothing is certain: no answer reaches 0.9"


def test_a_feature_that_was_not_predicted_has_no_ladder(tmp_path):
    predicted(tmp_path, "BEGIN IONS\nPEPMASS=180.1\n100 x\nEND IONS\n")

    (feature,) = ReportedRun([tmp_path / "out.csv"]).features()

    assert feature["status"] != "ok"
    assert (feature["level"], feature["certain"], feature["ladder"]) == ("", "", [])


@pytest.mark.parametrize("most", [1, 5])
def test_page_and_table_agree_on_the_level_however_few_candidates_are_shown(tmp_path, most):
    run = written_run(tmp_path, aspirin_result(known={}), certain=0.6)
    merge([run], str(tmp_path / "all.jsonl"), parts=True)
    (line,) = lines_of(tmp_path / "all.jsonl")

    feature = next(ReportedRun([run], most).features())

    assert feature["level"] == line["level"] != "nothing"
    assert feature["schymanski"] == line["schymanski"]


def test_a_candidate_says_where_it_comes_from_and_which_library_has_its_spectrum(tmp_path):
    feature = shown(tmp_path, aspirin_result())
    by_smiles = {one["smiles"]: one for one in feature["candidates"]}
    aspirin = by_smiles["CC(=O)Oc1ccccc1C(=O)O"]
    others = [one for one in feature["candidates"] if one is not aspirin]

    assert aspirin["sources"] == ["library", "noise"]
    assert aspirin["library_match"] == {
        "library": "mine.msp", "name": "Aspirin <b>", "score": 0.931, "matched_peaks": 7,
        "probability": 0.4,
    }  # fmt: skip
    assert [one["library_match"] for one in others] == [None] * 4
    assert by_smiles["CC(=O)Oc1ccc(C(=O)O)cc1"]["sources"] == ["<i>mine", "analogues"]


def test_a_match_that_is_not_offered_belongs_to_no_candidate(tmp_path):
    known = {"library_match": aspirin_result().known["library_match"] | {"offered": False}}

    feature = shown(tmp_path, aspirin_result(known=known))

    assert [one["library_match"] for one in feature["candidates"]] == [None] * 5
