"""The findings of one data set in plain English: a sentence, and notes. Nothing softened either way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from peephole.experiments.claims import BASELINES, BEST, PROPOSED, STUCK, Claim

if TYPE_CHECKING:
    from peephole.experiments.findings import DataSet


def name(method: str) -> str:
    """As the paper prints it."""
    return method.replace("-", " ").capitalize()


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:#.3g}".rstrip(".") if np.isfinite(value) else "infinite"


def factor(ratio: float) -> str:
    """Two decimals while it is near 1."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def listed(items: Iterable[str]) -> str:
    """One, two and three."""
    *head, last = list(items)
    return f"{', '.join(head)} and {last}" if head else last


def span(values: Iterable[float]) -> str:
    """From the least to the largest, or the one number that both are."""
    ends = sorted(values)
    low, high = number(ends[0]), number(ends[-1])
    return low if low == high else f"{low} to {high}"


def counted(number: int, what: str) -> str:
    """One seed, 2 seeds."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def sentence(d: DataSet) -> str:
    """What one data set comes to: the paper's claims, and how far apart the methods are."""
    parts = [_claim(claim) for claim in d.claims]
    if not d.in_paper:
        parts = ["made-up data, compared with nothing in the paper" if d.made_up else "not in the paper"]
    parts += [few(d), _medians(d)]
    found = [part for part in parts if part] or ["none of the paper's claims can be tested with these methods"]
    return f"{d.name[0].upper()}{d.name[1:]}: {'; '.join(found)}."


def few(d: DataSet) -> str:
    """Where even a method that always wins could not be shown to be better."""
    most = max((c.seeds for c in d.comparisons), default=d.needed)
    if most >= d.needed:
        return ""
    verb = "is" if most == 1 else "are"
    return (
        f"{counted(most, 'seed')} {verb} too few to show any difference, either way: for "
        f"{counted(d.family, 'comparison')} it takes at least {d.needed}"
    )


def notes(d: DataSet) -> list[str]:
    """What else is to know of it, a sentence each."""
    return [note for part in (_numbers, _own, _bounds, _spread, _lost, stuck_there, _peers) if (note := part(d))]


def lowered(text: str) -> str:
    """A sentence as part of another one."""
    return text[0].lower() + text[1:]


def _claim(claim: Claim) -> str:
    what = lowered(claim.text)
    if claim.verdict == "contradicted":
        against = [c for c in claim.comparisons if c.verdict == "contradicted"]
        return f"that {what} is contradicted ({listed(f'{name(c.worse)} beats {name(c.better)}' for c in against)})"
    tested = len(claim.comparisons)
    lacking = f", {claim.total - tested} were not made" if tested < claim.total else ""
    verdict = "shown" if claim.verdict == "holds" else claim.verdict
    return f"that {what} is {verdict} ({claim.count('holds')} of {counted(tested, 'comparison')} hold{lacking})"


def _medians(d: DataSet) -> str:
    """The proposed beside the baselines, and which is lowest."""
    rows = {row.method: row.median for row in d.rows}
    ours, others = ([rows[m] for m in group if m in rows] for group in (PROPOSED, BASELINES))
    if not (ours and others and np.isfinite([*ours, *others]).all()):
        return ""
    lowest = name(min(rows, key=lambda m: rows[m]))
    return (
        f"the median test MSE is {span(ours)} for the proposed configurations and {span(others)} for the baselines, "
        f"lowest for {lowest}"
    )


def _numbers(d: DataSet) -> str:
    """Where the paper's numbers lie among ours, and the one that is farthest off."""
    compared = [(row, row.paper) for row in d.rows if row.paper is not None]
    if not compared:
        return ""
    near, away = (sum(row.place == place for row, _ in compared) for place in ("quartiles", "outside"))
    row, paper = max(compared, key=lambda both: abs(np.log(both[0].median / both[1])))
    return (
        f"Of the paper's {len(compared)} numbers {near} lie between our quartiles, {away} outside the range of our "
        f"seeds; the farthest from our median is {name(row.method)}'s: {number(paper)} against {number(row.median)}."
    )


def _own(d: DataSet) -> str:
    """Where the paper's own numbers do not have its fourth configuration as the best."""
    paper = {row.method: row.paper for row in d.rows if row.paper is not None}
    lower = [f"{error:.3f} for {name(m)}" for m, error in paper.items() if BEST in paper and error < paper[BEST]]
    return f"In the paper {name(BEST)} is not the best here: {paper[BEST]:.3f}, and {listed(lower)}." if lower else ""


