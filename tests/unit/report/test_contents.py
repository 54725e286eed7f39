"""A finished run as plain values, and drawings of molecules, turned alike."""

import numpy as np
import pytest

from duallgd_cli.chem.parts import molecule
from duallgd_cli.cli.options import by_setting
from duallgd_cli.predict.run import merge
from duallgd_cli.report import contents, depiction
from duallgd_cli.report.contents import LONGEST_TEXT, ReportedRun, readable
from duallgd_cli.results import LikelyPart
from tests.made_runs import (
    MATCH,
    aspirin_result,
    lines_of,
    predicted,
    request,
    rewrite,
    written_run,
)
from tests.made_spectra import ASPIRIN, CAFFEINE, block

FAMILY = "benzene ring + acetoxy or carboxymethyl + carboxyl, positions open"
ORTHO, META, PARA = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "CC(=O)Oc1cccc(C(=O)O)c1",
    "CC(=O)Oc1ccc(C(=O)O)cc1",
)


@pytest.fixture(scope="module")
def features(example_run):
    return list(ReportedRun([example_run], 3).features())


def shown(folder, result, top_k=None, **settings):
    """The one feature of a run, as the page shows it."""
    return next(ReportedRun([written_run(folder, result, **settings)], top_k, 1).features())


def by_smiles(feature):
    return {one["smiles"]: one for one in feature["candidates"]}


def test_every_feature_is_there_once_in_the_order_of_the_input(features, tmp_path):
    assert [(one["number"], one["id"]) for one in features] == [(n, str(n + 1)) for n in range(11)]
    assert [len(one["spectra"]) for one in features][:2] == [2, 1]
    assert all(len(one["candidates"]) <= 3 for one in features)

    one = block(ASPIRIN, feature_id=1)
    predicted(tmp_path, one, block(CAFFEINE), one)
    apart = ReportedRun([tmp_path / "out.csv"]).features()
    assert [len(one["spectra_ids"]) for one in apart] == [2, 1]


def test_explanations_point_at_the_measured_peaks_and_at_atoms_of_candidates(features):
    explained, measured = features[0]["hypotheses"][0]["explained"], features[0]["spectra"]

    assert [len(spectrum["mz"]) for spectrum in measured] == [8, 10]
    assert len({(spectrum, peak) for spectrum, peak, *_ in explained}) == 12
    assert ("C6H8N3O", 138.07, "C2H3NO") in {
        (formula, round(measured[spectrum]["mz"][peak], 2), loss)
        for spectrum, peak, formula, _, loss in explained
    }
    for feature in features:
        for candidate in feature["candidates"]:
            rows = len(feature["hypotheses"][candidate["hypothesis"]]["explained"])
            atoms = len(candidate["drawing"]["atoms"])
            assert all(row < rows and max(own) < atoms for row, own in candidate["explains"])
            whole = [own for _, own in candidate["explains"] if len(own) == atoms]
            assert whole or not np.isclose(feature["mz"], 195.0877, atol=0.01)


def test_parts_are_said_in_words_and_atoms_and_others_are_listed(example_run, monkeypatch):
    sure = LikelyPart("sugar", "hexose", "[OX2]", 0.94, 0.1, 0.9)
    few = LikelyPart("ring", "furan", "c1ccoc1", 0.06, 0.1, 0.9)
    monkeypatch.setattr(contents, "likely_parts", lambda *_: (sure, few))

    feature = next(ReportedRun([example_run]).features())

    ((*said, atoms),) = feature["parts"]
    assert said == ["hexose", "sugar", 0.94]
    assert len(atoms) == len(feature["candidates"])
    assert (feature["sentence"], feature["part"]) == ("contains a hexose (0.94)", ["hexose", 0.94])
    assert feature["other_parts"] == [["furan", "ring", 0.06]]


