"""Initialisation of LSTM networks with peepholes that keeps the variance of the signal through time."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peephole.nn.lstm import PeepholeLSTM

__version__ = version("peephole")
__all__ = ["PeepholeLSTM", "data", "init", "inspect", "interop", "nn", "progression", "theory", "train"]


def __getattr__(name: str) -> Any:
    """Import a room when it is first asked for: the theory must not pay for torch."""
    if name == "PeepholeLSTM":
        return import_module(f"{__name__}.nn").PeepholeLSTM
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