def _bounds(d: DataSet) -> str:
    """What differences between the proposed and the baselines the intervals leave possible."""
    limits = [(c.low, c.high) for c in d.comparisons if c.worse in BASELINES]
    if not limits or not np.isfinite(limits).all():
        return ""
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    return (
        "By the 95% intervals, each for one comparison alone, the typical ratio of a proposed configuration's test MSE "
        f"to a baseline's lies between {factor(np.exp(low))} and {factor(np.exp(high))}; that of a single seed may not."
    )


def weight(d: DataSet) -> tuple[str, float, float, float, float]:
    """Whether the draw matters more than the method, "" if too little is known, and the factors that say so.

    They are the upper quartile over the lower, the worst seed over the best, both typical of a method, and the
    highest of the methods' medians over the lowest. What decides is the mean distance, as a log ratio, of seeds from
    their method's median, and of the methods' medians from each other's: a seed that is stuck counts.
    """
    rows = [row for row in d.rows if np.isfinite(row.upper) and row.lower > 0]
    if len(rows) < 2 or min(row.seeds for row in rows) < 4:
        return "", 1.0, 1.0, 1.0, 1.0
    draw = float(np.median([row.upper / row.lower for row in rows]))
    worst = float(np.sort([row.worst / row.best for row in rows])[len(rows) // 2])
    medians = np.array([row.median for row in rows])
    seeds = np.mean([np.abs(np.log(d.runs[row.method].final_test / row.median)).mean() for row in rows])
    methods = np.abs(np.log(medians / np.median(medians))).mean()
    odds = seeds / max(methods, 1e-12)
    verb = "more than" if odds > 1.25 else "less than" if odds < 0.8 else "as much as"
    return verb, float(odds), draw, worst, float(medians.max() / medians.min())


def _spread(d: DataSet) -> str:
    """What the draw does beside what the method does."""
    verb, odds, draw, worst, method = weight(d)
    if not verb:
        return ""
    ends = f"{factor(worst)} times" if np.isfinite(worst) else "infinitely far from"
    return (
        f"The draw matters {verb} the method (mean distances from the median, {factor(odds)} to 1): the upper quartile "
        f"of a method's seeds is typically {factor(draw)} times the lower one, its worst seed {ends} its best; the "
        f"highest of the methods' medians is {factor(method)} times the lowest."
    )


def _lost(d: DataSet) -> str:
    """Stuck and diverged runs, and of which methods."""
    parts = []
    for what, verb in (("stuck", "end stuck"), ("diverged", "diverge")):
        counts = {name(row.method): getattr(row, what) for row in d.rows if getattr(row, what)}
        each = f" ({', '.join(f'{method}: {count}' for method, count in counts.items())})" if counts else ""
        parts.append(f"{sum(counts.values()) or 'none'} {verb}{each}")
    limit = (
        f" Stuck is above {number(d.stuck_above)}, more than the 1 of a forecast by the mean: a run that learns "
        "nothing does not count."
    )
    said = f"Of {counted(sum(row.seeds for row in d.rows), 'run')} {parts[0]}, {parts[1]}."
    return said + limit * bool(1 < d.stuck_above < np.inf)


def stuck_there(d: DataSet) -> str:
    """The paper's numbers that only a stuck run has here."""
    if not d.rows or not np.isfinite(best := min(row.best for row in d.rows)):
        return ""
    rows = [row for row in d.rows if row.paper is not None and row.paper > STUCK * best]
    if not rows:
        return ""
    ours = [f"{name(row.method)}: {number(row.paper or 0.0)}, {row.stuck} of {row.seeds}" for row in rows]
    return (
        f"Some of the paper's numbers are more than {STUCK:g} times the best error here; in parentheses, how many of "
        f"our runs end stuck ({'; '.join(ours)})."
    )


def _peers(d: DataSet) -> str:
    """The linear peers that beat methods."""
    by_count: dict[int, list[str]] = {}
    for peer, error in d.peers.items():
        by_count.setdefault(sum(row.median > error for row in d.rows), []).append(f"{peer} ({number(error)})")
    parts = [
        f"{listed(peers)} beat{'s' if len(peers) == 1 else ''} the median of {_all(count, len(d.rows))}"
        for count, peers in by_count.items()
        if count
    ]
    return f"Without any network, {listed(parts)}." if parts else ""


def _all(some: int, total: int) -> str:
    if total == 1:
        return "the method"
    return f"all {total} methods" if some == total else f"{some} of the {total} methods"
