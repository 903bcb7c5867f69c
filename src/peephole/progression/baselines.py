"""Forecasts that any model has to beat, from standardised visits (J, T, N) as (J, T, K, N); see `history`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from peephole.progression.history import Array, asked, carried, line_so_far

BASELINES = ("last value", "training mean", "linear trend", "ridge autoregression")
"""The names of the baselines."""

PENALTIES = np.logspace(-2, 4, 13)
LAGS = 2


def forecasts(X: Array, horizons: int, ridge: Ridge) -> dict[str, Array]:
    """Each baseline's forecasts (J, T, K, N) from every visit, the ridge autoregression's as it was fitted."""
    every = (
        last_value(X, horizons),
        training_mean(X, horizons),
        linear_trend(X, horizons),
        ridge.forecast(X, horizons),
    )
    return dict(zip(BASELINES, every, strict=True))


def last_value(X: Array, horizons: int) -> Array:
    """The last observed value carried forward; before the first the training mean."""
    return np.repeat(np.nan_to_num(carried(X)[0], nan=0.0)[:, :, None], horizons, axis=2)


def training_mean(X: Array, horizons: int) -> Array:
    """The mean of all that was observed in training, the same for everybody: 0 in standardised units."""
    return np.zeros((*X.shape[:2], horizons, X.shape[2]))


def linear_trend(X: Array, horizons: int) -> Array:
    """The line through the subject's own values so far, level where there is only one."""
    height, slope = (np.nan_to_num(part, nan=0.0)[:, :, None] for part in line_so_far(X))
    forecast: Array = height + slope * np.arange(1, horizons + 1)[:, None]
    return forecast


@dataclass(frozen=True, eq=False)
class Ridge:
    """Ridge autoregression: a linear map `weight` (K, N, 2 N), `bias` (K, N) from the last two visits for each horizon.

    A gap is filled with the last value before it.
    """

    weight: Array
    bias: Array

    @classmethod
    def fit(cls, X: Array, horizons: int) -> Self:
        """On training visits, each horizon and feature with a penalty of its own by cross-validation (`RidgeCV`)."""
        try:
            from sklearn.linear_model import RidgeCV
        except ImportError as error:
            raise ImportError("forecasts need scikit-learn: pip install 'peephole[forecast]'") from error
        N = X.shape[2]
        targets, known = asked(X, horizons), _lagged(X)
        weight, bias = np.zeros((horizons, N, LAGS * N)), np.zeros((horizons, N))
        for k, n in np.ndindex(horizons, N):
            rows = ~np.isnan(targets[:, :, k, n])
            if rows.sum() > 1:
                model = RidgeCV(PENALTIES).fit(known[rows], targets[:, :, k, n][rows])
                weight[k, n], bias[k, n] = model.coef_, model.intercept_
        return cls(weight, bias)

    def forecast(self, X: Array, horizons: int) -> Array:
        """The forecasts of as many horizons, at most those that were fitted."""
        forecast: Array = np.einsum("jti,kni->jtkn", _lagged(X), self.weight[:horizons]) + self.bias[:horizons]
        return forecast


def _lagged(X: Array) -> Array:
    """The visits' values and those of the visits before, the first visit's where there is none."""
    values = np.nan_to_num(carried(X)[0], nan=0.0)
    steps = np.arange(X.shape[1])
    return np.concatenate([values[:, np.maximum(steps - lag, 0)] for lag in range(LAGS)], axis=-1)
