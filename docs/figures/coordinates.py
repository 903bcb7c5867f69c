"""Draws the coordinate check for docs/inspect.md: methods across widths, beside weights of one fixed variance."""

from pathlib import Path

import pandas
import torch
from torch import nn

from peephole.inspect import coordinate_check
from peephole.report.plots import save
from peephole.report.signals import draw_coordinates

METHODS = ("normalized", "torch-default", "forget-one")


def fixed_variance(lstm: nn.Module) -> None:
    """The control: normal weights of standard deviation 0.1 at every width."""
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_(std=0.1)


def main() -> None:
    """Measure and draw."""
    frames = [coordinate_check(method) for method in (*METHODS, fixed_variance)]
    save(draw_coordinates(pandas.concat(frames)), Path(__file__).with_name("coordinates.svg"))


if __name__ == "__main__":
    main()
