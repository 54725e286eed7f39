"""How cost grows, where curves cross, and when figures are too bad to say so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.bench import growth
from duallgd_cli.bench.growth import KERNELS, PARTS, busy, conclusions, crossing, fit_exponent

X = (10.0, 20.0, 40.0, 80.0)


@given(st.floats(-3, 5), st.floats(1e-6, 1e6))
def test_a_power_law_is_found_exactly(exponent, scale):
    fitted = fit_exponent(X, [scale * x**exponent for x in X])

    assert fitted["value"] == pytest.approx(exponent, abs=1e-9)
    assert fitted["standard_error"] == pytest.approx(0, abs=1e-9)


def test_the_standard_error_is_that_of_the_textbook():
    fitted = fit_exponent([1, 10, 100], [1, 20, 100])

    # slope 1 on log10; residuals 0.301 x (-1, 2, -1) / 3; spread 2; one degree of freedom
    assert fitted["value"] == pytest.approx(1)
    assert fitted["standard_error"] == pytest.approx((0.30103**2 * 6 / 9 / 2) ** 0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 4, 8], [4, 4, 4, 4], 40),  # where their logarithms do
        ([2, 2, 2, 2], [1, 1, 1, 1], 10),  # from the start: the first size
        ([1, 3, 1, 1], [2, 2, 2, 2], None),  # above at the end
        ([3, 1, 1, 4], [2, 2, 2, 2], 56.57),  # the last one counts
    ],
)
def test_curves_cross(first, second, expected):
    found = crossing(X, first, second)

    assert found == (None if expected is None else pytest.approx(expected, rel=1e-3))


def row(part, kernel, atoms, seconds, iqr=0.0, memory=None):
    return {
        "sweep": "atoms", "part": part, "kernel": kernel, "path": "fast", "atoms": atoms,
        "samples": 1, "steps": 1, "repeats": 5, "clock": "cpu", "cpu_s": seconds,
        "cpu_iqr_s": iqr * seconds, "memory_mib": memory or float(atoms),
    }  # fmt: skip


def rows(**bad):
    """FAVOR+ grows with N, exact softmax with its square; they cross at 20."""
    return [
        row(part, kernel, n, n**2 / 20 if kernel == "softmax" else n, **bad)
        for part in PARTS
        for kernel in KERNELS
        for n in (10, 40, 80)
    ]


def exponents(found):
    return {
        (e["of"], e["part"], e["kernel"]): pytest.approx(e["value"]) for e in found["exponents"]
    }


def test_steady_times_on_an_idle_machine_are_stated():
    found = conclusions(rows(iqr=0.1), None)

    assert found["not_stated"] == []
    assert exponents(found)["time", "forward", "softmax"] == 2
    assert exponents(found)["time", "loop", "favor"] == 1
    assert found["favor_faster_from_atoms"] == {part: pytest.approx(20) for part in PARTS}


def test_a_busy_machine_says_nothing_of_times_and_still_of_memory():
    found = conclusions(rows(), "other programs were running")

    assert {of for of, _, _ in exponents(found)} == {"memory"}
    assert found["favor_faster_from_atoms"] == {}
    assert found["not_stated"] == [
        "how times grow, and where they cross: other programs were running"
    ]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ([row("loop", "favor", 10, 1.0, iqr=0.4)], "runs of one size spread over 40%"),
        ([row("loop", "favor", 10, 99.0)], "more took less than less did"),
    ],
)
def test_times_that_are_too_far_apart_void_their_series_alone(bad, why):
    sound = [r for r in rows() if (r["part"], r["kernel"], r["atoms"]) != ("loop", "favor", 10)]

    found = conclusions(bad + sound, None)

    assert len(found["not_stated"]) == 1
    assert f"time of loop favor fast with atoms: {why}" in found["not_stated"][0]
    assert set(found["favor_faster_from_atoms"]) == {"attention", "forward"}
    assert ("time", "loop", "favor") not in exponents(found)
    assert exponents(found)["time", "loop", "softmax"] == 2


def test_memory_that_falls_says_nothing_of_its_growth():
    falling = [row("loop", "favor", n, float(n), memory=100 / n) for n in (10, 40)]

    found = conclusions(falling, None)

    assert [e["of"] for e in found["exponents"]] == ["time"]
    assert "memory of loop favor fast" in found["not_stated"][0]


@pytest.mark.parametrize(
    ("loads", "threads", "is_busy"),
    [
        ((1.1, 1.1, 1.2), 1, False),
        ((1.1, 1.1, 2.9), 1, False),
        ((1.1, 4.8), 1, True),
        ((4.2, 4.3), 4, False),
        ((None, None), 1, False),
    ],
)
def test_a_machine_is_busy_when_others_leave_too_few_of_its_processors(
    loads, threads, is_busy, monkeypatch
):
    monkeypatch.setattr(growth.os, "cpu_count", lambda: 4)

    assert bool(busy(loads, threads)) is is_busy
