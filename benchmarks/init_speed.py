"""What a start costs: ratios in one run, the peers taking turns; the best time of each counts.

1. `init.initialise_` of nn.LSTM(512, 512, 4 layers), at most 3 times `torch.nn.init.orthogonal_` on the same number
   of square blocks: 4 gates, 4 layers, the input and the recurrent matrix of each.
2. `init.fit_body_and_readout_` beside what it cannot do without: one forward pass, and the products of the features
   with themselves and the targets in float64.

    python benchmarks/init_speed.py      # exit status 1 where a ratio is missed
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from peephole import init

SIZE, LAYERS, GATES = 512, 4, 4
STEPS, BATCH, UNITS, OUTPUTS = 100, 256, 128, 4
ORTHOGONAL, READOUT = 3.0, 1.5  # the most that is allowed


def best(rounds: int, *peers: Callable[[], object]) -> list[float]:
    """Seconds of each, the best of so many rounds."""
    times = [[0.0] * rounds for _ in peers]
    for number in range(-1, rounds):  # the first to warm up
        for peer, its in zip(peers, times, strict=True):
            started = time.perf_counter()
            peer()
            if number >= 0:
                its[number] = time.perf_counter() - started
    return [min(its) for its in times]


def initialisation(rounds: int, methods: list[str]) -> list[tuple[str, float, float]]:
    """What was timed, its seconds, and how many times those of torch's orthogonal blocks."""
    lstm = nn.LSTM(SIZE, SIZE, LAYERS)
    blocks = [torch.empty(SIZE, SIZE) for _ in range(2 * GATES * LAYERS)]

    def orthogonal() -> None:
        for block in blocks:
            nn.init.orthogonal_(block)

    def by(method: str) -> Callable[[], object]:
        return lambda: init.initialise_(lstm, method, generator=0)

    torch_s, *ours = best(rounds, orthogonal, *map(by, methods))
    return [(f"initialise_, {method}", own, own / torch_s) for method, own in zip(methods, ours, strict=True)]


@torch.no_grad()
def readout(rounds: int) -> tuple[str, float, float]:
    """The same for the readout, beside the forward pass and the products."""
    body, head = nn.LSTM(UNITS, UNITS), nn.Linear(UNITS, OUTPUTS)
    x, y = torch.randn(STEPS, BATCH, UNITS), torch.randn(STEPS, BATCH, OUTPUTS)

    def least() -> None:
        h, goal = body(x)[0].flatten(0, 1).double(), y.flatten(0, 1).double()
        h, goal = h - h.mean(0), goal - goal.mean(0)
        h.T @ h, h.T @ goal, goal.square().sum(0)

    least_s, own = best(rounds, least, lambda: init.fit_body_and_readout_(body, head, x, y))
    return "fit_body_and_readout_", own, own / least_s


def main() -> int:
    """Print a line for each; 1 where a ratio is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=init.METHODS, default=["forget-one", "proposed-4"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    limits = [(line, ORTHOGONAL) for line in initialisation(options.rounds, options.methods)]
    limits.append((readout(options.rounds), READOUT))
    for (what, seconds, ratio), most in limits:
        print(f"{what:28} {1000 * seconds:8.1f} ms, {ratio:5.2f} times its peer (at most {most:g})")
    return int(any(ratio > most for (_, _, ratio), most in limits))


if __name__ == "__main__":
    sys.exit(main())
