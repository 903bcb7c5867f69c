"""Pictures of training: arrays by data set and method in, figures out. A method has one look everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peephole.report.plots import GREY, INK, STYLE  # first: it says what to install where matplotlib is missing

from matplotlib import rc_context  # isort: skip
from matplotlib.axes import Axes  # isort: skip
from matplotlib.figure import Figure  # isort: skip
from matplotlib.lines import Line2D  # isort: skip

if TYPE_CHECKING:
    from matplotlib.axis import Axis

Array = NDArray[np.float64]
Panels = Mapping[str, Mapping[str, Array]]  # data set: method: array
Dashes = Literal["-"] | tuple[float, tuple[float, ...]]

# Okabe and Ito's colours; the baselines' lines are broken too. What is not listed takes the spare ones in turn.
LOOKS: dict[str, tuple[str, Dashes]] = {
    "proposed-1": ("#56B4E9", "-"),
    "proposed-2": ("#009E73", "-"),
    "proposed-3": ("#E69F00", "-"),
    "proposed-4": ("#0072B2", "-"),
    "normalized": ("#D55E00", (0, (4, 1.5))),
    "orthogonal": ("#CC79A7", (0, (1.5, 1))),
}
SPARE = ("#777777", "#B8A800", "#8C564B")
PEERS: tuple[Dashes, ...] = ((0, (1, 1.5)), (0, (5, 2)), (0, (5, 1.5, 1, 1.5)))
CAP = 10.0  # in units of the data's variance: what lies beyond leaves the picture at its edge, and is counted there
POINTS = 120  # of a curve, evenly on the logarithmic axis


def title(method: str) -> str:
    """A method's name as the paper prints it."""
    return method.replace("-", " ").capitalize()


def look(method: str, methods: Iterable[str]) -> tuple[str, Dashes]:
    """The colour and the line style of a method."""
    others = [name for name in methods if name not in LOOKS]
    return LOOKS[method] if method in LOOKS else (SPARE[others.index(method) % len(SPARE)], (0, (3, 1, 1, 1)))


def draw_losses(losses: Panels) -> Figure:
    """The paper's Figure 1: training loss by epoch, median and quartiles over seeds, a panel for each data set.

    `losses`: (seeds, epochs + 1) for each data set and method, infinite from where one diverged.
    """
    methods = _methods(losses)
    with rc_context(STYLE):
        figure, axes = _grid(len(losses), 2.5)
        for ax, (name, curves) in zip(axes, losses.items(), strict=True):
            for method, runs in curves.items():
                colour, line = look(method, methods)
                at = epochs(runs.shape[1])
                low, median, high = np.minimum(_quartiles(runs[:, at]), 3 * CAP)
                ax.fill_between(at, low, high, color=colour, alpha=0.1, linewidth=0)
                ax.plot(at, median, color=colour, linestyle=line, linewidth=1.5, label=title(method))
            ax.set_title(name)
            ax.set_xlabel("epoch")
            _epoch_axis(ax, max(runs.shape[1] for runs in curves.values()) - 1)
            _error_axis(ax, ax.yaxis, np.concatenate([_quartiles(runs).ravel() for runs in curves.values()]))
        axes[0].set_ylabel("training loss")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6 if len(axes) == 3 else 3))
    return figure


def draw_runs(losses: Panels, stuck_above: Mapping[str, float]) -> Figure:
    """Every single run, a row for each data set and a column for each method, so that the basins can be seen.

    The dotted line is the loss at the end above which a run counts as stuck.
    """
    methods = _methods(losses)
    with rc_context({**STYLE, "axes.titlesize": 9}):
        size = (1.5 * len(methods) + 0.6, 1.55 * len(losses) + 0.5)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(losses), len(methods), sharex=True, sharey="row", squeeze=False)
        for method, ax in zip(methods, grid[0], strict=True):
            ax.set_title(title(method))
        for row, (name, curves) in zip(grid, losses.items(), strict=True):
            every = np.concatenate([runs.ravel() for runs in curves.values()])
            for ax, method in zip(row, methods, strict=True):
                ax.axhline(stuck_above[name], color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)))
                if method in curves:
                    _draw_each(ax, curves[method], look(method, methods)[0])
            _epoch_axis(row[0], max(runs.shape[1] for runs in curves.values()) - 1)
            _error_axis(row[0], row[0].yaxis, every)
            row[0].set_ylabel(f"{name}\ntraining loss")
        for ax in grid[-1]:
            ax.set_xlabel("epoch")
    return figure


