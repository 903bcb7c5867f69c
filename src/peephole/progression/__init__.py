"""Forecasts of incomplete longitudinal data: the estimator, what it has to beat, and how forecasts are judged."""

from peephole.progression import metrics
from peephole.progression.baselines import BASELINES
from peephole.progression.errors import ProgressionError
from peephole.progression.intervals import LEVELS
from peephole.progression.model import ProgressionModel

__all__ = ["BASELINES", "LEVELS", "ProgressionError", "ProgressionModel", "metrics"]
