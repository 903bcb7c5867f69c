"""What the records say, as plain numbers and words: the table beside the paper's, the curves, the claims.

A run diverged if its loss was lost, or ended above where it began; the first kind has an infinite error. It is a run
like any other: quantiles rank it by its error, and the mean of those that did not diverge is kept beside. It
counts as diverged, not as stuck.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peephole.experiments import claims as tests
from peephole.experiments import summary, words
from peephole.experiments.claims import BASELINES, NEAR, PROPOSED, STUCK, Claim, Comparison
from peephole.experiments.paper import SYNTHETIC

Array = NDArray[np.float64]
Record = Mapping[str, Any]
Table = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Runs:
    """All runs of one method on one data set, a row a seed; infinite from where one diverged."""

    method: str
    seeds: tuple[int, ...]
    train: Array = field(repr=False)  # (seeds, epochs + 1)
    test: Array = field(repr=False)  # (seeds, marks)
    final_train: Array = field(repr=False)
    final_test: Array = field(repr=False)
    lost: NDArray[np.int64] = field(repr=False)  # the epoch, or -1

    @property
    def diverged(self) -> NDArray[np.bool_]:
        """Which were lost, or ended above their own start."""
        return (self.lost >= 0) | (self.final_train > self.train[:, 0])


@dataclass(frozen=True)
class Row:
    """A line of the table: the final test error over seeds, and what became of them; `paper` is its number.

    `rest_mean` is the mean over the seeds that did not diverge. `place` says where the paper's number lies:
    "quartiles" (between ours), "range" (within that of our seeds) or "outside"; "" where there is none. `reached` is
    the median epoch by which the training loss was within `NEAR` times the data set's best; infinite if it never was.
    """

    method: str
    seeds: int
    lower: float
    median: float
    upper: float
    best: float
    worst: float
    mean: float
    rest_mean: float
    stuck: int
    diverged: int
    paper: float | None
    place: str
    reached: float


@dataclass(frozen=True)
class Nearest:
    """The number of epochs whose median test errors come nearest to the paper's, and the distance there and at the end.

    The distance is the mean over methods of |log(ours / paper's)|; the overall one is the mean over data sets.
    """

    epochs: int
    distance: float
    last: int
    at_end: float


@dataclass(frozen=True, eq=False)
class DataSet:
    """One data set: its runs, its table, its comparisons and what they come to in a sentence."""

    name: str
    in_paper: bool
    made_up: bool
    marks: tuple[int, ...]
    stuck_above: float  # a final training loss over this is that of a stuck run
    runs: Mapping[str, Runs]
    rows: tuple[Row, ...]
    peers: Mapping[str, float]
    nearest: Nearest | None
    family: int = 0  # how many comparisons were corrected together with its own
    needed: int = 0  # the seeds they need
    comparisons: tuple[Comparison, ...] = ()
    claims: tuple[Claim, ...] = ()
    sentence: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Findings:
    """All of it."""

    datasets: tuple[DataSet, ...]
    nearest: Nearest | None
    summary: tuple[str, ...]
    provenance: Mapping[str, Any]
    records: tuple[Record, ...] = field(repr=False)

    @property
    def family(self) -> int:
        """How many comparisons of the paper's claims were corrected together."""
        return max((d.family for d in self.datasets if d.in_paper), default=0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The paper's claims, on each of its data sets."""
        return tuple(claim for d in self.datasets if d.in_paper for claim in d.claims)

    @cached_property
    def losses(self) -> dict[str, dict[str, Array]]:
        """Training loss of each data set and method: (seeds, epochs + 1)."""
        return {d.name: {m: runs.train for m, runs in d.runs.items()} for d in self.datasets}

    @cached_property
    def scores(self) -> dict[str, dict[str, Array]]:
        """Final test error of each data set and method: (seeds)."""
        return {d.name: {m: runs.final_test for m, runs in d.runs.items()} for d in self.datasets}

    @property
    def made(self) -> dict[str, list[str]]:
        """With what versions and kernels, where and when the records were made, and how many: reruns keep old ones."""
        found: dict[str, Counter[str]] = {name: Counter() for name in ("versions", "kernels", "machine", "date")}
        for record in self.records:
            for name, counts in found.items():
                value = record.get("provenance", {}).get(name, "unknown")
                counts[", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else value] += 1
        return {name: [f"{value} ({count})" for value, count in sorted(c.items())] for name, c in found.items()}

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """The records as columns, a row a record: the job, the final scores, the curves as lists."""
        names = list(dict.fromkeys(name for record in self.records for name in record["job"]))
        columns: dict[str, list[Any]] = {name: [r["job"].get(name) for r in self.records] for name in names}
        columns["key"] = [r.get("key") for r in self.records]
        columns["diverged"] = [int(r["diverged"]) for r in self.records]
        for name in ("train", "validation", "test"):
            columns[f"final_{name}"] = [float(_numbers([r["final"].get(name)])[0]) for r in self.records]
        columns["marks"] = [list(r["marks"]) for r in self.records]
        for name in ("train", "validation", "test"):
            columns[name] = [_numbers(r.get(name) or ()).tolist() for r in self.records]
        columns["provenance"] = [json.dumps(r.get("provenance", {}), sort_keys=True) for r in self.records]
        return columns


def gather(
    records: Iterable[Record],
    *,
    paper_table: Table,
    peers: Table | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Findings:
    """Everything the report shows. `paper_table` and `peers`: {method: {data set: error}}, {data set: {peer: error}}.

    The order of the records does not matter. A method, a seed or a data set may be missing; the paper's claims are
    tested on what is there. Data sets that the paper lacks, such as a made-up cohort, are a family of their own.
    """
    records = tuple(sorted(records, key=_order(paper_table)))
    known = set().union(*paper_table.values())
    named = dict.fromkeys(str(r["job"]["dataset"]) for r in records)
    found = [
        _describe(n, [r for r in records if r["job"]["dataset"] == n], paper_table, (peers or {}).get(n, {}))
        for n in named
    ]
    datasets = tuple(d for ours in (True, False) for d in _judged([d for d in found if (d.name in known) == ours]))
    nearest = _nearest([d for d in datasets if d.in_paper], paper_table)
    lines = summary.summary(datasets, nearest, _changed(datasets, nearest))
    return Findings(datasets, nearest, tuple(lines), provenance or {}, records)


def _order(paper_table: Table) -> Any:
    """Data sets and methods in the paper's order, what it lacks after that by name."""
    sets = list(dict.fromkeys(name for row in paper_table.values() for name in row))
    methods = [*PROPOSED, *BASELINES]

    def place(names: Sequence[str], name: str) -> tuple[int, str]:
        return (names.index(name) if name in names else len(names), name)

    return lambda r: (
        *place(sets, r["job"]["dataset"]),
        *place(methods, r["job"]["method"]),
        r["job"]["seed"],
        r["key"],
    )


def _numbers(values: Iterable[float | None]) -> Array:
    """Lost losses are null in a record, infinite here."""
    return np.array([np.inf if v is None or not np.isfinite(v) else v for v in values], dtype=np.float64)


def _describe(name: str, records: Sequence[Record], paper_table: Table, peers: Mapping[str, float]) -> DataSet:
    marks = {tuple(r["marks"]) for r in records}
    if len(marks) > 1 or len({len(r["train"]) for r in records}) > 1:
        raise ValueError(f"{name}: records of different numbers of epochs cannot be put beside each other")
    by_method: dict[str, list[Record]] = {}
    for record in records:
        by_method.setdefault(record["job"]["method"], []).append(record)
    runs = {method: _runs(name, method, mine) for method, mine in by_method.items()}
    best = min(float(r.final_train.min()) for r in runs.values())
    rows = tuple(_row(r, best, paper_table.get(method, {}).get(name)) for method, r in runs.items())
    in_paper = any(row.paper is not None for row in rows)
    described = DataSet(name, in_paper, name == SYNTHETIC, marks.pop(), STUCK * best, runs, rows, dict(peers), None)
    return _with(described, nearest=_nearest([described], paper_table) if in_paper else None)


def _runs(name: str, method: str, records: Sequence[Record]) -> Runs:
    seeds = tuple(int(r["job"]["seed"]) for r in records)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{name}, {method}: more than one record of a seed")
    return Runs(
        method,
        seeds,
        train=np.stack([_numbers(r["train"]) for r in records]),
        test=np.stack([_numbers(r["test"]) for r in records]),
        final_train=_numbers(r["final"]["train"] for r in records),
        final_test=_numbers(r["final"]["test"] for r in records),
        lost=np.array([r["diverged"] for r in records], dtype=np.int64),
    )


def quantile(values: ArrayLike, q: float) -> Array:
    """Along the first axis, as NumPy's, but between two infinite values lies an infinite one."""
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=0)
    place = q * (len(ordered) - 1)
    low, high = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    step = np.subtract(high, low, out=np.zeros_like(low), where=np.asarray(low < high))
    return np.asarray(low + step * (place - np.floor(place)) if place % 1 else low, dtype=np.float64)


def _row(runs: Runs, best: float, paper: float | None) -> Row:
    scores = runs.final_test
    lower, median, upper = (float(quantile(scores, q)) for q in (0.25, 0.5, 0.75))
    rest = scores[~runs.diverged]
    near = runs.train <= NEAR * best
    stuck = (runs.final_train > STUCK * best) & ~runs.diverged
    place = ""
    if paper is not None:
        # As printed: with three decimals, a median of 0.0377 is the paper's 0.038.
        inside = [round(a, 3) <= paper <= round(b, 3) for a, b in ((lower, upper), (scores.min(), scores.max()))]
        place = "quartiles" if inside[0] else "range" if inside[1] else "outside"
    return Row(
        method=runs.method,
        seeds=len(scores),
        lower=lower,
        median=median,
        upper=upper,
        best=float(scores.min()),
        worst=float(scores.max()),
        mean=float(scores.mean()),
        rest_mean=float(rest.mean()) if rest.size else np.inf,
        stuck=int(stuck.sum()),
        diverged=int(runs.diverged.sum()),
        paper=paper,
        place=place,
        reached=float(quantile(np.where(near.any(1), near.argmax(1), np.inf), 0.5)),
    )


def _nearest(datasets: Sequence[DataSet], paper_table: Table) -> Nearest | None:
    """Over the marks that all these data sets have."""
    marks = sorted(set.intersection(*(set(d.marks) for d in datasets))) if datasets else []
    if not marks:
        return None
    distances = np.mean([_distances(d, marks, paper_table) for d in datasets], axis=0)
    first = int(np.argmin(distances))
    return Nearest(marks[first], float(distances[first]), marks[-1], float(distances[-1]))


def _distances(d: DataSet, marks: Sequence[int], paper_table: Table) -> Array:
    columns = [d.marks.index(mark) for mark in marks]
    ours = {m: quantile(runs.test, 0.5)[columns] for m, runs in d.runs.items()}
    logs = [np.abs(np.log(ours[m] / paper_table[m][d.name])) for m in ours if d.name in paper_table.get(m, {})]
    return np.asarray(np.mean(logs, axis=0), dtype=np.float64)


def _compare(d: DataSet, mark: int | None = None) -> list[Comparison]:
    """By the error at the end, or after so many epochs."""
    errors = {m: runs.final_test if mark is None else runs.test[:, d.marks.index(mark)] for m, runs in d.runs.items()}
    scores = {m: dict(zip(d.runs[m].seeds, e.tolist(), strict=True)) for m, e in errors.items()}
    return [tests.compare(d.name, better, worse, scores) for better, worse in tests.pairs(list(scores))]


def _judged(family: Sequence[DataSet]) -> list[DataSet]:
    """These data sets with their comparisons, corrected together, and what they come to."""
    made = tests.judge([comparison for d in family for comparison in _compare(d)])
    size, needed = len(made), tests.seeds_needed(len(made))
    return [_conclude(d, tuple(c for c in made if c.dataset == d.name), size, needed) for d in family]


def _changed(datasets: Sequence[DataSet], nearest: Nearest | None) -> list[Claim]:
    """The claims whose verdict is another one at the epoch nearest to the paper's numbers."""
    ours = [d for d in datasets if d.in_paper]
    if nearest is None:
        return []
    made = tests.judge([comparison for d in ours for comparison in _compare(d, nearest.epochs)])
    then = [claim for d in ours for claim in tests.claims(d.name, [c for c in made if c.dataset == d.name])]
    now = [claim for d in ours for claim in d.claims]
    return [claim for claim, end in zip(then, now, strict=True) if claim.verdict != end.verdict]


def _conclude(d: DataSet, made: tuple[Comparison, ...], family: int, needed: int) -> DataSet:
    claims = tuple(tests.claims(d.name, made))
    judged = _with(d, comparisons=made, family=family, needed=needed, claims=claims)
    return _with(judged, sentence=words.sentence(judged), notes=tuple(words.notes(judged)))


def _with(d: DataSet, **changes: Any) -> DataSet:
    return DataSet(**{**vars(d), **changes})
