"""Between tables and arrays: which features are used, where a forecast starts, and the frame that it becomes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peephole.data import DataWarning, Grid
from peephole.data.frames import pandas
from peephole.progression.errors import ProgressionError
from peephole.progression.history import Array
from peephole.progression.history import origins as observed_something
from peephole.progression.intervals import LEVELS

if TYPE_CHECKING:
    import pandas as pd

    from peephole.progression.model import ProgressionModel

Places = NDArray[np.intp]


def only(grid: Grid, features: Sequence[str]) -> Grid:
    """The grid with these features in this order."""
    missing = [name for name in features if name not in grid.features]
    if missing:
        raise ProgressionError(f"no feature {missing[0]!r} in the grid; it has {', '.join(grid.features)}")
    places = [grid.features.index(name) for name in features]
    return replace(grid, X=grid.X[:, :, places], features=tuple(features))


def logarithms(grid: Grid, names: Sequence[str]) -> Array:
    """The visits (J, T, N) of a grid, of these features the logarithms."""
    X = grid.X.copy()
    for name in names:
        column = only(grid, [name]).X
        below = int(np.count_nonzero(column <= 0))
        if below:
            raise ProgressionError(f"feature {name!r}: {below} of its values are not above 0 and have no logarithm")
        X[:, :, [grid.features.index(name)]] = np.log(column)
    return X


def usable(grid: Grid) -> Grid:
    """The grid without features that have no spread, told in a warning."""
    columns = grid.X.reshape(-1, grid.X.shape[-1]).T
    known = [column[~np.isnan(column)] for column in columns]
    left = [name for name, seen in zip(grid.features, known, strict=True) if seen.size and np.ptp(seen) > 0]
    gone = [name for name in grid.features if name not in left]
    if not left:
        raise ProgressionError("no feature changes from visit to visit: there is nothing to forecast")
    if gone:
        text = f"{len(gone)} of {len(grid.features)} features left out, never observed or constant: {', '.join(gone)}"
        warnings.warn(text, DataWarning, stacklevel=3)
    return only(grid, left)


def origins(X: Array, *, every: bool) -> tuple[Places, Places]:
    """Subjects and visits from which to forecast: each subject's last that observed something, or every such one."""
    seen = observed_something(X)
    if every:
        who, when = np.nonzero(seen)
        return who, when
    who = np.flatnonzero(seen.any(axis=1))
    lost = len(seen) - len(who)
    if lost:
        text = f"{lost} of {len(seen)} subjects left out: none of the model's features was observed"
        warnings.warn(text, DataWarning, stacklevel=4)
    return who, seen.shape[1] - 1 - np.argmax(seen[who, ::-1], axis=1)


def later_diagnoses(grid: Grid, horizons: int) -> NDArray[np.str_] | None:
    """The diagnoses (J, T, K) at the visits that follow those from which a forecast is asked for, else empty."""
    if grid.diagnosis is None:
        return None
    J, T = grid.diagnosis.shape
    later = np.full((J, T, horizons), "", dtype=grid.diagnosis.dtype)
    for k in range(1, min(horizons, T - 1) + 1):
        later[:, :-k, k - 1] = grid.diagnosis[:, k:]
    later[~observed_something(grid.X)] = ""
    return later


def between(path: Array, cells: Array) -> Array:
    """Values (J, Q, N) at `cells` (J, Q) steps ahead, whole or not, of a path (J, H + 1, N) from step 0 on."""
    low = np.minimum(np.floor(cells + 1e-9).astype(np.intp), path.shape[1] - 1)
    share = np.maximum(cells - low, 0.0)[..., None]
    every = np.arange(len(path))[:, None]
    high = np.minimum(low + 1, path.shape[1] - 1)
    points: Array = path[every, low] * (1 - share) + path[every, high] * share
    return points


def bounds(name: str) -> list[str]:
    """The columns of a feature's intervals."""
    return [f"{name}_{end}{round(100 * level)}" for level in LEVELS for end in ("lower", "upper")]


def frame(
    model: ProgressionModel, subjects: NDArray[Any], origin: Array, months: Array, points: Array, ends: Array
) -> pd.DataFrame:
    """The tidy frame of forecasts, standardised `points` (J, Q, N) with `ends` (levels, 2, J, Q, N)."""
    Q = len(months)
    start = np.repeat(origin, Q)
    ahead = np.tile(months, len(subjects))
    columns: dict[str, Any] = {
        "id": np.repeat(subjects, Q), "origin": start, "horizon": ahead, "time": start + ahead,
    }  # fmt: skip
    values, edges = points * model.sd_ + model.mean_, ends * model.sd_ + model.mean_
    for n, name in enumerate(model.features_):
        if name in (model.logarithms or ()):
            values[..., n], edges[..., n] = np.exp(values[..., n]), np.exp(edges[..., n])
        columns[name] = values[..., n].ravel()
        columns |= dict(zip(bounds(name), edges[..., n].reshape(len(LEVELS) * 2, -1), strict=True))
    if model.diagnosis_ is not None:
        chances = model.diagnosis_.probabilities(points).reshape(-1, len(model.diagnosis_.classes))
        columns |= {f"p_{name}": chances[:, c] for c, name in enumerate(model.diagnosis_.classes)}
    return pandas().DataFrame(columns)
