"""The inputs' autocorrelation, in the forms that users have it in."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from peephole.theory.activations import Array
from peephole.theory.errors import TheoryError

Correlation = float | ArrayLike | None


def check_autocorrelation(given: Correlation, steps: int) -> None:
    """Raise unless it is None, a number, a list by lag, or a matrix that covers the steps; `propagate` says more."""
    if given is None:
        return
    values = np.asarray(given, dtype=float)
    if values.ndim > 2 or values.size == 0 or not np.all(np.isfinite(values)):
        raise TheoryError(f"input_autocorrelation of shape {values.shape}: finite numbers, one, by lag, or a matrix")
    if values.ndim == 2:
        if values.shape[0] != values.shape[1] or len(values) < steps:
            raise TheoryError(f"input_autocorrelation of shape {values.shape} does not cover {steps} steps")
        largest = np.sqrt(np.outer(np.maximum(np.diag(values), 0), np.maximum(np.diag(values), 0)))
        if not np.allclose(values, values.T) or np.any(np.abs(values) > 1.000001 * largest + 1e-12):
            raise TheoryError("input_autocorrelation: the matrix is not that of covariances (symmetric, bounded)")
    elif np.any(np.abs(values) > 1):
        raise TheoryError(f"input_autocorrelation = {given}: a correlation lies in [-1, 1]")
    elif values.ndim == 1 and values[0] != 1:
        raise TheoryError(f"input_autocorrelation by lag begins with 1, the correlation at lag 0, not {values[0]:g}")


def input_correlation(given: Correlation, steps: int) -> Array:
    """The matrix E[x_s x_t] / Var(x) of the first steps, from any of the forms that `propagate` takes."""
    check_autocorrelation(given, steps)
    lags = np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    if given is None:
        return np.eye(steps)
    values = np.asarray(given, dtype=float)
    if values.ndim == 0:
        return np.asarray(float(values) ** lags)
    if values.ndim == 1:
        by_lag = np.zeros(max(steps, len(values)))
        by_lag[: len(values)] = values
        return by_lag[lags]
    return values[:steps, :steps]


def autocorrelation(x: ArrayLike) -> Array:
    """E[x_s x_t] / E[x^2] of a batch (sequences, steps, inputs), over what was observed (NaN is missing)."""
    batch = np.asarray(x, dtype=float)
    if batch.ndim != 3:
        raise TheoryError(f"a batch has the shape (sequences, steps, inputs), got {batch.shape}")
    seen = ~np.isnan(batch)
    filled = np.where(seen, batch, 0.0)
    power = np.sum(filled**2)
    if not (np.isfinite(power) and power > 0):
        raise TheoryError("a batch without any observed signal, or with infinite values, has no autocorrelation")
    total = np.einsum("bsn,btn->st", filled, filled)
    pairs = np.einsum("bsn,btn->st", seen.astype(float), seen.astype(float))
    return np.asarray((total / np.maximum(pairs, 1.0)) / (power / np.sum(seen)))
