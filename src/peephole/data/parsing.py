"""Reads the archive's two forms of a file, `.tsv` and `.ts`; the way to an error may be slow, the way to data not.

`.tsv`: a line for each series, label and values between tabs, all lines equally long: short series end in NaN.
`.ts`: comments (`#`, `%`), a header of `@key value` lines, `@data`, and then lines `value,value,...:label`.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import isinf

import numpy as np
from numpy.typing import NDArray

from peephole.data.errors import DataError

# What a .ts file may leave unsaid, as the archive's own readers take it.
HEADER = {"timestamps": "false", "univariate": "true", "equallength": "true", "classlabel": "true"}


@dataclass(frozen=True)
class Part:
    """What one file holds: `values` (series, length), NaN where nothing was observed, and a label for each."""

    values: NDArray[np.float64]
    labels: NDArray[np.int64]
    equal: bool  # False where the file says that its series differ in length


@dataclass(frozen=True)
class Lines:
    """A file taken apart into text, before any number is read."""

    where: str
    numbers: list[int]  # each series' line in the file
    labels: list[str]
    rows: list[str]
    separator: str
    classes: tuple[str, ...] = ()  # as the header names them
    equal: bool = True
    length: int | None = None  # as the header says

    def error(self, series: int, message: str) -> DataError:
        """The error for a series, with its line."""
        return DataError(f"{self.where}:{self.numbers[series]}: {message}")


def parse(text: str, where: str, *, length: int | None = None, labels: Collection[int] = ()) -> Part:
    """The series and labels of one file's text; the end of `where` tells its form.

    Where `length` or `labels` are given, any other length or label is an error. A label is an integer; where a
    `.ts` file names its classes by words, a label is its class's place among them, from 0.
    """
    lines = _ts(text, where) if where.endswith(".ts") else _tsv(text, where)
    if not lines.rows:
        raise DataError(f"{where}: no series, expected at least one")
    if length is not None:
        lines = replace(lines, equal=True, length=length)
    return Part(_numbers(lines), _labels(lines, labels), lines.equal)


def _tsv(text: str, where: str) -> Lines:
    kept = [(number, line.partition("\t")) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    cut = [pieces for _, pieces in kept]
    return Lines(where, [number for number, _ in kept], [c[0] for c in cut], [c[2] for c in cut], "\t")


def _ts(text: str, where: str) -> Lines:
    lines = text.splitlines()
    header, start = _header(lines, where)
    kept = [(number, line.rpartition(":")) for number, line in enumerate(lines[start:], start + 1) if line.strip()]
    for number, (values, colon, _) in kept:
        if not colon or ":" in values:
            found = "several dimensions" if colon else "none"
            raise DataError(f"{where}:{number}: expected one series, a colon and its label, found {found}")
    equal = header["equallength"].lower() == "true"
    return Lines(
        where,
        [number for number, _ in kept],
        [label for _, (_, _, label) in kept],
        [values.replace("?", "nan") for _, (values, _, _) in kept],
        ",",
        classes=tuple(header["classlabel"].split()[1:]),
        equal=equal,
        length=int(header["serieslength"]) if equal and header.get("serieslength", "").isdecimal() else None,
    )


def _header(lines: list[str], where: str) -> tuple[dict[str, str], int]:
    """The header's entries by key in lower case, and the number of lines down to `@data`."""
    header = dict(HEADER)
    wanted = {"timestamps": "false", "univariate": "true", "classlabel": "true", "targetlabel": "false"}
    for number, line in enumerate(map(str.strip, lines), 1):
        key, _, value = line[1:].partition(" ")
        key, value = key.lower(), value.strip()
        if not line or line[0] in "#%":
            continue
        if line[0] != "@":
            raise DataError(f"{where}:{number}: expected '@' and a key before '@data', found {line[:30]!r}")
        if key == "data":
            return header, number
        if key in wanted and value.lower().split()[:1] != [wanted[key]]:
            raise DataError(f"{where}:{number}: '@{key} {value[:30]}', but only '{wanted[key]}' can be read")
        header[key] = value
    raise DataError(f"{where}: expected a line '@data', found none")


def _numbers(lines: Lines) -> NDArray[np.float64]:
    rows = lines.rows
    if not lines.equal:
        counts = [row.count(lines.separator) + 1 for row in rows]
        pad = lines.separator + "nan"
        longest = max(counts)
        rows = [row + pad * (longest - count) for row, count in zip(rows, counts, strict=True)]
    if not all(map(str.strip, rows)) and (error := _complaint(lines)):  # loadtxt would pass over an empty row
        raise error
    try:
        values = np.loadtxt(rows, delimiter=lines.separator, comments=None, ndmin=2)
    except ValueError as error:
        raise _complaint(lines) or DataError(f"{lines.where}: {error}") from None
    right = values.shape == (len(rows), lines.length or values.shape[1]) and not np.isinf(values).any()
    if not right:
        raise _complaint(lines) or DataError(f"{lines.where}: expected {len(rows)} series of numbers")
    return values


def _complaint(lines: Lines) -> DataError | None:
    """The first thing that is wrong with the values, found line by line."""
    width = lines.length or lines.rows[0].count(lines.separator) + 1
    for series, row in enumerate(lines.rows):
        fields = row.split(lines.separator)
        if not row.strip(" "):
            between = {"\t": "after the label, between tabs", ",": "before the label, between commas"}
            return lines.error(series, f"expected values {between[lines.separator]}, found none")
        for place, field in enumerate(fields, 1):
            if not _is_number(field):
                return lines.error(series, f"value {place} is {field[:30]!r}, expected a finite number or NaN")
        if lines.equal and len(fields) != width:
            return lines.error(series, f"{len(fields)} values, expected {width}")
    return None


def _is_number(field: str) -> bool:
    try:
        return field.isascii() and "_" not in field and not isinf(float(field))
    except ValueError:
        return False


def _labels(lines: Lines, allowed: Collection[int]) -> NDArray[np.int64]:
    numbers = [number for name in lines.classes if (number := _integer(name)) is not None]
    places = {name: place for place, name in enumerate(lines.classes)}
    by_name = len(numbers) < len(places)
    allowed = () if by_name else allowed or numbers
    codes = {}
    for text in dict.fromkeys(lines.labels):
        label = places.get(text.strip()) if by_name else _integer(text)
        if label is None or (allowed and label not in allowed):
            names = " ".join(lines.classes if by_name else map(str, sorted(allowed)))
            expected = f"one of {names}" if names else "an integer"
            raise lines.error(lines.labels.index(text), f"label {text[:30]!r}, expected {expected}")
        codes[text] = label
    return np.array([codes[text] for text in lines.labels], dtype=np.int64)


def _integer(text: str) -> int | None:
    """The integer that a label is, `1`, `1.0` and `1.0000000e+00` alike; None for anything else."""
    number = float(text) if _is_number(text) else 0.5
    return int(number) if number.is_integer() else None
