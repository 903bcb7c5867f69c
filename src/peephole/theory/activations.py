"""The activations that have a name, and what the theory needs to know of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from peephole.theory.errors import LevelError, TheoryError, nearest

Array = NDArray[np.float64]
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Activation:
    """A scalar function, its derivative, and how far its nearest complex pole lies from the real axis.

    The pole decides how many quadrature nodes a Gaussian moment needs; `None` marks a function
    with a kink, whose moments are closed forms (or, for a user's own callable, less exact).
    """

    name: str
    function: Function
    derivative: Function
    pole: float | None

    def __call__(self, a: Any) -> Any:  # noqa: D102 - a function is called
        return self.function(a)


def _erf_derivative(a: Any) -> Any:
    return 2 / math.sqrt(math.pi) * np.exp(-np.square(a))


NAMED: dict[str, Activation] = {
    act.name: act
    for act in (
        Activation("sigmoid", special.expit, lambda a: special.expit(a) * special.expit(-a), math.pi),
        Activation("tanh", np.tanh, lambda a: np.cosh(np.clip(a, -350, 350)) ** -2.0, math.pi / 2),
        Activation("identity", lambda a: a, lambda a: np.ones_like(a, dtype=float), math.inf),
        Activation("erf", special.erf, _erf_derivative, math.inf),
        Activation("relu", lambda a: np.maximum(a, 0.0), lambda a: np.where(np.asarray(a) > 0, 1.0, 0.0), None),
        # PyTorch's and Keras 3's hard sigmoid: clip((a + 3) / 6, 0, 1).
        Activation(
            "hard_sigmoid",
            lambda a: np.clip((np.asarray(a) + 3.0) / 6.0, 0.0, 1.0),
            lambda a: np.where(np.abs(a) < 3.0, 1.0 / 6.0, 0.0),
            None,
        ),
    )
}


def _numerical_derivative(function: Function) -> Function:
    """Five-point central difference: about 1e-12 for a smooth function of unit scale."""

    def derivative(a: Any) -> Any:
        h = 1e-3
        a = np.asarray(a, dtype=float)
        near, far = function(a + h) - function(a - h), function(a + 2 * h) - function(a - 2 * h)
        return (8 * near - far) / (12 * h)

    return derivative


def resolve(activation: str | Function) -> Activation:
    """The activation of that name, or a user's own vectorised callable dressed as one."""
    if isinstance(activation, Activation):
        return activation
    if callable(activation):
        name = getattr(activation, "__name__", type(activation).__name__)
        try:
            shape = np.shape(activation(np.zeros(2)))
        except (TypeError, ValueError) as error:
            raise TheoryError(f"activation {name} does not take arrays ({error}); pass a vectorised function") from None
        if shape != (2,):
            raise TheoryError(f"activation {name} makes shape {shape} of shape (2,); pass a vectorised function")
        # The brackets keep it from passing for one of the NAMED.
        return Activation(f"<{name}>", activation, _numerical_derivative(activation), math.pi / 2)
    if (found := NAMED.get(str(activation))) is None:
        raise TheoryError(f"unknown activation {activation!r}{nearest(activation, NAMED)}")
    return found


@lru_cache(maxsize=256)  # a solver asks for the same few again and again
def linearise(activation: Activation, at: float) -> tuple[float, float]:
    """Value and slope of the first-order Taylor expansion at a point; a kink there has none."""
    h = 1e-6
    here = float(activation(at))
    left, right = (here - float(activation(at - h))) / h, (float(activation(at + h)) - here) / h
    if abs(right - left) > 1e-3 * max(1.0, abs(left), abs(right)):
        raise LevelError(
            f"{activation.name} has no Taylor expansion at {at:g} (its slope jumps from {left:.3g} to {right:.3g}), "
            "which level 'linear' needs; level 'wide' can serve it"
        )
    return here, float(activation.derivative(at))
