"""How true are the predictions? `propagate(level="wide")` against 20 real networks of 256 units, as a table.

Run with `make bench`. The check of each row is the
same: the prediction must lie within 5% of the simulated mean at every step to 60 without peepholes; with
peepholes within 5% to step 10 and, in medians, within 10% to step 20. What the simulation and the sampling
cannot resolve (two standard errors of the difference) is allowed on top, and printed. The last rows are
the control: the prediction for one set of variances held against networks drawn from another must fail.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from peephole.theory import Cell, Flow, Variances, preset, propagate, simulate

UNITS, NETWORKS, SEQUENCES, STEPS = 256, 20, 100, 60
SAMPLES = {False: 100_000, True: 1000 * UNITS}  # of the limit; of networks at their own width


@dataclass(frozen=True)
class Row:
    """One line of the table: a cell, the variances predicted and those drawn, and whether it must fail."""

    cell: Cell
    name: str
    correlation: float | None
    control: str | None = None


def rows() -> list[Row]:
    """Every case that the theory claims, then the controls."""
    plain = [
        Row(Cell(UNITS, UNITS, peepholes=False, output=output, forget_bias=bias), name, correlation)
        for name in ("normalized", "proposed-1")
        for bias in (0.0, 1.0)
        for output in ("tanh", "identity")
        for correlation in (None, 0.9)
    ]
    peephole = [
        Row(Cell(UNITS, UNITS, output=output), name, correlation)
        for name in ("normalized", "proposed-1", "proposed-4", "corrected-1")
        for output in ("tanh", "identity")
        for correlation in (None, 0.9)
    ]
    controls = [
        replace(row, control="normalized")
        for row in (*plain, *peephole)
        if row.name == "proposed-1" and row.cell.output == "identity"
    ]
    return plain + peephole + controls


def variances(name: str, cell: Cell) -> Variances:
    """The preset as made for zero biases: the bias is then what is varied."""
    return preset(name, replace(cell, forget_bias=0.0))


def check(row: Row, predicted: Flow, simulated: Flow) -> tuple[float, float, float, bool]:
    """Largest deviation within the steps claimed (mean, median), what is not resolved there, and the verdict."""
    mean, mean_noise = _deviation(predicted, simulated, "var_h")
    median, median_noise = _deviation(predicted, simulated, "median_h")
    to = 10 if row.cell.peepholes else STEPS
    good = bool(np.all(mean[:to] <= 0.05 + 2 * mean_noise[:to]))
    if row.cell.peepholes:
        good &= bool(np.all(median[:20] <= 0.10 + 2 * median_noise[:20]))
    worst = int(np.argmax(mean[:to]))
    return float(mean[worst]), float(median[:20].max()), float(mean_noise[worst]), good


def _deviation(predicted: Flow, simulated: Flow, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    p, s = getattr(predicted, quantity), getattr(simulated, quantity)
    errors = np.hypot(getattr(predicted, f"se_{quantity}"), getattr(simulated, f"se_{quantity}"))
    return np.abs(p / s - 1), errors / s


def main() -> int:
    """Print the table; exit 1 if a row fails that should pass, or a control passes."""
    started, wrong = time.time(), 0
    print(
        "| cell | variances | inputs | Var(h) at 60 "
        "| limit: mean | median to 20 | finite: mean | median to 20 | s.e. | limit / finite |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for number, row in enumerate(rows()):
        drawn, predicted_from = (variances(name, row.cell) for name in (row.control or row.name, row.name))
        simulated = simulate(
            row.cell, drawn, steps=STEPS, networks=NETWORKS, sequences=SEQUENCES,
            input_autocorrelation=row.correlation, seed=number,
        )  # fmt: skip
        verdicts, figures = [], []
        for finite in (False, True):
            predicted = propagate(
                row.cell, predicted_from, steps=STEPS, finite=finite, samples=SAMPLES[finite],
                input_autocorrelation=row.correlation, seed=number,
            )  # fmt: skip
            mean, median, noise, good = check(row, predicted, simulated)
            figures += [f"{100 * mean:.1f}%", f"{100 * median:.1f}%"]
            verdicts.append(good)
        name = f"{row.name} against networks of {row.control}" if row.control else row.name
        kind = "peepholes" if row.cell.peepholes else f"no peepholes, forget bias {row.cell.forget_bias:g}"
        inputs = "white" if row.correlation is None else f"AR(1) {row.correlation:g}"
        words = " / ".join("within" if good else "outside" for good in verdicts)
        print(
            f"| {kind}, {row.cell.output} | {name} | {inputs} | {simulated.var_h[-1]:.3g} | "
            f"{' | '.join(figures)} | {100 * noise:.1f}% | {words} |",
            flush=True,
        )
        wrong += verdicts[1] == (row.control is not None)
    print(
        f"\n{date.today()}, {NETWORKS} networks of {UNITS} units, {SEQUENCES} sequences each, "
        f"{time.time() - started:.0f} s"
    )
    print(f"{wrong} rows where the finite prediction's verdict is not the one claimed")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
