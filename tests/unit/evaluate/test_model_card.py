import math

import yaml

from duallgd_cli.evaluate.report import write_model_card

ESTIMATE = {"mean": 0.123456, "low": 0.1, "high": 0.2}
FOUND = {
    "duallgd": "0.1.0",
    "track": "formula known",
    "remarks": ["Nothing leaked."],
    "data": {"fold": "test", "spectra_per_molecule": "all", "limit": None},
    "prediction": {"settings": {"seed": 7}, "weights": {"record": {"data": "MassBank"}}},
    "metrics": {
        f"{kind}@{k}": {"independent": ESTIMATE}
        for kind in ("accuracy", "mces", "tanimoto")
        for k in (1, 10)
    },
}


def test_the_card_has_the_eighteen_numbers(tmp_path):
    card = yaml.safe_load(write_model_card(tmp_path, FOUND).read_text())

    [entry] = card["results"]
    metrics = entry["metrics"]
    assert len(metrics) == 18
    assert metrics["Top-10 Tanimoto CI High"] == 0.2
    assert metrics["Top-1 Accuracy"] == 0.1235
    assert (entry["task"], entry["challenge"]) == ("de_novo", "bonus")
    assert entry["uses_formula_at_inference"]
    assert card["random_seed"] == 7
    assert card["pretraining"]["filtering_criterion"] == "exact_match"
    assert card["uses_official_split"]
    assert "Nothing leaked." in card["notes"]


def test_a_part_of_the_test_fold_is_no_official_split(tmp_path):
    found = {**FOUND, "data": {**FOUND["data"], "limit": 100}}

    assert not yaml.safe_load(write_model_card(tmp_path, found).read_text())["uses_official_split"]


def test_numbers_that_were_not_computed_are_null(tmp_path):
    found = {**FOUND, "metrics": {"accuracy@1": {"independent": ESTIMATE}}}

    metrics = yaml.safe_load(write_model_card(tmp_path, found).read_text())["results"][0]["metrics"]

    assert metrics["Top-1 MCES"] is None
    assert not any(isinstance(v, float) and math.isnan(v) for v in metrics.values())
