"""A model's parameters, checked, as the recipe that training follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peephole.init import METHODS
from peephole.nn.missing import FILLS, WEIGHTS
from peephole.progression.errors import ProgressionError
from peephole.progression.training import Recipe

if TYPE_CHECKING:
    from peephole.progression.model import ProgressionModel

ARCHITECTURES = ("residual", "paper")
LEAST = {"horizons": 1, "seeds": 1, "seed": 0, "units": 1, "epochs": 0, "patience": 1}


def recipe(model: ProgressionModel) -> Recipe:
    """What the parameters ask for, with the architecture's own values where they are None."""
    _one_of("architecture", model.architecture, ARCHITECTURES)
    paper = model.architecture == "paper"
    for name, least in LEAST.items():
        value = getattr(model, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ProgressionError(f"{name} = {value!r}: a whole number of at least {least}")
    fill = model.fill or ("zero" if paper else "model")
    _one_of("fill", fill, FILLS)
    _one_of("loss_weight", model.loss_weight, WEIGHTS)
    logs = model.logarithms
    if logs is not None and (isinstance(logs, str) or not all(isinstance(name, str) for name in logs)):
        raise ProgressionError(f"logarithms = {logs!r}: a list of names of features")
    _one_of("method", model.method, tuple(METHODS))
    rate = (0.1 if paper else 0.003) if model.rate is None else model.rate
    decay = (1e-4 if paper else 1e-3) if model.decay is None else model.decay
    if not (0 < rate < np.inf and 0 <= decay < np.inf):
        raise ProgressionError(f"rate = {rate!r}, decay = {decay!r}: finite, above 0 and at least 0")
    return Recipe(
        seeds=int(model.seeds), seed=int(model.seed), method=model.method, units=int(model.units), fill=fill,
        loss_weight=model.loss_weight, epochs=int(model.epochs), rate=float(rate), decay=float(decay),
        patience=int(model.patience),
    )  # fmt: skip


def _one_of(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ProgressionError(f"{what} {value!r}: expected one of {', '.join(known)}")
