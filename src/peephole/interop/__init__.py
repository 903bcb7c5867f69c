"""Take it anywhere: LSTMs in files, as ONNX, and in the weights of other frameworks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from peephole.interop.errors import DisagreementError, InteropError

if TYPE_CHECKING:
    from peephole.interop import files, onnx
    from peephole.interop.convert import export_weights, import_weights

_MODULES = ("files", "onnx")
__all__ = ["DisagreementError", "InteropError", "export_weights", "files", "import_weights", "onnx"]


def __getattr__(name: str) -> Any:
    """What needs torch, imported when it is first asked for: the command line must not pay for it."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        return getattr(import_module(f"{__name__}.convert"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
