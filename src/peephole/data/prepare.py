"""What every set needs before training: a split, and numbers of size one."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peephole.data.errors import DataError


def split(data: int | ArrayLike, *, share: float = 0.85, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Shuffle and split the samples of `data`, or so many: the indices for training and those for validation.

    The first hold `share` of all, rounded, and neither is empty. The order is random in both, since sets such as
    Crop are sorted by class. The same seed gives the same split, whatever the version of NumPy.
    """
    n = int(data) if isinstance(data, int | np.integer) else len(np.asarray(data))
    if n < 2:
        raise DataError(f"{n} samples cannot be split: expected at least 2")
    if not 0 < share < 1:
        raise DataError(f"a share of {share} for training: expected a number between 0 and 1")
    # NumPy promises the bits of a bit generator for all versions, but not the permutations drawn from them.
    order = np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable")
    first = min(max(round(share * n), 1), n - 1)
    return order[:first], order[first:]


def mean_and_sd(train: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean and the population standard deviation of each feature over all that was observed.

    Series (n, length) have one feature; with three axes the last are the features. Constant data are refused.
    """
    values = np.asarray(train, dtype=np.float64)
    if values.ndim not in (2, 3) or not values.size:
        raise DataError(f"data of shape {values.shape}: expected (n, length) or (n, length, features), not empty")
    features = values.reshape(-1, values.shape[2] if values.ndim == 3 else 1)
    if np.isinf(features).any():
        raise DataError("infinite values: expected finite ones, or NaN where nothing was observed")
    for place, column in enumerate(features.T):
        seen = column[~np.isnan(column)]
        if not seen.size or seen.min() == seen.max():
            what = f"constant at {seen[0]:g}" if seen.size else "never observed"
            raise DataError(f"feature {place} is {what}: it has no standard deviation to divide by")
    return np.nanmean(features, axis=0), np.nanstd(features, axis=0)


def standardise(train: ArrayLike, *others: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    """All arrays with the training set's mean subtracted, divided by its standard deviation (see `mean_and_sd`).

    The training set itself comes first. NaN stays NaN.
    """
    mean, sd = mean_and_sd(train)
    arrays = [np.asarray(array, dtype=np.float64) for array in (train, *others)]
    shape = arrays[0].shape
    for array in arrays:
        if array.ndim != len(shape) or (array.ndim == 3 and array.shape[2] != shape[2]):
            raise DataError(f"data of shape {array.shape}: expected the axes and features of training, {shape}")
    return tuple((array - mean) / sd for array in arrays)
