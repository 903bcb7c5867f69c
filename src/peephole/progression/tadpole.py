"""Forecasts in the columns of the TADPOLE challenge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from peephole.data.frames import pandas
from peephole.progression.errors import ProgressionError
from peephole.progression.frames import bounds

if TYPE_CHECKING:
    import pandas as pd

MONTHS = tuple(range(1, 61))
CLASSES = ("CN", "MCI", "AD")
TARGETS = ("ADAS13", "Ventricles_ICV")


def first_month(text: str) -> int:
    """`YYYY-MM` as a number of months."""
    match = re.fullmatch(r"(\d{4})-(\d{2})", text)
    if not match or not 1 <= int(match[2]) <= 12:
        raise ProgressionError(f"start {text!r}: expected YYYY-MM, such as 2018-01")
    return 12 * int(match[1]) + int(match[2]) - 1


def to_tadpole(forecasts: pd.DataFrame, first: int) -> pd.DataFrame:
    """A frame of forecasts at `MONTHS`, as `forecast` gives it, in the challenge's columns and their order.

    Month 1 is the calendar month `first`. What the model does not forecast, ADAS13 say, stays empty.
    """
    if not any(name in forecasts for name in (*TARGETS, *(f"p_{name}" for name in CLASSES))):
        raise ProgressionError(f"the model forecasts neither {', '.join(TARGETS)} nor {', '.join(CLASSES)}")
    months = forecasts["horizon"].to_numpy().astype(np.int64)
    calendar = first + months - 1
    columns: dict[str, Any] = {
        "RID": forecasts["id"],
        "Forecast Month": months,
        "Forecast Date": [f"{month // 12:04d}-{month % 12 + 1:02d}" for month in calendar.tolist()],
    }
    nothing = np.full(len(forecasts), np.nan)
    for name in CLASSES:
        columns[f"{name} relative probability"] = forecasts.get(f"p_{name}", nothing)
    for name in TARGETS:
        for column, title in zip((name, *bounds(name)[:2]), ("", " 50% CI lower", " 50% CI upper"), strict=True):
            columns[name + title] = forecasts.get(column, nothing)
    return pandas().DataFrame(columns)
