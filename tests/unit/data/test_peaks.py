"""Peak rows are the same whether a spectrum comes from a prediction or from prepared data."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.adduct import BY_NAME, parse_adduct
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, METALS, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data import peaks as peaks_module
from duallgd_cli.data.peaks import MAX_ROWS, from_annotated, from_prepared, packed_batch, peak_batch
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.types import Feature, Hypothesis
from duallgd_cli.train.encoder import true_bits
from tests.made_prepared import SPECTRA, cells_of, made_spectra
from tests.made_spectra import annotated as made_annotated
from tests.made_spectra import made_spectrum

FORMULAS = ("C9H8O4", "C9H8O4", "C9H8O4", "C8H10N4O2", "C2H5NO2", "C6H6O2", "C10H14N2")


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra")


def generator():
    return np.random.default_rng(1)


def annotated(adduct="[M+H]+", n_rows=5, instrument="", seed=1):
    rng = np.random.default_rng(seed)
    return made_annotated(
        rng.integers(0, 5, (n_rows, N_ELEMENTS)),
        "C9H8O4",
        adduct,
        instrument,
        mz=np.sort(rng.random(n_rows) * 100 + 50),
        intensity=(rng.permutation(n_rows) + 1.0) / max(n_rows, 1),
        ppm=rng.normal(0, 3, n_rows),
    )


@pytest.mark.parametrize("number", range(len(SPECTRA)))
def test_a_prepared_spectrum_is_what_a_prediction_would_see(spectra, number):
    stored = from_prepared(spectra, [number])
    measured = made_spectrum(
        *_peaks(number),
        collision_energy_ev=float(SPECTRA[number][3]) if SPECTRA[number][3] else None,
        instrument="orbitrap",
    )
    adduct = BY_NAME[SPECTRA[number][1]]
    hypothesis = Hypothesis(Feature((measured,)), Formula.parse(FORMULAS[number]), adduct)

    seen = from_annotated(annotate(hypothesis, AnnotationSettings()))

    # Prepared numbers are kept in half precision, m/z in single.
    np.testing.assert_array_equal(seen.subformula, stored.subformula)
    np.testing.assert_allclose(seen.numbers, stored.numbers, rtol=1e-3, atol=2e-3)
    np.testing.assert_array_equal(seen.carrier, stored.carrier)
    np.testing.assert_array_equal(seen.parent, stored.parent)
    assert (seen.adduct, seen.instrument) == (stored.adduct, stored.instrument)


def _peaks(number):
    cells = cells_of(number, *SPECTRA[number])
    return tuple(np.array([float(x) for x in cells[i].split(",")]) for i in (1, 2))


def test_the_most_intense_rows_are_kept_in_their_order():
    many = annotated(n_rows=100)

    rows = from_annotated(many)

    kept = np.flatnonzero(many.intensity > (100 - MAX_ROWS) / 100 + 1e-6)
    assert len(rows.carrier) == MAX_ROWS
    np.testing.assert_array_equal(rows.numbers[:, 2], many.mz[kept])
    np.testing.assert_array_equal(rows.subformula, many.subformula[kept])


def test_a_network_sees_of_another_adduct_what_the_nearest_one_may_have():
    molecule, dimer = Formula.parse("C9H8O4"), parse_adduct("[2M+Na]+")
    masses = [Formula.parse(text).atoms_mass for text in ("C7H5O2", "C9H8O4", "C18H16O8")]
    mz = np.array(masses) + np.array([0, METALS["Na"][0], METALS["Na"][0]]) - ELECTRON_MASS_DA
    measured = made_spectrum(mz, [1.0, 0.5, 0.2])

    rows = from_annotated(annotate(Hypothesis(Feature((measured,)), molecule, dimer)))

    assert rows.adduct == BY_NAME["[M+Na]+"].index
    assert rows.carrier.tolist() == [0, 1]
    np.testing.assert_array_equal(rows.parent, molecule.array)
    np.testing.assert_allclose(rows.numbers[:, 2], mz[:2])


def test_rows_are_padded_to_the_longest_spectrum_and_none_to_one():
    spectra = [from_annotated(annotated(n_rows=n, seed=n)) for n in (3, 0, 7)]

    batch = peak_batch(spectra)

    assert batch.mask.sum(1).tolist() == [3, 0, 7]
    assert batch.subformula.shape == (3, 7, N_ELEMENTS)
    for b, rows in enumerate(spectra):
        own = batch.mask[b]
        numbers = (batch.intensity, batch.ppm, batch.mz, batch.share, batch.energy_ev)
        got = torch.stack([column[b][own] for column in numbers], 1).numpy()
        np.testing.assert_array_equal(got, rows.numbers)
        np.testing.assert_array_equal(batch.subformula[b][own], rows.subformula)
        np.testing.assert_array_equal(batch.parent[b], rows.parent)
    assert not batch.intensity[~batch.mask].any()
    empty = peak_batch([spectra[1], spectra[1]])
    assert empty.mask.tolist() == [[False], [False]]


@pytest.fixture
def without_noise(monkeypatch):
    for name in ("JITTER", "NOISE_PPM", "ENERGY_DROP", "INSTRUMENT_DROP"):
        monkeypatch.setattr(peaks_module, name, 0.0)


GROUPS = ([0, 1], [3], [2], [4], [0])


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("most", [64, 3])
def test_a_packed_batch_is_the_spectra_one_after_the_other(spectra, monkeypatch, most):
    monkeypatch.setattr(peaks_module, "MAX_ROWS", most)

    batch = packed_batch([(spectra, GROUPS[:2], 0.0), (spectra, GROUPS[2:], 0.0)], generator())

    expected = [from_prepared(spectra, group) for group in GROUPS]
    padded = peak_batch(expected)
    brightest = padded.intensity.amax(1, keepdim=True).clamp_min(1e-6)
    assert batch.start.diff().tolist() == [1 + len(rows.carrier) for rows in expected]
    for name, values in vars(batch.padded()).items():
        wanted = padded.intensity / brightest if name == "intensity" else getattr(padded, name)
        torch.testing.assert_close(values.to(wanted.dtype), wanted, equal_nan=True)
    truth = true_bits(spectra, np.array([group[0] for group in GROUPS]))
    assert torch.equal(batch.truth(4096), truth)


def test_noise_takes_peaks_and_moves_the_others_a_little(spectra):
    groups = [[0]] * 4000
    whole, few = (packed_batch([(spectra, groups, share)], generator()) for share in (0.0, 0.4))
    stored = from_prepared(spectra, [0])

    n_rows = len(stored.carrier)
    assert 0.75 < len(few.spectrum) / (4000 * n_rows) < 0.85  # each loses up to two fifths
    moved = whole.rows.ppm[:, 0].reshape(4000, n_rows) - torch.from_numpy(stored.numbers[:, 1])
    assert 1.3 < float(moved.std()) < 1.5  # root of two
    assert 0.17 < float(whole.rows.energy_ev.isnan().float().mean()) < 0.23
    assert 0.08 < float((whole.instrument == 0).float().mean()) < 0.12
    assert set(whole.rows.intensity.reshape(4000, n_rows).amax(1).tolist()) == {1.0}
