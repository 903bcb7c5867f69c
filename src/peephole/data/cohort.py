"""A table of irregular visits on a regular grid and back, and splits of its subjects."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peephole.data.cells import Array
from peephole.data.errors import DataError
from peephole.data.frames import pandas
from peephole.data.report import Drop, Log, Report, counted
from peephole.data.rows import Rows
from peephole.data.splits import folds, split_subjects
from peephole.data.tables import frame_table, read_table
from peephole.data.tidy import Roles, Table, Unit

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Drop", "Grid", "Report", "Table", "folds", "read_table", "split_subjects", "to_grid"]

Collision = Literal["nearest", "first", "merge", "mean"]


@dataclass(frozen=True, eq=False)
class Grid:
    """Subjects' visits on a regular grid of T cells, the first at each subject's `origin`, `step` months apart.

    `X` (J, T, N) has NaN where nothing was observed; subjects with fewer visits end in NaN. `times` (J, T) holds
    the exact month of the visit in each cell, NaN where there is none. `diagnosis` (J, T) has the empty text for
    unknown, and is None where the table has none. `covariates` has an array (J,) for each name.
    """

    X: Array = field(repr=False)
    times: Array = field(repr=False)
    subjects: NDArray[Any] = field(repr=False)
    features: tuple[str, ...]
    step: float
    origin: Array = field(repr=False)
    diagnosis: NDArray[np.str_] | None = field(repr=False)
    covariates: dict[str, NDArray[Any]] = field(repr=False)
    report: Report

    @property
    def months(self) -> Array:
        """The nominal month (J, T) of each cell."""
        return self.origin[:, None] + self.step * np.arange(self.X.shape[1])

    @property
    def lengths(self) -> NDArray[np.intp]:
        """The number of cells (J,) up to each subject's last visit."""
        here = ~np.isnan(self.times)
        return np.asarray(here.shape[1] - np.argmax(here[:, ::-1], axis=1), dtype=np.intp)

    def take(self, subjects: ArrayLike) -> "Grid":
        """The same grid with some of its subjects, by their places; the report stays that of all."""
        places = np.asarray(subjects)
        return replace(
            self,
            X=self.X[places],
            times=self.times[places],
            subjects=self.subjects[places],
            origin=self.origin[places],
            diagnosis=None if self.diagnosis is None else self.diagnosis[places],
            covariates={name: values[places] for name, values in self.covariates.items()},
        )

    def to_table(self, *, exact: bool = True) -> "pd.DataFrame":
        """The tidy table: a row for each visit at its exact month, or at its nominal one."""
        who, when = np.nonzero(~np.isnan(self.times))
        times = self.times if exact else self.months
        columns: dict[str, Any] = {"id": self.subjects[who], "time": times[who, when]}
        columns |= {name: self.X[who, when, place] for place, name in enumerate(self.features)}
        if self.diagnosis is not None:
            columns["diagnosis"] = [label or None for label in self.diagnosis[who, when].tolist()]
        columns |= {name: values[who] for name, values in self.covariates.items()}
        return pandas().DataFrame(columns)


