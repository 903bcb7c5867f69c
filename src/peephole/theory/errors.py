"""What the theory raises, and the hint at the nearest name that goes with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TheoryError(ValueError):
    """A question that the theory cannot answer as it was put; the message says why in one line."""


def nearest(wrong: object, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a misspelt name, else the list of names."""
    known = list(names)
    close = difflib.get_close_matches(str(wrong), known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})"
