"""ADNI's codes of diagnoses, old and new, and its ways to say when a visit was."""

import re

import numpy as np

from peephole.data.cells import DAYS, Array, Cells, dates, numbers
from peephole.data.report import Log, counted

TIMES = ("Month_bl", "Years_bl", "EXAMDATE")  # the most exact first
FAR = 6.0  # months between a visit's time and its VISCODE: more is likely to be a wrong date
LABELS = {
    **dict.fromkeys(("NL", "CN", "SMC"), "CN"),
    **dict.fromkeys(("MCI", "EMCI", "LMCI"), "MCI"),
    **dict.fromkeys(("DEMENTIA", "AD"), "AD"),
}
CHANGES = {1: "CN", 7: "CN", 9: "CN", 2: "MCI", 4: "MCI", 8: "MCI", 3: "AD", 5: "AD", 6: "AD", -1: ""}


def diagnoses(cells: Cells, names: dict[str, str], visits: list[str], log: Log) -> list[str]:
    """Each row's diagnosis, CN, MCI, AD or empty: from DX, else DXCHANGE, else at baseline DX_bl."""
    found = [""] * len(cells)
    if "DX" in names:
        found = _labels(cells, names["DX"])
    if "DXCHANGE" in names:
        changes = _changes(cells, names["DXCHANGE"])
        other = sum(bool(a and b and a != b) for a, b in zip(found, changes, strict=True))
        if other:
            log.warnings.append(f"{counted(other, 'row')} with a DXCHANGE that contradicts DX, DX taken")
        found = [a or b for a, b in zip(found, changes, strict=True)]
    if "DX_bl" in names:
        first = _labels(cells, names["DX_bl"])
        used = [not a and bool(b) and visit == "bl" for a, b, visit in zip(found, first, visits, strict=True)]
        if any(used):
            log.notes.append(f"{counted(sum(used), 'diagnosis', 'diagnoses')} at baseline from DX_bl")
        found = [b if use else a for a, b, use in zip(found, first, used, strict=True)]
    return found


def _labels(cells: Cells, column: str) -> list[str]:
    """A column of names, of which in `MCI to Dementia` the last counts."""
    texts = cells.text(column)
    for row, text in enumerate(texts):
        if text and text.upper().split()[-1] not in LABELS:
            raise cells.error(
                row, column, f"{text[:30]!r}, expected NL, CN, MCI, Dementia or a change such as NL to MCI"
            )
    return [LABELS[text.upper().split()[-1]] if text else "" for text in texts]


def _changes(cells: Cells, column: str) -> list[str]:
    """A column of DXCHANGE, 1 to 9, or -1 for unknown."""
    values = numbers(cells, column)
    odd = np.flatnonzero(~(np.isnan(values) | np.isin(values, list(CHANGES))))
    if odd.size:
        raise cells.error(int(odd[0]), column, f"{values[odd[0]]:g}, expected 1 to 9, or -1 for unknown")
    return ["" if np.isnan(value) else CHANGES[int(value)] for value in values]


def times(cells: Cells, names: dict[str, str], ids: list[int], visits: list[str], log: Log) -> Array:
    """The month of each row since baseline, from the most exact source that the row has."""
    found = np.full(len(cells), np.nan)
    nominal = np.array([_month(code) for code in visits])
    for name in (*TIMES, "VISCODE"):
        gaps = np.isnan(found)
        if name not in names or not gaps.any():
            continue
        if name == "EXAMDATE":
            months = _since_baseline(cells, names, ids, visits)
        elif name == "VISCODE":
            months = nominal
        else:
            months = numbers(cells, names[name], log) * (12 if name == "Years_bl" else 1)
        found = np.where(gaps, months, found)
        filled = int((gaps & ~np.isnan(months)).sum())
        if filled and name != TIMES[0]:
            log.notes.append(f"{counted(filled, 'time')} from {name}")
    far = np.abs(found - nominal) > FAR
    if far.any():
        first = cells.lines[int(np.argmax(far))]
        what = f"{counted(int(far.sum()), 'visit')} more than {FAR:g} months off the VISCODE"
        log.warnings.append(f"{what}, first in line {first}")
    return found


def _since_baseline(cells: Cells, names: dict[str, str], ids: list[int], visits: list[str]) -> Array:
    """Months between EXAMDATE and the subject's baseline: EXAMDATE_bl, else the EXAMDATE of visit bl."""
    days = dates(cells, names["EXAMDATE"])
    if days is None:
        return np.full(len(cells), np.nan)
    first = {who: day for who, visit, day in zip(ids, visits, days, strict=True) if visit == "bl"}
    baseline = np.array([first.get(who, np.nan) for who in ids])
    given = dates(cells, names["EXAMDATE_bl"]) if "EXAMDATE_bl" in names else None
    if given is not None:
        baseline = np.where(np.isnan(given), baseline, given)
    months: Array = (days - baseline) / DAYS
    return months


def _month(code: str) -> float:
    """The month that a VISCODE names: 0 of bl, 6 of m06, NaN of others."""
    match = re.fullmatch(r"m(\d+)", code)
    return 0.0 if code == "bl" else float(match[1]) if match else np.nan
