"""Pictures of what was measured inside LSTMs: frames in, figures out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from peephole.report.plots import GREY, INK, STYLE  # first: it says what to install where matplotlib is missing

from matplotlib import rc_context  # isort: skip
from matplotlib.axes import Axes  # isort: skip
from matplotlib.figure import Figure  # isort: skip
from matplotlib.ticker import PercentFormatter  # isort: skip

# Okabe and Ito's colours, a layer each.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
WHERE = ["module", "layer", "direction", "run"]
NAMES = {"f": "forget gate", "i": "input gate", "o": "output gate", "z": "cell input"}
QUANTITIES = {"var_h": "Var(h)", "var_c": "Var(c)", "decay": "gradient, factor a step back"}
MOST_ROWS = 8  # of histograms: a picture of more layers is not read
LEGEND = 12


def label(module: str, layer: int, direction: str, run: int) -> str:
    """A layer and direction as the legends name it."""
    parts = [module] * bool(module) + [f"layer {layer}"] + ["reverse"] * (direction == "reverse")
    return " ".join(parts + [f"run {run}"] * (run > 0))


def draw_signals(frame: Any, compared: Any = None) -> Figure:
    """Var(h) and Var(c) by step, a line a layer; dashed what was predicted, where `compared` is `inspect.compare`'s."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 3.3), layout="constrained")
        for ax, quantity in zip(figure.subplots(1, 2), ("var_h", "var_c"), strict=True):
            for colour, name, part in _layers(frame):
                ax.plot(part["step"], _positive(part[quantity]), color=colour, linewidth=1.5, label=name)
            for colour, name, part in _layers(frame, compared) if compared is not None else ():
                there = part[part["quantity"] == quantity]
                ax.plot(
                    there["step"], _positive(there["predicted"]), color=colour, linewidth=1.1, linestyle=(0, (4, 2)),
                    label=f"{name}, predicted",
                )  # fmt: skip
            _dress(ax, QUANTITIES[quantity], "step")
        _legend(figure, figure.axes[0])
    return figure


def draw_gradients(frame: Any) -> Figure:
    """The norm of the loss's gradient with respect to h(t), by step back in time."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 3.1), layout="constrained")
        ax = figure.subplots()
        for colour, name, part in _layers(frame):
            ax.plot(part["back"], _positive(part["gradient"]), color=colour, linewidth=1.5, label=name)
        _dress(ax, "gradient with respect to h(t)", "steps back from the last")
        _legend(figure, ax)
    return figure


def draw_gates(histograms: Any) -> Figure:
    """How often each gate has which value, a row a layer; the shaded ends are where it is saturated."""
    layers = list(_layers(histograms))[:MOST_ROWS]
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 1.45 * len(layers) + 0.4), layout="constrained")
        grid = figure.subplots(len(layers), len(NAMES), sharex="col", squeeze=False)
        for place, (row, (colour, name, part)) in enumerate(zip(grid, layers, strict=True)):
            row[0].set_ylabel(name)
            for ax, (gate, title) in zip(row, NAMES.items(), strict=True):
                bars = part[part["gate"] == gate]
                ax.stairs(bars["share"], [*bars["low"], bars["high"].iloc[-1]], color=colour, fill=True, alpha=0.75)
                low, high = float(bars["low"].min()), float(bars["high"].max())
                if (low, high) in ((0.0, 1.0), (-1.0, 1.0)):
                    for end in ((low, low + 0.05), (high - 0.05, high)):
                        ax.axvspan(*end, color=GREY, alpha=0.18, linewidth=0)
                ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
                ax.locator_params(axis="y", nbins=3)
                if place == 0:
                    ax.set_title(title)
    return figure


def draw_coordinates(frames: Any) -> Figure:
    """The coordinate check: Var(h), Var(c) and the gradient's factor by width, a colour a method, a dot a network."""
    methods = list(dict.fromkeys(frames["method"]))
    with rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.1), layout="constrained")
        for ax, (quantity, title) in zip(figure.subplots(1, 3), QUANTITIES.items(), strict=True):
            for k, method in enumerate(methods):
                part = frames[frames["method"] == method]
                colour = COLOURS[k % len(COLOURS)]
                ax.plot(part["width"], _positive(part[quantity]), "o", color=colour, markersize=3, alpha=0.5)
                median = part.groupby("width")[quantity].median()
                ax.plot(median.index, _positive(median), color=colour, linewidth=1.5, label=method)
            _dress(ax, title, "units")
            ax.set_xscale("log", base=2)
            ax.set_xticks(sorted(set(frames["width"])), [str(width) for width in sorted(set(frames["width"]))])
            ax.minorticks_off()
        _legend(figure, figure.axes[0])
    return figure


def _layers(frame: Any, rows: Any = None) -> Iterator[tuple[str, str, Any]]:
    """Colour, label and rows of each layer of a frame; `rows` is another with the same layers, in their colours."""
    order = dict.fromkeys(frame[WHERE].itertuples(index=False, name=None))
    groups = dict(iter((frame if rows is None else rows).groupby(WHERE, sort=False)))
    for k, key in enumerate(order):
        if key in groups:
            yield COLOURS[k % len(COLOURS)], label(*key), groups[key]


def _positive(values: Any) -> Any:
    """Values for a logarithmic axis: what is zero or infinite leaves a gap."""
    numbers = np.asarray(values, dtype=float)
    return np.where(np.isfinite(numbers) & (numbers > 0), numbers, np.nan)


def _dress(ax: Axes, title: str, x: str) -> None:
    ax.set_title(title)
    ax.set_xlabel(x)
    drawn = [line.get_ydata() for line in ax.lines]
    values = np.concatenate([np.asarray(line, dtype=float) for line in drawn]) if drawn else np.array([])
    values = values[np.isfinite(values)]
    if not values.size:
        ax.text(0.5, 0.5, "zero at every step", transform=ax.transAxes, ha="center", color=INK)
    else:
        ax.set_yscale("log")
        if values.max() < 10 * values.min():  # a line that hardly moves should not look as if it did
            ax.set_ylim(values.min() / 3, values.max() * 3)
    ax.margins(x=0.02)


def _legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles[:LEGEND], labels[:LEGEND], loc="outside lower center", ncols=min(len(labels), 4))
