"""The paper's claims, tested over seeds: paired, exact, corrected for their number.

Two methods with the same seed share the split of the data and the order of the draws, so they are compared seed by
seed, by the logarithm of the ratio of their test errors: below 0 where the first is better. A run that diverged has
an infinite error; its ratio is larger than any other and takes the highest rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

Array = NDArray[np.float64]

PROPOSED = ("proposed-1", "proposed-2", "proposed-3", "proposed-4")
BASELINES = ("normalized", "orthogonal")
BEST = "proposed-4"  # the paper's best
LEVEL = 0.05
NEAR = 1.05  # times the best final training loss of the data set: a run that is below has converged
STUCK = 1.5  # times the best final training loss of the data set
VERDICTS = ("holds", "contradicted", "not shown")
PARTIAL = "not tested in full"  # of a claim, some of whose methods were left out


@dataclass(frozen=True)
class Comparison:
    """One method against another on one data set: `better` is the one that the paper calls better.

    `median` and `shift` are log ratios of the test errors, `better` over `worse`: the median over seeds, and the
    Hodges-Lehmann estimate, which belongs to the test and lies between `low` and `high` with 95% confidence, not
    corrected. `rank_biserial` is 1 where `better` wins with each seed, -1 where it loses with each.
    """

    dataset: str
    better: str
    worse: str
    seeds: int
    wins: int
    losses: int
    median: float
    shift: float
    low: float
    high: float
    rank_biserial: float
    p: float
    corrected: float = 1.0
    verdict: str = "not shown"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper on one data set. It holds if each comparison does; one contradicted contradicts it.

    `total` is how many comparisons the paper's methods make of it; if some are lacking it cannot hold.
    """

    dataset: str
    text: str
    comparisons: tuple[Comparison, ...]
    total: int

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`, or `PARTIAL`."""
        found = {comparison.verdict for comparison in self.comparisons}
        if "contradicted" in found:
            return "contradicted"
        if len(self.comparisons) < self.total:
            return PARTIAL
        return "holds" if found == {"holds"} else "not shown"

    def count(self, verdict: str) -> int:
        """How many of its comparisons have this verdict."""
        return sum(comparison.verdict == verdict for comparison in self.comparisons)


def log_ratios(better: ArrayLike, worse: ArrayLike) -> Array:
    """The log of better / worse seed by seed; two infinite errors are equal."""
    a, b = np.asarray(better, dtype=np.float64), np.asarray(worse, dtype=np.float64)
    equal = a == b
    a, b = np.where(equal, 1.0, a), np.where(equal, 1.0, b)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(a) - np.log(b), dtype=np.float64)


def signed_rank(differences: ArrayLike) -> tuple[float, float]:
    """Wilcoxon's two-sided p, exact with ties too, and the matched-pairs rank-biserial, 1 where all lie below 0.

    Zeros are dropped, as Wilcoxon did. The null distribution is that of all sign changes of the ranks met.
    """
    d = np.asarray(differences, dtype=np.float64)
    d = d[d != 0]
    if not d.size:
        return 1.0, 0.0
    twice = np.rint(2 * rankdata(np.abs(d))).astype(np.int64)  # mean ranks are halves
    above, total = int(twice[d > 0].sum()), int(twice.sum())
    tail = _distribution(twice)[: min(above, total - above) + 1].sum()
    return min(1.0, 2 * float(tail)), (total - 2 * above) / total


def _distribution(ranks: NDArray[np.int64]) -> Array:
    """The probability of each sum 0, 1, ... of those ranks whose fair coin falls heads."""
    chance = np.zeros(int(ranks.sum()) + 1)
    chance[0] = 1.0
    for rank in ranks.tolist():
        chance[rank:] = chance[rank:] + chance[:-rank]
        chance /= 2
    return chance


def walsh(differences: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """The Hodges-Lehmann estimate and its interval: the shifts that the signed-rank test does not reject.

    They are the median and two order statistics of the means of all pairs, each with itself too. The mean of an
    infinite gain and an infinite loss could be anything: it is left out of the estimate, and put at whichever side
    makes the interval wider. With fewer than 6 seeds nothing can be rejected: the interval is everything.
    """
    d = np.asarray(differences, dtype=np.float64)
    i, j = np.triu_indices(len(d))
    with np.errstate(invalid="ignore"):
        means = (d[i] + d[j]) / 2
    open_ = np.isnan(means)
    estimate = middle(means[~open_]) if d.size else np.nan
    chance = _distribution(np.arange(1, len(d) + 1))
    k = int((np.cumsum(chance) <= level / 2).sum())
    if k == 0:
        return estimate, -np.inf, np.inf
    low, high = np.sort(np.where(open_, -np.inf, means)), np.sort(np.where(open_, np.inf, means))
    return estimate, float(low[k - 1]), float(high[len(high) - k])


def middle(values: ArrayLike) -> float:
    """The median, where infinite values are allowed: halfway between -inf and inf lies 0."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return 0.0 if low == -high else float(low if low == high else (low + high) / 2)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's corrected p, in the order given: it bounds the chance of a single false finding among all."""
    p = list(p)
    corrected, highest = [0.0] * len(p), 0.0
    for place, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - place) * p[index]))
        corrected[index] = highest
    return corrected


def seeds_needed(family: int, level: float = LEVEL) -> int:
    """The fewest seeds with which one of so many comparisons can be shown: n seeds have an exact p of 2 / 2^n."""
    seeds = 1
    while 2.0 ** (1 - seeds) * family > level:
        seeds += 1
    return seeds


def compare(dataset: str, better: str, worse: str, scores: Mapping[str, Mapping[int, float]]) -> Comparison:
    """Compare two methods over the seeds that both have; `scores` holds each method's test error by seed."""
    a, b = scores[better], scores[worse]
    seeds = sorted(a.keys() & b.keys())
    d = log_ratios([a[seed] for seed in seeds], [b[seed] for seed in seeds])
    p, biserial = signed_rank(d)
    shift, low, high = walsh(d)
    wins, losses = int((d < 0).sum()), int((d > 0).sum())
    median = middle(d) if d.size else np.nan
    return Comparison(dataset, better, worse, len(seeds), wins, losses, median, shift, low, high, biserial, p)


def pairs(methods: Sequence[str]) -> list[tuple[str, str]]:
    """What the paper says is better than what: each configuration than both baselines, the fourth than the others."""
    said = [*product(PROPOSED, BASELINES), *((BEST, other) for other in PROPOSED if other != BEST)]
    return [(better, worse) for better, worse in said if better in methods and worse in methods]


def judge(comparisons: Sequence[Comparison], level: float = LEVEL) -> list[Comparison]:
    """Correct the p of all these, as one family, and say what each shows."""
    corrected = holm([comparison.p for comparison in comparisons])
    return [
        replace(comparison, corrected=p, verdict=_verdict(p, comparison.rank_biserial, level))
        for comparison, p in zip(comparisons, corrected, strict=True)
    ]


def _verdict(corrected: float, rank_biserial: float, level: float) -> str:
    return "not shown" if corrected > level else "holds" if rank_biserial > 0 else "contradicted"


def claims(dataset: str, comparisons: Sequence[Comparison]) -> list[Claim]:
    """The paper's two claims on one data set, out of its judged comparisons."""
    tests: dict[str, Callable[[str, str], bool]] = {
        "Each proposed configuration beats both baselines": lambda better, worse: worse in BASELINES,
        "Configuration 4 is the best of all, as in almost all of the paper's experiments": (
            lambda better, worse: better == BEST
        ),
    }
    whole = pairs([*PROPOSED, *BASELINES])
    found = [
        Claim(
            dataset,
            text,
            tuple(c for c in comparisons if belongs(c.better, c.worse)),
            sum(belongs(*pair) for pair in whole),
        )
        for text, belongs in tests.items()
    ]
    return [claim for claim in found if claim.comparisons]
