"""What looking inside costs, as ratios in one run: `inspect.measure`, and a training with `inspect.Recorder`.

A 2-layer nn.LSTM of 256 units, batch 64, 200 steps, beside one forward and backward pass of it:

    python benchmarks/inspect_cost.py --rounds 3

The second ratio is computed from its parts: a record's time over that of `every` training steps. Each time is the best
of the rounds. Exit status 1 where a ratio is above what was asked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from peephole import inspect

UNITS, BATCH, STEPS, LAYERS, EVERY = 256, 64, 200, 2, 50
MOST_TIMES, MOST_SHARE = 5.0, 0.05


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Print both ratios, each the best of the rounds, in which all take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    lstm = nn.LSTM(UNITS, UNITS, LAYERS)
    x, target = torch.randn(STEPS, BATCH, UNITS), torch.randn(STEPS, BATCH, UNITS)
    optimiser = torch.optim.SGD(lstm.parameters(), lr=1e-3)

    def loss(output: tuple[Tensor, object]) -> Tensor:
        return nn.functional.mse_loss(output[0], target)

    def train() -> None:
        optimiser.zero_grad()
        loss(lstm(x)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    with tempfile.TemporaryDirectory() as folder:
        recorder = inspect.Recorder(lstm, every=1, to=Path(folder))
        works: dict[str, Callable[[], object]] = {
            "forward and backward": train,
            "measure": lambda: inspect.measure(lstm, x, loss),
            "measure, no loss": lambda: inspect.measure(lstm, x),
            "record": lambda: recorder.step(x, loss),
        }
        best = dict.fromkeys(works, float("inf"))
        for _ in range(given.rounds + 1):  # the first warms up
            for name, work in works.items():
                best[name] = min(best[name], seconds(work))
    base = best["forward and backward"]
    for name, took in best.items():
        print(f"{name:22s} {1e3 * took:8.0f} ms   {took / base:5.2f} times forward and backward", flush=True)
    times, share = best["measure"] / base, best["record"] / base / EVERY
    print(f"measure: {times:.2f} times one forward and backward pass (at most {MOST_TIMES:g} asked)")
    print(f"recorder, every {EVERY} steps: {share:.1%} of the training's time (at most {MOST_SHARE:.0%} asked)")
    sys.exit(times > MOST_TIMES or share > MOST_SHARE)


if __name__ == "__main__":
    main()
