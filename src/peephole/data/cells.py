"""Cells of a table as text, with the lines that they stand in, and the numbers and dates in them."""

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peephole.data.errors import DataError
from peephole.data.report import Log, counted

MISSING = frozenset({"", "na", "nan", "n/a", "#n/a", "null", "none", ".", "<na>", "nat"})
DELIMITERS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'", " ": "a space"}
CENSORED = re.compile(r"[<>≤≥]=?\s*(?=[-+.\d])")
DATE = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[T ].*)?")
DAYS = 365.25 / 12  # in a month

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """A table's columns, each a list of stripped text or an array of numbers, and each row's line."""

    where: str
    lines: Sequence[int]
    columns: dict[str, list[str] | Array]
    is_file: bool = True

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Where a row stands: `file:line`, or `table, row 3` of a frame."""
        return f"{self.where}:{self.lines[row]}" if self.is_file else f"{self.where}, row {self.lines[row]}"

    def error(self, row: int, column: str, message: str) -> DataError:
        """The error for a cell."""
        return DataError(f"{self.place(row)}: column {column!r}: {message}")

    def text(self, column: str) -> list[str]:
        """A column as text, missing cells as empty."""
        cells = self.columns[column]
        if isinstance(cells, list):
            return ["" if cell.lower() in MISSING else cell for cell in cells]
        return ["" if np.isnan(cell) else f"{cell:g}" for cell in cells]


def read_cells(path: str | Path, delimiter: str, choose: Callable[[list[str], str], Sequence[str]]) -> Cells:
    """Read a CSV file's columns that `choose(header, first line)` names; it may raise what is wrong with them."""
    where = str(path)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            first = next((line for line in file if line.strip()), "").rstrip("\r\n")
            if not first:
                raise DataError(f"{where}: an empty file, expected a line of column names and rows below")
            file.seek(0)
            return _read(where, csv.reader(file, delimiter=delimiter, strict=True), first, choose)
    except OSError as error:
        raise DataError(f"{where}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{where}: not text in UTF-8, expected a CSV file") from None
    except csv.Error as error:
        raise DataError(f"{where}: not a CSV file: {error}") from None


def _read(where: str, reader: Any, first: str, choose: Callable[[list[str], str], Sequence[str]]) -> Cells:
    header = next([name.strip() for name in row] for row in reader if any(map(str.strip, row)))
    names = choose(header, first)
    twice = [name for name in names if header.count(name) > 1]
    if twice:
        raise DataError(f"{where}:{reader.line_num}: column {twice[0]!r} stands there twice")
    places = [header.index(name) for name in names]
    columns: list[list[str]] = [[] for _ in names]
    lines = []
    for row in reader:
        if len(row) != len(header):
            if not any(map(str.strip, row)):
                continue
            raise DataError(f"{where}:{reader.line_num}: {counted(len(row), 'cell')}, expected {len(header)}")
        lines.append(reader.line_num)
        for place, column in zip(places, columns, strict=True):
            column.append(row[place].strip())
    if not lines:
        raise DataError(f"{where}: a line of column names without rows, expected at least one")
    return Cells(where, lines, dict(zip(names, columns, strict=True)))


def no_column(where: str, name: str, header: list[str], first: str, delimiter: str) -> DataError:
    """The error for a file without a column: if another delimiter finds it, the error says so."""
    other = better_delimiter(name, header, first)
    if other:
        used = DELIMITERS.get(delimiter, repr(delimiter))
        return DataError(f"{where}: no column {name!r} if cut at {used}; the right delimiter seems to be {other}")
    shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    return DataError(f"{where}: no column {name!r}; its columns are {shown}")


def better_delimiter(name: str, header: list[str], first: str) -> str | None:
    """The delimiter, in words, that finds this column and more of them than the header has."""
    for other, words in DELIMITERS.items():
        found = [cell.strip() for cell in next(csv.reader([first], delimiter=other))]
        if name in found and len(found) > len(header):
            return words
    return None


def number(text: str) -> float | None:
    """The number in a cell, that of `>1700` too, NaN for a missing one, None for other text."""
    if text.lower() in MISSING:
        return np.nan
    bare = CENSORED.sub("", text, count=1) if text[0] in "<>≤≥" else text
    if "_" in bare or not bare.isascii():  # Python takes both for numbers
        return None
    try:
        return float(bare)
    except ValueError:
        return None


def numbers(cells: Cells, column: str, log: Log | None = None) -> Array:
    """A column's numbers, NaN where missing or infinite; the log counts the infinite and those like `>1700`.

    Raises:
        DataError: for other text, with file, line and column.
    """
    raw = cells.columns[column]
    if isinstance(raw, list):
        found = [number(text) for text in raw]
        if None in found:
            row = found.index(None)
            raise cells.error(row, column, f"{raw[row][:30]!r}, expected a number")
        values = np.array(found, dtype=np.float64)
        odd = [text for text in raw if text and text[0] in "<>≤≥" and text.lower() not in MISSING]
        if odd and log:
            log.warnings.append(
                f"column {column!r}: {counted(len(odd), 'cell')} such as {odd[0]!r} taken as the number"
            )
    else:
        values = raw.copy()
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size and log:
        what = counted(infinite.size, "infinite value")
        log.warnings.append(f"column {column!r}: {what} taken as missing, first in {_row(cells, infinite[0])}")
    values[infinite] = np.nan
    return values


def _row(cells: Cells, row: int) -> str:
    return f"{'line' if cells.is_file else 'row'} {cells.lines[row]}"


def dates(cells: Cells, column: str) -> NDArray[np.float64] | None:
    """A column's dates as days since 1970, NaN where missing, or None where the column has none.

    Raises:
        DataError: for a column that has dates and other cells, or a date that is none.
    """
    raw = cells.columns[column]
    if not isinstance(raw, list):
        return None
    matches = [DATE.fullmatch(text) for text in raw]
    if not any(matches):
        return None
    days = np.full(len(raw), np.nan)
    dated = sum(match is not None for match in matches)
    others = [row for row, text in enumerate(raw) if matches[row] is None and text.lower() not in MISSING]
    if others:  # name the first of those which are fewer
        row = others[0] if len(others) <= dated else next(row for row, match in enumerate(matches) if match)
        raise cells.error(row, column, f"{raw[row][:30]!r}, expected dates only or numbers only, found both")
    for row, match in enumerate(matches):
        if match:
            try:
                days[row] = (date(*map(int, match.groups())) - date(1970, 1, 1)).days
            except ValueError:
                raise cells.error(row, column, f"{raw[row][:30]!r} is no date, expected YYYY-MM-DD") from None
    return days
