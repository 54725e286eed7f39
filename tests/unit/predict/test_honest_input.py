"""The honest-input rule at the level of the pipeline: only the spectrum and its formula count.

The stand-in seeds its noise with everything that the pipeline hands to a model, so anything that
leaked into it would change the candidates.
"""

import hashlib
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.predict.api import predict_spectra
from duallgd_cli.spectra.reading import read
from tests.made_runs import SETTINGS
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf
from tests.stub_model import StubNoise, stub_model

MOLECULES = (ASPIRIN, CAFFEINE, NICOTINE, ALANINE)
TRUTH = {
    "SMILES": "CC(=O)Oc1ccccc1C(=O)O",
    "INCHI": "InChI=1S/C9H8O4/c1-6(10)13-8-5-3-2-4-7(8)9(11)12/h2-5H,1H3,(H,11,12)",
    "INCHIKEY": "BSYNRYMUTXBXSQ-UHFFFAOYSA-N",
    "INCHIAUX": "BSYNRYMUTXBXSQ-UHFFFAOYSA-N",
}
LIES = {
    "SMILES": "O=C(O)c1ccc(C(=O)CO)cc1",
    "INCHI": "InChI=1S/CH4/h1H4",
    "INCHIKEY": "VNWKTOKETHGBQD-UHFFFAOYSA-N",
    "INCHIAUX": "N/A",
}


class ContentNoise(StubNoise):
    """Random graphs whose noise depends on every value of the annotated spectrum."""

    def propose(self, query, n, seed):
        annotated, hypothesis = query.annotated, query.annotated.hypothesis
        digest = hashlib.blake2b(str(seed).encode(), digest_size=7)
        digest.update(f"{hypothesis.formula}{hypothesis.adduct}{hypothesis.log_prior}".encode())
        for name in ("subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev"):
            digest.update(np.ascontiguousarray(getattr(annotated, name)).tobytes())
        for one in hypothesis.feature.spectra:
            leaked = {*one.metadata.values()} & {*TRUTH.values(), *LIES.values()}
            assert not leaked, "a structure came through"
            about = f"{one.precursor_mz}{one.collision_energy_ev}{one.instrument}"
            digest.update(about.encode())
        return super().propose(query, n, int.from_bytes(digest.digest(), "big"))


MODEL = replace(stub_model(), sources=(ContentNoise(),))


def candidates(path, *fields):
    """Candidates of each molecule in a file in which records have these fields."""
    made = mgf(path, *(block(m, **own) for m, own in zip(MOLECULES, fields, strict=False)))
    return [one.candidates for one in predict_spectra(MODEL, made, SETTINGS)]


def test_predictions_do_not_depend_on_structures_in_the_record(tmp_path):
    without = candidates(tmp_path / "a.mgf", {}, {}, {}, {})

    assert all(without)
    for labels in ([TRUTH] * 4, [LIES] * 4, [LIES, TRUTH, {}, LIES]):
        assert candidates(tmp_path / "b.mgf", *labels) == without


@pytest.mark.parametrize(
    "names",
    [
        [{}, {}, {}],
        [{"title": "x"}, {"title": "x"}, {"title": "x"}],
        [{"title": "x", "scans": "1"}, {"title": "y", "scans": "1"}, {"title": ""}],
        [{"feature_id": "5"}, {"feature_id": "5"}, {"feature_id": "5"}],
    ],
)
def test_duplicate_or_missing_identifiers_change_no_prediction(tmp_path, names):
    unique = candidates(tmp_path / "u.mgf", *({"title": n} for n in "abc"))

    assert candidates(tmp_path / "n.mgf", *names) == unique


@cache
def made():
    """Spectra with their candidates where they are predicted together."""
    with tempfile.TemporaryDirectory() as folder:
        blocks = [*map(block, MOLECULES), block(ASPIRIN, scale=2)]
        spectra = list(read(mgf(Path(folder) / "in.mgf", *blocks)))
    return spectra, [one.candidates for one in predict_spectra(MODEL, spectra, SETTINGS)]


@settings(max_examples=15)
@given(order=st.permutations(range(5)), n=st.integers(1, 5))
def test_no_neighbour_and_no_order_changes_a_prediction(order, n):
    spectra, reference = made()

    found = predict_spectra(MODEL, [spectra[place] for place in order[:n]], SETTINGS)

    by_place = {one.source.index: one.candidates for one in found}
    assert by_place == {place: reference[place] for place in order[:n]}
