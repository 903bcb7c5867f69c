"""Measured beside predicted: the same weights' variances, the batch's own autocorrelation."""

from __future__ import annotations

from typing import Any

import numpy as np

from peephole.inspect.errors import InspectError
from peephole.inspect.measured import Measured, columns_of
from peephole.inspect.statistics import Trace
from peephole.theory import Cell, Flow, TheoryError, Variances, propagate

QUANTITIES = ("var_h", "var_c")


def predict(
    measured: Measured,
    *,
    steps: int = 100,
    level: str = "wide",
    finite: bool = False,
    samples: int = 4000,
    seed: int = 0,
) -> dict[str, Flow]:
    """What `theory.propagate` says of each layer and direction, by the trace's name.

    Its cell has the sizes, activations and biases of the module, its variances are the mean squares of the module's
    matrices, and its inputs have the mean square and the autocorrelation of what entered the layer. At most 200
    `steps`: the time grows with their square. A layer with projections has no prediction and is left out.
    """
    if steps < 1 or steps > 200:
        raise InspectError(f"steps = {steps!r}: from 1 to 200")
    return {
        trace.name: _flow(trace, steps, level=level, finite=finite, samples=samples, seed=seed)
        for trace in measured.traces
        if not trace.projected and trace.power > 0
    }


def cell_of(trace: Trace) -> Cell:
    """The cell as the theory sees it."""
    inputs, _, units = trace.sizes
    gate, cell_input, output = trace.activations
    f, i, o, c = (_bias(trace.biases[name]) for name in "fioc")
    return Cell(
        inputs, units, "v_f" in trace.variances, gate=gate, cell_input=cell_input, output=output, forget_bias=f,
        input_bias=i, output_bias=o, cell_bias=c, input_variance=trace.power,
    )  # fmt: skip


def _bias(values: Any) -> Any:
    return float(values[0]) if np.ptp(values) == 0 else tuple(values.tolist())


def _flow(trace: Trace, steps: int, **how: Any) -> Flow:
    cell, steps = cell_of(trace), min(steps, trace.length)
    # Rounding of 32-bit inputs may leave a covariance a hair above its bound.
    correlation = np.array(trace.autocorrelation[:steps, :steps])
    return propagate(
        cell, Variances.build(cell, trace.variances), steps=min(steps, len(correlation)),
        input_autocorrelation=(correlation + correlation.T) / 2, **how,
    )  # fmt: skip


def compare(measured: Measured, predicted: dict[str, Flow] | None = None) -> Any:
    """Measured beside predicted as a pandas frame: a row for each layer, step and quantity, with their ratio.

    `predicted` are Flows by the trace's name (`predict(measured)` unless given); steps beyond them are left out.
    """
    flows = predict(measured) if predicted is None else predicted
    known = {trace.name: trace for trace in measured.traces}
    unknown = [name for name in flows if name not in known]
    if unknown:
        raise InspectError(f"nothing was measured of {unknown[0]!r}: {', '.join(known)}")
    if not flows:
        raise TheoryError("no layer has a prediction: projections and inputs that are zero have none")
    import pandas

    rows = []
    for name, flow in flows.items():
        table = pandas.DataFrame(columns_of(known[name])).head(flow.steps)
        for quantity in QUANTITIES:
            part = table[["module", "layer", "direction", "run", "step"]].copy()
            part["quantity"], part["measured"] = quantity, table[quantity]
            part["predicted"] = getattr(flow, quantity)[: len(table)]
            part["ratio"] = part["measured"] / part["predicted"]
            rows.append(part)
    return pandas.concat(rows, ignore_index=True)
