"""The reference's peak processing and sub-formula assignment on its own examples."""

import numpy as np
import pytest

from duallgd_authors_network.encoder import assign, process_peaks, reference_peaks, reordered
from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.formula import Formula

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def examples(parity):
    return list(parity.json("subformula_examples.json").values())


def raw(example):
    return np.array(example["raw_peaks"], dtype=float).T


def test_peaks_and_their_subformulas_are_the_reference_s(examples):
    for example in examples:
        stored, adduct = example["subformula_json"], parse_adduct(example["adduct_given"])
        mz, intensity = process_peaks(*raw(example), example["precursor_mz"])
        peak, counts = assign(Formula.parse(example["formula"]), adduct, mz)

        processed = np.array(example["processed_peaks"])
        np.testing.assert_allclose(np.stack([mz, intensity], 1), processed, atol=1e-9)
        table = stored["output_tbl"]
        formulas = [Formula.parse(text) for text in table["formula"]]
        mass_da = np.array([one.atoms_mass for one in formulas]) + adduct.mass_shift
        deviation_ppm = np.abs(mass_da - mz[peak]) / np.maximum(mz[peak], 200) * 1e6
        assert example["formula"] == stored["cand_form"]
        assert adduct == parse_adduct(stored["cand_ion"])
        assert np.array_equal(counts, [reordered(one.array) for one in formulas])
        for got, column, atol in (
            (mz[peak], "mz", 1e-9),
            (intensity[peak], "ms2_inten", 1e-9),
            (mass_da, "mono_mass", 1e-6),
            (deviation_ppm, "mass_diff", 1e-2),
        ):
            np.testing.assert_allclose(got, table[column], atol=atol)


def test_the_encoder_s_input_is_the_reference_s(parity, examples):
    stored = parity.arrays("mist_io.npz")

    for number, example in enumerate(examples):
        got = reference_peaks(
            Formula.parse(example["formula"]),
            parse_adduct(example["adduct_given"]),
            *raw(example),
            example["precursor_mz"],
        )

        theirs = {name: stored[f"single{number}/{name}"][0].numpy() for name in NAMES}
        assert np.array_equal(got.counts[0], theirs["form_vec"])
        assert np.array_equal(got.token_type[0], theirs["types"])
        assert np.array_equal(got.adduct[0], theirs["ion_vec"])
        np.testing.assert_allclose(got.intensity[0], theirs["intens"], atol=1e-6)


NAMES = ("form_vec", "types", "ion_vec", "intens")
