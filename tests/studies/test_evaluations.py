"""Studies of whole evaluations: presets, true fingerprints, a card of the numbers."""

import json

import model_card
import numpy as np
import presets
import pytest
import true_fingerprints
import yaml
from true_fingerprints import assembly_recovers, steps

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate import EvaluateSettings
from duallgd_cli.evaluate.suites import RELEASES
from tests import labelled_table
from tests.made_graphs import small_settings, stirred
from tests.scored_entries import scored

pytest.importorskip("scipy", reason="needs the evaluate extra")


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_every_preset_gets_a_row_and_a_second_run_predicts_nothing(
    study, table, hashes, tmp_path, monkeypatch
):
    few = {"fast": SamplingSettings(samples=3, steps=2), "thorough": SamplingSettings(samples=9)}
    monkeypatch.setattr(presets, "PRESETS", few)
    options = "--fold test --presets fast,thorough -o out --train-hashes"
    asked = (table, *options.split(), hashes)

    first = study(presets.main, *asked)
    assert first.code == 0, first.err
    times = [(tmp_path / "out" / name / "cpu_s.txt").read_text() for name in few]
    again = study(presets.main, *asked)

    rows = [line.split(" | ") for line in first.out.splitlines()[2:]]
    assert [(row[0], *row[1:4]) for row in rows] == [
        ("| fast", "3", "2", "3"),
        ("| thorough", "9", "10", "3"),
    ]
    assert [len(text.split()) for text in times] == [3, 3]
    assert again.out == first.out
    assert [(tmp_path / "out" / name / "cpu_s.txt").read_text() for name in few] == times
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {name: one["prediction"]["samples"]["drawn"] for name, one in found.items()} == {
        "fast": 9,
        "thorough": 27,
    }


SMILES = ("CCO", "CCN", "CCC", "CC(=O)O")


@pytest.mark.parametrize(
    ("smiles", "recovered"),
    [
        ("CC(=O)Oc1ccccc1C(=O)O", True),
        ("c1ccc2[nH]ccc2c1", True),
        ("O=[N+]([O-])c1ccccc1", True),
        ("CCO.CC", False),  # a bond matrix cannot say that there are two molecules
        ("[Fe]", False),
    ],
)
def test_a_perfect_matrix_is_worth_the_molecule_wherever_it_can_express_it(smiles, recovered):
    assert assembly_recovers(smiles) is recovered


def test_shares_fall_from_the_perfect_matrix_to_the_first_candidate():
    settings = EvaluateSettings(mces=False, workers=1)
    drawn = (["CCO"], ["C"] * 4 + ["CCN"], ["C"] * 20 + ["CCC"], [])
    ours, bound = (
        scored([(s, s, s, one) for s, one in zip(SMILES, ranked, strict=True)], settings)
        for ranked in (drawn, [[smiles] for smiles in SMILES])
    )

    assert {name: one.mean for name, one in steps(ours, bound).items()} == {
        "perfect bond matrix, assembled": 1.0,
        "true fingerprint, any sample": 1.0,
        "true fingerprint, first candidate": 1.0,
        "predicted fingerprint, any sample": 0.75,
        "predicted fingerprint, first 10": 0.5,
        "predicted fingerprint, first 1": 0.25,
    }


@pytest.mark.slow
def test_an_evaluation_is_predicted_from_the_true_fingerprints(
    study, evaluated, tmp_path, monkeypatch
):
    model = stirred(small_settings())
    weights = tmp_path / "w.safetensors"
    save(weights, Checkpoint(model.settings, dict(model.state_dict()), {"step": 7}))
    evaluated("val", steps=2, limit=2, weights=str(weights), device="cpu")
    seen = []
    told = true_fingerprints.TrueFingerprints.__call__
    monkeypatch.setattr(
        true_fingerprints.TrueFingerprints,
        "__call__",
        lambda *given: seen.append(told(*given)) or seen[-1],
    )

    done = study(true_fingerprints.main, tmp_path / "val", "--weights", weights, "--device", "cpu")

    assert done.code == 0, done.err
    assert "true fingerprint, first candidate" in done.out
    expected = [np.sort(fingerprint(parse_smiles(s))) for s, *_ in labelled_table.MOLECULES]
    for dense, _ in seen:
        assert any(np.array_equal(np.flatnonzero(dense), bits) for bits in expected)
    assert len(seen) >= 2


ESTIMATE = {"mean": 0.123456, "low": 0.1, "high": 0.2}
KINDS = [f"{kind}@{k}" for kind in ("accuracy", "mces", "tanimoto") for k in (1, 10)]
FOUND = {
    "duallgd": "0.1.0",
    "title": "MassSpecGym 1.5, fold test",
    "track": "formula known",
    "remarks": ["Nothing leaked."],
    "data": {
        "files": {RELEASES[0][1]: RELEASES[0][2]},
        "fold": "test",
        "spectra_per_molecule": "all",
        "limit": None,
    },
    "prediction": {"settings": {"seed": 7}, "weights": {"record": {"data": "MassBank"}}},
    "metrics": dict.fromkeys(KINDS, ESTIMATE),
}


def test_the_card_has_the_eighteen_numbers(study, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(FOUND))

    assert study(model_card.main, tmp_path).code == 0
    text = (tmp_path / "model_card.yaml").read_text()
    written = yaml.safe_load(text)

    [entry] = written["results"]
    assert "# Fill in: paper_url" in text
    assert len(entry["metrics"]) == 18
    assert entry["metrics"]["Top-10 Tanimoto CI High"] == 0.2
    assert entry["metrics"]["Top-1 Accuracy"] == 0.1235
    assert (entry["task"], entry["challenge"]) == ("de_novo", "bonus")
    assert entry["uses_formula_at_inference"]
    assert written["random_seed"] == 7
    assert written["pretraining"]["filtering_criterion"] == "exact_match"
    assert written["uses_official_split"]
    assert "Nothing leaked." in written["notes"]


def test_parts_are_no_official_split_and_what_was_not_computed_is_null():
    metrics = {"accuracy@1": ESTIMATE}
    found = {**FOUND, "data": {**FOUND["data"], "limit": 100}, "metrics": metrics}

    part = model_card.card(found)

    assert not part["uses_official_split"]
    assert part["results"][0]["metrics"]["Top-1 MCES"] is None


@pytest.mark.parametrize("changed", [{"fold": "val"}, {"files": {RELEASES[0][1]: "0" * 64}}])
def test_other_data_are_refused(study, tmp_path, changed):
    found = {**FOUND, "data": {**FOUND["data"], **changed}}
    (tmp_path / "results.json").write_text(json.dumps(found))

    done = study(model_card.main, tmp_path)

    assert done.code == 2
    assert "the card is for fold test of MassSpecGym as published" in done.err
