"""Initialisers: each gate its own matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peephole.init.methods import METHODS, Method, draw

if TYPE_CHECKING:
    from peephole.init.torch import initialise_, variances_

__all__ = ["METHODS", "Method", "draw", "initialise_", "variances_"]


def __getattr__(name: str) -> Any:
    """The functions on PyTorch modules, imported with torch when first asked for."""
    if name in ("initialise_", "variances_"):
        from peephole.init import torch

        return getattr(torch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
