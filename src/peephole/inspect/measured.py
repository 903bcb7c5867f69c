"""What was measured, as frames, as text and as a page in a notebook."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from peephole.inspect.statistics import GATES, Trace

WHERE = ("module", "layer", "direction", "run")
COLUMNS = (
    *WHERE, "step", *(f"{kind}_{letter}" for letter in ("h", "c", *GATES) for kind in ("mean", "var")),
    "between_h", "between_x", "running",
    *(f"{kind}_{gate}" for gate in GATES for kind in ("closed", "open", "saturated")), "gradient", "direct", "back",
)  # fmt: skip
"""Every column that the frame can have, in its order; the last three are there with a loss only."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The traces of every layer and direction; a notebook shows it as a page.

    `frame` has a row for each layer, direction, run and step, the step counted in the direction's own time: mean_* and
    var_* of h, c, of the gates f, i, o and of the cell input z, over sequences and units; between_h, how much of
    Var(h) lies between sequences, and between_x, of the inputs' variance; running, how many sequences have that step;
    closed_*, open_*, saturated_*, the shares of values at either end of an activation; and, with a loss, gradient, the
    norm of its gradient with respect to h(t), `back` steps back in time, and direct, that of the part which does not
    come back through later steps of the layer.
    """

    traces: tuple[Trace, ...]

    @property
    def frame(self) -> Any:
        """All quantities by step, as a pandas frame."""
        pandas = _pandas()
        rows = [pandas.DataFrame(columns_of(trace)) for trace in self.traces]
        return pandas.concat(rows, ignore_index=True)

    @property
    def summary(self) -> Any:
        """One row for each layer, direction and run, as a pandas frame: the last step, gates averaged, the gradient."""
        return _pandas().DataFrame([summarised(trace) for trace in self.traces])

    @property
    def histograms(self) -> Any:
        """How often each gate had which value, as a pandas frame: bins by `low` and `high`, `share` of all values."""
        pandas = _pandas()
        rows = []
        for trace in self.traces:
            for gate, (counts, edges) in trace.histograms.items():
                share = counts / max(counts.sum(), 1.0)
                rows.append(
                    pandas.DataFrame(
                        _where(trace) | {"gate": gate, "low": edges[:-1], "high": edges[1:], "share": share}
                    )
                )
        return pandas.concat(rows, ignore_index=True)

    def __str__(self) -> str:
        lines = []
        for trace in self.traces:
            row = summarised(trace)
            gates = ", ".join(f"{gate} {_figure(row[f'mean_{gate}'], '.2f')}" for gate in GATES[:3])
            var_h, var_c = (_figure(row[name], ".3g") for name in ("var_h", "var_c"))
            text = f"{trace.name}: Var(h) {var_h}, Var(c) {var_c} at step {trace.length}; {gates}"
            told = []
            if trace.length > 1 and math.isfinite(row.get("gradient_ratio", math.nan)):
                told.append(f"at step 1 is {row['gradient_ratio']:.2g} of the last")
            if math.isfinite(row.get("decay", math.nan)):
                told.append(f"times {row['decay']:.3g} a step")
            lines.append(text + f"; gradient {', '.join(told)}" * bool(told))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from peephole.inspect.advice import advise
        from peephole.report.inspection import fragment

        return fragment(self.frame, self.summary, self.histograms, [str(line) for line in advise(self)])


def _figure(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "overflown"


def columns_of(trace: Trace) -> dict[str, Any]:
    """The columns of a trace's rows in the frame."""
    steps = np.arange(1, trace.length + 1)
    back = {"back": trace.length - steps} if "gradient" in trace.steps else {}
    return _where(trace) | {"step": steps} | trace.steps | back


def summarised(trace: Trace) -> dict[str, Any]:
    """The trace in one row."""
    row: dict[str, Any] = _where(trace) | {"steps": trace.length, "sequences": trace.sequences}
    row |= {name: float(trace.steps[name][-1]) for name in ("var_h", "var_c")}
    for gate in GATES:
        row |= {f"{kind}_{gate}": float(trace.steps[f"{kind}_{gate}"].mean()) for kind in ("mean", "saturated")}
    if "gradient" in trace.steps:
        gradient = trace.steps["gradient"]
        with np.errstate(divide="ignore", invalid="ignore"):
            row |= {"gradient_ratio": float(gradient[0] / gradient[-1]), "decay": trace.decay}
    return row


def _where(trace: Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in WHERE}


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("frames need pandas: pip install 'peephole[inspect]'") from error
    return pandas
