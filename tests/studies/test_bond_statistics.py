"""Statistics of attention asymmetry, on weights whose answer is known."""

import math

import numpy as np
import pytest
from bond_statistics import EQUAL, UNEQUAL, asymmetry, order_effect, summarise, views
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.elements import BOND_SINGLE, HEAVY

C, N, OX, P, S, B, SI, SE = (HEAVY.index(x) for x in ("C", "N", "O", "P", "S", "B", "Si", "Se"))


def two_atoms(low, high, first, bond=BOND_SINGLE, key="MADE"):
    """One pair, with the lower atom's weight at one layer and level."""
    weight = np.full((1, 1, 1), first)
    return asymmetry(key, np.array([low, high]), np.array([bond]), weight)


@pytest.mark.parametrize(
    ("low", "high", "kind", "expected"),
    [
        (C, OX, "C-O", math.log2(0.25 / 0.75)),
        (C, S, "C-S", math.log2(0.25 / 0.75)),
        (C, P, "P-C", math.log2(0.75 / 0.25)),
        (OX, S, "S-O", math.log2(0.75 / 0.25)),
        (OX, SI, "Si-O", math.log2(0.75 / 0.25)),
        (C, B, "B-C", math.log2(0.75 / 0.25)),
    ],
)
def test_the_ratio_is_of_the_less_over_the_more_electronegative_end(low, high, kind, expected):
    seen = two_atoms(low, high, 0.25)

    assert seen.kind == (kind,)
    np.testing.assert_allclose(seen.log_ratio, expected)
    np.testing.assert_allclose(seen.by_row, math.log2(0.25 / 0.75))


@given(first=st.floats(1e-6, 1 - 1e-6), ends=st.sampled_from([(C, OX), (C, P), (C, C), (N, S)]))
def test_swapping_the_weights_flips_the_sign(first, ends):
    one, other = two_atoms(*ends, first), two_atoms(*ends, 1 - first)

    np.testing.assert_allclose(one.log_ratio, -other.log_ratio, atol=1e-9)


def test_the_coin_of_equal_ends_is_the_same_each_time_and_falls_on_both_sides():
    keys = [f"KEY{number}" for number in range(200)]
    signs = [float(np.sign(two_atoms(C, C, 0.25, key=key).log_ratio[0, 0])) for key in keys]
    again = [float(np.sign(two_atoms(C, C, 0.25, key=key).log_ratio[0, 0])) for key in keys]

    assert signs == again
    assert 70 < signs.count(1.0) < 130


def test_weights_are_averaged_before_the_ratio_is_taken():
    first = np.array([[[0.1], [0.3]], [[0.5], [0.7]]])  # two layers, two levels, one pair

    np.testing.assert_allclose(views(first), [[0.4, 0.2, 0.6, 0.3, 0.5]])
    seen = asymmetry("MADE", np.array([C, OX]), np.array([1]), first)
    np.testing.assert_allclose(seen.log_ratio[0, 0], math.log2(0.4 / 0.6))


def many(effect, count=60, seed=1):
    """Molecules C-C-O whose C-O bonds prefer O by `effect`, and whose C-C bonds prefer nobody."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        logit = rng.normal(0, 0.3, 3) - np.array([0, effect / 3, effect])
        first = 1 / (1 + 2.0**-logit)
        found.append(
            asymmetry(f"M{number}", np.array([C, C, OX]), np.array([1, 0, 1]), first[None, None])
        )
    return found


def test_a_planted_preference_is_found_and_equal_ends_have_none():
    kinds = {kind["kind"]: kind for kind in summarise(many(0.8), ("layer 1", "t = 50"))}

    assert list(kinds) == [UNEQUAL, EQUAL, "C-C", "C-O"]
    polar, control = kinds["C-O"], kinds["C-C"]
    assert polar["mean"]["low"] - 0.05 < -0.8 < polar["mean"]["high"] + 0.05
    assert polar["median"]["low"] <= polar["median"]["mean"] <= polar["median"]["high"] < 0
    assert polar["verdict"] == "high"
    assert polar["share_negative"] > 0.9
    assert polar["p_value"] < 1e-6
    assert (polar["bonds"], polar["molecules"]) == (60, 60)
    assert set(polar["by_view"]) == {"layer 1", "t = 50"}
    np.testing.assert_allclose(polar["unbonded"]["mean"], -0.8 / 3, atol=0.1)
    assert control["mean"]["low"] < 0 < control["mean"]["high"]
    assert control["verdict"] == "neither"
    assert control["p_value"] > 0.01
    assert math.isnan(control["unbonded"]["mean"])
    assert kinds[UNEQUAL]["mean"] == polar["mean"]


def test_an_order_that_the_network_sees_shows_between_equal_ends():
    blind = [two_atoms(C, C, 0.5 + 0.01 * (-1) ** n, key=str(n)) for n in range(40)]
    seeing = [two_atoms(C, C, 0.6, key=str(n)) for n in range(40)]
    none = [two_atoms(C, OX, 0.6)]

    assert order_effect(blind).low < 0 < order_effect(blind).high
    assert order_effect(seeing).low == pytest.approx(math.log2(0.6 / 0.4))
    assert math.isnan(order_effect(none).mean)
