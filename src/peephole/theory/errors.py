"""What the theory raises, and the hint at the nearest name that goes with it."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable


class TheoryError(ValueError):
    """A question that the theory cannot answer as it was put; the message says why in one line."""


class LevelError(TheoryError):
    """A cell that the level asked for does not serve; another one may, and the message names it."""


class ExplosionError(LevelError):
    """Variances with which the signal leaves the range of numbers."""


def check_count(name: str, value: int, least: int) -> None:
    """Raise unless the value is a whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise TheoryError(f"{name} = {value!r}: a whole number of at least {least}")


def check_target(target: float) -> None:
    """Raise unless the target is a variance that one can wish for."""
    if not isinstance(target, numbers.Real) or not 0 < target < math.inf:
        raise TheoryError(f"target = {target!r}: a variance to reach is finite and above 0")


def nearest(wrong: object, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a misspelt name, else the list of names."""
    known = list(names)
    close = difflib.get_close_matches(str(wrong), known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})"
