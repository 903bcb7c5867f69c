"""Rows of a table on their way to a regular grid: to which cell each belongs, which are dropped, which win a cell."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from peephole.data.cells import Array
from peephole.data.errors import DataError
from peephole.data.report import Drop
from peephole.data.tidy import Table

LARGEST = 2**28  # values in a grid: more is a wrong unit or step
Flags = NDArray[np.bool_]


class Rows:
    """The rows of a table, their cells and what is left of them."""

    def __init__(self, table: Table, step: float, origin: str) -> None:
        frame = table.frame
        self.lines = table.lines
        self.ids = frame["id"].to_numpy()
        self.times: Array = frame["time"].to_numpy(dtype=np.float64)
        self.values: Array = frame[list(table.features)].to_numpy(dtype=np.float64, na_value=np.nan)
        self.labels = np.full(len(frame), "")
        if table.has_diagnosis:
            self.labels = frame["diagnosis"].fillna("").to_numpy().astype(np.str_)
        first = ~frame.duplicated("id").to_numpy()
        self.subjects: NDArray[Any] = self.ids[first]  # in the order of the table
        place = {who: j for j, who in enumerate(self.subjects)}
        self.subject = np.array([place[who] for who in self.ids], dtype=np.intp)
        self.covariates = {name: _of_subjects(frame, name) for name in table.covariates}

        self.origin = np.zeros(len(self.subjects))
        if origin == "first":
            self.origin = np.full(len(self.subjects), np.inf)
            np.minimum.at(self.origin, self.subject, self.times)
        since = self.times - self.origin[self.subject]
        self.cell = np.floor(since / step + 0.5).astype(np.intp)
        self.distance: Array = since - self.cell * step
        self.seen: Flags = ~np.isnan(self.values).all(axis=1)
        self.left: Flags = np.ones(len(frame), dtype=np.bool_)
        self.drops: list[Drop] = []

    def drop(self, which: Flags, why: str) -> int:
        """Drop those of the rows that are left; the number of subjects that lost all by it."""
        gone = which & self.left
        before = len(np.unique(self.subject[self.left]))
        self.left &= ~gone
        self.drops += [
            Drop(self.lines[row], self.ids[row], float(self.times[row]), why) for row in np.flatnonzero(gone)
        ]
        return before - len(np.unique(self.subject[self.left]))

    def visits_of_subject(self) -> NDArray[np.intp]:
        """For each row the number of its subject's cells in which something was observed."""
        used = self.left & self.seen
        cells = np.unique(np.stack([self.subject[used], self.cell[used]]), axis=1)
        return np.bincount(cells[0], minlength=len(self.subjects))[self.subject]

    def trailing(self) -> Flags:
        """The rows after their subject's last observation or diagnosis."""
        last = np.full(len(self.subjects), -np.inf)
        tells = self.left & (self.seen | (self.labels != ""))
        np.maximum.at(last, self.subject[tells], self.times[tells])
        last[np.isneginf(last)] = np.inf  # of a subject who is wanted all the same
        late: Flags = self.times > last[self.subject]
        return late

    def order(self, collision: str) -> tuple[NDArray[np.intp], Flags]:
        """The rows left, each cell's together and the best of them first; which of them are the first of a cell."""
        rank = self.times if collision == "first" else np.abs(self.distance)
        order = np.lexsort((rank, ~self.seen, self.cell, self.subject))  # stable: else the table's order
        order = order[self.left[order]]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (np.diff(self.subject[order]) != 0) | (np.diff(self.cell[order]) != 0)
        return order, first

    def arrays(self, collision: str, visits: int | None) -> tuple[Array, Array, NDArray[np.str_]]:
        """What fills the grid: values (J, T, N), times (J, T) and diagnoses (J, T), of all subjects of the table."""
        order, first = self.order(collision)
        if collision in ("nearest", "first"):
            keep = np.zeros_like(self.left)
            keep[order[first]] = True
            self.drop(~keep, f"where {'a nearer' if collision == 'nearest' else 'an earlier'} row has the cell")
            order = order[first]
        shape = len(self.subjects), visits or int(self.cell[order].max()) + 1, self.values.shape[1]
        if np.prod(shape, dtype=np.float64) > LARGEST:
            raise DataError(f"table: a grid of {shape[0]} subjects x {shape[1]} visits: is the unit of time right?")
        X, times, labels = np.full(shape, np.nan), np.full(shape[:2], np.nan), np.full(shape[:2], "", self.labels.dtype)
        backwards = order[::-1]  # the last assignment stays: that of the best row
        who, when = self.subject[backwards], self.cell[backwards]
        times[who, when] = self.times[backwards]
        for place, column in enumerate(self.values[backwards].T):
            seen = ~np.isnan(column)
            X[who[seen], when[seen], place] = column[seen]
        known = self.labels[backwards] != ""
        labels[who[known], when[known]] = self.labels[backwards][known]
        if collision == "mean":
            X = _means(X, who, when, self.values[backwards])
            times = _means(times[..., None], who, when, self.times[backwards][:, None])[..., 0]
        return X, times, labels


def _means(like: Array, who: NDArray[np.intp], when: NDArray[np.intp], values: Array) -> Array:
    """The mean over a cell's rows of what was observed, NaN where nothing was."""
    total, count = np.zeros_like(like), np.zeros_like(like)
    np.add.at(total, (who, when), np.nan_to_num(values, nan=0.0))
    np.add.at(count, (who, when), ~np.isnan(values))
    return np.where(count > 0, total / np.maximum(count, 1.0), np.nan)


def _of_subjects(frame: Any, name: str) -> NDArray[Any]:
    """A covariate's first known value for each subject: numbers with NaN, or text that may be empty."""
    column = frame[name]
    text = column.dtype.kind not in "biuf"
    known = column.mask(column == "") if text else column
    values = known.groupby(frame["id"], sort=False).first()
    array: NDArray[Any] = values.fillna("").to_numpy().astype(np.str_) if text else values.to_numpy(dtype=np.float64)
    return array
