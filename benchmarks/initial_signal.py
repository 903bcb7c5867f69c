"""Does each method start the signal as predicted? Var(h) by step of real networks, beside `theory.propagate`.

Every method of `init.METHODS` initialises 10 `nn.LSTM` and 10 `PeepholeLSTM` (sigma_h the identity, as in the paper)
of 256 inputs and units; white noise of variance 1 goes in. Prints a Markdown table and draws a picture of each:

    python benchmarks/initial_signal.py --out docs/figures
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from peephole import PeepholeLSTM, init
from peephole.report.plots import ORANGE, draw_signal, save
from peephole.theory import Cell, Flow, propagate

SIZE, NETWORKS, SEQUENCES, STEPS, SHOWN = 256, 10, 32, 60, (1, 5, 20, 60)
CELLS = {
    "nn.LSTM": Cell(SIZE, SIZE, peepholes=False, output="tanh"),
    "PeepholeLSTM": Cell(SIZE, SIZE, output="identity"),
}


def network(kind: str) -> nn.LSTM | PeepholeLSTM:
    """A layer of that kind, its weights to be drawn."""
    return nn.LSTM(SIZE, SIZE) if kind == "nn.LSTM" else PeepholeLSTM(SIZE, SIZE, output_activation="identity")


@torch.no_grad()
def measure(kind: str, name: str, predicted: Flow) -> Flow:
    """Var(h) and the median of h^2 by step over random networks; the rest of the Flow is the prediction's."""
    noise = torch.Generator().manual_seed(1)
    var_h, medians = np.empty((2, NETWORKS, STEPS))
    for k in range(NETWORKS):
        layer = init.initialise_(network(kind), name, generator=k, steps=STEPS)
        squares = layer(torch.randn(STEPS, SEQUENCES, SIZE, generator=noise))[0].double().square().flatten(1)
        var_h[k], medians[k] = squares.mean(1).numpy(), squares.median(1).values.numpy()
    quantiles = np.full_like(predicted.quantiles_h, np.nan)
    quantiles[:, quantiles.shape[1] // 2] = medians.mean(0)
    return replace(
        predicted, level="simulated", var_h=var_h.mean(0), se_var_h=var_h.std(0, ddof=1) / NETWORKS**0.5,
        quantiles_h=quantiles,
    )  # fmt: skip


def both(kind: str, name: str) -> dict[str, Flow]:
    """Measured and predicted, by the names that the picture gives them."""
    method = init.METHODS[name]
    cell = method.cell(CELLS[kind], steps=STEPS)
    predicted = propagate(cell, method.variances(cell), steps=STEPS)
    return {"simulated": measure(kind, name, predicted), "wide": predicted}


def line(name: str, flows: dict[str, Flow]) -> str:
    """Measured (± two standard errors) and predicted at the steps shown."""
    measured, predicted = flows["simulated"], flows["wide"]
    cells = [
        f"{measured.var_h[s - 1]:.3g} ± {2 * measured.se_var_h[s - 1]:.1g} | {predicted.var_h[s - 1]:.3g}"
        for s in SHOWN
    ]
    return f"| `{name}` | " + " | ".join(cells) + " |"


def tell_apart(figure: Figure) -> None:
    """Fifteen small panels: the target in a colour of its own, the prediction dashed over what it all but hides."""
    legend = figure.legends[0]
    names = [text.get_text() for text in legend.texts]
    for ax in figure.axes:
        ax.minorticks_off()  # a third of so many panels' bytes
    for lines in (*(ax.lines for ax in figure.axes), legend.get_lines()):
        for name, line in zip(names, lines, strict=False):  # a panel without lines is an empty one
            if name.startswith("target"):
                line.set(linestyle="-", color=ORANGE)
            elif name.startswith("wide"):
                line.set_linestyle("--")
    legend.texts[-1].set_text("predicted (wide)")


def main() -> None:
    """Print the tables and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")
    parser.add_argument("--kinds", nargs="+", choices=CELLS, default=list(CELLS))
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    print(f"{NETWORKS} networks of {SIZE} units, {SEQUENCES} sequences each, {date.today()}")
    for kind in options.kinds:
        print(f"\n**{kind}**\n")
        print("| method | " + " | ".join(f"step {s}, measured | predicted" for s in SHOWN) + " |")
        print("|---" * (2 * len(SHOWN) + 1) + "|")
        panels = {}
        for name in init.METHODS:
            panels[name] = both(kind, name)
            print(line(name, panels[name]), flush=True)
        figure = draw_signal(panels)
        tell_apart(figure)
        save(figure, out / f"initial-signal-{kind.removeprefix('nn.').lower()}.svg")


if __name__ == "__main__":
    main()
