"""The findings of all data sets together in plain English: what reproduces, what does not, what stays open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from peephole.experiments.claims import BASELINES, LEVEL, NEAR, PARTIAL, PROPOSED, VERDICTS, Claim, middle
from peephole.experiments.words import counted, few, listed, lowered, name, number, span, stuck_there, weight

if TYPE_CHECKING:
    from peephole.experiments.findings import DataSet, Nearest


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
            f"The claims amount to {counted(len(made), 'comparison')}: hold {hold or 'none'}, contradicted "
            f"{against or 'none'}, not shown {open_ or 'none'} (paired over "
            f"{counted(min(c.seeds for c in made), 'seed')}; at {LEVEL:.0%}, corrected for their number)."
        )
    short: dict[str, list[str]] = {}
    for d in datasets:
        if said := few(d):
            short.setdefault(said, []).append(d.name)
    lines += [f"On {listed(where)} {said}." for said, where in short.items()]
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
        where = [f"that {lowered(c.text)} is {c.verdict} on {c.dataset}" for c in changed]
        lines.append(f"By the errors at that epoch {'; '.join(where) or 'every claim has the same verdict'}.")
    lines += [_pace(datasets), _farthest(datasets)]
    lines += [f"{d.name}: {lowered(said)}" for d in datasets if (said := stuck_there(d))]
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
    verbs = {d.name: weight(d)[0] for d in datasets if weight(d)[0]}
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
        f"Of {counted(sum(row.seeds for row in rows), 'run')} end stuck: {stuck or 'none'}; diverged (lost, or ended "
        f"above their own start): {lost or 'none'}."
    )


def _group(title: str, verdict: str, claims: Sequence[Claim]) -> str:
    """The claims with this verdict, with where."""
    where: dict[str, list[str]] = {}
    for claim in claims:
        if claim.verdict == verdict:
            where.setdefault(lowered(claim.text), []).append(claim.dataset)
    if not claims:
        return ""
    if not where:
        return f"{title}: none of the paper's claims, on any data set."
    return f"{title}: " + "; ".join(f"that {text} (on {listed(names)})" for text, names in where.items()) + "."
