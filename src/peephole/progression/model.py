"""The estimator: tables of visits in, forecasts out, in the manners of scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from peephole.data import Grid, Table, folds, mean_and_sd, to_grid
from peephole.progression import content, frames, settings
from peephole.progression.baselines import Ridge
from peephole.progression.diagnosis import Diagnosis
from peephole.progression.errors import ProgressionError
from peephole.progression.history import Array, Mask, asked, carried
from peephole.progression.intervals import Intervals
from peephole.progression.networks import Networks
from peephole.progression.storage import read, write
from peephole.progression.training import Progress, Recipe, train_paper, train_residual

if TYPE_CHECKING:
    import pandas as pd

FOLDS = 5
LEAST = 30  # targets of each feature that a horizon needs to be trained for
FURTHEST = 1200  # steps ahead


class ProgressionModel:
    """Forecasts the visits that follow, from tables in which much may be missing.

    An ensemble of peephole LSTMs, one for each of `seeds` seeds from `seed` on. `fit` puts the table on a regular
    grid, `step` months apart, and standardises it; `forecast` answers in the table's units.

    `architecture` "residual", the default, has more units than features and a linear head, started by ridge
    regression; it forecasts the change from the filled visit for several horizons at once, at the least absolute
    error. "paper" is the paper's own cell: as many units as features, no head, h the forecast of the next visit,
    momentum descent on the squared error; it reaches further horizons by running on with its own forecasts.

    Args:
        architecture: "residual" or "paper".
        step: months between two visits on the grid.
        tolerance: the most months that a visit may lie from its place on the grid; None: a third of a step.
        logarithms: features that are modelled as their logarithm: those that grow in proportion, with intervals that
            are wider for higher values and never reach below zero.
        horizons: visits ahead that are trained and calibrated, fewer where the data hold too few targets.
        seeds: how many networks.
        seed: the first; the same seed gives the same model, whatever the threads.
        units: of each LSTM; the paper's architecture has as many as features.
        method: how the LSTMs are started, one of `init.METHODS`.
        fill: what stands where an input is missing, one of `nn.missing.FILLS`; None: "model", the network's own
            forecast, and "zero" in the paper's architecture.
        loss_weight: how the targets share the paper's loss, one of `nn.missing.WEIGHTS`. The default architecture
            weighs each horizon and feature alike.
        epochs: at most.
        rate: of Adam, or of the paper's descent; None: 0.003 and 0.1.
        decay: weight of the squared weights in the loss, or the paper's weight decay; None: 0.001 and 0.0001.
        patience: epochs (in the paper's architecture, scores) without a better forecast of the held-out subjects
            after which a network stops.

    After `fit`: `features_`, `mean_` and `sd_` of each, `horizons_`, `networks_`, `intervals_`, `diagnosis_` (None
    where the table has no two diagnoses), `ridge_` (the baseline), and the grid's `report_`.
    """

    def __init__(
        self,
        *,
        architecture: str = "residual",
        step: float = 12.0,
        tolerance: float | None = None,
        logarithms: Sequence[str] | None = None,
        horizons: int = 5,
        seeds: int = 10,
        seed: int = 0,
        units: int = 16,
        method: str = "proposed-4",
        fill: str | None = None,
        loss_weight: str = "visit",
        epochs: int = 200,
        rate: float | None = None,
        decay: float | None = None,
        patience: int = 20,
    ) -> None:
        self.architecture = architecture
        self.step = step
        self.tolerance = tolerance
        self.logarithms = logarithms
        self.horizons = horizons
        self.seeds = seeds
        self.seed = seed
        self.units = units
        self.method = method
        self.fill = fill
        self.loss_weight = loss_weight
        self.epochs = epochs
        self.rate = rate
        self.decay = decay
        self.patience = patience

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments with which this model was made, by name."""
        return {name: getattr(self, name) for name in _arguments()}

    def set_params(self, **params: Any) -> Self:
        """Change some of them; what was fitted stays until the next `fit`."""
        for name, value in params.items():
            if name not in _arguments():
                raise ProgressionError(f"no parameter {name!r}; there are {', '.join(_arguments())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = (
            f"{name}={getattr(self, name)!r}" for name, usual in _arguments().items() if getattr(self, name) != usual
        )
        return f"ProgressionModel({', '.join(changed)})"

    def fit(self, table: Table | pd.DataFrame | Grid, y: None = None, *, progress: Progress | None = None) -> Self:
        """Train on all subjects of a table: a tidy frame, a `data.Table`, or a `data.Grid` of the model's step.

        `progress(done, total)` hears of network-epochs. Features that are never observed, or never change, are left
        out with a `DataWarning`. `y` is there for scikit-learn's manners and is not used.
        """
        recipe = settings.recipe(self)
        grid = frames.usable(self._grid(table))
        if len(grid.subjects) < 2:
            raise ProgressionError(f"{len(grid.subjects)} subject to train on: at least 2 are needed")
        self.features_ = grid.features
        modelled = frames.logarithms(grid, self.logarithms or ())
        self.mean_, self.sd_ = mean_and_sd(modelled)
        self.report_ = grid.report
        X = (modelled - self.mean_) / self.sd_
        self.horizons_ = _trainable(X, self.horizons)
        held_out = _held_out(grid, recipe)
        train = train_paper if self.architecture == "paper" else train_residual
        self.networks_: Networks = train(X, held_out, self.horizons_, recipe, progress)
        unseen = _unseen(self.networks_, X, held_out, self.horizons_)
        self.intervals_ = Intervals.from_errors(asked(X, self.horizons_) - unseen)
        self.diagnosis_ = _diagnosis(grid, unseen)
        self.ridge_ = Ridge.fit(X, self.horizons_)
        return self

    def forecast(
        self,
        table: Table | pd.DataFrame | Grid,
        horizons: Iterable[float] | None = None,
        *,
        step: Literal["next"] | None = None,
        free_running: bool = False,
        origin: Literal["last", "every"] = "last",
    ) -> pd.DataFrame:
        """Forecast each subject of a table, `horizons` months after the visit at which it is made.

        Args:
            table: as for `fit`; other columns than the model's features are not looked at.
            horizons: months ahead, any above 0; None: the grid's steps for which the model was trained. Between two
                steps forecasts and intervals are interpolated, between the last value and the first step too. Beyond
                the last the model runs on with its own forecasts, and intervals grow with the square root of time.
            step: "next" is short for the one horizon of a step.
            free_running: forecast step by step, each from the forecasts before it, also where the model could
                forecast at once.
            origin: forecast from each subject's `last` visit that observed something, or from `every` such one.

        Returns a row for each subject, origin and horizon: `id`, `origin` and `time` in the table's months,
        `horizon`; for each feature the forecast by its name and `{name}_lower50`, `_upper50`, `_lower90`, `_upper90`;
        and `p_{diagnosis}` for each diagnosis. Subjects of whom nothing was ever observed are left out, and told in
        a `DataWarning`.
        """
        self._check_fitted()
        months = self._months(horizons, step)
        grid = self._grid(table, self.features_)
        X = self.standardised(grid)
        who, last = frames.origins(X, every=origin == "every")
        exact = grid.times[who, last]
        cells = (exact[:, None] + months - grid.months[who, last][:, None]) / self.step
        cells = np.maximum(cells, 0.0)
        count = max(1, int(np.ceil(cells.max(initial=1.0) - 1e-9)))
        if count > FURTHEST:
            raise ProgressionError(f"a horizon of {months.max():g} months: {count} steps ahead, {FURTHEST} at most")
        at_once = 1 if free_running else self.networks_.horizons
        path = self.networks_.run_on(X[who], last, count, at_once)
        now = np.nan_to_num(carried(X)[0], nan=0.0)[who, last]
        points = frames.between(np.concatenate([now[:, None], path], axis=1), cells)
        ends = points + self.intervals_.at(cells)
        return frames.frame(self, grid.subjects[who], exact, months, points, ends)

    def standardised(self, grid: Grid) -> Array:
        """The visits (J, T, N) of a grid with the model's features, in the model's units, NaN where missing.

        That is in training standard deviations from the training mean, of the logarithm where that is modelled.
        """
        self._check_fitted()
        modelled = frames.logarithms(frames.only(grid, self.features_), self.logarithms or ())
        return np.asarray((modelled - self.mean_) / self.sd_)

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into a folder: numbers as safetensors, all else as JSON, with checksums."""
        self._check_fitted()
        return write(folder, *content.pack(self))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote. A damaged or changed folder is refused by name; nothing in it is executed."""
        return content.unpack(cls, Path(folder), *read(folder))

    def grid(self, table: Table | pd.DataFrame | Grid) -> Grid:
        """The table on the model's grid, with the features that the model forecasts."""
        self._check_fitted()
        return self._grid(table, self.features_)

    def _grid(self, table: Table | pd.DataFrame | Grid, features: Sequence[str] | None = None) -> Grid:
        if not isinstance(table, Grid):
            return to_grid(table, features=features, step=self.step, tolerance=self.tolerance)
        if table.step != self.step:
            raise ProgressionError(f"a grid of {table.step:g} months a step, the model's are {self.step:g}")
        return table if features is None else frames.only(table, features)

    def _months(self, horizons: Iterable[float] | None, step: str | None) -> Array:
        if step not in (None, "next") or (step is not None and horizons is not None):
            raise ProgressionError(f"step {step!r}: expected 'next', in place of horizons")
        if horizons is None:
            count = 1 if step == "next" else self.horizons_
            return np.asarray(self.step * np.arange(1.0, count + 1), dtype=np.float64)
        months = np.array(list(horizons), dtype=np.float64)
        if not months.size or not (np.isfinite(months) & (months > 0)).all():
            raise ProgressionError(f"horizons {months.tolist()}: expected months, finite and above 0")
        return months

    def _check_fitted(self) -> None:
        if not hasattr(self, "networks_"):
            raise ProgressionError("this model is not fitted yet: call fit, or load one")


def _held_out(grid: Grid, how: Recipe) -> Mask:
    """Which subjects each network holds out (R, J)."""
    J = len(grid.subjects)
    parts = [test for _, test in folds(grid, min(FOLDS, J), seed=how.seed)]
    held = np.zeros((how.seeds, J), dtype=np.bool_)
    for r in range(how.seeds):
        held[r, parts[r % len(parts)]] = True
    return held


def _trainable(X: Array, wanted: int) -> int:
    """How many horizons have enough targets of each feature."""
    counts = np.count_nonzero(~np.isnan(asked(X, wanted)), axis=(0, 1))
    if not counts[0].any():
        raise ProgressionError("no subject was observed at a visit and at the next: there is nothing to learn from")
    enough = [bool((row >= LEAST).all()) for row in counts]
    return max(1, [*enough, False].index(False))


def _unseen(networks: Networks, X: Array, held_out: Mask, horizons: int) -> Array:
    """Each subject's forecasts (J, T, K, N) by the networks that held it out; NaN where none did."""
    found = np.full((*X.shape[:2], horizons, X.shape[2]), np.nan)
    for part in np.unique(held_out, axis=0):
        by = (held_out == part).all(axis=1)
        found[part] = networks.only(by).forecasts(X[part], horizons)
    return found


def _diagnosis(grid: Grid, forecasts: Array) -> Diagnosis | None:
    """Fitted on forecasts of all horizons and the diagnoses made then."""
    later = frames.later_diagnoses(grid, forecasts.shape[2])
    return None if later is None else Diagnosis.fit(forecasts.reshape(-1, forecasts.shape[-1]), later.ravel())


def _arguments() -> dict[str, Any]:
    """The parameters and their defaults."""
    return {name: one.default for name, one in inspect.signature(ProgressionModel).parameters.items()}
