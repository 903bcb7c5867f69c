"""The paper's comparison as data: its sets, its methods, its Table 2; and its jobs."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from peephole.data import DataWarning, Grid, adni, split_subjects, standardise, synthetic, to_grid, ucr
from peephole.experiments.jobs import Job
from peephole.experiments.training import Material
from peephole.nn.missing import loss_weights

BASELINES = ("normalized", "orthogonal")
PROPOSED = tuple(f"proposed-{k}" for k in range(1, 5))
UNIVARIATE = ("ElectricDevices", "FordA", "Crop")
ADNI, SYNTHETIC = "ADNI", "synthetic cohort"
SUBJECTS = (332, 51)  # of the paper's ADNI set, for training and for the test
VISITS = (3, 10)  # a year apart
EPOCHS, SEEDS = 1000, 20

# Table 2: "The generalization error (MSE) in predicting the feature values for the utilized test sets".
_ERRORS = {
    "proposed-1": (0.935, 0.038, 0.086, 0.465),
    "proposed-2": (0.942, 0.037, 0.088, 0.468),
    "proposed-3": (0.946, 0.037, 0.086, 0.453),
    "proposed-4": (0.895, 0.038, 0.082, 0.449),
    "normalized": (1.012, 0.523, 0.109, 0.473),
    "orthogonal": (0.998, 0.526, 0.110, 0.471),
}
TABLE_2 = {method: dict(zip((*UNIVARIATE, ADNI), errors, strict=True)) for method, errors in _ERRORS.items()}


def jobs(materials: Iterable[Material], methods: Iterable[str], seeds: int, epochs: int, **descent: Any) -> list[Job]:
    """A job for each data set, method and seed."""
    methods = list(methods)
    return [
        Job(material.name, material.sha256, method, seed, epochs, **descent)
        for material in materials
        for method in methods
        for seed in range(seeds)
    ]


def series(name: str, data_dir: Path | None = None) -> Material:
    """A UCR set, standardised by its training series: one feature, one mean, one sd."""
    found = ucr.load(name, data_dir=data_dir)
    train, test = standardise(found.train, found.test)
    return _material(name, train[..., None], test[..., None], found.sha256, f"from {found.source}")


def cohort(file: Path | None = None) -> Material:
    """The fourth column: the user's ADNI file, or a made-up cohort of the same size that says so in its name."""
    if file is not None:
        return _subjects(ADNI, _yearly(adni.read(file)), f"from {file}")
    with warnings.catch_warnings(action="ignore", category=DataWarning):  # drops by design: nobody's data
        grid = _yearly(synthetic.cohort(500, VISITS[1], seed=0).table)
    return _subjects(SYNTHETIC, grid.take(np.arange(sum(SUBJECTS))), "made up in the place of ADNI")


def _yearly(table: Any) -> Grid:
    return to_grid(table, step=12.0, visits=VISITS[1], least=VISITS[0])


def _subjects(name: str, grid: Grid, source: str) -> Material:
    """Subjects split as the paper's were in number; whom it had in its test set is not known."""
    first, last = split_subjects(grid, share=SUBJECTS[0] / sum(SUBJECTS), seed=0)
    train, test = standardise(grid.X[first], grid.X[last])
    return _material(name, train, test, ucr.sha256(grid.X[first], grid.X[last]), source)


def _material(name: str, train: NDArray[np.float64], test: NDArray[np.float64], sha256: str, source: str) -> Material:
    return Material(name, train.astype(np.float32), test.astype(np.float32), sha256, source)


def peers(material: Material) -> dict[str, float]:
    """Test error of persistence, AR(1) and AR(2) by least squares on the whole training set, validation included."""
    errors = {"persistence": _mse(material.test[:, 1:], _carried_forward(material.test)[:, :-1])}
    for order in (1, 2):
        errors[f"AR({order})"] = _autoregression(material, order)
    return errors


def _autoregression(material: Material, order: int) -> float:
    """Each feature from all features' last `order` steps, missing ones and those before the first at the mean, 0."""

    def lagged(series: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        filled = np.nan_to_num(series.astype(np.float64))
        padded = np.pad(filled, ((0, 0), (order - 1, 0), (0, 0)))
        steps = series.shape[1] - 1
        lags = [padded[:, order - 1 - k : order - 1 - k + steps] for k in range(order)]
        stacked = np.concatenate([*lags, np.ones((*filled[:, 1:].shape[:2], 1))], axis=-1)
        return stacked.reshape(-1, stacked.shape[-1]), series[:, 1:].reshape(-1, series.shape[-1]).astype(np.float64)

    (x, y), (test_x, _) = lagged(material.train), lagged(material.test)
    forecast = np.empty((len(test_x), y.shape[1]))
    for feature in range(y.shape[1]):
        seen = ~np.isnan(y[:, feature])
        forecast[:, feature] = test_x @ np.linalg.lstsq(x[seen], y[seen, feature], rcond=None)[0]
    return _mse(material.test[:, 1:], forecast.reshape(material.test[:, 1:].shape))


def _carried_forward(series: NDArray[np.float32]) -> NDArray[np.float32]:
    """The last observed value at each step; before the first, NaN."""
    seen = ~np.isnan(series)
    last = np.maximum.accumulate(np.where(seen, np.arange(series.shape[1])[:, None], 0), axis=1)
    return np.take_along_axis(series, last, axis=1)


def _mse(truth: NDArray[Any], forecast: NDArray[Any]) -> float:
    """Weighed as the networks' is, by subject and visit; an unobserved last value is forecast by the mean, 0."""
    error = np.nan_to_num(truth.astype(np.float64) - np.nan_to_num(forecast.astype(np.float64)))
    seen = torch.from_numpy(~np.isnan(truth).transpose(1, 0, 2))
    weights = loss_weights(seen, "visit", dtype=torch.float64).numpy().transpose(1, 0, 2)
    return float((weights * error**2).sum())


def provenance(command: str, materials: Iterable[Material], executor: str) -> dict[str, Any]:
    """What a reader needs to do it again."""
    versions = {name: version(name) for name in ("peephole", "torch", "numpy", "scipy")}
    return {
        "command": command,
        "executor": executor,
        "date": date.today().isoformat(),
        "versions": {"python": platform.python_version(), **versions},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "data": {material.name: {"source": material.source, "sha256": material.sha256} for material in materials},
    }
