"""The findings in plain English: a sentence for each data set, and a summary. Nothing softened either way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from peephole.experiments.claims import BASELINES, BEST, LEVEL, NEAR, PARTIAL, PROPOSED, STUCK, VERDICTS, Claim, middle

if TYPE_CHECKING:
    from peephole.experiments.findings import DataSet, Nearest


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
    parts += [_few(d), _medians(d)]
    found = [part for part in parts if part] or ["none of the paper's claims can be tested with these methods"]
    return f"{d.name[0].upper()}{d.name[1:]}: {'; '.join(found)}."


def _few(d: DataSet) -> str:
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
    return [note for part in (_numbers, _own, _bounds, _spread, _lost, _stuck_there, _peers) if (note := part(d))]


def _low(text: str) -> str:
    return text[0].lower() + text[1:]


def _claim(claim: Claim) -> str:
    what = _low(claim.text)
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


def _weight(d: DataSet) -> tuple[str, float, float, float, float]:
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
    verb, odds, draw, worst, method = _weight(d)
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


def _stuck_there(d: DataSet) -> str:
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


def _pace(datasets: Sequence[DataSet]) -> str:
    """The paper's Figure 1 in a sentence: the epochs to near the best loss, and the losses at the end."""
    said = []
    for d in datasets:
        epochs, losses = (
            [[values[m] for m in group if m in values] for group in (PROPOSED, BASELINES)]
            for values in (
                {row.method: row.reached for row in d.rows},
                {m: middle(runs.final_train) for m, runs in d.runs.items()},
            )
        )
        if all(epochs):
            (fast, other), (low, high) = ([_epochs(e) for e in epochs], map(span, losses))
            said.append(f"{d.name} {fast} against {other} (final losses {low} against {high})")
    if not said:
        return ""
    return (
        f"Figure 1: the median epoch at which the training loss is within {NEAR:g} times the best of its data set "
        f"is, for the proposed configurations against the baselines: {'; '.join(said)}. In the paper's Figure 1 the "
        "proposed reach a lower loss or descend faster; ours are medians, not tests."
    )


def _epochs(values: Sequence[float]) -> str:
    low, high = (f"{v:.0f}" if np.isfinite(v) else "never" for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def summary(datasets: Sequence[DataSet], nearest: Nearest | None, changed: Sequence[Claim]) -> list[str]:
    """What reproduces, what does not, what stays open; the numbers, the epochs, the lost runs."""
    claims = [claim for d in datasets if d.in_paper for claim in d.claims]
    lines = [
        _group("Reproduced", "holds", claims),
        _group("Contradicted", "contradicted", claims),
        _group("Not shown either way", "not shown", claims),
    ]
    if any(claim.verdict == PARTIAL for claim in claims):
        lines.append(_group("Not tested in full, as methods were left out", PARTIAL, claims))
    if claims:
        made = [c for d in datasets if d.in_paper for c in d.comparisons]
        hold, against, open_ = ([c.verdict for c in made].count(verdict) for verdict in VERDICTS)
        lines.append(
            f"The claims amount to {counted(len(made), 'comparison')}. Of these {hold or 'none'} hold, "
            f"{against or 'none'} are contradicted and {open_ or 'none'} are not shown (paired over "
            f"{counted(min(c.seeds for c in made), 'seed')}; at {LEVEL:.0%}, corrected for their number)."
        )
    few: dict[str, list[str]] = {}
    for d in datasets:
        if said := _few(d):
            few.setdefault(said, []).append(d.name)
    lines += [f"On {listed(where)} {said}." for said, where in few.items()]
    if nearest is not None and np.isfinite(nearest.distance):
        lines.append(
            f"The number of epochs, which the paper does not state, comes nearest to its Table 2 at {nearest.epochs}: "
            f"our medians are then off by a factor of {np.exp(nearest.distance):.2f} on average"
            + (
                f", at the end, after {nearest.last}, by {np.exp(nearest.at_end):.2f}."
                if nearest.last != nearest.epochs
                else "."
            )
        )
        where = [f"that {_low(c.text)} is {c.verdict} on {c.dataset}" for c in changed]
        lines.append(f"By the errors at that epoch {'; '.join(where) or 'every claim has the same verdict'}.")
    lines += [_pace(datasets), _farthest(datasets)]
    lines += [f"{d.name}: {_low(said)}" for d in datasets if (said := _stuck_there(d))]
    lines += [_draws(datasets), _unaided(datasets), _fates(datasets)]
    made_up = [d.name for d in datasets if d.made_up]
    if made_up:
        lines.append(f"The {listed(made_up)} is made-up data in the place of ADNI: it says nothing about the paper.")
    return [line for line in lines if line]


def _farthest(datasets: Sequence[DataSet]) -> str:
    """The number of the paper's that ours miss by most."""
    found = [(row, row.paper, d.name) for d in datasets for row in d.rows if row.paper is not None]
    if not found:
        return ""
    row, paper, where = max(found, key=lambda one: abs(np.log(one[0].median / one[1])))
    return (
        f"The number farthest from the paper's is that of {name(row.method)} on {where}: {number(paper)} in the paper, "
        f"a median of {number(row.median)} here (quartiles {number(row.lower)} to {number(row.upper)})."
    )


def _draws(datasets: Sequence[DataSet]) -> str:
    """Where the draw matters more than the method."""
    verbs = {d.name: _weight(d)[0] for d in datasets if _weight(d)[0]}
    parts = [
        f"{verb} the method on {listed(where)}"
        for verb in ("more than", "as much as", "less than")
        if (where := [n for n, v in verbs.items() if v == verb])
    ]
    rule = "mean distance, as a log ratio, of seeds from their method's median over that of the medians from theirs"
    return f"The draw of weights and split matters {listed(parts)} ({rule}: over 1.25, or under 0.8)." if parts else ""


def _unaided(datasets: Sequence[DataSet]) -> str:
    """Where a forecast without a network beats every method's median."""
    parts = []
    for d in datasets:
        better = [peer for peer, error in d.peers.items() if all(row.median > error for row in d.rows)]
        if better:
            parts.append(f"{listed(better)} on {d.name}")
    return f"Without any network, every method's median is beaten by {'; by '.join(parts)}." if parts else ""


def _fates(datasets: Sequence[DataSet]) -> str:
    rows = [row for d in datasets for row in d.rows]
    stuck, lost = sum(row.stuck for row in rows), sum(row.diverged for row in rows)
    return (
        f"Of {counted(sum(row.seeds for row in rows), 'run')} {stuck or 'none'} end stuck and {lost or 'none'} diverge "
        "(lost, or ended above their own start)."
    )


def _group(title: str, verdict: str, claims: Sequence[Claim]) -> str:
    """The claims with this verdict, with where."""
    where: dict[str, list[str]] = {}
    for claim in claims:
        if claim.verdict == verdict:
            where.setdefault(_low(claim.text), []).append(claim.dataset)
    if not claims:
        return ""
    if not where:
        return f"{title}: none of the paper's claims, on any data set."
    return f"{title}: " + "; ".join(f"that {text} (on {listed(names)})" for text, names in where.items()) + "."
