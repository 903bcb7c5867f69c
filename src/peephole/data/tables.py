"""Tables of visits from files and frames, in one tidy form."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peephole.data.cells import DELIMITERS, Array, Cells, no_column, read_cells
from peephole.data.errors import DataError
from peephole.data.report import Log
from peephole.data.tidy import Roles, Table, Unit, make_table

if TYPE_CHECKING:
    import pandas as pd


def read_table(
    path: str | Path,
    *,
    id: str = "id",
    time: str = "time",
    unit: Unit = "months",
    features: Sequence[str] | None = None,
    diagnosis: str | None = "diagnosis",
    covariates: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Table:
    """Read a table of visits from a CSV file, a row for each visit, and check it.

    Args:
        path: the file, in UTF-8, with a first line of column names.
        id: the column that names the subject.
        time: the column of times: numbers in `unit`, or dates as YYYY-MM-DD, which become months since the
            subject's first.
        unit: of the times; the tidy table has months.
        features: the columns to be forecast. None takes each column of numbers that changes within a subject.
        diagnosis: the column of diagnoses, or None for none.
        covariates: further columns. None takes those that never change within a subject, or none if `features`
            are named.
        delimiter: between the cells.

    What was changed, and what is likely to be a mistake, stands in `report.warnings` and is said once as a
    `DataWarning`: numbers such as `>1700` are taken as the number, infinite ones as missing, rows without a time
    are dropped; a (subject, time) that stands there twice is kept, for `to_grid` has a rule for it.

    Raises:
        DataError: a file that cannot be read or used, in one line with file, row and column.
    """
    roles = Roles(id, time, unit, features, diagnosis, covariates)

    def choose(header: list[str], first: str) -> list[str]:
        for name in roles.named() + ([diagnosis] if diagnosis not in (None, "diagnosis") else []):
            if name not in header:
                raise no_column(str(path), str(name), header, first, delimiter)
        return [name for name in header if name in {id, time, diagnosis, *roles.others(header)}]

    if len(delimiter) != 1:
        raise DataError(f"delimiter {delimiter!r}: expected one character, such as {', '.join(DELIMITERS.values())}")
    cells = read_cells(path, delimiter, choose)
    log = Log()
    table = make_table(cells, roles, log, list(cells.text(id)))
    log.emit(str(path), level=2)
    return table


def frame_table(frame: "pd.DataFrame", roles: Roles, log: Log) -> Table:
    """The tidy table of a frame, with the checks that a file meets."""
    header = [str(name) for name in frame.columns]
    for name in roles.named():
        if header.count(name) != 1:
            what = "no column" if name not in header else "more than one column"
            raise DataError(f"table: {what} {name!r}; its columns are {', '.join(header[:12])}")
    if not len(frame):
        raise DataError("table: no rows, expected at least one")
    wanted = {roles.time, roles.diagnosis, *roles.others(header)}
    columns = {name: _column(frame.iloc[:, place]) for place, name in enumerate(header) if name in wanted}
    ids = frame.iloc[:, header.index(roles.id)]
    cells = Cells("table", range(len(frame)), columns, is_file=False)
    return make_table(cells, roles, log, [None if gone else who for who, gone in zip(ids, ids.isna(), strict=True)])


def _column(series: Any) -> list[str] | Array:
    if series.dtype.kind in "biuf":
        numeric: Array = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return numeric
    return ["" if gone else str(cell).strip() for cell, gone in zip(series, series.isna(), strict=True)]
