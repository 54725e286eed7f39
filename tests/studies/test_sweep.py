"""Evaluations over the values of one setting, compared."""

import json

import pytest
from sweep import compared, front, main, plot

from duallgd_cli.errors import UsageError

# Value, seconds a spectrum, Tanimoto similarity, MCES distance.
VALUES = ((50, 50.0, 0.5, 8.0), (10, 10.0, 0.3, 8.0), (1, 1.0, 0.2, 9.0), (5, 5.0, 0.4, 9.5))


def result(value, seconds, tanimoto, mces, split="x"):
    means = {"tanimoto@1": tanimoto, "mces@1": mces, "valid": 1.0}
    return {
        "data": {"split_sha256": split},
        "prediction": {
            "settings": {"sampling": {"steps": value}},
            "run_seconds_per_spectrum": seconds,
            "samples": {"seconds_per_spectrum": 2 * (seconds or 4)},
        },
        "metrics": {name: {"per_spectrum": {"mean": mean}} for name, mean in means.items()},
    }


ROWS = compared("steps", [result(*values) for values in VALUES])


def test_values_stand_in_order_with_their_speed_up_and_their_front():
    assert [row["value"] for row in ROWS] == [1, 5, 10, 50]
    assert [row["speed_up"] for row in ROWS] == [50, 10, 5, 1]
    assert list(ROWS[0])[3:] == ["tanimoto@1", "mces@1"]
    assert front(ROWS, "tanimoto@1") == [1, 5, 50]
    assert front(ROWS, "mces@1") == [1, 10]  # a smaller distance is the better one
    # Times of spectra stand in where a run was resumed.
    resumed = compared("steps", [result(1, 1.0, 0, 0), result(2, None, 0, 0)])
    assert [row["seconds"] for row in resumed] == [2.0, 8.0]


def test_evaluations_of_different_spectra_are_refused():
    with pytest.raises(UsageError, match="different spectra"):
        compared("steps", [result(1, 1, 0, 0), result(2, 1, 0, 0, split="y")])


def test_folders_are_compared_in_a_table_and_a_plot(study, tmp_path):
    for values in VALUES:
        (tmp_path / str(values[0])).mkdir()
        (tmp_path / str(values[0]) / "results.json").write_text(json.dumps(result(*values)))

    done = study(main, "steps", *(str(value) for value, *_ in VALUES), "-o", tmp_path / "s" / "p")

    assert done.code == 0, done.err
    stars = [line.split("│")[1].strip() for line in done.out.splitlines() if "*" in line]
    assert stars == ["1", "5", "50"]
    assert (tmp_path / "s" / "p.png").read_bytes().startswith(b"\x89PNG")
    assert len(plot("steps", ROWS, "mces@1").axes[0].lines) == 4