def test_only_bonds_that_not_all_candidates_have_have_a_certainty(tmp_path):
    candidates = shown(tmp_path, aspirin_result())["candidates"]
    (alone,) = shown(tmp_path, aspirin_result(), 1)["candidates"]

    for one in candidates:
        assert len(one["certainty"]) == len(one["drawing"]["bonds"])
        assert None in one["certainty"]  # the benzene ring has a bond that is the same in all
        shares = [share for share in one["certainty"] if share is not None]
        assert shares
        assert all(0 < share < 1 for share in shares)
    assert set(alone["certainty"]) == {None}


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
    result = aspirin_result()
    bare = tuple(one._replace(family="", scaffold="") for one in result.structures)

    feature, few = shown(tmp_path, result), shown(tmp_path, result, 2)
    unnamed = shown(tmp_path, aspirin_result(structures=bare))

    candidates, families = feature["candidates"], feature["families"]
    name, confidence, places = max(families, key=lambda family: len(family[2]))
    assert (name, {candidates[place]["smiles"] for place in places}) == (
        FAMILY,
        {ORTHO, META, PARA},
    )
    summed = sum(candidates[place]["confidence"] for place in places)
    assert confidence == pytest.approx(summed, abs=1e-5)
    of_all = [places for _, _, places in families]
    assert of_all == sorted(sorted(places) for places in of_all)
    assert sorted(place for places in of_all for place in places) == [*range(5)]
    assert len(few["candidates"]) == 2  # of a family the sum of all of it is said
    assert confidence in [family[1] for family in few["families"]]
    assert [places for _, _, places in unnamed["families"]] == [[0], [1], [2], [3], [4]]


def test_of_many_features_the_best_of_each_of_the_first_families_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "LARGE", 0)
    feature = shown(tmp_path, aspirin_result())

    drawn = [place for place, one in enumerate(feature["candidates"]) if "drawing" in one]
    assert drawn == [places[0] for _, _, places in feature["families"]][:3]
    assert all("certainty" in feature["candidates"][place] for place in drawn)
    assert all(one["sources"] for one in feature["candidates"])
    assert all(len(atoms) == len(drawn) for *_, atoms in feature["parts"])


UNSURE = {"log_prior": -2.0, "formula_source": "predicted", "known": {}}


@pytest.mark.parametrize(
    ("changes", "certain", "level", "schymanski", "sentence"),
    [
        ({}, 0.1, "structure", "3", "certain to the structure: "),
        ({}, 0.41, "family", "3", "certain to the family: "),
        ({}, 0.99, "formula", "4", "certain to the formula: 1.00"),
        (UNSURE, 0.9, "nothing", "5", "nothing is certain: no answer reaches 0.9"),
    ],
)
def test_the_level_is_said_with_its_probability(
    tmp_path, changes, certain, level, schymanski, sentence
):
    feature = shown(tmp_path, aspirin_result(**changes), certain=certain)
    rungs = {name: (probability, answer) for name, probability, answer in feature["ladder"]}

    assert (feature["level"], feature["schymanski"]) == (level, schymanski)
    assert feature["certain"].startswith(sentence)
    assert level == "nothing" or feature["certain"].endswith(f"{rungs[level][0]:.2f}")
    assert [*rungs][:3] == ["structure", "family", "scaffold"]
    answers = [rungs[name][1] for name in ("family", "scaffold", "formula")]
    assert answers == [FAMILY, "c1ccccc1", "C9H8O4"]


def test_what_was_not_predicted_has_no_level(tmp_path):
    predicted(tmp_path, "BEGIN IONS\nPEPMASS=180.1\n100 x\nEND IONS\n")
    (broken,) = ReportedRun([tmp_path / "out.csv"]).features()

    assert broken["status"] != "ok"
    assert (broken["level"], broken["certain"], broken["ladder"]) == ("", "", [])


@pytest.mark.parametrize("most", [1, 5])
def test_page_and_table_agree_on_the_level_however_few_candidates_are_shown(tmp_path, most):
    run = written_run(tmp_path, aspirin_result(known={}), certain=0.6)
    merge(request(str(run), tmp_path / "all.jsonl", parts=True))
    (line,) = lines_of(tmp_path / "all.jsonl")

    feature = next(ReportedRun([run], most).features())

    assert [feature[name] for name in ("level", "schymanski")] == [
        line["level"],
        line["schymanski"],
    ]
    assert feature["level"] != "nothing"


def test_a_candidate_says_where_it_comes_from_and_which_library_has_its_spectrum(tmp_path):
    peaks = {"mz": [121.03, 139.04], "intensity": [1.0, 0.5], "library": "mine\x1b.msp"}
    offered, refused = (
        shown(tmp_path, aspirin_result(known={"library_match": MATCH | changes}))
        for changes in (peaks, {"offered": False})
    )
    candidates = by_smiles(offered)

    names = "name", "score", "matched_peaks", "probability"
    said = {name: MATCH[name] for name in names} | {"library": "mine .msp"}
    matches = {smiles: one["library_match"] for smiles, one in candidates.items()}
    assert matches == dict.fromkeys(candidates) | {ORTHO: said}
    assert candidates[ORTHO]["sources"] == ["library", "noise"]
    assert candidates[PARA]["sources"] == ["<i>mine", "analogues"]
    assert offered["library"] == peaks | said
    assert [one["library_match"] for one in refused["candidates"]] == [None] * 5
    assert refused["library"] is None


