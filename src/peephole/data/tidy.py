"""Turns cells into the one tidy form of a table of visits, a row for a visit, and remarks on what is odd in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from peephole.data.cells import DAYS, Array, Cells, dates, number, numbers
from peephole.data.errors import DataError
from peephole.data.frames import pandas
from peephole.data.report import Drop, Log, Report, counted

if TYPE_CHECKING:
    import pandas as pd

Unit = Literal["days", "weeks", "months", "years"]
MONTHS = {"days": 1 / DAYS, "weeks": 7 / DAYS, "months": 1.0, "years": 12.0}
LONGEST = 1200.0  # months: nobody is followed for longer than a century


@dataclass(frozen=True, eq=False)
class Table:
    """A table of visits in tidy form, and a report of what it took.

    `frame` has a row for a visit: `id`, `time` in months, the features, `diagnosis` if there is one, and the
    covariates, which do not change within a subject. `lines` holds each row's line in the file.
    """

    frame: "pd.DataFrame" = field(repr=False)
    features: tuple[str, ...]
    covariates: tuple[str, ...]
    has_diagnosis: bool
    report: Report
    lines: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True)
class Roles:
    """Which column is what, as the caller says; None for what is to be found out."""

    id: str = "id"
    time: str = "time"
    unit: Unit = "months"
    features: Sequence[str] | None = None
    diagnosis: str | None = "diagnosis"
    covariates: Sequence[str] | None = None

    def named(self) -> list[str]:
        """The columns that must be there."""
        return [self.id, self.time, *(self.features or ()), *(self.covariates or ())]

    def others(self, header: Sequence[str]) -> list[str]:
        """The columns that are features or covariates, or may be."""
        taken = {self.id, self.time, self.diagnosis or "diagnosis", ""}
        if self.features is None:
            return [name for name in header if name not in taken]
        return [*self.features, *(self.covariates or ())]


def make_table(cells: Cells, roles: Roles, log: Log, ids: list[Any], rows: int | None = None) -> Table:
    """The tidy table of cells, whose subjects are `ids`; what is to be told goes into the log.

    `rows` is how many there were at first, if some have been dropped.
    """
    nobody = next((row for row, who in enumerate(ids) if who is None or who == ""), None)
    if nobody is not None:
        raise cells.error(nobody, roles.id, "empty, expected the subject's name")
    subject = np.unique(np.array([str(who) for who in ids]), return_inverse=True)[1]
    times = _months(cells, roles, log, subject)
    features, covariates = _sort_out(cells, roles, log, subject)
    clash = {"id", "time", "diagnosis"} & {*features, *covariates}
    if clash:
        raise DataError(f"{cells.where}: a feature or covariate named {min(clash)!r}, a name with a meaning of its own")
    data: dict[str, Any] = {"id": ids, "time": times, **features}
    known = _diagnosis(cells, roles, log)
    if known is not None:
        data["diagnosis"] = known
    frame = pandas().DataFrame({**data, **covariates})
    frame, lines = _timed(frame, cells, log)
    _remark(frame, cells, tuple(features), log)
    names = tuple(features), tuple(covariates)
    return Table(frame, *names, known is not None, log.report(rows or len(ids)), lines)


def _months(cells: Cells, roles: Roles, log: Log, subject: NDArray[np.intp]) -> Array:
    """Times in months, from dates those since the subject's first."""
    days = dates(cells, roles.time)
    if days is None:
        if roles.unit not in MONTHS:
            raise DataError(f"unit {roles.unit!r}: expected one of {', '.join(MONTHS)}")
        times = numbers(cells, roles.time, log) * MONTHS[roles.unit]
    else:
        first = np.full(subject.max() + 1, np.inf)
        np.fmin.at(first, subject, days)
        times = (days - first[subject]) / DAYS
        log.notes.append(f"dates in column {roles.time!r} taken as months since the subject's first")
    span = np.nanmax(np.abs(times), initial=0.0)
    if span > LONGEST:
        log.warnings.append(f"column {roles.time!r} reaches {span:.0f} months: is its unit {roles.unit}?")
    return times


