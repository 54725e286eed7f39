"""What leaving a score out of the ranking costs."""

import re

import scores

from duallgd_cli.ranking.ranking import FEATURES
from tests.unit.evaluate.test_calibrate import synthetic


def test_leaving_out_what_tells_costs_something_and_what_does_not_nothing(monkeypatch):
    groups = {"a score that tells": ("fingerprint_tanimoto",), "one that does not": ("contrast",)}
    monkeypatch.setattr(scores, "GROUPS", groups)

    lines = [line[2:].split(" | ", 1) for line in scores.table(synthetic(60)) if "±" in line]
    rows = {name: [float(n) for n in re.findall(r"[-+]\d+\.\d+", cells)] for name, cells in lines}

    log_probability, _, among_ten = rows["a score that tells"]
    assert log_probability < -0.1
    assert among_ten < 0
    assert rows["one that does not"] == [0, 0, 0]  # the same for all candidates


def test_each_molecule_is_judged_once_and_what_is_left_out_is_the_same_for_all_candidates():
    cases = synthetic(12)
    left = scores.without(cases[0], ["log_share", "contrast"])

    assert sorted(row[0] for row in scores.judged(cases)) == sorted(c.molecule for c in cases)
    changed = (left.features != cases[0].features).any(0)
    assert [name for name, is_changed in zip(FEATURES, changed, strict=True) if is_changed] == [
        "log_share"
    ]
    assert not left.features[:, FEATURES.index("log_share")].any()
