"""How good forecasts are: errors of numbers, of diagnoses, and of the intervals around the numbers.

The last four are those of the TADPOLE challenge.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from peephole.progression.errors import ProgressionError

__all__ = ["bca", "coverage", "cpa", "mae", "mauc", "mse", "wes"]

Array = NDArray[np.float64]


def mae(truth: ArrayLike, forecast: ArrayLike) -> Array:
    """The mean absolute error of each feature, the last axis; entries whose truth is NaN do not count."""
    return _mean_by_feature(np.abs(_errors(truth, forecast)))


def mse(truth: ArrayLike, forecast: ArrayLike, sd: ArrayLike = 1.0) -> Array:
    """The mean squared error of each feature, the last axis, in units of its variance `sd` squared."""
    return _mean_by_feature((_errors(truth, forecast) / np.asarray(sd)) ** 2)


def _errors(truth: ArrayLike, forecast: ArrayLike) -> Array:
    y, p = np.asarray(truth, dtype=np.float64), np.asarray(forecast, dtype=np.float64)
    if y.shape != p.shape or not y.ndim:
        raise ProgressionError(f"truth has shape {y.shape}, the forecast {p.shape}: the same is needed")
    errors: Array = p - y
    return errors


def _mean_by_feature(errors: Array) -> Array:
    """NaN for a feature without a single truth."""
    flat = errors.reshape(-1, errors.shape[-1])
    seen = ~np.isnan(flat)
    count = seen.sum(axis=0)
    total = np.where(seen, flat, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mauc(truth: ArrayLike, probabilities: ArrayLike, classes: ArrayLike) -> float:
    """The area under the curve for many classes of Hand and Till (2001); ties share their mid-rank.

    `truth` (n,) holds names of `classes` (C,), `probabilities` (n, C) a column for each. For each pair of classes
    the area by the one's probability and by the other's are averaged; a pair of which one never occurs is left out.
    NaN if no pair is left.
    """
    y, p, names = _diagnoses(truth, probabilities, classes)
    areas = []
    for i in range(len(names)):
        for j in range(i):
            here = (y == names[i]) | (y == names[j])
            one = y[here] == names[i]
            if one.any() and not one.all():
                areas.append((_area(p[here, i], one) + _area(p[here, j], ~one)) / 2)
    return float(np.mean(areas)) if areas else float("nan")


def _area(score: Array, positive: NDArray[np.bool_]) -> float:
    n, m = int(positive.sum()), int((~positive).sum())
    return float((rankdata(score)[positive].sum() - n * (n + 1) / 2) / (n * m))


def bca(truth: ArrayLike, forecast: ArrayLike, classes: ArrayLike) -> float:
    """Balanced classification accuracy: the mean over classes of (sensitivity + specificity) / 2.

    A term that is undefined, for nobody has the class or everybody, counts one half.
    """
    y, p, names = np.asarray(truth), np.asarray(forecast), np.asarray(classes)
    if y.shape != p.shape:
        raise ProgressionError(f"truth has shape {y.shape}, the forecast {p.shape}: the same is needed")
    terms = []
    for name in names:
        has = y == name
        sensitivity = np.mean(p[has] == name) if has.any() else 0.5
        specificity = np.mean(p[~has] != name) if (~has).any() else 0.5
        terms.append((sensitivity + specificity) / 2)
    return float(np.mean(terms))


def wes(truth: ArrayLike, forecast: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """The weighted error score: absolute errors weighted by one over the width of the interval.

    A width of zero counts as the smallest other one; if all are zero, the errors weigh alike.
    """
    y, p, low, high = _seen(truth, forecast, lower, upper)
    if not y.size:
        return float("nan")
    width = high - low
    if (width < 0).any():
        raise ProgressionError("an interval's lower end lies above its upper end")
    least = width[width > 0].min() if (width > 0).any() else 1.0
    return float(np.average(np.abs(p - y), weights=1.0 / np.maximum(width, least)))


def coverage(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """The share of truths strictly inside their interval; those that are NaN do not count."""
    y, low, high = _seen(truth, lower, upper)
    return float(np.mean((low < y) & (y < high))) if y.size else float("nan")


def cpa(truth: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Coverage probability accuracy: by how much the coverage of 50% intervals misses one half."""
    return abs(coverage(truth, lower, upper) - 0.5)


def _seen(truth: ArrayLike, *others: ArrayLike) -> list[Array]:
    arrays = [np.asarray(array, dtype=np.float64).ravel() for array in (truth, *others)]
    if len({array.shape for array in arrays}) != 1:
        raise ProgressionError(f"arrays of sizes {[array.size for array in arrays]}: the same is needed")
    seen = ~np.isnan(arrays[0])
    return [array[seen] for array in arrays]


def _diagnoses(
    truth: ArrayLike, probabilities: ArrayLike, classes: ArrayLike
) -> tuple[NDArray[np.str_], Array, NDArray[np.str_]]:
    y, names = np.asarray(truth).astype(np.str_), np.asarray(classes).astype(np.str_)
    p = np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(y), len(names)):
        raise ProgressionError(f"probabilities have shape {p.shape}, expected {(len(y), len(names))}")
    if not np.isin(y, names).all():
        raise ProgressionError(f"diagnosis {y[~np.isin(y, names)][0]!r} is none of {', '.join(names)}")
    return y, p, names
