"""ADNIMERGE.csv and TADPOLE_D1_D2.csv as tidy tables: their columns, codes and known bad rows.

None of these data are here: they are under ADNI's data use agreement.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peephole.data.cells import Array, Cells, better_delimiter, numbers, read_cells
from peephole.data.codes import TIMES, diagnoses, times
from peephole.data.errors import DataError
from peephole.data.report import Drop, Log, counted
from peephole.data.tidy import Roles, Table, make_table

__all__ = ["SIX", "read"]

SIX = ("Ventricles", "Hippocampus", "WholeBrain", "Fusiform", "MidTemp", "Entorhinal")
"""The paper's six volumes. Each is divided by the intracranial volume of the same row."""

DIAGNOSES = ("DX", "DXCHANGE")
FURTHER = ("ICV", "EXAMDATE_bl", "DX_bl", "D1", "D2")
PLAUSIBLE = (0.6, 1.6)  # an intracranial volume over the file's median: no adult's is outside
TWICE = "of a visit that stands there twice"


def read(
    path: str | Path,
    *,
    features: Sequence[str] = SIX,
    covariates: Sequence[str] = ("AGE",),
    part: Literal["D1", "D2"] | None = None,
) -> Table:
    """Read ADNIMERGE (of any year, R's spelling too) or TADPOLE_D1_D2 as a tidy table.

    The table's `id` is RID; `time` the exact month since baseline: `Month_bl`, where that is missing 12 `Years_bl`,
    then the days between EXAMDATE and that of the baseline, at last the number in VISCODE. `diagnosis` is CN, MCI or
    AD: the last word of DX, else DXCHANGE, else at baseline DX_bl. `age` is that at baseline, as AGE is.

    Args:
        path: the file.
        features: columns of the file. The six volumes are divided by ICV of the same row and named
            `Ventricles_ICV` and so on; others, such as `ADAS13`, are taken as they stand.
        covariates: columns of the file that do not change within a subject.
        part: only the subjects' rows of TADPOLE's `D1` or `D2`.

    Cells that are empty, blank, -4 or NA are missing. The rows of TADPOLE_D1_D2 that are known to be wrong are
    dropped, and of a subject's rows with the same VISCODE all but the one that observed most; volumes are missing
    where ICV is less than 0.6 or more than 1.6 of the file's median. The report counts all this.

    Raises:
        DataError: a file that cannot be read or is neither, in one line that says which columns were expected.
    """
    names: dict[str, str] = {}

    def choose(header: list[str], first: str) -> list[str]:
        names.update(_names(str(path), header, first, [*features, *covariates], part))
        return list(dict.fromkeys(names.values()))

    cells = _cleaned(read_cells(path, ",", choose))
    log = Log()
    ids = _rids(cells, names["RID"])
    visits = [text.lower() for text in cells.text(names["VISCODE"])]
    columns: dict[str, list[str] | Array] = _features(cells, names, features, log)
    observed = np.sum([~np.isnan(values) for values in columns.values()], axis=0)
    columns["time"] = times(cells, names, ids, visits, log)
    columns["diagnosis"] = diagnoses(cells, names, visits, log)
    others = [_covariate(name) for name in covariates]
    columns |= {new: cells.columns[names[old]] for new, old in zip(others, covariates, strict=True)}
    wanted = [name for name in columns if name not in ("time", "diagnosis", *others)]

    kept = np.ones(len(cells), dtype=np.bool_)
    months = np.asarray(columns["time"], dtype=np.float64)
    for why, rows in _unwanted(cells, names, part, Visits(ids, visits, months, observed)):
        gone = [row for row in rows if kept[row]]
        kept[gone] = False
        log.drops += [Drop(cells.lines[row], ids[row], float(months[row]), why) for row in gone]
        if gone and why == TWICE:
            log.warnings.append(f"{counted(len(gone), 'row')} {why}, first line {cells.lines[gone[0]]}")
    left = np.flatnonzero(kept).tolist()
    if not left:
        raise DataError(f"{path}: no row is left of {len(kept)}")
    table = make_table(
        _rows(cells, columns, left),
        Roles(features=wanted, covariates=others),
        log,
        [ids[row] for row in left],
        len(cells),
    )
    log.emit(str(path), level=2)
    return table


class Visits(NamedTuple):
    """Whose each row is, its VISCODE, its month and how many features it observed."""

    ids: list[int]
    codes: list[str]
    months: Array
    observed: NDArray[np.intp]


