"""What became of a table's rows on their way: which were dropped and why, and what else a reader should know."""

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peephole.data.errors import DataWarning


class Drop(NamedTuple):
    """A row that was dropped: its line in the file (else its place in the table, from 0), whose and when, and why."""

    row: int
    id: Any
    time: float
    why: str


@dataclass(frozen=True)
class Report:
    """What became of `rows` rows.

    `warnings` tell what was changed or is likely to be a mistake, `notes` what was decided as documented; each is a
    line with counts. `str()` of a report is one line, too.
    """

    rows: int
    drops: tuple[Drop, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        """How many rows were not dropped."""
        return self.rows - len(self.drops)

    def counts(self) -> dict[str, int]:
        """How many rows were dropped for each reason, the most frequent first."""
        return dict(Counter(drop.why for drop in self.drops).most_common())

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {why}" for why, count in self.counts().items())
        first = f"{self.kept} of {self.rows} rows kept" + (f" (dropped: {reasons})" if reasons else "")
        return "; ".join([first, *self.warnings, *self.notes])


@dataclass
class Log:
    """Collects a report."""

    drops: list[Drop] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def report(self, rows: int, before: Report | None = None) -> Report:
        """The report on so many rows, or that on the rows of an earlier one."""
        if before is None:
            return Report(rows, tuple(self.drops), tuple(self.warnings), tuple(self.notes))
        return Report(
            before.rows,
            (*before.drops, *self.drops),
            (*before.warnings, *self.warnings),
            (*before.notes, *self.notes),
        )

    def emit(self, where: str, level: int) -> None:
        """Say all warnings through `warnings.warn`, as one line, `level` calls above the caller of this."""
        if self.warnings:
            warnings.warn(f"{where}: " + "; ".join(self.warnings), DataWarning, stacklevel=level + 1)


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {one if count == 1 else many or one + 's'}"
