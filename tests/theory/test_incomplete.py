"""kappa, the share of the input's variance that gaps let through, against plain Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest

from peephole.theory import Cell, TheoryError, column_factors, kappa, preactivation_variance, preset, visit_shares

ALPHAS = (0.0, 1.0, -0.5)


def filled(rng: np.random.Generator, observed: float, alpha: float, features: int, visits: int = 40_000) -> np.ndarray:
    """Visits of white features, some missing, filled with zero and rescaled by r^alpha."""
    mask = rng.random((visits, features)) < observed
    share = mask.mean(axis=1, keepdims=True)
    scale = np.where(share > 0, np.where(share > 0, share, 1) ** alpha, 0)
    return np.where(mask, rng.standard_normal(mask.shape), 0) * scale


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("observed", [0.3, 0.8])
def test_kappa_is_the_variance_of_w_x(alpha: float, observed: float) -> None:
    """Var(w x~) / (N w) within 4 standard errors of kappa, and of the share observed for alpha = 0 alone."""
    rng = np.random.default_rng(0)
    squares = np.sum(filled(rng, observed, alpha, 6) ** 2, axis=1) / 6
    error = squares.std() / np.sqrt(len(squares))
    assert abs(squares.mean() - kappa(observed, 6, alpha)) < 4 * error
    assert (abs(squares.mean() - 1) > 4 * error) == (alpha >= 0 or observed < 0.5)
    assert (abs(squares.mean() - observed) < 4 * error) == (alpha == 0)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_between_visits(alpha: float) -> None:
    """For two visits with the same features but their own masks the factor is E[r^(1 + alpha)]^2."""
    rng = np.random.default_rng(1)
    ones = np.ones((40_000, 6))

    def gaps() -> np.ndarray:
        mask = rng.random(ones.shape) < 0.6
        share = mask.mean(axis=1, keepdims=True)
        return mask * np.where(share > 0, np.where(share > 0, share, 1) ** alpha, 0)

    products = np.mean(gaps() * gaps(), axis=1)
    error = products.std() / np.sqrt(len(products))
    assert abs(products.mean() - kappa(0.6, 6, alpha, lag=True)) < 4 * error


def test_known_values() -> None:
    """Plain zero fill passes the share observed; alpha = 1 E[r^3]; alpha = -1/2 all but the empty visits."""
    assert kappa(0.4, 6) == pytest.approx(0.4)
    assert kappa([0.5, 1.0], 2, 1.0) == pytest.approx((0.125 + 1) / 2)
    assert kappa(0.4, 6, -0.5) == pytest.approx(1 - 0.6**6)
    assert kappa([0.0, 0.5], 2, -0.5) == pytest.approx(0.5)
    assert kappa(1.0, 6, 1.0) == 1.0


def test_only_the_input_term_is_scaled() -> None:
    """H is never missing: A_k = N kappa w_k Var(x) + M u_k Var(h)."""
    cell = Cell(6, 6, observed=0.5)
    v = preset("normalized", cell)
    assert preactivation_variance(cell, v, "f") == pytest.approx(0.5 + 1)
    assert preactivation_variance(cell, v, "f", hidden=2.0) == pytest.approx(0.5 + 2)


def test_column_factors() -> None:
    """Columns drawn with w / q_n give W x the variance of complete data; one never observed stays as it is."""
    shares = np.array([0.2, 0.5, 1.0, 0.0])
    factors = column_factors(shares)
    assert factors.tolist() == [5.0, 2.0, 1.0, 1.0]
    assert np.sum(factors * shares) == 3
    with pytest.raises(TheoryError, match="from 0 to 1"):
        column_factors([1.2])


def test_visit_shares() -> None:
    """A share for each visit up to the last observed: an empty one before counts, padding does not."""
    x = np.ones((3, 4, 2))
    assert visit_shares(x) == 1.0
    x[0, 1, 0] = x[0, 2:] = np.nan  # one, a half, and two visits of padding
    x[1, 0] = np.nan  # an empty visit first
    x[2] = np.nan  # no visit at all
    assert visit_shares(x) == (1.0, 0.5, 0.0, 1.0, 1.0, 1.0)
    assert Cell(2, 2, observed=visit_shares(x)).kappa == pytest.approx(4.5 / 6)
    with pytest.raises(TheoryError, match="no shares"):
        visit_shares(x[2:])
    with pytest.raises(TheoryError, match=r"sequences, steps, inputs.*\(4, 2\)"):
        visit_shares(x[0])
