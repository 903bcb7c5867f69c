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

    @property
    def grows(self) -> bool:
        """Whether Var(h) grows without end, where the limit of many units is known to fall behind."""
        return self.cell.output == "identity" and self.cell.forget_bias == 1 and self.correlation is not None


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


@dataclass(frozen=True)
class Verdict:
    """Largest deviation of means and medians over the steps claimed, what is not resolved there, and the verdict."""

    mean: float
    median: float
    noise: float
    within: bool
    var_h: float


def judge(row: Row, *, sequences: int = SEQUENCES, finite: bool, seed: int) -> Verdict:
    """Simulate the row's networks and hold the prediction against them."""
    drawn, predicted_from = (variances(name, row.cell) for name in (row.control or row.name, row.name))
    simulated = simulate(
        row.cell, drawn, steps=STEPS, networks=NETWORKS, sequences=sequences,
        input_autocorrelation=row.correlation, seed=seed,
    )  # fmt: skip
    predicted = propagate(
        row.cell, predicted_from, steps=STEPS, finite=finite, samples=SAMPLES[finite],
        input_autocorrelation=row.correlation, seed=seed,
    )  # fmt: skip
    mean, mean_noise = _deviation(predicted, simulated, "var_h")
    median, median_noise = _deviation(predicted, simulated, "median_h")
    to = 10 if row.cell.peepholes else STEPS
    within = bool(np.all(mean[:to] <= 0.05 + 2 * mean_noise[:to]))
    if row.cell.peepholes:
        within &= bool(np.all(median[:20] <= 0.10 + 2 * median_noise[:20]))
    worst = int(np.argmax(mean[:to]))
    return Verdict(
        float(mean[worst]), float(median[:20].max()), float(mean_noise[worst]), within, float(simulated.var_h[-1])
    )


def _deviation(predicted: Flow, simulated: Flow, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    p, s = getattr(predicted, quantity), getattr(simulated, quantity)
    errors = np.hypot(getattr(predicted, f"se_{quantity}"), getattr(simulated, f"se_{quantity}"))
    return np.abs(p / s - 1), errors / s


def main() -> int:
    """Print the table; exit 1 if a row fails that should pass, or one passes that should fail."""
    started, wrong = time.time(), 0
    print(
        "| cell | variances | inputs | Var(h) at 60 "
        "| limit: mean | median to 20 | finite: mean | median to 20 | s.e. | limit / finite |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for number, row in enumerate(rows()):
        limit, finite = (judge(row, finite=finite, seed=number) for finite in (False, True))
        name = f"{row.name} against networks of {row.control}" if row.control else row.name
        kind = "peepholes" if row.cell.peepholes else f"no peepholes, forget bias {row.cell.forget_bias:g}"
        inputs = "white" if row.correlation is None else f"AR(1) {row.correlation:g}"
        figures = " | ".join(
            f"{100 * f:.1f}%" for f in (limit.mean, limit.median, finite.mean, finite.median, finite.noise)
        )
        words = " / ".join("within" if verdict.within else "outside" for verdict in (limit, finite))
        print(
            f"| {kind}, {row.cell.output} | {name} | {inputs} | {limit.var_h:.3g} | {figures} | {words} |", flush=True
        )
        wrong += limit.within == (row.control is not None or row.grows)
        wrong += finite.within == (row.control is not None)
    print(f"\n{date.today()}, {NETWORKS} networks of {UNITS} units, {SEQUENCES} sequences each, ", end="")
    print(f"{time.time() - started:.0f} s")
    print(f"{wrong} verdicts that are not the ones claimed")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
