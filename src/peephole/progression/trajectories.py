"""Some subjects' visits with the forecast from one of them, to look at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from peephole.data import Grid
from peephole.progression.frames import bounds
from peephole.progression.history import Array, origins

if TYPE_CHECKING:
    from peephole.progression.model import ProgressionModel


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A subject's visits at `times` (T,) with `values` (T, N), and the forecast made at month `origin`.

    `ahead` (Q,) are its months, `points` (Q, N) the forecast, `ends` (levels, 2, Q, N) its intervals.
    """

    subject: str
    features: tuple[str, ...]
    times: Array = field(repr=False)
    values: Array = field(repr=False)
    origin: float
    ahead: Array = field(repr=False)
    points: Array = field(repr=False)
    ends: Array = field(repr=False)


def trajectories(model: ProgressionModel, grid: Grid, count: int = 4) -> list[Trajectory]:
    """Of the subjects seen most often: each forecast from the visit at which half of them had been."""
    grid = model.grid(grid)
    seen = origins(grid.X)
    often = np.argsort(-seen.sum(axis=1), kind="stable")[:count]
    grid, seen = grid.take(often), seen[often]
    half = np.cumsum(seen, axis=1) <= np.maximum(seen.sum(axis=1, keepdims=True) // 2, 1)
    before = replace(grid, X=np.where(half[:, :, None], grid.X, np.nan))
    months = model.step * np.arange(1, model.horizons_ + 1)
    found = model.forecast(before, [0.01, *months])
    drawn = []
    for j, rows in enumerate(np.arange(len(found)).reshape(len(often), -1)):
        mine = found.iloc[rows]
        here = ~np.isnan(grid.times[j])
        ends = np.stack([mine[bounds(name)].to_numpy().T.reshape(-1, 2, len(mine)) for name in grid.features], axis=-1)
        drawn.append(
            Trajectory(
                str(grid.subjects[j]),
                grid.features,
                grid.times[j, here],
                grid.X[j, here],
                float(mine["origin"].iloc[0]),
                mine["time"].to_numpy(),
                mine[list(grid.features)].to_numpy(),
                ends,
            )
        )
    return drawn
