"""A finished run as plain values."""

import numpy as np
import pytest

from duallgd_cli.cli.options import by_setting
from duallgd_cli.errors import UsageError
from duallgd_cli.predict.run import merge, predict
from duallgd_cli.report import contents
from duallgd_cli.report.contents import LONGEST_TEXT, ReportedRun, readable
from duallgd_cli.results import LikelyPart
from tests.made_run import measure, mzml, of_molecule
from tests.made_runs import (
    ASPIRIN_KEY,
    aspirin_result,
    lines_of,
    predicted,
    request,
    rewrite,
    written_run,
)
from tests.made_spectra import ASPIRIN, CAFFEINE, block
from tests.stub_model import stub_model

FAMILY = "benzene ring + acetoxy or carboxymethyl + carboxyl, positions open"


@pytest.fixture(scope="module")
def features(example_run):
    return list(ReportedRun([example_run], 3).features())


def shown(folder, result, top_k=None, names=None, **settings):
    """The one feature of a run, as the page shows it."""
    return next(ReportedRun([written_run(folder, result, **settings)], top_k, 1, names).features())


def test_every_feature_is_there_once_in_the_order_of_the_input(features, tmp_path):
    assert [feature["id"] for feature in features] == [str(n) for n in range(1, 12)]
    assert [len(feature["spectra"]) for feature in features][:2] == [2, 1]
    assert all(len(feature["candidates"]) <= 3 for feature in features)

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
    assert [len(spectrum["mz"]) for spectrum in feature["spectra"]] == [8, 10]


def test_candidates_say_which_of_their_atoms_explain_which_peak(features):
    for feature in features:
        for candidate in feature["candidates"]:
            rows = len(feature["hypotheses"][candidate["hypothesis"]]["explained"])
            atoms = len(candidate["drawing"]["atoms"])
            assert all(row < rows for row, _ in candidate["explains"])
            assert all(max(own) < atoms for _, own in candidate["explains"])
            whole = [own for _, own in candidate["explains"] if len(own) == atoms]
            assert whole or not np.isclose(feature["mz"], 195.0877, atol=0.01)


def test_parts_are_said_in_words_and_atoms_and_others_are_listed(example_run, monkeypatch):
    sure = LikelyPart("sugar", "hexose", "[OX2]", 0.94, 0.1, 0.9)
    few = LikelyPart("ring", "furan", "c1ccoc1", 0.06, 0.1, 0.9)
    monkeypatch.setattr(contents, "likely_parts", lambda *_: (sure, few))

    feature = next(ReportedRun([example_run]).features())

    assert feature["sentence"] == "contains a hexose (0.94)"
    assert feature["part"] == ["hexose", 0.94]
    ((name, kind, probability, atoms),) = feature["parts"]
    assert (name, kind, probability) == ("hexose", "sugar", 0.94)
    assert len(atoms) == len(feature["candidates"])
    assert feature["other_parts"] == [["furan", "ring", 0.06]]


def test_only_bonds_that_not_all_candidates_have_have_a_certainty(tmp_path):
    candidates = shown(tmp_path, aspirin_result())["candidates"]
    (alone,) = shown(tmp_path, aspirin_result(), 1)["candidates"]

    for one in candidates:
        assert len(one["certainty"]) == len(one["drawing"]["bonds"])
        assert None in one["certainty"]  # the benzene ring has a bond that is the same in all
        assert all(0 < share < 1 for share in one["certainty"] if share is not None)
        assert any(share is not None for share in one["certainty"])
    assert set(alone["certainty"]) == {None}


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_without_the_input_explained_peaks_are_left_and_it_is_said(own_run, change):
    spectra = own_run.with_name("spectra.mgf")
    if change == "gone":
        spectra.unlink()
    else:
        spectra.write_text(spectra.read_text().replace("195.08773", "195.08774"))
    reported = ReportedRun([own_run])
    (peaks,) = next(reported.features())["spectra"]

    assert {"gone": reported.gone, "changed": reported.changed} == {
        "gone": [], "changed": [], change: [str(spectra)],
    }  # fmt: skip
    assert peaks["label"] == "explained peaks only"
    assert len(peaks["mz"]) == 12


def test_isotopes_of_the_ion_stand_beside_those_of_the_first_formula(tmp_path):
    run = measure(np.random.default_rng(1), [of_molecule(CAFFEINE, "b", 60)], 90, noise=20)
    predict(request(mzml(run, tmp_path / "run.mzML"), tmp_path / "out.csv"), stub_model())

    feature = next(ReportedRun([tmp_path / "out.csv"]).features())

    assert feature["isotopes"]["formula"] == "C8H10N4O2"
    _, (offset, here, there), *_ = feature["isotopes"]["bars"]
    assert offset == 1
    assert there == pytest.approx(0.1032, abs=1e-3)
    assert here == pytest.approx(there, abs=0.06)


def test_an_unfinished_run_is_refused_in_a_sentence(own_run):
    journal = own_run.with_name("out.csv.journal.jsonl")
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3]))

    with pytest.raises(UsageError, match=r"not finished.*--resume"):
        ReportedRun([own_run])


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("caffeine µ 咖啡因", "caffeine µ 咖啡因"),
        ("a\x00b\nc\x1b[31m", "a b c [31m"),
        ("\u202egnp.exe\ud800\u2028\x9b", " gnp.exe   "),
        ("x" * 10_000, "x" * LONGEST_TEXT + "…"),
    ],
)
def test_texts_from_files_become_harmless_and_stay_readable(text, seen):
    assert readable(text) == seen


