"""The honest-input rule at the level of the pipeline: only the spectrum and its formula count.

The stand-in generator seeds its noise with everything that the pipeline hands to a model, so
anything that leaked into it would change the candidates.
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

from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.api import predict_spectra
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.reading import read
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf
from tests.stub_model import StubNoise, stub_model

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=1, samples=3))
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
        annotated = query.annotated
        digest = hashlib.blake2b(str(seed).encode(), digest_size=7)
        hypothesis = annotated.hypothesis
        digest.update(f"{hypothesis.formula}{hypothesis.adduct}{hypothesis.log_prior}".encode())
        for name in ("subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev"):
            digest.update(np.ascontiguousarray(getattr(annotated, name)).tobytes())
        for spectrum in hypothesis.feature.spectra:
            for value in spectrum.metadata.values():
                assert value not in {*TRUTH.values(), *LIES.values()}, "a structure came through"
            digest.update(f"{spectrum.precursor_mz}{spectrum.collision_energy_ev}".encode())
            digest.update(spectrum.instrument.encode())
        return super().propose(query, n, int.from_bytes(digest.digest(), "big"))


MODEL = replace(stub_model(), sources=(ContentNoise(),))


def candidates(path):
    """Candidates of each spectrum of a file, in order."""
    return [one.candidates for one in predict_spectra(MODEL, str(path), SETTINGS)]


def labelled(path, *labels):
    molecules = (ASPIRIN, CAFFEINE, NICOTINE, ALANINE)
    return mgf(path, *(block(m, **lab) for m, lab in zip(molecules, labels, strict=True)))


def test_predictions_do_not_depend_on_structures_in_the_record(tmp_path):
    without = candidates(labelled(tmp_path / "a.mgf", {}, {}, {}, {}))
    with_truth = candidates(labelled(tmp_path / "b.mgf", TRUTH, TRUTH, TRUTH, TRUTH))
    with_lies = candidates(labelled(tmp_path / "c.mgf", LIES, LIES, LIES, LIES))
    shuffled = candidates(labelled(tmp_path / "d.mgf", LIES, TRUTH, {}, LIES))

    assert all(without)
    assert with_truth == without
    assert with_lies == without
    assert shuffled == without


@settings(max_examples=15)
@given(order=st.permutations(range(5)), n=st.integers(1, 5))
def test_no_neighbour_and_no_order_changes_a_prediction(order, n):
    spectra = made()
    reference = [one.candidates for one in predict_spectra(MODEL, spectra, SETTINGS)]

    chosen = [spectra[place] for place in order[:n]]
    found = predict_spectra(MODEL, chosen, SETTINGS)

    by_source = {one.source: one.candidates for one in found}
    for place in order[:n]:
        assert by_source[spectra[place].source] == reference[place]


@cache
def made():
    with tempfile.TemporaryDirectory() as folder:
        blocks = [*map(block, (ASPIRIN, CAFFEINE, NICOTINE, ALANINE)), block(ASPIRIN, scale=2)]
        return list(read(mgf(Path(folder) / "in.mgf", *blocks)))


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
    molecules = (ASPIRIN, CAFFEINE, NICOTINE)
    unique = mgf(tmp_path / "u.mgf", *(block(m, title=m[0]) for m in molecules))
    renamed = mgf(
        tmp_path / "n.mgf", *(block(m, **name) for m, name in zip(molecules, names, strict=True))
    )

    assert candidates(renamed) == candidates(unique)
