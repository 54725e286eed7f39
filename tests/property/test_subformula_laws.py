"""The sub-formula search finds what brute force finds, and nothing outside the ion."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.elements import MASSES_DA, N_ELEMENTS, SYMBOLS
from duallgd_cli.spectra.annotation import SubformulaTable

# C N O P S F Cl Br I B Si Se H: lowest valence minus two, written out a second time.
BONDS = dict(zip(SYMBOLS, (4, 3, 2, 3, 2, 1, 1, 1, 1, 3, 4, 2, 1), strict=True))

small_ions = st.tuples(
    st.integers(0, 6),
    *(st.integers(0, 2) for _ in range(4)),
    *(st.integers(0, 1) for _ in range(N_ELEMENTS - 6)),
    st.integers(0, 14),
).filter(lambda counts: 0 < sum(map(bool, counts)) <= 6)


def unsaturation(counts) -> float:
    pairs = zip(SYMBOLS, counts, strict=True)
    return 1 + sum(n * (BONDS[symbol] - 2) for symbol, n in pairs) / 2


def brute_force(counts, mass: float, tolerance_da: float) -> set[tuple[int, ...]]:
    found = set()
    for candidate in product(*(range(n + 1) for n in counts)):
        total = sum(n * m for n, m in zip(candidate, MASSES_DA, strict=True))
        if abs(mass - total) <= tolerance_da and unsaturation(candidate) >= -0.5:
            found.add(candidate)
    return found


@given(small_ions, st.data())
def test_the_search_equals_brute_force(counts, data):
    chosen = [data.draw(st.integers(0, n)) for n in counts]
    mass = sum(n * m for n, m in zip(chosen, MASSES_DA, strict=True)) + 1e-4
    tolerance_da = data.draw(st.sampled_from([2e-4, 0.02, 0.6]))
    total = sum(n * m for n, m in zip(counts, MASSES_DA, strict=True))

    table = SubformulaTable(counts, total)
    matches = table.find(np.array([mass]), np.array([tolerance_da]))
    found = matches.counts

    assert len({tuple(map(int, row)) for row in found}) == len(found)
    assert {tuple(map(int, row)) for row in found} == brute_force(counts, mass, tolerance_da)
    assert [(unsaturation(row) - 1) * 2 for row in found] == matches.excess.tolist()


@given(
    st.tuples(*(st.integers(0, 12) for _ in range(N_ELEMENTS - 1)), st.integers(0, 60)),
    st.lists(st.floats(1, 600), min_size=1, max_size=4),
    st.floats(1e-5, 2e-3),
)
def test_every_match_lies_within_the_ion_and_the_tolerance(counts, masses, tolerance_da):
    total = sum(n * m for n, m in zip(counts, MASSES_DA, strict=True))
    wanted = np.array(masses)

    table = SubformulaTable(counts, min(total, 200.0))
    matches = table.find(wanted, np.full(wanted.size, tolerance_da))
    found = matches.counts

    error_da = wanted[matches.owner] - found @ np.array(MASSES_DA)
    assert (found >= 0).all()
    assert (found <= np.array(counts)).all()
    np.testing.assert_allclose(matches.error_da, error_da, atol=1e-9)
    assert (np.abs(error_da) <= tolerance_da + 1e-9).all()
    assert (np.diff(matches.owner) >= 0).all()
