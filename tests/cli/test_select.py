"""`duallgd data select`: structures that are like the molecules of measured spectra."""

import pytest

from duallgd_cli.data.prepared import load_molecules, verify


def test_structures_are_chosen_and_can_be_simulated(duallgd, prepared):
    done = duallgd(
        "data", "select", "structures", "--like", "spectra", "--limit", "5", "-o", "alike"
    )

    assert done.code == 0, done.err
    assert (done.out, done.err) == ("", "5 molecules in alike\n")
    verify(prepared / "alike")
    assert len(load_molecules(prepared / "alike")) == 5
    simulated = ["alike", "--like", "spectra", "-o", "made", "--workers", "1", "--steps", "1"]
    assert duallgd("data", "simulate", *simulated).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none", "--like", "spectra", "-o", "alike"], 66, "none holds no prepared data"),
        (["structures", "--like", "none", "-o", "alike"], 66, "none holds no prepared data"),
        (["structures", "--like", "structures", "-o", "alike"], 2, "not spectra"),
        (["spectra", "--like", "spectra", "-o", "alike"], 2, "spectra holds spectra"),
        (["structures", "--like", "spectra", "-o", "structures"], 2, "give another output"),
        (["structures", "--like", "spectra", "-o", "./spectra"], 2, "give another output"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused_in_a_sentence(
    duallgd, prepared, arguments, code, message
):
    done = duallgd("data", "select", *arguments, "--limit", "5")

    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err
    verify(prepared / "structures")
    verify(prepared / "spectra")
