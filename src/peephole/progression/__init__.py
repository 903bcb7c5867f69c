"""Forecasts of incomplete longitudinal data: the estimator, what it has to beat, and how forecasts are judged."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peephole.progression import metrics
from peephole.progression.baselines import BASELINES
from peephole.progression.errors import ProgressionError
from peephole.progression.intervals import LEVELS

if TYPE_CHECKING:
    from peephole.progression.evaluation import Evaluation, evaluate
    from peephole.progression.model import ProgressionModel

# The names that need torch, and where they stand: it is imported when the first of them is asked for.
_TORCH = {"ProgressionModel": "model", "evaluate": "evaluation", "Evaluation": "evaluation"}
__all__ = ["BASELINES", "LEVELS", "Evaluation", "ProgressionError", "ProgressionModel", "evaluate", "metrics"]


def __getattr__(name: str) -> Any:
    """The names that need torch, imported when first asked for."""
    if name in _TORCH:
        return getattr(importlib.import_module(f"peephole.progression.{_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