def _unwanted(cells: Cells, names: dict[str, str], part: str | None, visits: Visits) -> Iterator[tuple[str, list[int]]]:
    """Reasons and the rows to be dropped for them, each row for the first of its reasons."""
    left = list(range(len(cells)))
    if part:
        out = set(np.flatnonzero(numbers(cells, names[part]) != 1).tolist())
        yield f"not in {part}", sorted(out)
        left = [row for row in left if row not in out]
    if {"D1", "D2"} <= names.keys():
        bad = {row for row in left if _known_bad(visits, row)}
        yield "known as a bad row of TADPOLE", sorted(bad)
        left = [row for row in left if row not in bad]
    best: dict[tuple[int, str | float], int] = {}
    twice: set[int] = set()
    for key in (visits.codes, np.round(visits.months, 2).tolist()):
        best.clear()
        for row in left:
            one = visits.ids[row], key[row]
            if key[row] == "" or key[row] != key[row] or row in twice:
                continue
            other = best.setdefault(one, row)
            if other != row:  # the first of those that observed most stays
                worse = row if visits.observed[row] <= visits.observed[other] else other
                twice.add(worse)
                best[one] = row + other - worse
    yield TWICE, sorted(twice)


def _known_bad(visits: Visits, row: int) -> bool:
    """Whether a row of TADPOLE_D1_D2 is one of those known to be wrong, beside duplicates and a small ICV."""
    who, month = visits.ids[row], visits.months[row]
    if who in (2190, 4579):
        return bool(abs(month - 0.45) < 0.05)
    if who == 4960:  # a wrong date
        return visits.codes[row] == "m48"
    return bool(who == 5204 and visits.observed[row] == 0)


def _names(where: str, header: list[str], first: str, wanted: Sequence[str], part: str | None) -> dict[str, str]:
    """The file's spelling of each column: R has dots for underscores, and LDELTOTAL_BL a capital of its own."""
    known: dict[str, str] = {}
    for spelled in header:
        known.setdefault(_plain(spelled), spelled)
    missing = [name for name in ("RID", "VISCODE") if _plain(name) not in known]
    missing += [" or ".join(some) for some in (TIMES, DIAGNOSES) if not any(_plain(name) in known for name in some)]
    if missing:
        other = better_delimiter("RID", header, first)
        hint = f"; the right delimiter seems to be {other}, expected ','" if other else ""
        raise DataError(
            f"{where}: neither ADNIMERGE nor TADPOLE_D1_D2, which have columns RID, VISCODE, EXAMDATE, DX, Month_bl, "
            f"ICV, {', '.join(SIX)}; missing: {', '.join(missing)}{hint}"
        )
    kind = "TADPOLE_D1_D2" if {"D1", "D2"} <= known.keys() else "ADNIMERGE"
    needed = [
        *wanted,
        *(["ICV"] if set(map(_plain, wanted)) & set(map(_plain, SIX)) else []),
        *([part] if part else []),
    ]
    for name in needed:
        if _plain(name) not in known:
            raise DataError(f"{where}: no column {name!r} in this file, which seems to be {kind}")
    every = ["RID", "VISCODE", *TIMES, *DIAGNOSES, *FURTHER, *wanted]
    return {name: known[_plain(name)] for name in every if _plain(name) in known}


def _plain(name: str) -> str:
    return name.replace(".", "_").upper()


def _covariate(name: str) -> str:
    return "age" if _plain(name) == "AGE" else name


def _cleaned(cells: Cells) -> Cells:
    """The cells with -4, ADNI's sign for missing, as empty ones."""
    columns: dict[str, list[str] | Array] = {
        name: ["" if cell in ("-4", "-4.0") else cell for cell in cells.text(name)] for name in cells.columns
    }
    return Cells(cells.where, cells.lines, columns)


def _rows(cells: Cells, columns: dict[str, list[str] | Array], rows: list[int]) -> Cells:
    chosen: dict[str, list[str] | Array] = {
        name: [column[row] for row in rows] if isinstance(column, list) else column[rows]
        for name, column in columns.items()
    }
    return Cells(cells.where, [cells.lines[row] for row in rows], chosen)


def _rids(cells: Cells, column: str) -> list[int]:
    values = numbers(cells, column)
    odd = np.flatnonzero(~(values == np.floor(values)))
    if odd.size:
        raise cells.error(int(odd[0]), column, f"{cells.text(column)[odd[0]]!r}, expected an integer")
    return [int(value) for value in values]


def _features(cells: Cells, names: dict[str, str], features: Sequence[str], log: Log) -> dict[str, list[str] | Array]:
    """The features, volumes over ICV."""
    if not features:
        raise DataError(f"{cells.where}: no features asked for, expected at least one column")
    volumes = {_plain(name): name for name in SIX}
    found: dict[str, list[str] | Array] = {}
    share = np.empty(0)
    if any(_plain(name) in volumes for name in features):
        icv = numbers(cells, names["ICV"], log)
        usual = np.nanmedian(icv) if not np.isnan(icv).all() else np.nan
        odd = (icv < PLAUSIBLE[0] * usual) | (icv > PLAUSIBLE[1] * usual)
        if odd.any():
            what = counted(int(odd.sum()), "implausible ICV", "implausible ICVs")
            log.warnings.append(f"{what}, volumes taken as missing, first in line {cells.lines[int(np.argmax(odd))]}")
        share = np.where(odd, np.nan, icv)
    for name in features:
        values = numbers(cells, names[name], log)
        volume = volumes.get(_plain(name))
        found[f"{volume}_ICV" if volume else name] = values / share if volume else values
    return found
