"""Initialisers: each gate its own matrix, and starts from one's own data."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peephole.init.methods import METHODS, Method
from peephole.init.weights import output_variance, weights

if TYPE_CHECKING:
    from peephole.init.calibrate import Calibration, calibrate_
    from peephole.init.readout import Readout, fit_body_and_readout_, fit_readout_
    from peephole.init.torch import initialise_, variances_

# The names that need torch, and where they stand: it is imported when the first of them is asked for.
_TORCH = {
    "initialise_": "torch",
    "variances_": "torch",
    "calibrate_": "calibrate",
    "Calibration": "calibrate",
    "fit_readout_": "readout",
    "fit_body_and_readout_": "readout",
    "Readout": "readout",
}
__all__ = [
    "METHODS",
    "Calibration",
    "Method",
    "Readout",
    "calibrate_",
    "fit_body_and_readout_",
    "fit_readout_",
    "initialise_",
    "output_variance",
    "variances_",
    "weights",
]


def __getattr__(name: str) -> Any:
    """The names that need torch, imported when first asked for."""
    if name in _TORCH:
        return getattr(importlib.import_module(f"peephole.init.{_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
