"""A fitted model on other subjects: errors by horizon beside those of the baselines, and what the intervals cover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from peephole.data import Grid
from peephole.progression import baselines, metrics
from peephole.progression.errors import ProgressionError
from peephole.progression.frames import later_diagnoses
from peephole.progression.history import Array, asked
from peephole.progression.intervals import LEVELS

if TYPE_CHECKING:
    from peephole.progression.model import ProgressionModel

MODEL = "model"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What forecasts from every visit missed, at each of K horizons, `months` ahead.

    `mae` and `mse` hold for the "model" and each baseline an array (K, N), in standardised units; `sd` (N,) turns
    them into the table's. `counts` (K, N) says how many truths there were. `coverage` (levels, K, N) is the share of
    truths inside the intervals of `levels`; `wes` and `cpa` (K, N) judge those of 50%. `mauc` and `bca` (K,) judge the
    diagnoses, NaN where there are none; None if the model or the table knows none.

    A feature whose logarithm is modelled is judged by it, and named so.
    """

    months: Array
    features: tuple[str, ...]
    subjects: int
    sd: Array = field(repr=False)
    counts: Array = field(repr=False)
    mae: dict[str, Array] = field(repr=False)
    mse: dict[str, Array] = field(repr=False)
    levels: tuple[float, ...]
    coverage: Array = field(repr=False)
    wes: Array = field(repr=False)
    cpa: Array = field(repr=False)
    mauc: Array | None = None
    bca: Array | None = None

    @property
    def mean(self) -> dict[str, Array]:
        """The mean absolute error (K,) averaged over standardised features, of the model and each baseline."""
        return {name: np.nanmean(errors, axis=1) for name, errors in self.mae.items()}

    @property
    def covered(self) -> Array:
        """The share of truths (levels, K) inside the intervals, all features together."""
        weights = np.where(self.counts > 0, self.counts, 0.0)
        total: Array = (np.nan_to_num(self.coverage, nan=0.0) * weights).sum(-1) / weights.sum(-1)
        return total

    @property
    def wins(self) -> bool:
        """Whether the model's mean absolute error is the least at every horizon."""
        return all((self.mean[MODEL] < error).all() for name, error in self.mean.items() if name != MODEL)


def evaluate(model: ProgressionModel, grid: Grid, horizons: int | None = None) -> Evaluation:
    """Judge a fitted model's forecasts from every visit of a grid; horizons without a single truth are left out."""
    X = model.standardised(grid)
    K = min(horizons or model.horizons_, model.horizons_)
    truth = asked(X, K)
    counts = np.count_nonzero(~np.isnan(truth), axis=(0, 1)).astype(np.float64)
    K = int(np.argmin(np.append(counts.any(axis=1), False)))
    if not K:
        raise ProgressionError("no subject was observed at a visit and at the next: there is nothing to compare with")
    truth = truth[:, :, :K]
    forecast = model.networks_.forecasts(X, K)
    methods = {MODEL: forecast, **baselines.forecasts(X, K, model.ridge_)}
    offsets = model.intervals_.at(np.arange(1.0, K + 1))
    ends = forecast + offsets[:, :, None, None]
    shape = K, X.shape[2]
    coverage, wes, cpa = np.empty((len(LEVELS), *shape)), np.empty(shape), np.empty(shape)
    for k, n in np.ndindex(*shape):
        y, low, high = truth[:, :, k, n], ends[:, 0, :, :, k, n], ends[:, 1, :, :, k, n]
        coverage[:, k, n] = [metrics.coverage(y, low[place], high[place]) for place in range(len(LEVELS))]
        wes[k, n] = metrics.wes(y, forecast[:, :, k, n], low[0], high[0])
        cpa[k, n] = metrics.cpa(y, low[0], high[0])
    mauc, bca = _diagnoses(model, grid, forecast)
    return Evaluation(
        months=model.step * np.arange(1.0, K + 1), features=_titles(model), subjects=len(grid.subjects), sd=model.sd_,
        counts=counts[:K], levels=LEVELS, coverage=coverage, wes=wes, cpa=cpa, mauc=mauc, bca=bca,
        mae={name: _by_horizon(metrics.mae, truth, found) for name, found in methods.items()},
        mse={name: _by_horizon(metrics.mse, truth, found) for name, found in methods.items()},
    )  # fmt: skip


def _titles(model: ProgressionModel) -> tuple[str, ...]:
    logs = model.logarithms or ()
    return tuple(f"log {name}" if name in logs else name for name in model.features_)


def _by_horizon(metric: Callable[[Array, Array], Array], truth: Array, forecast: Array) -> Array:
    return np.stack([metric(truth[:, :, k], forecast[:, :, k]) for k in range(truth.shape[2])])


def _diagnoses(model: ProgressionModel, grid: Grid, forecast: Array) -> tuple[Array | None, Array | None]:
    """MAUC and BCA (K,) of the diagnoses made at the visits that were forecast."""
    later = later_diagnoses(grid, forecast.shape[2])
    if model.diagnosis_ is None or later is None:
        return None, None
    classes = np.array(model.diagnosis_.classes)
    areas, accuracies = [], []
    for k in range(forecast.shape[2]):
        rows = np.isin(later[:, :, k], classes)
        chances = model.diagnosis_.probabilities(forecast[:, :, k][rows])
        areas.append(metrics.mauc(later[:, :, k][rows], chances, classes))
        guess = classes[np.argmax(chances, axis=-1)]
        accuracies.append(metrics.bca(later[:, :, k][rows], guess, classes) if rows.any() else np.nan)
    return np.array(areas), np.array(accuracies)
