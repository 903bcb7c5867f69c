"""A fitted model as plain content and arrays, and back: what is loaded is checked before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from peephole.data import Report
from peephole.progression import settings
from peephole.progression.baselines import LAGS, Ridge
from peephole.progression.diagnosis import Diagnosis
from peephole.progression.errors import ProgressionError
from peephole.progression.intervals import LEVELS, Intervals
from peephole.progression.networks import HEAD, LSTM, Paper, Residual
from peephole.progression.storage import JSON, NUMBERS, Arrays

if TYPE_CHECKING:
    from peephole.progression.model import ProgressionModel

Model = TypeVar("Model", bound="ProgressionModel")
KNOWN = 3  # what goes in for each feature beside its value


def pack(model: ProgressionModel) -> tuple[dict[str, Any], Arrays]:
    """What `storage.write` takes."""
    diagnosis = model.diagnosis_
    content = {
        "parameters": model.get_params() | {"logarithms": None if model.logarithms is None else list(model.logarithms)},
        "features": list(model.features_),
        "horizons": model.horizons_,
        "classes": None if diagnosis is None else list(diagnosis.classes),
        "trained_on": str(model.report_),
    }
    arrays: Arrays = {f"network.{name}": w.numpy() for name, w in model.networks_.weights.items()}
    arrays |= {"mean": model.mean_, "sd": model.sd_}
    arrays |= {"intervals.offsets": model.intervals_.offsets, "intervals.counts": model.intervals_.counts}
    arrays |= {"ridge.weight": model.ridge_.weight, "ridge.bias": model.ridge_.bias}
    if diagnosis is not None:
        arrays |= {"diagnosis.weight": diagnosis.weight, "diagnosis.bias": diagnosis.bias}
    return content, arrays


def unpack(kind: type[Model], folder: Path, content: dict[str, Any], arrays: Arrays) -> Model:
    """The model that was packed."""
    try:
        parameters, features, K = content["parameters"], content["features"], content["horizons"]
        classes = content["classes"]
        model = kind(**parameters)
        recipe = settings.recipe(model)
    except (KeyError, TypeError, ValueError) as error:
        raise ProgressionError(f"{folder / JSON}: no model that this version knows: {error}") from None
    if not (_names(features) and (classes is None or _names(classes)) and isinstance(K, int) and 1 <= K <= 1000):
        raise ProgressionError(f"{folder / JSON}: features, classes or horizons are not what they should be")
    if not set(model.logarithms or ()) <= set(features):
        raise ProgressionError(f"{folder / JSON}: logarithms of features that it does not have")
    paper = model.architecture == "paper"
    _check(folder, arrays, _shapes(recipe.seeds, recipe.units, len(features), K, len(classes or ()), paper))
    model.features_, model.horizons_ = tuple(features), K
    model.mean_, model.sd_ = arrays["mean"], arrays["sd"]
    weights = {
        name.removeprefix("network."): torch.from_numpy(array.copy())
        for name, array in arrays.items()
        if name.startswith("network.")
    }
    model.networks_ = Paper(weights, recipe.fill, 1) if paper else Residual(weights, recipe.fill, K)
    model.intervals_ = Intervals(arrays["intervals.offsets"], arrays["intervals.counts"])
    model.ridge_ = Ridge(arrays["ridge.weight"], arrays["ridge.bias"])
    model.diagnosis_ = None
    if classes is not None:
        model.diagnosis_ = Diagnosis(tuple(classes), arrays["diagnosis.weight"], arrays["diagnosis.bias"])
    model.report_ = Report(0, notes=(str(content.get("trained_on")),))
    return model


def _names(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(name, str) for name in given)


def _shapes(R: int, H: int, N: int, K: int, C: int, paper: bool) -> dict[str, tuple[int, ...]]:
    """Each array's shape in a model of R networks, H units, N features, K horizons and C diagnoses."""
    inputs, H = (N, N) if paper else (N + KNOWN * N + 1, H)
    shapes: dict[str, tuple[int, ...]] = dict(
        zip(
            (f"network.{name}" for name in LSTM),
            ((R, 4 * H, inputs), (R, 4 * H, H), (R, 3 * H), (R, 4 * H)),
            strict=True,
        )
    )
    if not paper:
        shapes |= dict(zip((f"network.{name}" for name in HEAD), ((R, K * N, H + inputs), (R, K * N)), strict=True))
    shapes |= {"mean": (N,), "sd": (N,), "intervals.offsets": (len(LEVELS), 2, K, N), "intervals.counts": (K, N)}
    shapes |= {"ridge.weight": (K, N, LAGS * N), "ridge.bias": (K, N)}
    return shapes | ({"diagnosis.weight": (C, N), "diagnosis.bias": (C,)} if C else {})


def _check(folder: Path, arrays: Arrays, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            found = arrays[name].shape if name in arrays else "nothing"
            raise ProgressionError(f"{folder / NUMBERS}: {name}: found {found}, expected shape {shape}")
        kind = np.float32 if name.startswith("network.") else np.float64
        if arrays[name].dtype != kind or (name != "intervals.offsets" and not np.isfinite(arrays[name]).all()):
            raise ProgressionError(f"{folder / NUMBERS}: {name}: expected finite numbers of type {np.dtype(kind)}")
    if arrays.keys() != shapes.keys():
        raise ProgressionError(f"{folder / NUMBERS}: unknown arrays: {', '.join(arrays.keys() - shapes.keys())}")