def test_settings_are_named_as_the_command_line_takes_them(own_run):
    files = {"databases": [{"name": "mine.smi", "sha256": "0"}], "formulas_sha256": "1"}
    rewrite(
        own_run.with_name("out.csv.journal.jsonl"),
        lambda rows: [rows[0] | {"settings": rows[0]["settings"] | files}, *rows[1:]],
    )

    settings = dict(ReportedRun([own_run]).about(by_setting())["settings"])

    assert "--ppm" not in settings  # it would set three alike
    assert settings.items() >= {
        "--top-k": "10", "--steps": "10", "--max-memory": "1024", "--core": "by default",
        "--set annotation.floor_mz": "100.0", "--set annotation.orbitrap_ppm": "7.0",
        "--database": "mine.smi", "formulas_sha256": "1",
    }.items()  # fmt: skip


PURINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
PLACES = (1, 3, 6, 8, 10, 13)
THEOPHYLLINE = "Cn1c(=O)c2[nH]cnc2n(C)c1=O"


def depictions(*smiles):
    """Drawings, with their atoms as arrays."""
    drawings = depiction.depictions([molecule(text) for text in smiles])
    return [one and one | {"atoms": np.array(one["atoms"])} for one in drawings]


@pytest.mark.parametrize(
    ("smiles", "labels"),
    [
        ("C", [(0, "C", 4, 0)]),  # nothing else would show it
        ("CC", []),
        ("[NH4+]", [(0, "N", 4, 1)]),
        ("[C-]#[O+]", [(0, "C", 0, -1), (1, "O", 0, 1)]),
        ("C[N+](C)(C)CCO", [(1, "N", 0, 1), (6, "O", 1, 0)]),
        ("CCCl", [(2, "Cl", 0, 0)]),
        (PURINE, [(at, element, 0, 0) for at, element in zip(PLACES, "NONNNO", strict=True)]),
    ],
)
def test_labels_say_element_hydrogens_and_charge_and_all_is_inside_the_box(smiles, labels):
    (drawing,) = depictions(smiles)
    mol = molecule(smiles)

    assert [tuple(label[:4]) for label in drawing["labels"]] == labels
    assert drawing["atoms"].shape == (mol.GetNumAtoms(), 2)
    assert len(drawing["bonds"]) == mol.GetNumBonds()
    assert ((drawing["atoms"] >= 0) & (drawing["atoms"] <= drawing["box"])).all()


def test_hydrogens_stand_where_no_neighbour_is():
    (drawing,) = depictions("OCCCCCCO")

    left, right = sorted(drawing["labels"], key=lambda label: drawing["atoms"][label[0], 0])
    assert (left[-1], right[-1]) == ("l", "r")


def test_aromatic_bonds_are_single_and_double_and_the_second_line_is_inside_the_ring():
    benzene, ketone = depictions("c1ccccc1", "CC(C)=O")
    atoms, doubles = benzene["atoms"], [bond for bond in benzene["bonds"] if bond[2] == 2]

    assert [bond[2] for bond in benzene["bonds"]].count(1) == len(doubles) == 3
    for one, other, _, side in doubles:
        middle, way = (atoms[one] + atoms[other]) / 2, atoms[other] - atoms[one]
        to_centre = atoms.mean(0) - middle
        assert to_centre @ [-way[1], way[0]] * side > 0
    # At an end there is a line on each side.
    assert [bond for bond in ketone["bonds"] if bond[2] == 2] == [[1, 3, 2, 0]]


def test_candidates_are_turned_like_the_first_where_they_share_rings():
    shapes = []
    # N(methyl), C=O and both fusion atoms of the purine, in the numbering of each SMILES.
    for drawing, atoms in zip(
        depictions(PURINE, THEOPHYLLINE), ([1, 2, 4, 5], [1, 2, 4, 8]), strict=True
    ):
        away = drawing["atoms"][atoms[1:]] - drawing["atoms"][atoms[0]]
        shapes.append(away / np.linalg.norm(away, axis=1)[:, None])

    assert shapes[0] == pytest.approx(shapes[1], abs=0.05)


def test_what_is_no_molecule_has_no_drawing_and_costs_no_other():
    drawings = depictions("not a molecule", "CCO", "", "O", "CC(C)CO")  # chains, too

    assert [one and len(one["atoms"]) for one in drawings] == [None, 3, None, 1, 5]