def _draw_each(ax: Axes, runs: Array, colour: str) -> None:
    """The runs of one panel, and how many leave it at the top."""
    at = epochs(runs.shape[1], max(POINTS // 3, 5 * POINTS // len(runs)))  # of many runs, fewer points each
    for run in np.minimum(runs[:, at], 3 * CAP):
        ax.plot(at, run, color=colour, linewidth=0.8, alpha=0.8)
    gone = int((runs[:, -1] > CAP).sum())
    if gone:
        ax.text(0.97, 0.97, f"▲ {gone}", transform=ax.transAxes, ha="right", va="top", fontsize=8, color=INK)


def draw_scores(
    scores: Panels,
    paper: Mapping[str, Mapping[str, float]] | None = None,
    peers: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Test error of every seed by method, with the median; the paper's number beside, the peers as lines.

    `scores`: (seeds) for each data set and method; `paper` by data set and method, `peers` by data set and peer.
    """
    methods, paper, peers = _methods(scores), paper or {}, peers or {}
    lines = list(dict.fromkeys(peer for name in scores for peer in peers.get(name, {})))
    with rc_context(STYLE):
        figure, axes = _grid(len(scores), 0.33 * len(methods) + 0.9, sharey=True)
        for ax, (name, by_method) in zip(axes, scores.items(), strict=True):
            known = [*paper.get(name, {}).values(), *peers.get(name, {}).values()]
            edge = _error_axis(ax, ax.xaxis, np.concatenate([*by_method.values(), np.array(known, dtype=np.float64)]))
            for place, method in enumerate(methods):
                if method in by_method:
                    _strip(ax, place, by_method[method], look(method, methods)[0], edge)
                if method in paper.get(name, {}):
                    ax.plot(paper[name][method], place, **_hollow())
            for peer, error in peers.get(name, {}).items():
                ax.axvline(error, color=GREY, linewidth=1, linestyle=PEERS[lines.index(peer) % len(PEERS)], zorder=0)
            ax.set_title(name)
            ax.set_xlabel("test MSE")
            ax.set_yticks(range(len(methods)), [title(method) for method in methods])
            ax.set_ylim(len(methods) - 0.5, -0.5)
            ax.tick_params(axis="y", length=0)
        _key(figure, lines, marked=any(paper.get(name) for name in scores), scores=scores)
    return figure


def _hollow() -> dict[str, Any]:
    """The paper's number: an open diamond, so that the seeds behind it are seen."""
    return {
        "marker": "D",
        "markersize": 6,
        "markerfacecolor": "none",
        "markeredgecolor": INK,
        "linestyle": "none",
        "zorder": 4,
    }


def _strip(ax: Axes, place: int, scores: Array, colour: str, edge: float) -> None:
    """One method's seeds, spread a little by their order, and the median as a bar; what is off at the edge."""
    seen = scores <= CAP
    offsets = place + 0.22 * (((np.arange(len(scores)) * 0.618) % 1) * 2 - 1)  # the golden ratio spreads evenly
    ax.plot(scores[seen], offsets[seen], "o", color=colour, markersize=4, alpha=0.75, markeredgewidth=0)
    if not seen.all():
        beyond = np.full(int((~seen).sum()), edge)
        ax.plot(beyond, offsets[~seen], ">", color=colour, markersize=5, markeredgewidth=0, clip_on=False)
    median = min(float(_quartiles(scores)[1]), edge)
    ax.plot([median, median], [place - 0.36, place + 0.36], color=INK, linewidth=1.8, solid_capstyle="butt", zorder=3)


def _key(figure: Figure, lines: list[str], *, marked: bool, scores: Panels) -> None:
    handles = [
        Line2D([], [], marker="o", color=GREY, linestyle="none", markersize=4, label="a seed"),
        Line2D([], [], marker="|", color=INK, linestyle="none", markersize=9, markeredgewidth=1.8, label="median"),
    ]
    if marked:
        handles.append(Line2D([], [], label="the paper's number", **_hollow()))
    if any((runs > CAP).any() for panel in scores.values() for runs in panel.values()):
        handles.append(
            Line2D([], [], marker=">", color=GREY, linestyle="none", markersize=5, label="beyond, or diverged")
        )
    for place, peer in enumerate(lines):
        handles.append(Line2D([], [], color=GREY, linewidth=1, linestyle=PEERS[place % len(PEERS)], label=peer))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 3 if len(scores) == 1 else 4))


def epochs(count: int, points: int = POINTS) -> NDArray[np.intp]:
    """Which of the epochs 0, 1, ..., count - 1 are drawn: the first, the last, and some evenly in the logarithm."""
    if count < 2:
        return np.arange(count)
    inner = np.round(np.geomspace(1, count - 1, points)).astype(np.intp)
    return np.unique(np.concatenate([[0], inner]))


def _methods(panels: Panels) -> list[str]:
    return list(dict.fromkeys(method for panel in panels.values() for method in panel))


def _grid(panels: int, height: float, *, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """So many panels: up to three in a row, four in two rows."""
    columns = min(panels, 2 if panels == 4 else 3)
    rows = -(-panels // columns)
    width = 2.75 if columns == 3 else 3.6
    figure = Figure(figsize=(width * columns + (0.8 if sharey else 0.3), height * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    for ax in grid.flat[panels:]:
        ax.set_axis_off()
    return figure, list(grid.flat[:panels])


def _quartiles(runs: ArrayLike) -> Array:
    """Lower quartile, median and upper quartile over seeds; infinite where they lie among diverged runs."""
    ordered = np.sort(np.asarray(runs, dtype=np.float64), axis=0)
    top = np.finfo(np.float64).max  # interpolating towards infinity would give NaN
    found = np.quantile(np.minimum(ordered, top / 4), [0.25, 0.5, 0.75], axis=0)
    return np.where(found > top / 1e6, np.inf, found)


def _epoch_axis(ax: Axes, last: int) -> None:
    """Logarithmic from the first epoch on, and with the start, epoch 0."""
    ax.set_xscale("symlog", linthresh=1, linscale=0.35)
    ax.set_xlim(0, max(last, 1))
    powers = [10**k for k in range(7) if 10**k <= last]
    ax.set_xticks([0, *powers], ["0", *(f"{power:g}" for power in powers)])
    ax.minorticks_off()


def _error_axis(ax: Axes, axis: Axis, values: Array) -> float:
    """Logarithmic, with plain numbers at 1, 2 and 5; linear where all lies within a factor of 3. Returns its end.

    It spans the values up to the cap: a few runs far off shall not press all others together.
    """
    inside = values[(values > 0) & (values <= CAP)]
    low, high = (float(inside.min()), float(inside.max())) if inside.size else (CAP / 10, CAP)
    set_scale, set_limits = (ax.set_yscale, ax.set_ylim) if axis is ax.yaxis else (ax.set_xscale, ax.set_xlim)
    if high / low < 3:
        room = 0.05 * (high - low) or 0.05 * high
        set_limits(low - room, high + room)
        return high + room
    set_scale("log")
    room = float((high / low) ** 0.05)
    low, high = low / room, high * room
    set_limits(low, high)
    wanted = (1, 2, 5) if high / low < 30 else (1, 3) if high / low < 1000 else (1,)
    ticks = [m * 10.0**k for k in range(-12, 13) for m in wanted if low <= m * 10.0**k <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
    return high
