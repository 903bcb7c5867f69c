"""A page on what was measured inside LSTMs: frames and sentences in, HTML out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peephole.report.html import MISSING, environment, inline, publish, stylesheet, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {  # of the table: heading by name in the summary
    "steps": "Steps", "var_h": "Var(h)", "var_c": "Var(c)", "mean_f": "f", "mean_i": "i", "mean_o": "o",
    "saturated_f": "f", "saturated_i": "i", "saturated_o": "o", "gradient_ratio": "First / last",
    "decay": "A step back",
}  # fmt: skip
CAPTIONS = {
    "signals": "Variance of h and of the cell state by step, over sequences and units; dashed what the theory predicts "
    "from the variances of the weights and the autocorrelation of the inputs.",
    "gradients": "Norm of the loss’s gradient with respect to h(t), from the last step back.",
    "gates": "How often each gate had which value, over units, sequences and steps; shaded is where it is saturated.",
}


def draw(frame: Any, histograms: Any, compared: Any = None) -> dict[str, Figure]:
    """The pictures by name."""
    from peephole.report import signals

    figures = {"signals": signals.draw_signals(frame, compared)}
    if "gradient" in frame:
        figures["gradients"] = signals.draw_gradients(frame)
    return figures | {"gates": signals.draw_gates(histograms)}


def write(
    path: Path,
    frame: Any,
    summary: Any,
    histograms: Any,
    sentences: Sequence[str],
    *,
    compared: Any = None,
    provenance: Mapping[str, str],
    notes: Sequence[str] = (),
) -> Path:
    """Write the page: one file that needs nothing from outside, whole or not at all."""
    body = _body(frame, summary, histograms, sentences, compared)
    text = _render("inspect.html.j2", **body, style=stylesheet(), provenance=provenance, notes=notes)
    publish({path: text.encode()})
    return path


def fragment(frame: Any, summary: Any, histograms: Any, sentences: Sequence[str], compared: Any = None) -> str:
    """The same as a part of a page, such as a notebook's cell."""
    return _render("inspect-fragment.html.j2", **_body(frame, summary, histograms, sentences, compared))


def _body(frame: Any, summary: Any, histograms: Any, sentences: Sequence[str], compared: Any) -> dict[str, Any]:
    from peephole.report.signals import label

    rows = [
        {"name": label(row["module"], row["layer"], row["direction"], row["run"])}
        | {name: number(row[name], name) for name in COLUMNS if name in row}
        for row in summary.to_dict("records")
    ]
    pictures = {name: svg(figure) for name, figure in draw(frame, histograms, compared).items()}
    # A notebook holds many of these: ids must differ from one to the next.
    mark = hashlib.sha256("".join(pictures.values()).encode()).hexdigest()[:8]
    return {
        "rows": rows, "columns": COLUMNS, "sentences": sentences, "captions": CAPTIONS, "gradient": "gradient" in frame,
        "pictures": {name: inline(text, f"p{mark}-{name}") for name, text in pictures.items()},
    }  # fmt: skip


def number(value: Any, name: str) -> str:
    """A figure of the table: shares in per cent, whole numbers whole, others with three digits."""
    if not np.isfinite(value):
        return MISSING
    if name.startswith("saturated"):
        return f"{value:.0%}"
    return f"{value:.2f}" if name.startswith("mean") else f"{value:.3g}"


def _render(template: str, **given: Any) -> str:
    return environment().get_template(template).render(**given).strip() + "\n"
