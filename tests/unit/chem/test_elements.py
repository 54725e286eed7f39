import itertools

import pytest
from rdkit import Chem

from duallgd_cli.chem import elements


@pytest.mark.parametrize("symbol", elements.SYMBOLS)
def test_atomic_numbers_and_masses_are_those_of_the_most_common_isotope(symbol):
    table = Chem.GetPeriodicTable()
    index = elements.INDEX[symbol]

    assert elements.ATOMIC_NUMBERS[index] == table.GetAtomicNumber(symbol)
    assert elements.MASSES_DA[index] == pytest.approx(
        table.GetMostCommonIsotopeMass(symbol), abs=5e-6
    )


@pytest.mark.parametrize("valences", elements.VALENCES)
def test_valences_rise_in_steps_of_two(valences):
    assert all(high - low == 2 for low, high in itertools.pairwise(valences))
