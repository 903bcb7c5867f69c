"""The coordinate check: does a start do the same to the signal at every width?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from peephole.init.torch import initialise_
from peephole.inspect.measured import summarised
from peephole.inspect.measuring import measure, probe
from peephole.nn import PeepholeLSTM
from peephole.theory import TheoryError
from peephole.theory.errors import check_count

Method = str | Callable[[nn.Module], Any]
WIDTHS = (32, 64, 128, 256, 512, 1024)
KINDS: dict[str, Callable[[int, int], nn.Module]] = {"nn.LSTM": nn.LSTM, "PeepholeLSTM": PeepholeLSTM}


def coordinate_check(
    method: Method,
    widths: Sequence[int] = WIDTHS,
    *,
    kind: str = "nn.LSTM",
    inputs: int | None = None,
    steps: int = 20,
    sequences: int = 16,
    networks: int = 3,
    seed: int = 0,
) -> Any:
    """Start LSTMs of several widths by a method and measure each: a pandas frame with a row for each width and network.

    `method` is a name of `init.METHODS`, or a function that initialises the LSTM it is given, in place. White noise of
    variance 1 goes in, with as many features as units unless `inputs` says how many. The rows are those of
    `Measured.summary`, led by `method`, `width` and `network`; the gradient is that of `inspect.probe`. `slopes` tells
    how far the curves are from flat.
    """
    for name, value in (("inputs", inputs or 1), ("steps", steps), ("sequences", sequences), ("networks", networks)):
        check_count(name, value, 1)
    if kind not in KINDS:
        raise TheoryError(f"kind = {kind!r}: {' or '.join(KINDS)}")
    rows = []
    with torch.random.fork_rng(devices=[]):
        for width in widths:
            features = inputs or width
            x = torch.randn(steps, sequences, features, generator=torch.Generator().manual_seed(seed))
            for network in range(networks):
                torch.manual_seed(seed + network)
                lstm = KINDS[kind](features, width)
                if callable(method):
                    method(lstm)
                else:
                    initialise_(lstm, method, generator=seed + network, steps=steps)
                (found,) = measure(lstm, x, probe).traces
                name = getattr(method, "__name__", str(method))
                rows.append({"method": name, "width": width, "network": network} | summarised(found))
    import pandas

    return pandas.DataFrame(rows).drop(columns=["module", "layer", "direction", "run"])


def slopes(frame: Any, quantities: Sequence[str] = ("var_h", "var_c", "decay")) -> dict[str, tuple[float, float]]:
    """Of each quantity the slope of its logarithm over that of the width, and the slope's standard error; flat is 0."""
    found = {}
    for quantity in quantities:
        x = np.log(np.asarray(frame["width"], dtype=float))
        y = np.log(np.asarray(frame[quantity], dtype=float))
        if np.ptp(x) == 0 or len(x) < 3:
            raise TheoryError("a slope needs two widths and three networks")
        centred = x - x.mean()
        slope = float(centred @ y / (centred @ centred))
        rest = y - y.mean() - slope * centred
        found[quantity] = slope, math.sqrt(float(rest @ rest) / (len(x) - 2) / float(centred @ centred))
    return found
