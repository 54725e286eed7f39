"""The honest-input rule at the level of the pipeline: only the spectrum and its formula count.

The stand-in seeds its noise with everything that the pipeline hands to a model, so anything that
leaked into it would change the candidates.
"""

import hashlib
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.spectra.reading import read
from tests.made_runs import SETTINGS
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf
from tests.stub_model import StubNoise, stub_model

ASPIRIN_INCHI = "InChI=1S/C9H8O4/c1-6(10)13-8-5-3-2-4-7(8)9(11)12/h2-5H,1H3,(H,11,12)"
TRUTH = {
    "SMILES": "CC(=O)Oc1ccccc1C(=O)O", "INCHI": ASPIRIN_INCHI,
    "INCHIKEY": "BSYNRYMUTXBXSQ-UHFFFAOYSA-N", "INCHIAUX": "BSYNRYMUTXBXSQ-UHFFFAOYSA-N",
}  # fmt: skip
LIES = {
    "SMILES": "O=C(O)c1ccc(C(=O)CO)cc1", "INCHI": "InChI=1S/CH4/h1H4",
    "INCHIKEY": "VNWKTOKETHGBQD-UHFFFAOYSA-N", "INCHIAUX": "N/A",
}  # fmt: skip


class ContentNoise(StubNoise):
    """Random graphs whose noise depends on every value of the annotated spectrum."""

    def propose(self, query, n, seed):
        annotated, hypothesis = query.annotated, query.annotated.hypothesis
        about = [seed, hypothesis.formula, hypothesis.adduct, hypothesis.log_prior]
        names = ("subformula", "intensity", "ppm", "mz", "share", "carrier", "energy_ev")
        about += [np.ascontiguousarray(getattr(annotated, name)).tobytes() for name in names]
        for one in hypothesis.feature.spectra:
            leaked = {*one.metadata.values()} & {*TRUTH.values(), *LIES.values()}
            assert not leaked, "a structure came through"
            about += [one.precursor_mz, one.collision_energy_ev, one.instrument]
        digest = hashlib.blake2b(str(about).encode(), digest_size=7).digest()
        return super().propose(query, n, int.from_bytes(digest, "big"))


def candidates(spectra):
    """Candidates of each spectrum by its place."""
    model = replace(stub_model(), sources=(ContentNoise(),))
    found = model.predict(spectra, SETTINGS)
    return {one.source.index: one.candidates for one in found}


def made(folder, *fields):
    molecules = (ASPIRIN, CAFFEINE, NICOTINE, ALANINE)
    blocks = (block(m, **own) for m, own in zip(molecules, fields, strict=True))
    return mgf(folder / "in.mgf", *blocks)


def test_predictions_do_not_depend_on_structures_or_identifiers_in_the_record(tmp_path):
    without = candidates(made(tmp_path, {}, {}, {}, {}))

    assert all(without.values())
    same = {"title": "x", "scans": "1", "feature_id": "5"}
    for fields in (
        *([TRUTH] * 4, [LIES] * 4, [LIES, TRUTH, {}, LIES], [same] * 4),
        [{"title": "x"}, {"title": "x"}, {"title": ""}, {"scans": "1"}],
    ):
        assert candidates(made(tmp_path, *fields)) == without


def test_no_neighbour_and_no_order_changes_a_prediction(tmp_path):
    spectra = list(read(made(tmp_path, {}, {}, {}, {})))
    reference = candidates(spectra)

    @settings(max_examples=15)
    @given(order=st.permutations(range(4)), n=st.integers(1, 4))
    def holds(order, n):
        found = candidates([spectra[place] for place in order[:n]])
        assert found == {place: reference[place] for place in order[:n]}

    holds()
