"""The card of a MassSpecGym submission, from the contents of results.json."""

import json

import pytest
import yaml
from model_card import card, main

from duallgd_cli.evaluate.suites import RELEASES

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
    "metrics": {name: {"independent": ESTIMATE} for name in KINDS},
}


def test_the_card_has_the_eighteen_numbers(study, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(FOUND))

    assert study(main, tmp_path).code == 0
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
    metrics = {"accuracy@1": {"independent": ESTIMATE}}
    found = {**FOUND, "data": {**FOUND["data"], "limit": 100}, "metrics": metrics}

    part = card(found)

    assert not part["uses_official_split"]
    assert part["results"][0]["metrics"]["Top-1 MCES"] is None


@pytest.mark.parametrize("changed", [{"fold": "val"}, {"files": {RELEASES[0][1]: "0" * 64}}])
def test_other_data_are_refused(study, tmp_path, changed):
    found = {**FOUND, "data": {**FOUND["data"], **changed}}
    (tmp_path / "results.json").write_text(json.dumps(found))

    done = study(main, tmp_path)

    assert done.code == 2
    assert "the card is for fold test of MassSpecGym as published" in done.err
