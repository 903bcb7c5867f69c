"""Pictures of what was measured."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from peephole.report import signals
from peephole.report.inspection import fragment

LAYERS = [("encoder", 0, "forward", 0), ("encoder", 0, "reverse", 0), ("", 0, "forward", 1)]


def frame(**given: Any) -> pd.DataFrame:
    """Ten steps of three layers."""
    rows = []
    for k, layer in enumerate(LAYERS):
        where = dict(zip(signals.WHERE, layer, strict=True))
        columns = {
            "step": range(1, 11),
            "back": range(9, -1, -1),
            "var_h": 0.1 * (k + 1),
            "var_c": 0.5,
            "gradient": 2.0,
        }
        rows.append(pd.DataFrame(where | columns | given))
    return pd.concat(rows, ignore_index=True)


def histograms() -> pd.DataFrame:
    """Each gate of each layer, spread evenly."""
    edges = np.linspace(0, 1, 5)
    bins = {"low": edges[:-1], "high": edges[1:], "share": 0.25}
    parts = [
        pd.DataFrame(dict(zip(signals.WHERE, layer, strict=True)) | {"gate": gate} | bins)
        for layer in LAYERS
        for gate in "fioz"
    ]
    return pd.concat(parts, ignore_index=True)


def drawn(figure: Figure) -> Figure:
    """Lay it out and paint it; a warning would be an error."""
    figure.draw_without_rendering()
    return figure


def test_a_line_for_each_layer() -> None:
    """Each layer, direction and run is a line by its name, and its prediction a dashed one in its colour."""
    compared = pd.concat([frame(quantity=name, predicted=0.3) for name in ("var_h", "var_c")])
    left, right = drawn(signals.draw_signals(frame(), compared)).axes
    names = ["encoder layer 0", "encoder layer 0 reverse", "layer 0 run 1"]
    assert left.get_legend_handles_labels()[1] == names + [f"{name}, predicted" for name in names]
    assert len(right.lines) == 6
    assert left.lines[0].get_color() == left.lines[3].get_color()
    np.testing.assert_allclose(np.asarray(left.lines[1].get_ydata()), 0.2)


def test_gradients_by_step_back() -> None:
    """The last step is at 0, the first at the far end; zeros leave gaps, and nothing but zeros is said."""
    (ax,) = drawn(signals.draw_gradients(frame())).axes
    assert np.asarray(ax.lines[0].get_xdata()).tolist() == list(range(9, -1, -1))
    (empty,) = drawn(signals.draw_gradients(frame(gradient=0.0))).axes
    assert empty.texts[0].get_text() == "zero at every step"


def test_gates() -> None:
    """A row a layer and a column a gate, each gate's name on top, the saturated ends shaded."""
    figure = drawn(signals.draw_gates(histograms()))
    assert len(figure.axes) == 12
    assert [ax.get_title(loc="left") for ax in figure.axes[:4]] == list(signals.NAMES.values())
    assert len(figure.axes[0].patches) == 3


def test_coordinates() -> None:
    """A panel a quantity, a line a method, a tick a width."""
    widths = [16, 32, 64]
    rows = [
        {"method": m, "width": w, "network": n, "var_h": 0.1 * w, "var_c": 0.2, "decay": 0.9}
        for m in "ab" for w in widths for n in range(2)
    ]  # fmt: skip
    figure = drawn(signals.draw_coordinates(pd.DataFrame(rows)))
    assert len(figure.axes) == 3
    assert figure.axes[0].get_xticks().tolist() == widths
    assert [line.get_label() for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan, 1e300])
def test_anything_is_drawn(value: float) -> None:
    """Silent, exploded and lost signals are drawn too."""
    drawn(signals.draw_signals(frame(var_h=value, var_c=value)))


def test_a_fragment_for_notebooks() -> None:
    """A fragment escapes what it is told, and two of them share no id."""
    summary = pd.DataFrame(
        [dict(zip(signals.WHERE, layer, strict=True)) | {"steps": 10, "var_h": 0.1} for layer in LAYERS]
    )
    one = fragment(frame(), summary, histograms(), ["<script>x</script>"])
    other = fragment(frame(var_h=0.7), summary, histograms(), [])
    assert "<script>" not in one
    assert "&lt;script&gt;" in one
    ids = [set(re.findall(r'\bid="([^"]*)"', part)) for part in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
