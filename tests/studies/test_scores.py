"""What leaving a score out of the ranking costs."""

import re

import numpy as np
import scores

from duallgd_cli.evaluate.calibrate import folds
from duallgd_cli.ranking.ranking import FEATURES
from tests.unit.evaluate.test_calibrate import synthetic


def cells(line):
    return [float(text) for text in re.findall(r"[-+]\d+\.\d+", line)]


def test_leaving_out_what_tells_costs_something_and_what_does_not_nothing(
    monkeypatch,
):
    groups = {"a score that tells": ("fingerprint_tanimoto",), "one that does not": ("contrast",)}
    monkeypatch.setattr(scores, "GROUPS", groups)

    rows = dict(line[2:].split(" | ", 1) for line in scores.table(synthetic(60)) if "±" in line)

    log_probability, _, among_ten = cells(rows["a score that tells"])
    assert log_probability < -0.1
    assert among_ten < 0
    assert cells(rows["one that does not"]) == [0, 0, 0]  # the same for all candidates


def test_no_molecule_is_judged_by_a_fit_on_itself():
    cases = synthetic(30)

    for rest, fold in folds(cases):
        assert not {case.molecule for case in rest} & {case.molecule for case in fold}
    assert sorted(row[0] for row in scores.judged(cases)) == sorted(case.molecule for case in cases)


def test_a_score_that_is_left_out_is_the_same_for_all_candidates_and_no_other_changes():
    (case,) = synthetic(1)

    left = scores.without(case, ["log_share", "contrast"])

    changed = np.flatnonzero((left.features != case.features).any(0))
    assert changed.tolist() == [FEATURES.index("log_share")]
    assert not left.features[:, FEATURES.index("log_share")].any()
