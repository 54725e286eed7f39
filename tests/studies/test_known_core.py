"""The study of what it is worth to know a core, with a stand-in for the network."""

import known_core
import pytest

from tests.made_runs import lines_of
from tests.stub_model import stub_model

pytest.importorskip("scipy", reason="needs the evaluate extra")


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_every_molecule_is_predicted_with_each_thing_that_is_known(
    study, evaluated, table, tmp_path, monkeypatch
):
    monkeypatch.setattr(known_core, "load", lambda *_, **__: stub_model())
    evaluated("val", steps=2, spectra_per_molecule="1")

    done = study(known_core.main, "val", table, "--samples", 2, "-o", "known.jsonl")
    again = study(known_core.main, "val", table, "--samples", 2, "-o", "known.jsonl")

    assert done.code == 0, done.err
    assert again.out == done.out
    found = lines_of(tmp_path / "known.jsonl")
    told = {(row["known"], row["what"]) for row in found}
    assert {("scaffold", "c1ccccc1"), ("ring", "c1ccccc1"), ("nothing", "")} <= told
    assert len([row for row in found if row["known"] == "nothing"]) == 3
    assert [line.split(" | ")[2] for line in done.out.splitlines()[2:4]] == ["3", "3"]
