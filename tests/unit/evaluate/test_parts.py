import numpy as np

from duallgd_cli.evaluate.parts import masks, parts, title_of
from duallgd_cli.evaluate.scoring import Scores
from duallgd_cli.evaluate.tables import Truth


def truth(name, benchmark):
    return Truth(name, "CCO", f"molecule {name}", {"benchmark": benchmark})


TRUTHS = [truth("a", "nplib1"), truth("b", "nplib1+massspecgym"), truth("c", ""), truth("d", "")]


def test_a_molecule_of_two_benchmarks_counts_in_both():
    found = masks(TRUTHS)

    assert list(found) == ["massspecgym", "nplib1"]
    assert found["massspecgym"].tolist() == [False, True, False, False]
    assert found["nplib1"].tolist() == [True, True, False, False]


def test_a_part_has_the_means_of_its_own_spectra():
    scores = Scores(
        spectrum_id=tuple("abcd"),
        molecule=tuple(t.molecule for t in TRUTHS),
        columns={"accuracy@1": np.array([1.0, 0.0, 1.0, 1.0])},
    )

    by_name = {part.name: part for part in parts(scores, TRUTHS)}

    assert by_name["nplib1"].summary["accuracy@1"].per_spectrum.mean == 0.5
    assert by_name["massspecgym"].summary["accuracy@1"].per_spectrum.mean == 0.0
    assert by_name["nplib1"].molecules == 2
    assert by_name["nplib1"].title == "NPLIB1 part"


def test_without_the_column_there_are_no_parts():
    assert masks([Truth("a", "CCO", "m", {})]) == {}
    assert title_of("own") == "part own"
