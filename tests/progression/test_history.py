"""What earlier visits tell, and the baselines that use nothing else."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as Peer

from peephole.progression import baselines
from peephole.progression.history import ahead, asked, carried, line_so_far, mean_so_far

NAN = float("nan")
X = np.array([[[NAN, 1.0], [2.0, NAN], [NAN, NAN], [4.0, 3.0]]])  # (1, 4, 2)


def test_carried() -> None:
    """The last value of each feature and its age in visits; NaN before the first."""
    values, age = carried(X)
    np.testing.assert_array_equal(values[0], [[NAN, 1], [2, 1], [2, 1], [4, 3]])
    np.testing.assert_array_equal(age[0], [[NAN, 0], [0, 1], [1, 2], [0, 0]])


def test_means_and_lines() -> None:
    """Means and least-squares lines of the values so far are NumPy's."""
    rng = np.random.default_rng(0)
    series = rng.standard_normal((3, 6, 2))
    series[rng.random(series.shape) < 0.4] = NAN
    mean, (height, slope) = mean_so_far(series), line_so_far(series)
    for j, t, n in np.ndindex(series.shape):
        past = series[j, : t + 1, n]
        steps = np.flatnonzero(~np.isnan(past))
        if not len(steps):
            assert mean[j, t, n] == 0
            assert np.isnan(height[j, t, n])
            continue
        assert mean[j, t, n] == pytest.approx(past[steps].mean())
        line = np.polyfit(steps, past[steps], 1) if len(steps) > 1 else np.array([0.0, past[steps[0]]])
        assert height[j, t, n] == pytest.approx(np.polyval(line, t), abs=1e-9)
        assert slope[j, t, n] == pytest.approx(line[0], abs=1e-9)


def test_targets() -> None:
    """The targets of a visit are the values of those that follow; none are asked of a visit without an observation."""
    targets = ahead(X, 5)
    np.testing.assert_array_equal(targets[0, 0], [[2, NAN], [NAN, NAN], [4, 3], [NAN, NAN], [NAN, NAN]])
    assert np.isnan(asked(X, 2)[0, 2]).all()
    assert not np.isnan(ahead(X, 2)[0, 2]).all()


def test_baselines() -> None:
    """The last value, the mean and the line, from each visit."""
    assert baselines.last_value(X, 2)[0, 2].tolist() == [[2, 1], [2, 1]]
    assert baselines.last_value(X, 1)[0, 0].tolist() == [[0, 1]]  # nothing known: the mean
    assert not baselines.training_mean(X, 2).any()
    np.testing.assert_allclose(baselines.linear_trend(X, 2)[0, 3], [[5, 11 / 3], [6, 13 / 3]])


def test_ridge_autoregression() -> None:
    """It finds the coefficients of a linear process, as scikit-learn's ridge regression does on the same rows."""
    rng = np.random.default_rng(1)
    A = np.array([[0.8, 0.1], [0.0, 0.7]])
    series = np.zeros((300, 6, 2))
    series[:, 0] = rng.standard_normal((300, 2))
    for t in range(1, 6):
        series[:, t] = series[:, t - 1] @ A.T + 0.1 * rng.standard_normal((300, 2))
    ridge = baselines.Ridge.fit(series, 2)
    assert ridge.weight[0, :, :2] == pytest.approx(A, abs=0.03)
    assert ridge.weight[1, :, :2] == pytest.approx(A @ A, abs=0.05)
    rows = series[:, :5].reshape(-1, 2), series[:, 1:].reshape(-1, 2)
    peer = Peer(1e-2).fit(*rows)
    np.testing.assert_allclose(ridge.forecast(series, 1)[:, 4, 0], peer.predict(series[:, 4]), atol=0.03)
    every, truth = baselines.forecasts(series, 2, ridge), asked(series, 2)
    errors = {name: np.nanmean(np.abs(forecast - truth)) for name, forecast in every.items()}
    assert min(errors, key=lambda name: errors[name]) == "ridge autoregression"
