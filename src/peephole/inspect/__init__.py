"""Is my LSTM starting right? Signals and gradients inside any model's LSTMs, beside what the theory predicts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peephole.inspect.errors import InspectError

if TYPE_CHECKING:
    from peephole.inspect.advice import THRESHOLDS, Advice, Thresholds, advise
    from peephole.inspect.batches import load_batch
    from peephole.inspect.comparison import compare, predict
    from peephole.inspect.coordinate import coordinate_check, slopes
    from peephole.inspect.measured import Measured
    from peephole.inspect.measuring import measure, measure_files, probe
    from peephole.inspect.models import load_model
    from peephole.inspect.recorder import Recorder
    from peephole.inspect.statistics import Trace

# Where each name stands: torch is imported when the first of them is asked for.
_PLACES = {
    "THRESHOLDS": "advice",
    "Advice": "advice",
    "Measured": "measured",
    "Recorder": "recorder",
    "Thresholds": "advice",
    "Trace": "statistics",
    "advise": "advice",
    "compare": "comparison",
    "coordinate_check": "coordinate",
    "load_batch": "batches",
    "load_model": "models",
    "measure": "measuring",
    "measure_files": "measuring",
    "predict": "comparison",
    "probe": "measuring",
    "slopes": "coordinate",
}
__all__ = [
    "THRESHOLDS",
    "Advice",
    "InspectError",
    "Measured",
    "Recorder",
    "Thresholds",
    "Trace",
    "advise",
    "compare",
    "coordinate_check",
    "load_batch",
    "load_model",
    "measure",
    "measure_files",
    "predict",
    "probe",
    "slopes",
]


def __getattr__(name: str) -> Any:
    """The names that need torch, imported when first asked for."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"peephole.inspect.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
