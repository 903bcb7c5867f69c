"""Tables and pictures of what was found: {set: errors by method and head, peers, first steps}."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.starts.work import EVERY, HEADS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Found = dict[str, Any]
GREEN = "#009E73"


def spread(values: Sequence[float] | NDArray[np.float64]) -> str:
    """Median and quartiles over seeds."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def tables(found: Found, marks: Sequence[int]) -> str:
    """A Markdown table for each set: the median over seeds, after so many epochs; the peers below."""
    parts = []
    for name, one in found.items():
        head = [f"{start}, {mark} epochs" for start in HEADS for mark in marks]
        lines = [f"**{name}**\n", "| method | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
        for method, by_start in one["errors"].items():
            medians = np.concatenate([np.median(by_start[start], axis=0) for start in HEADS])
            lines.append(f"| `{method}` | " + " | ".join(f"{median:.3g}" for median in medians) + " |")
        lines.append("\n" + ", ".join(f"{peer} {error:.3g}" for peer, error in one["peers"].items()) + ".\n")
        parts.append("\n".join(lines))
    return "\n".join(parts)


def first_steps_table(found: Found) -> str:
    """The test error at the start, at its worst and at the end of the first 100 steps, by method and remedy."""
    lines = ["| set | method | remedy | at the start | worst of 100 steps | after 100 steps |", "|---" * 6 + "|"]
    for name, one in found.items():
        for method, seeds in one["first steps"].items():
            for remedy in seeds[0]:
                curves = np.array([curves[remedy] for curves in seeds])
                cells = (spread(part) for part in (curves[:, 0], curves.max(1), curves[:, -1]))
                lines.append(f"| {name} | `{method}` | {remedy} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def pictures(found: Found, marks: Sequence[int], folder: Path) -> None:
    """A picture of each kind, and one of the first steps."""
    from peephole.report.plots import save

    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("next", "label"):
        if kind in found:
            save(draw(found[kind], marks, kind), folder / f"starts-{kind}.svg")
    if "next" in found:
        save(draw_first_steps(found["next"]), folder / "starts-first-steps.svg")


def draw(found: Found, marks: Sequence[int], kind: str) -> Figure:
    """A panel a set: each method's medians by epoch side by side, a line for each head."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from peephole.report.plots import BLUE, GREY, ORANGE, STYLE

    methods = list(dict.fromkeys(method for one in found.values() for method in one["errors"]))
    rows = np.arange(len(methods))
    with rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(found) + 1, 0.45 * len(methods) + 1.6), layout="constrained")
        axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for ax, (name, one) in zip(axes, found.items(), strict=True):
            # What went astray stands at the right edge, or the rest could not be told apart.
            first = [np.median(by_start[HEADS[0]], axis=0)[0] for by_start in one["errors"].values()]
            far = 1.5 * float(max([*first, *one["peers"].values()])) if kind == "next" else 1.0
            for start, colour, shift in zip(HEADS, (ORANGE, BLUE, GREEN), (-0.25, 0, 0.25), strict=True):
                errors = np.array([one["errors"][method][start] for method in methods])
                for column, mark in enumerate(marks):
                    low, middle, high = np.minimum(np.quantile(errors[:, :, column], [0.25, 0.5, 0.75], axis=1), far)
                    filled = colour if column else "white"
                    label = f"{start}, {mark} epochs"
                    ax.hlines(rows + shift, low, high, color=colour, linewidth=0.8)
                    ax.plot(
                        middle, rows + shift, "o", color=colour, markerfacecolor=filled,
                        markersize=2.5 + 0.9 * column, alpha=0.9, label=label, clip_on=False,
                    )  # fmt: skip
            for (peer, error), dashes in zip(one["peers"].items(), (":", "-.", "--", "-"), strict=False):
                ax.axvline(error, color=GREY, linewidth=0.8, linestyle=dashes, label=peer, zorder=0)
            ax.set_title(name)
            ax.set_xlabel("test mean squared error" if kind == "next" else "share of test labels wrong")
            if kind == "next":
                ax.set_xscale("log")
            ax.set_xlim(right=far)
        axes[0].set_yticks(rows, methods)
        axes[0].invert_yaxis()
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(marks))
    return figure


def draw_first_steps(found: Found) -> Figure:
    """The test error step by step from a fitted head, median and quartiles over seeds; a row of panels a method."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from peephole.report.plots import BLUE, GREY, INK, ORANGE, STYLE

    colours = (GREY, ORANGE, INK, "#CC79A7", BLUE, GREEN)
    methods = list(dict.fromkeys(method for one in found.values() for method in one["first steps"]))
    with rc_context(STYLE):
        figure = Figure(figsize=(3.2 * len(found), 2.5 * len(methods) + 0.5), layout="constrained")
        grid = figure.subplots(len(methods), len(found), squeeze=False, sharex=True)
        for method, row in zip(methods, grid, strict=True):
            for ax, (name, one) in zip(row, found.items(), strict=True):
                for remedy, colour in zip(one["first steps"][method][0], colours, strict=True):
                    curves = np.array([curves[remedy] for curves in one["first steps"][method]])
                    low, middle, high = np.quantile(curves, [0.25, 0.5, 0.75], axis=0)
                    step = EVERY * np.arange(len(middle))
                    ax.fill_between(step, low, high, color=colour, alpha=0.15, linewidth=0)
                    ax.plot(step, middle, color=colour, linewidth=1.2, label=remedy)
                ax.set_title(f"{name}, {method}")
                ax.set_yscale("log")
        for ax in grid[-1]:
            ax.set_xlabel("step of Adam")
        for ax in grid[:, 0]:
            ax.set_ylabel("test mean squared error")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