def test_candidates_of_one_family_stand_together_with_what_they_sum_to(tmp_path):
    feature = shown(tmp_path, aspirin_result())
    ranked = [one["smiles"] for one in feature["candidates"]]
    together, *alone = sorted(feature["families"], key=lambda each: -len(each[2]))
    name, confidence, places = together
    few = shown(tmp_path, aspirin_result(), 2)

    assert name == FAMILY
    assert {ranked[place] for place in places} == {
        *("CC(=O)Oc1ccccc1C(=O)O", "CC(=O)Oc1cccc(C(=O)O)c1", "CC(=O)Oc1ccc(C(=O)O)cc1")
    }
    own = sum(feature["candidates"][place]["confidence"] for place in places)
    assert confidence == pytest.approx(own, abs=1e-5)
    assert [len(each[2]) for each in alone] == [1, 1]
    of_all = [places for _, _, places in feature["families"]]
    assert sorted(place for each in of_all for place in each) == [*range(5)]
    assert of_all == sorted(of_all) == [sorted(each) for each in of_all]
    assert len(few["candidates"]) == 2  # of a family the sum of all of it is said
    assert confidence in [each[1] for each in few["families"]]


def test_candidates_whose_family_no_journal_says_are_alone(tmp_path):
    result = aspirin_result()
    bare = tuple(one._replace(family="", scaffold="") for one in result.structures)

    feature = shown(tmp_path, aspirin_result(structures=bare))

    assert [places for _, _, places in feature["families"]] == [[0], [1], [2], [3], [4]]


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
    assert rungs["family"][1] == FAMILY
    assert rungs["scaffold"][1] == "c1ccccc1"
    assert rungs["formula"] == (1.0, "C9H8O4")
    assert feature["schymanski"] == ("4" if level == "formula" else "3")


def test_where_nothing_is_certain_or_predicted_it_is_said(tmp_path):
    (tmp_path / "other").mkdir()
    result = aspirin_result(log_prior=-2.0, formula_source="predicted", known={})
    unsure = shown(tmp_path, result, certain=0.9)
    predicted(made := tmp_path / "other", "BEGIN IONS\nPEPMASS=180.1\n100 x\nEND IONS\n")
    (broken,) = ReportedRun([made / "out.csv"]).features()

    assert (unsure["level"], unsure["schymanski"]) == ("nothing", "5")
    assert unsure["certain"] == "nothing is certain: no answer reaches 0.9"
    assert broken["status"] != "ok"
    assert (broken["level"], broken["certain"], broken["ladder"]) == ("", "", [])


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
    match = aspirin_result().known["library_match"]
    refused = shown(tmp_path, aspirin_result(known={"library_match": match | {"offered": False}}))

    assert aspirin["sources"] == ["library", "noise"]
    assert aspirin["library_match"] == {
        "library": "mine.msp", "name": "Aspirin <b>", "score": 0.931, "matched_peaks": 7,
        "probability": 0.4,
    }  # fmt: skip
    assert [one["library_match"] for one in by_smiles.values()].count(None) == 4
    assert by_smiles["CC(=O)Oc1ccc(C(=O)O)cc1"]["sources"] == ["<i>mine", "analogues"]
    assert [one["library_match"] for one in refused["candidates"]] == [None] * 5


def test_the_peaks_of_a_library_are_shown_where_the_journal_has_them(tmp_path):
    match = aspirin_result().known["library_match"]
    with_peaks = match | {"mz": [121.03, 139.04], "intensity": [1.0, 0.5]}

    feature = shown(tmp_path, aspirin_result(known={"library_match": with_peaks}))

    assert feature["library"]["name"] == "Aspirin <b>"
    assert feature["library"]["mz"] == [121.03, 139.04]
    assert feature["library"]["intensity"] == [1.0, 0.5]
    assert shown(tmp_path, aspirin_result())["library"] is None


def test_candidates_have_the_names_of_a_table(tmp_path):
    (tmp_path / "names.tsv").write_text(
        f"inchikey\tname\tclass\n{ASPIRIN_KEY}\tAspirin\x1b[1m\tSalicylates\n"
    )

    feature = shown(tmp_path, aspirin_result(), names=tmp_path / "names.tsv")

    called = {one["smiles"]: (one["name"], one["class"]) for one in feature["candidates"]}
    assert called["CC(=O)Oc1ccccc1C(=O)O"] == ("Aspirin [1m", "Salicylates")
    assert list(called.values()).count(("", "")) == 4


def test_settings_are_named_as_the_command_line_takes_them(example_run, tmp_path):
    settings = dict(ReportedRun([example_run]).about(by_setting())["settings"])

    assert settings["--top-k"] == "10"
    assert settings["--temperature"] == "1.0"
    assert settings["--max-memory"] == "1024"
    assert settings["--set annotation.floor_mz"] == "100.0"
    assert settings["--core"] == settings["--require"] == "by default"
    assert settings["--set annotation.orbitrap_ppm"] == "7.0"  # --ppm would set three alike
    assert "--ppm" not in settings
    files = {"databases": [{"name": "mine.smi", "sha256": "0"}], "formulas_sha256": "1"}
    run = tmp_path / "out.csv"
    journal = run.with_name("out.csv.journal.jsonl")
    journal.write_bytes(example_run.with_name(f"{example_run.name}.journal.jsonl").read_bytes())
    rewrite(
        journal,
        lambda rows: [rows[0] | {"settings": rows[0]["settings"] | files}, *rows[1:]],
    )
    settings = dict(ReportedRun([run]).about(by_setting())["settings"])
    assert (settings["--database"], settings["formulas_sha256"]) == ("mine.smi", "1")