def _sort_out(
    cells: Cells, roles: Roles, log: Log, subject: NDArray[np.intp]
) -> tuple[dict[str, Array], dict[str, Array | list[str]]]:
    """The features and the covariates by name."""
    features: dict[str, Array] = {}
    covariates: dict[str, Array | list[str]] = {}
    found, left = [], []
    for name in roles.others(list(cells.columns)):
        text = _is_text(cells.columns[name]) and name not in (roles.features or ())
        values: Any = cells.text(name) if text else numbers(cells, name, log)
        if roles.features is not None:
            is_covariate = name not in roles.features
        elif roles.covariates is not None:
            is_covariate = name in roles.covariates
        else:
            is_covariate = _constant(values, subject)
            found += [name] if is_covariate else []
        if is_covariate:
            covariates[name] = values
        elif text:
            left.append(name)
        else:
            features[name] = values
    if found:
        log.notes.append(f"covariates, for they never change within a subject: {', '.join(found)}")
    if left:
        log.notes.append(f"columns of text left out: {', '.join(left)}")
    if not features:
        raise DataError(f"{cells.where}: no feature, expected a column of numbers that change from visit to visit")
    return features, covariates


def _is_text(cells: list[str] | Array) -> bool:
    """Whether a column has text and not one number: a column of both has a mistake in it."""
    return isinstance(cells, list) and any(cells) and not any(_reads(cell) for cell in cells)


def _reads(cell: str) -> bool:
    value = number(cell)
    return value is not None and not np.isnan(value)


def _constant(values: Any, subject: NDArray[np.intp]) -> bool:
    """Whether a column never changes within a subject, though some subject has two values of it."""
    levels, codes = np.unique(np.asarray(values), return_inverse=True)
    seen = np.array([not (level == "" or level != level) for level in levels])[codes]
    pairs = np.unique(np.stack([subject[seen], codes[seen]]), axis=1)
    subjects = len(np.unique(pairs[0]))
    return subjects == pairs.shape[1] and subjects < int(seen.sum())


def _diagnosis(cells: Cells, roles: Roles, log: Log) -> list[str] | None:
    if roles.diagnosis is None:
        return None
    if roles.diagnosis not in cells.columns:
        (log.warnings if cells.is_file else log.notes).append(f"no diagnosis: there is no column {roles.diagnosis!r}")
        return None
    known = cells.text(roles.diagnosis)
    if not any(known):
        log.warnings.append(f"no diagnosis: column {roles.diagnosis!r} is empty")
    return known


def _timed(frame: Any, cells: Cells, log: Log) -> tuple[Any, tuple[int, ...]]:
    """The rows that have a time, and their lines."""
    gone = frame["time"].isna().to_numpy()
    log.drops += [
        Drop(cells.lines[row], frame["id"][row], np.nan, "without a time") for row in np.flatnonzero(gone).tolist()
    ]
    if gone.all():
        raise DataError(f"{cells.where}: no row has a time")
    if gone.any():
        first = cells.place(int(np.argmax(gone)))
        log.warnings.append(f"{counted(int(gone.sum()), 'row')} without a time dropped, first {first}")
    lines = tuple(line for line, lost in zip(cells.lines, gone, strict=True) if not lost)
    return frame[~gone].reset_index(drop=True), lines


def _remark(frame: Any, cells: Cells, features: tuple[str, ...], log: Log) -> None:
    """Warn of duplicates, of features never observed and of subjects with one visit."""
    twice = frame.duplicated(["id", "time"]).to_numpy()
    if twice.any():
        row = int(np.argmax(twice))
        first = f"{frame['id'][row]} at {frame['time'][row]:g}"
        log.warnings.append(f"{counted(int(twice.sum()), 'row')} with an (id, time) seen before, first {first}")
    never = [name for name in features if frame[name].isna().all()]
    if never:
        log.warnings.append(f"never observed: {', '.join(never)}")
    single = int((frame.groupby("id").size() == 1).sum())
    if single:  # a table made for forecasts may well have them
        (log.warnings if cells.is_file else log.notes).append(f"{counted(single, 'subject')} with one visit")
