"""Peak rows are the same whether a spectrum comes from a prediction or from prepared data."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem.adduct import BY_NAME, parse_adduct
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, METALS, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.data import peaks as peaks_module
from duallgd_cli.data.peaks import MAX_ROWS, from_annotated, packed_batch, prepared_batch
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.types import Feature, Hypothesis
from duallgd_cli.train.encoder import true_bits
from tests.made_graphs import BY_ROW, peak_batch, some_rows
from tests.made_prepared import SPECTRA, made_spectra, row_of
from tests.made_spectra import annotated, made_spectrum


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra")


def generator():
    return np.random.default_rng(1)


@pytest.mark.parametrize("number", range(len(SPECTRA)))
def test_a_prepared_spectrum_is_what_a_prediction_would_see(spectra, number):
    smiles, adduct, _, energy, _ = SPECTRA[number]
    row = row_of("", *SPECTRA[number])
    mz, intensity = (row[name].split(",") for name in ("mzs", "intensities"))
    energy_ev = float(energy) if energy else None
    measured = made_spectrum(mz, intensity, collision_energy_ev=energy_ev, instrument="orbitrap")
    molecule = formula_of(parse_smiles(smiles))

    seen = from_annotated(annotate(Hypothesis(Feature((measured,)), molecule, BY_NAME[adduct])))

    # Prepared numbers are kept in half precision, m/z in single.
    stored = prepared_batch(spectra, [number])
    for name in ("intensity", "ppm", "mz", "share", "energy_ev"):
        got, wanted = getattr(seen, name), getattr(stored, name)
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=2e-3, equal_nan=True)
    for name in ("subformula", "carrier", "parent", "adduct", "instrument"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(stored, name))


def made_rows(n_rows, seed=1):
    """A spectrum whose rows are of random atoms and of all heights, and what a network sees."""
    rng = np.random.default_rng(seed)
    made = annotated(
        rng.integers(0, 5, (n_rows, N_ELEMENTS)), "C9H8O4",
        mz=np.sort(rng.random(n_rows) * 100 + 50), ppm=rng.normal(0, 3, n_rows),
        intensity=(rng.permutation(n_rows) + 1.0) / max(n_rows, 1),
    )  # fmt: skip
    return made, from_annotated(made)


def test_the_most_intense_rows_are_kept_in_their_order():
    many, rows = made_rows(100)

    kept = np.flatnonzero(many.intensity > (100 - MAX_ROWS) / 100 + 1e-6)
    assert rows.n_rows.tolist() == [MAX_ROWS]
    np.testing.assert_array_equal(rows.mz, many.mz[kept].astype(np.float32))
    np.testing.assert_array_equal(rows.subformula, many.subformula[kept])


def test_a_network_sees_of_another_adduct_what_the_nearest_one_may_have():
    molecule, dimer = Formula.parse("C9H8O4"), parse_adduct("[2M+Na]+")
    masses = [Formula.parse(text).atoms_mass for text in ("C7H5O2", "C9H8O4", "C18H16O8")]
    mz = np.array(masses) + np.array([0, 1, 1]) * METALS["Na"][0] - ELECTRON_MASS_DA
    feature = Feature((made_spectrum(mz, [1.0, 0.5, 0.2]),))

    rows = from_annotated(annotate(Hypothesis(feature, molecule, dimer)))

    assert (int(rows.adduct), rows.carrier.tolist()) == (BY_NAME["[M+Na]+"].index, [0, 1])
    np.testing.assert_array_equal(rows.parent[0], molecule.array)
    np.testing.assert_allclose(rows.mz, mz[:2])


def test_rows_are_padded_to_the_longest_spectrum(spectra):
    numbers = [*range(len(SPECTRA))][::-1]
    batch, index = prepared_batch(spectra, numbers), torch.tensor([3, 0, 2])

    padded, mask = batch.padded(index)

    assert mask.shape[1] == batch.n_rows[index].max() > batch.n_rows[index].min()
    for b, number in enumerate(numbers[place] for place in index):
        alone = prepared_batch(spectra, [number])
        for name in BY_ROW:
            got = getattr(padded, name)[b]
            torch.testing.assert_close(got[mask[b]], getattr(alone, name), equal_nan=True)
        np.testing.assert_array_equal(padded.parent[b], alone.parent[0])


def merged(spectra, group):
    """The most intense rows of several spectra, in their order, as if they were one."""
    alone = [prepared_batch(spectra, [number]) for number in group]
    rows = {name: torch.cat([getattr(one, name) for one in alone]) for name in BY_ROW}
    kept = np.sort(np.argsort(-rows["intensity"].numpy(), kind="stable")[: peaks_module.MAX_ROWS])
    return some_rows(replace(alone[0], **rows), kept)


@pytest.mark.parametrize("most", [64, 3])
def test_a_packed_batch_is_the_spectra_one_after_the_other(spectra, monkeypatch, most):
    noise = ("JITTER", "NOISE_PPM", "ENERGY_DROP", "INSTRUMENT_DROP")
    for name, value in {"MAX_ROWS": most, **dict.fromkeys(noise, 0.0)}.items():
        monkeypatch.setattr(peaks_module, name, value)
    groups = ([0, 1], [3], [2], [4], [0])

    batch = packed_batch([(spectra, groups[:2], 0.0), (spectra, groups[2:], 0.0)], generator())

    expected = [merged(spectra, group) for group in groups]
    for rows in expected:
        rows.intensity.div_(rows.intensity.max())
    for name, wanted in vars(peak_batch(expected)).items():
        torch.testing.assert_close(getattr(batch, name), wanted, equal_nan=True)
    truth = true_bits(spectra, np.array([group[0] for group in groups]))
    assert torch.equal(batch.truth(4096), truth)


def test_noise_takes_peaks_and_moves_the_others_a_little(spectra):
    groups = [[0]] * 4000
    whole, few = (packed_batch([(spectra, groups, share)], generator()) for share in (0.0, 0.4))
    stored = prepared_batch(spectra, [0])

    n_rows = len(stored.mz)
    moved = whole.ppm.reshape(4000, n_rows) - stored.ppm
    assert 0.75 < len(few.spectrum) / (4000 * n_rows) < 0.85  # each loses up to two fifths
    assert 1.3 < float(moved.std()) < 1.5  # root of two
    assert 0.17 < float(whole.energy_ev.isnan().float().mean()) < 0.23
    assert 0.08 < float((whole.instrument == 0).float().mean()) < 0.12
    assert set(whole.intensity.reshape(4000, n_rows).amax(1).tolist()) == {1.0}
