"""Pictures: flows and frames in, figures out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from peephole.theory import Flow

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("pictures need matplotlib: pip install 'peephole[plots]'") from error

# A colour-blind-safe palette (Okabe and Ito).
BLUE, ORANGE, GREY, INK = "#0072B2", "#D55E00", "#777777", "#222222"
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY, "axes.linewidth": 0.8,
    "xtick.color": INK, "ytick.color": INK, "legend.frameon": False, "svg.hashsalt": "peephole",
}  # fmt: skip
LINES = {"linear": (ORANGE, "--", "linear: the paper's moments"), "wide": (BLUE, "-", "wide: the true cell")}


def draw_signal(panels: Mapping[str, Mapping[str, Flow]], target: float = 1.0) -> Figure:
    """Var(h) by step, a panel for each set of variances: predicted lines over the simulated band."""
    columns = 3 if len(panels) == 3 else min(len(panels), 4)
    rows = -(-len(panels) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(2.9 * columns + 0.6, 2.6 * rows + 0.7), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for ax, (name, flows) in zip(grid.flat, panels.items(), strict=False):
            draw_panel(ax, flows, target)
            ax.set_title(name)
        for ax in grid.flat[len(panels) :]:
            ax.set_axis_off()
        for ax in grid[:, 0]:
            ax.set_ylabel("Var(h)")
        for ax in grid[-1]:
            ax.set_xlabel("step")
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 1 + columns))
    return figure


def draw_panel(ax: Axes, flows: Mapping[str, Flow], target: float) -> None:
    """One panel: the target, the simulated mean with two standard errors, its median, the predictions."""
    simulated = flows["simulated"]
    step = np.arange(1, simulated.steps + 1)
    ax.axhline(target, color=INK, linewidth=0.8, linestyle=(0, (1, 2)), label=f"target {target:g}")
    low = np.maximum(simulated.var_h - 2 * simulated.se_var_h, simulated.var_h / 10)
    high = simulated.var_h + 2 * simulated.se_var_h
    ax.fill_between(step, low, high, color=GREY, alpha=0.35, linewidth=0)
    ax.plot(step, simulated.var_h, color=GREY, linewidth=1.6, label="simulated networks ± 2 s.e.")
    ax.plot(step, simulated.median_h, color=GREY, linewidth=0.9, linestyle=":", label="simulated, median of h²")
    for level, (colour, style, label) in LINES.items():
        if level in flows:
            ax.plot(step, flows[level].var_h, color=colour, linestyle=style, linewidth=1.4, label=label)
    ax.set_yscale("log")
    ax.margins(x=0.02)


def save(figure: Figure, path: Path | str) -> None:
    """Write the picture; the same figure gives the same bytes."""
    path = Path(path)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    with rc_context(STYLE):
        figure.savefig(path, dpi=200, metadata=metadata)