def to_grid(
    table: "Table | pd.DataFrame",
    *,
    id: str = "id",
    time: str = "time",
    unit: Unit = "months",
    features: Sequence[str] | None = None,
    diagnosis: str | None = "diagnosis",
    covariates: Sequence[str] | None = None,
    step: float = 12.0,
    tolerance: float | None = None,
    origin: Literal["first", "zero"] = "first",
    collision: Collision = "nearest",
    visits: int | None = None,
    least: int = 1,
) -> Grid:
    """Put a table of visits on a regular grid.

    A visit belongs to the cell nearest in time; halfway between two, to the later. Every row that is not used
    stands in the report with the reason. A frame meets the same checks as a file in `read_table`, and its columns
    are named as there; a `Table` has been through them.

    Args:
        table: from `read_table` or `adni.read`, or a tidy frame.
        id: the column that names the subject, of a frame.
        time: the column of times, of a frame.
        unit: of the times, of a frame.
        features: the columns on the grid; None: as in `read_table`.
        diagnosis: the column of diagnoses, if a frame has it.
        covariates: as in `read_table`.
        step: months between two cells.
        tolerance: the most months that a visit may lie from its cell; else a third of a step, 4 months of a year,
            so that a visit half way is not taken for one a half year off.
        origin: the first cell is at the subject's `first` row, whatever that holds, or at month `zero`.
        collision: of several rows in a cell, use the `nearest` of those that observed something (the earlier in
            the table if equally near), the `first` in time of these, the `mean` of each feature and of the times,
            or `merge` them: for each feature the nearest observed value. Mean and merge take the diagnosis of the
            nearest row that has one.
        visits: the number of cells, if not as many as the longest subject needs.
        least: subjects with fewer visits that observed something are dropped; 0 keeps all.

    A subject's rows after its last observation or diagnosis are not used. What a user would otherwise miss is
    said as a `DataWarning`: subjects dropped, cells taken otherwise than they stand.

    Raises:
        DataError: a table that cannot be used, in one line.
    """
    if collision not in get_args(Collision) or origin not in ("first", "zero"):
        raise DataError(f"collision {collision!r}, origin {origin!r}: expected {get_args(Collision)}, first or zero")
    tolerance = step / 3 if tolerance is None else tolerance
    if not (0 < step < np.inf and 0 <= tolerance <= step / 2):
        raise DataError(
            f"step {step:g}, tolerance {tolerance:g}: expected a step above 0, and a tolerance of at most half of it"
        )
    if least < 0 or (visits is not None and visits < 1):
        raise DataError(f"visits {visits}, least {least}: expected at least 1 and 0")
    log, before = Log(), None
    if isinstance(table, Table):
        before, table = table.report, _chosen(table, features)
    else:
        table = frame_table(table, Roles(id, time, unit, features, diagnosis, covariates), log)
    rows = Rows(table, step, origin)
    rows.drop(rows.cell < 0, "before the grid's start")
    rows.drop(np.abs(rows.distance) > tolerance * (1 + 1e-9), f"more than {tolerance:g} months off the grid")
    if visits is not None:
        rows.drop(rows.cell >= visits, "after the grid's end")
    what = "without any observation" if least <= 1 else f"with fewer than {least} visits"
    rows.drop(rows.visits_of_subject() < least, f"of a subject {what}")
    rows.drop(rows.trailing(), "after the subject's last observation")
    if not rows.left.any():
        raise DataError(f"table: no row is left for the grid; {Report(len(rows.left), tuple(rows.drops))}")
    arrays = rows.arrays(collision, visits)
    log.drops += rows.drops
    lost = len(rows.subjects) - len(np.unique(rows.subject[rows.left]))
    if lost:
        log.warnings.append(f"{counted(lost, 'subject')} without any row on the grid, or {what}, dropped")
    log.emit("table", level=2)
    return _grid(rows, arrays, table, step, log.report(len(rows.left), before))


def _chosen(table: Table, features: Sequence[str] | None) -> Table:
    """The table with these of its features."""
    for name in features or ():
        if name not in table.features:
            raise DataError(f"table: no feature {name!r}; its features are {', '.join(table.features)}")
    return table if features is None else replace(table, features=tuple(features))


def _grid(rows: Rows, arrays: tuple[Array, Array, NDArray[np.str_]], table: Table, step: float, report: Report) -> Grid:
    """The grid of those subjects that have a row left."""
    X, times, labels = arrays
    whole = Grid(
        X,
        times,
        rows.subjects,
        table.features,
        float(step),
        rows.origin,
        labels if table.has_diagnosis else None,
        rows.covariates,
        report,
    )
    return whole.take(np.unique(rows.subject[rows.left]))
