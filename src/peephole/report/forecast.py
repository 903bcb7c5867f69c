"""The page of a forecaster's evaluation: trajectories, errors by horizon, calibration of the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from peephole.report.html import environment, inline, publish, stylesheet, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
# Okabe and Ito's colours, each line with dashes of its own.
LOOKS: dict[str, tuple[str, Any]] = {
    "model": ("#0072B2", "-"),
    "last value": ("#D55E00", (0, (4, 1.5))),
    "training mean": ("#777777", (0, (1, 1.5))),
    "linear trend": ("#CC79A7", (0, (5, 1.5, 1, 1.5))),
    "ridge autoregression": ("#009E73", (0, (7, 2))),
}
BAND = "#0072B2"


class Results(Protocol):
    """What the page needs of an evaluation at K horizons of N features; see `progression.Evaluation`."""

    months: Array  # (K,)
    features: tuple[str, ...]
    levels: tuple[float, ...]
    coverage: Array  # (levels, K, N)
    mean: dict[str, Array]  # by method (K,)
    covered: Array  # (levels, K)


class Course(Protocol):
    """What it needs of a subject: visits, and the forecast made at month `origin`; see `trajectories`."""

    subject: str
    features: tuple[str, ...]
    times: Array
    values: Array
    origin: float
    ahead: Array
    points: Array
    ends: Array


def write(results: Any, courses: Sequence[Any], page: Path, *, table: str = "") -> Path:
    """Write the page: one file that needs nothing from outside; the same results give the same bytes."""
    figures = {"courses": draw_courses(courses), "errors": draw_errors(results), "cover": draw_cover(results)}
    svgs = {name: inline(svg(figure), name) for name, figure in figures.items()}
    template = environment().get_template("forecast.html.j2")
    text = template.render(r=results, svgs=svgs, style=stylesheet(), table=table, looks=LOOKS, courses=courses)
    publish({page: text.encode()})
    return page


def draw_errors(results: Results) -> Figure:
    """Mean absolute error by horizon, of the model and each baseline."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from peephole.report.plots import STYLE

    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        ax = figure.subplots()
        for name, mean in results.mean.items():
            colour, dashes = LOOKS.get(name, ("#777777", "-"))
            wide = 2.2 if name == "model" else 1.4
            ax.plot(
                results.months,
                mean,
                color=colour,
                linestyle=dashes,
                linewidth=wide,
                marker="o",
                markersize=3.5,
                label=name,
            )
        ax.set_ylim(bottom=0)
        ax.set_xticks(results.months)
        ax.set_xlabel("months ahead")
        ax.set_ylabel("mean absolute error, standard deviations")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_cover(results: Results) -> Figure:
    """The share of truths inside the intervals by horizon: all together, and each feature."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from peephole.report.plots import GREY, INK, STYLE

    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        ax = figure.subplots()
        for place, level in enumerate(results.levels):
            first = place == 0
            ax.axhspan(
                level - 0.05,
                level + 0.05,
                color=GREY,
                alpha=0.18,
                linewidth=0,
                label="within 5 points" if first else None,
            )
            ax.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (1, 2)), label="nominal" if first else None)
            for n in range(len(results.features)):
                ax.plot(results.months, results.coverage[place, :, n], "o", color=GREY, markersize=3, alpha=0.7,
                        label="each feature" if first and n == 0 else None)  # fmt: skip
            ax.plot(results.months, results.covered[place], color=BAND, linewidth=2, marker="o", markersize=4,
                    label="all features" if first else None)  # fmt: skip
        ax.set_ylim(0, 1)
        ax.set_xticks(results.months)
        ax.set_xlabel("months ahead")
        ax.set_ylabel("share of truths inside")
        figure.legend(loc="outside lower center", ncols=4)
    return figure


def draw_courses(courses: Sequence[Course]) -> Figure:
    """A row for each subject, a column for each feature: visits, the forecast from half way, its intervals."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from peephole.report.plots import INK, STYLE

    features = courses[0].features
    with rc_context(STYLE):
        figure = Figure(figsize=(2.1 * len(features) + 0.4, 1.7 * len(courses) + 0.7), layout="constrained")
        grid = figure.subplots(len(courses), len(features), squeeze=False, sharex="row")
        for row, course in zip(grid, courses, strict=True):
            later = course.times > course.origin
            for n, ax in enumerate(row):
                for place in reversed(range(len(course.ends))):
                    low, high = course.ends[place, :, :, n]
                    label = f"{('50', '90')[place]}% interval"
                    ax.fill_between(
                        course.ahead, low, high, color=BAND, alpha=0.3 - 0.14 * place, linewidth=0, label=label
                    )
                ax.plot(course.ahead, course.points[:, n], color=BAND, linewidth=1.6, label="forecast")
                ax.plot(course.times[~later], course.values[~later, n], "o", color=INK, markersize=3.5, label="seen")
                ax.plot(course.times[later], course.values[later, n], "o", color=INK, markersize=3.5,
                        markerfacecolor="none", label="came later")  # fmt: skip
                ax.axvline(course.origin, color=INK, linewidth=0.6, linestyle=(0, (1, 2)))
                ax.tick_params(labelsize=7)
                ax.ticklabel_format(axis="y", useOffset=False)
            row[0].set_ylabel(f"subject {course.subject}")
        for ax, name in zip(grid[0], features, strict=True):
            ax.set_title(name)
        for ax in grid[-1]:
            ax.set_xlabel("month")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=5)
    return figure
