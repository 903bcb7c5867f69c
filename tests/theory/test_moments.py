"""Gaussian moments against mpmath's adaptive quadrature at 30 digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss

from peephole.theory import TheoryError, moments
from peephole.theory.activations import NAMED

MEANS = (-6, -2.5, -0.01, 0, 1, 6)
VARIANCES = (1e-4, 1e-2, 0.3, 1, 4, 25, 100, 400)
RELATIVE = 1e-8
Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]

EXACT: dict[str, Pair] = {
    "sigmoid": (lambda a: 1 / (1 + mpmath.exp(-a)), lambda a: mpmath.exp(-a) / (1 + mpmath.exp(-a)) ** 2),
    "tanh": (mpmath.tanh, lambda a: mpmath.sech(a) ** 2),
    "erf": (mpmath.erf, lambda a: 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-a * a)),
    "identity": (lambda a: a, lambda a: mpmath.mpf(1)),
    "relu": (lambda a: max(a, mpmath.mpf(0)), lambda a: mpmath.mpf(a > 0)),
    "hard_sigmoid": (
        lambda a: min(max((a + 3) / 6, mpmath.mpf(0)), mpmath.mpf(1)),
        lambda a: (abs(a) < 3) / mpmath.mpf(6),
    ),
}


def exact(name: str, mean: float, variance: float) -> list[float]:
    """The three moments by adaptive quadrature, cut where the density and the activation change."""
    value, slope = EXACT[name]
    with mpmath.workdps(30):
        m, s = mpmath.mpf(mean), mpmath.mpf(variance)
        cuts = {m + k * mpmath.sqrt(s) for k in (-14, -7, -3, -1, 0, 1, 3, 7, 14)}
        cuts |= {mpmath.mpf(k) for k in (-3, -1, 0, 1, 3) if abs(k - m) < 14 * mpmath.sqrt(s)}

        def expectation(g: Callable[[Any], Any]) -> float:
            def weighted(a: Any) -> Any:
                return g(a) * mpmath.exp(-((a - m) ** 2) / (2 * s)) / mpmath.sqrt(2 * mpmath.pi * s)

            return float(mpmath.quad(weighted, sorted(cuts)))

        return [expectation(value), expectation(lambda a: value(a) ** 2), expectation(lambda a: slope(a) ** 2)]


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
@pytest.mark.parametrize("variance", VARIANCES)
def test_moments_of_the_lstm_s_activations(name: str, variance: float) -> None:
    """Sigmoid and tanh agree to 1e-8 relative over the whole range of means and variances."""
    for mean in MEANS:
        for ours, theirs in zip(moments(name, mean, variance), exact(name, mean, variance), strict=True):
            # E[tanh] is 0 at mean 0, where nothing is relative.
            assert ours == pytest.approx(theirs, rel=RELATIVE, abs=1e-22 if mean else 1e-15)


@pytest.mark.parametrize("name", ["identity", "relu", "hard_sigmoid", "erf"])
def test_closed_forms(name: str) -> None:
    """The closed forms agree wherever the moment is large enough for the oracle to resolve it."""
    for mean, variance in itertools.product((-6, -0.01, 0, 1, 6), (1e-4, 1e-2, 1, 25, 400)):
        for ours, theirs in zip(moments(name, mean, variance), exact(name, mean, variance), strict=True):
            assert ours == pytest.approx(theirs, rel=RELATIVE, abs=1e-20)


def test_a_fixed_rule_would_fail() -> None:
    """Control: 64 Gauss-Hermite nodes, the usual choice, miss 1e-8 at a variance of 100."""
    nodes, weights = hermegauss(64)
    fixed = weights @ NAMED["tanh"](10 * nodes) ** 2 / math.sqrt(2 * math.pi)
    assert abs(fixed / exact("tanh", 0, 100)[1] - 1) > RELATIVE


def test_a_user_s_callable() -> None:
    """A plain function gives the moments of the named one, its slope by differences."""
    named, own = moments("tanh", 0.3, 2.0), moments(lambda a: np.tanh(a), 0.3, 2.0)
    assert own[:2] == pytest.approx(named[:2], rel=1e-9)
    assert own.slope_square == pytest.approx(named.slope_square, rel=1e-9)


def test_a_steep_callable() -> None:
    """A function steeper than any of ours is refined until two rules agree; a kink never lets them."""
    steep = moments(lambda a: np.tanh(50 * a), 0.01, 1.0)
    assert steep.square == pytest.approx(moments("tanh", 0.5, 2500.0).square, rel=1e-9)
    with pytest.raises(TheoryError, match="do not settle"):
        moments(lambda a: np.maximum(a, 0.0), 0.1, 1.0)


@given(st.floats(-6, 6), st.floats(1e-4, 400))
def test_the_bounds_of_a_sigmoid(mean: float, variance: float) -> None:
    """Jensen from below and, for a sigmoid of mean zero, the bound 1/2 on E[sigmoid^2] from above."""
    m = moments("sigmoid", mean, variance)
    assert m.mean**2 <= m.square <= m.mean
    assert moments("sigmoid", 0.0, variance).square < 0.5


def test_bad_arguments() -> None:
    """A negative variance, a NaN and an unknown name are refused in one line."""
    with pytest.raises(TheoryError, match="variance of 0 or more"):
        moments("tanh", 0.0, -1.0)
    with pytest.raises(TheoryError, match="finite mean"):
        moments("tanh", math.nan, 1.0)
    with pytest.raises(TheoryError, match="did you mean 'sigmoid'"):
        moments("sigmod")
