"""Take it anywhere: LSTMs in files, as ONNX, and in the weights of other frameworks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from peephole.interop.errors import InteropError

if TYPE_CHECKING:
    from peephole.interop import files, onnx

_MODULES = ("files", "onnx")
__all__ = ["InteropError", "files", "onnx"]


def __getattr__(name: str) -> Any:
    """A module, imported when it is first asked for: the command line must not pay for torch."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
