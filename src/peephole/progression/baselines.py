"""Forecasts that any model has to beat, from standardised visits (J, T, N) as (J, T, K, N); see `history`."""

from collections.abc import Callable

import numpy as np

from peephole.progression.history import Array, asked, carried, line_so_far

PENALTIES = np.logspace(-2, 4, 13)


def last_value(train: Array, X: Array, horizons: int) -> Array:
    """The last observed value carried forward; before the first the training mean, which is 0."""
    return np.repeat(np.nan_to_num(carried(X)[0], nan=0.0)[:, :, None], horizons, axis=2)


def training_mean(train: Array, X: Array, horizons: int) -> Array:
    """The mean of all that was observed in training, the same for everybody."""
    mean = np.nan_to_num(np.nanmean(train, axis=(0, 1)), nan=0.0)
    return np.broadcast_to(mean, (*X.shape[:2], horizons, X.shape[2])).copy()


def linear_trend(train: Array, X: Array, horizons: int) -> Array:
    """The line through the subject's own values so far, level where there is only one."""
    height, slope = (np.nan_to_num(part, nan=0.0)[:, :, None] for part in line_so_far(X))
    forecast: Array = height + slope * np.arange(1, horizons + 1)[:, None]
    return forecast


def ridge_autoregression(train: Array, X: Array, horizons: int, lags: int = 2) -> Array:
    """A linear map from all features' last values at the last `lags` visits, its penalty by cross-validation.

    Fitted for each horizon and feature of its own (`sklearn.linear_model.RidgeCV`); a gap is filled with the last
    value before it.
    """
    from sklearn.linear_model import RidgeCV

    targets, known, new = asked(train, horizons), _lagged(train, lags), _lagged(X, lags)
    forecast = np.zeros((*X.shape[:2], horizons, X.shape[2]))
    for k in range(horizons):
        for n in range(X.shape[2]):
            rows = ~np.isnan(targets[:, :, k, n])
            if rows.sum() > 1:
                model = RidgeCV(PENALTIES).fit(known[rows], targets[:, :, k, n][rows])
                forecast[:, :, k, n] = model.predict(new.reshape(-1, new.shape[-1])).reshape(new.shape[:2])
    return forecast


def _lagged(X: Array, lags: int) -> Array:
    """The visits' values and those of the visits before, the first visit's where there is none."""
    values = np.nan_to_num(carried(X)[0], nan=0.0)
    steps = np.arange(X.shape[1])
    return np.concatenate([values[:, np.maximum(steps - lag, 0)] for lag in range(lags)], axis=-1)


BASELINES: dict[str, Callable[[Array, Array, int], Array]] = {
    "last value": last_value,
    "training mean": training_mean,
    "linear trend": linear_trend,
    "ridge autoregression": ridge_autoregression,
}
"""Name of each baseline, and its function of the training visits, the visits to go on from, and K."""
