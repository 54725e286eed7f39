"""Molecules that come with the weights: candidates like any others, unless they are excluded."""

import pytest

from duallgd_cli.predict import api
from duallgd_cli.runtime import Runtime
from tests.made_spectra import CAFFEINE, block, mgf


@pytest.mark.slow
def test_known_molecules_are_candidates_unless_they_are_excluded(tmp_path):
    model = api.load(runtime=Runtime.resolve("cpu", "float32", threads=1))
    made = str(mgf(tmp_path / "in.mgf", block(CAFFEINE)))

    (told,), (excluded,) = (
        list(model.predict(made, samples=20, steps=1, exclude_known=value))
        for value in (False, True)
    )

    known = set(model.known)
    first, others = told.candidates[0], excluded.candidates
    assert first.inchikey[:14] == "RYYVLZVUVIJVGH"  # caffeine's
    assert first.inchikey[:14] in known
    assert others
    assert known.isdisjoint(one.inchikey[:14] for one in others)
    assert others[0].confidence > next(
        one.confidence for one in told.candidates if one.inchikey == others[0].inchikey
    )
