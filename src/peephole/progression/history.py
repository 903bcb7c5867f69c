"""What a subject's visits up to each tell: last values, their age, means, trends. Also what is to be forecast.

Arrays are (J, T, N): subjects, visits on the regular grid, features, NaN where nothing was observed. Forecasts are
(J, T, K, N): made at each visit from it and those before, for each of the K visits that follow.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def carried(X: Array) -> tuple[Array, Array]:
    """The last observed value of each feature, NaN before the first, and how many visits ago that was."""
    steps = np.arange(X.shape[1])[None, :, None]
    last = np.maximum.accumulate(np.where(np.isnan(X), -1, steps), axis=1)
    values = np.take_along_axis(X, np.maximum(last, 0), axis=1)
    return np.where(last < 0, np.nan, values), np.where(last < 0, np.nan, steps - last)


def mean_so_far(X: Array) -> Array:
    """The mean of what was observed of each feature, 0 before the first value."""
    count = np.cumsum(~np.isnan(X), axis=1)
    return np.asarray(np.cumsum(np.nan_to_num(X, nan=0.0), axis=1) / np.maximum(count, 1))


def line_so_far(X: Array) -> tuple[Array, Array]:
    """The least-squares line through each feature's values: its height at the visit, and its slope a visit.

    Through a single value the line is level; before the first both are NaN.
    """
    seen = ~np.isnan(X)
    steps = np.broadcast_to(np.arange(X.shape[1], dtype=np.float64)[None, :, None], X.shape)
    n, t, tt, x, xt = (
        np.cumsum(np.where(seen, term, 0.0), axis=1)
        for term in (np.ones_like(X), steps, steps**2, np.nan_to_num(X, nan=0.0), np.nan_to_num(X, nan=0.0) * steps)
    )
    spread = n * tt - t**2
    slope = np.where(spread > 0, (n * xt - t * x) / np.where(spread > 0, spread, 1.0), 0.0)
    height = (x - slope * t) / np.maximum(n, 1.0) + slope * steps
    return np.where(n > 0, height, np.nan), np.where(n > 0, slope, np.nan)


def ahead(X: Array, horizons: int) -> Array:
    """What the next visits brought: targets (J, T, K, N), NaN where nothing was observed or the data end."""
    J, T, N = X.shape
    targets = np.full((J, T, horizons, N), np.nan)
    for k in range(1, min(horizons, T - 1) + 1):
        targets[:, : T - k, k - 1] = X[:, k:]
    return targets


def origins(X: Array) -> Mask:
    """From which visits (J, T) a forecast is asked for: those at which something was observed."""
    return np.asarray(~np.isnan(X).all(axis=-1), dtype=np.bool_)


def asked(X: Array, horizons: int) -> Array:
    """The targets (J, T, K, N) of the forecasts that are asked for, NaN elsewhere."""
    return np.where(origins(X)[:, :, None, None], ahead(X, horizons), np.nan)
