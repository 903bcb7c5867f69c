"""Splits by subject, never by visit, in which each diagnosis has its share."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from peephole.data.draws import Stream
from peephole.data.errors import DataError

if TYPE_CHECKING:
    from peephole.data.cohort import Grid

SEVERITY = ("CN", "MCI", "AD")
Places = NDArray[np.intp]
Stratify = Literal["last", "worst"] | None


def split_subjects(
    grid: "Grid",
    *,
    share: float = 0.85,
    stratify: Stratify = "last",
    severity: Sequence[str] = SEVERITY,
    seed: int,
) -> tuple[Places, Places]:
    """Split the subjects of a grid: the places of those for training and of the others, in random order.

    The first are `share` of all, rounded; neither part is empty. Each diagnosis is split in the same proportion,
    up to one subject: the `last` known diagnosis of a subject, or the `worst`, the one that comes last in
    `severity`. Subjects without a diagnosis are a class of their own. The same seed gives the same split, whatever
    the version of NumPy.
    """
    J = len(grid.subjects)
    if J < 2:
        raise DataError(f"{J} subjects cannot be split: expected at least 2")
    if not 0 < share < 1:
        raise DataError(f"a share of {share:g} for training: expected a number between 0 and 1")
    wanted = min(max(round(share * J), 1), J - 1)
    order = Stream(seed, 0).order(J)
    strata = _strata(grid, stratify, severity)
    exact = np.bincount(strata) * (wanted / J)
    counts = np.floor(exact).astype(np.intp)
    short = wanted - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1  # those that were cut most
    first = _rank_in_stratum(strata, order) < counts[strata[order]]
    return order[first], order[~first]


def folds(
    grid: "Grid",
    k: int = 5,
    *,
    repeats: int = 1,
    stratify: Stratify = "last",
    severity: Sequence[str] = SEVERITY,
    seed: int,
) -> Iterator[tuple[Places, Places]]:
    """Repeated K-fold splits of a grid's subjects: `k * repeats` pairs of places, for training and for testing.

    In each repeat every subject is tested once. Folds differ by at most one subject in size, and by at most one
    in each diagnosis (see `split_subjects`).
    """
    J = len(grid.subjects)
    if not 2 <= k <= J or repeats < 1:
        raise DataError(f"{k} folds of {J} subjects, {repeats} times: expected 2 to {J} folds, at least once")
    strata = _strata(grid, stratify, severity)
    return _folds(strata, k, repeats, seed)


def _folds(strata: Places, k: int, repeats: int, seed: int) -> Iterator[tuple[Places, Places]]:
    for repeat in range(repeats):
        order = Stream(seed, repeat).order(len(strata))
        # Dealt like cards, stratum after stratum, the folds are as equal as can be in both respects.
        dealt = order[np.argsort(strata[order], kind="stable")]
        fold = np.empty(len(strata), dtype=np.intp)
        fold[dealt] = np.arange(len(strata)) % k
        for test in range(k):
            yield order[fold[order] != test], order[fold[order] == test]


def _rank_in_stratum(strata: Places, order: Places) -> Places:
    """For each subject in this order, how many of its stratum come before it."""
    rank = np.empty(len(order), dtype=np.intp)
    for stratum in np.unique(strata):
        here = np.flatnonzero(strata[order] == stratum)
        rank[here] = np.arange(len(here))
    return rank


def _strata(grid: "Grid", stratify: Stratify, severity: Sequence[str]) -> Places:
    """A number (J,) for each subject, the same for those of the same diagnosis."""
    if stratify not in ("last", "worst", None):
        raise DataError(f"stratify {stratify!r}: expected 'last', 'worst' or None")
    if stratify is None or grid.diagnosis is None:
        return np.zeros(len(grid.subjects), dtype=np.intp)
    known = grid.diagnosis != ""
    if stratify == "last":
        place = known.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
        label = grid.diagnosis[np.arange(len(place)), place]  # the empty text if none is known
        return np.unique(label, return_inverse=True)[1].astype(np.intp)
    unknown = set(np.unique(grid.diagnosis[known]).tolist()) - set(severity)
    if unknown:
        raise DataError(f"diagnosis {min(unknown)!r} is not in severity, {', '.join(severity)}: which is worse?")
    rank = np.zeros(grid.diagnosis.shape, dtype=np.intp)
    for place, name in enumerate(severity, 1):
        rank[grid.diagnosis == name] = place
    return np.asarray(rank.max(axis=1), dtype=np.intp)
