"""Simulated spectra obey the arithmetic that measured ones do."""

import numpy as np
import pytest

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.chem.elements import ATOMIC_NUMBERS, ELECTRON_MASS_DA, MASSES_DA
from duallgd_cli.data.simulation import simulate
from tests.made_prepared import SMILES, molecules_of

SATURATED = ("CCO", "CCCN", "CC(C)OCCN", "OC1CCCCC1CN", "CCOCCSCCCl", "CC(O)C(N)CO")
SEEDS = range(12)


@pytest.fixture(scope="module")
def molecules():
    return molecules_of()


def electrons(rows):
    """Electrons of each fragment ion."""
    charge = ADDUCTS[rows.adduct].charge
    return rows.subformula @ np.array(ATOMIC_NUMBERS) - charge


@pytest.mark.parametrize("row", range(len(SMILES)))
def test_every_fragment_is_a_part_of_the_ion(molecules, row):
    for seed in SEEDS:
        rows = simulate(molecules, row, np.random.default_rng(seed))

        assert (rows.subformula >= 0).all()
        assert (rows.subformula <= rows.parent).all()
        assert (rows.subformula == np.rint(rows.subformula)).all()
        change = np.array(ADDUCTS[rows.adduct].change)
        np.testing.assert_array_equal(rows.parent, molecules.atom_counts[row] + change)


@pytest.mark.parametrize("row", range(len(SMILES)))
def test_masses_are_those_of_the_sub_formulas(molecules, row):
    for seed in SEEDS:
        rows = simulate(molecules, row, np.random.default_rng(seed))

        charge = ADDUCTS[rows.adduct].charge
        exact = rows.subformula.astype(float) @ np.array(MASSES_DA) - charge * ELECTRON_MASS_DA
        np.testing.assert_allclose(rows.numbers[:, 2], exact, rtol=1e-6)
        assert np.abs(rows.numbers[:, 1]).max() < 15


def test_numbers_look_like_a_spectrum(molecules):
    rows = simulate(molecules, 4, np.random.default_rng(1))

    intensity, _, _, share, energy = rows.numbers.T
    assert intensity.max() == pytest.approx(1)
    assert (intensity > 0).all()
    assert (share == 1).all()
    assert np.isnan(energy).all()
    assert not rows.carrier.any()
    assert len(np.unique(rows.subformula, axis=0)) == len(rows.subformula)


def test_both_polarities_are_drawn(molecules):
    adducts = [simulate(molecules, 4, np.random.default_rng(s)).adduct for s in range(200)]

    names = [ADDUCTS[index].name for index in adducts]
    assert set(names) == {"[M+H]+", "[M-H]-"}
    assert 0.2 < names.count("[M-H]-") / 200 < 0.4


def test_single_bonds_broken_leave_an_even_number_of_electrons():
    saturated = molecules_of(*SATURATED)

    for row in range(len(SATURATED)):
        for seed in SEEDS:
            rows = simulate(saturated, row, np.random.default_rng(seed))
            assert (electrons(rows) % 2 == 0).all()


def test_any_bonds_broken_leave_an_even_number_of_electrons(molecules):
    odd = [
        electrons(simulate(molecules, row, np.random.default_rng(seed))) % 2
        for row in range(len(SMILES))
        for seed in SEEDS
    ]

    assert not np.concatenate(odd).any()


def test_a_spectrum_follows_from_its_seed(molecules):
    first, again, other = (simulate(molecules, 5, np.random.default_rng(s)) for s in (1, 1, 2))

    np.testing.assert_array_equal(first.numbers, again.numbers)
    np.testing.assert_array_equal(first.subformula, again.subformula)
    assert first.numbers.shape != other.numbers.shape or (first.numbers != other.numbers).any()


def test_the_fragments_of_ethanol_are_those_of_its_two_bonds():
    ethanol = molecules_of("CCO")

    heavy = set()
    for seed in range(60):
        rows = simulate(ethanol, 0, np.random.default_rng(seed))
        heavy |= {tuple(counts[[0, 2]].astype(int)) for counts in rows.subformula}

    assert heavy == {(2, 1), (2, 0), (1, 1), (1, 0), (0, 1)}
