"""Is my LSTM starting right? Signals and gradients inside any model's LSTMs, beside what the theory predicts."""

from peephole.inspect.advise import THRESHOLDS, Advice, Thresholds, advise
from peephole.inspect.compare import compare, predict
from peephole.inspect.errors import InspectError
from peephole.inspect.measure import measure, probe
from peephole.inspect.measured import Measured
from peephole.inspect.statistics import Trace

__all__ = [
    "THRESHOLDS",
    "Advice",
    "InspectError",
    "Measured",
    "Thresholds",
    "Trace",
    "advise",
    "compare",
    "measure",
    "predict",
    "probe",
]
