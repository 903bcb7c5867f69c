"""What do peepholes buy? The same networks with and without them, on tasks of time, of memory and on real series.

20 networks of each kind learn at once, along the replica axis, with Adam: 8 units with peepholes, 8 without, and 10
without, which have more weights. Printed is the error over the variance of what was asked for (1 is that of the
best constant) on fresh sequences: median, quartiles, how many networks got below 0.1, and for those without the p of
Mann-Whitney's test against those with peepholes.

    python benchmarks/peepholes.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu
from torch import Tensor

from peephole.data import standardise, ucr
from peephole.init import weights
from peephole.init.layouts import TORCH
from peephole.nn import functional as F  # noqa: N812 - as torch.nn.functional is imported
from peephole.theory import Cell

BATCH, RATE, SOLVED = 32, 0.01, 0.1
KINDS = ((True, 8), (False, 8), (False, 10))  # peepholes, units
Batch = tuple[Tensor, Tensor, Tensor]  # inputs (T, B, I), targets (T, B, 1), where a target counts (T, B, 1)
LETTERS = {"weight_ih": "W", "weight_hh": "U", "weight_ph": "V", "bias": "b"}


def timed_spikes(rng: torch.Generator, period: int = 12, steps: int = 80) -> Batch:
    """One pulse says when to start; a spike is asked for after each further period, and silence between."""
    start = torch.randint(0, period, (BATCH,), generator=rng)
    since = torch.arange(steps)[:, None] - start
    spikes = (since > 0) & (since % period == 0)
    return (since == 0).float()[..., None], spikes.float()[..., None], torch.ones(steps, BATCH, 1, dtype=torch.bool)


def interval(rng: torch.Generator, longest: int = 40, steps: int = 60) -> Batch:
    """Two pulses; at the second, the time since the first is asked for."""
    start = torch.randint(0, steps - longest, (BATCH,), generator=rng)
    length = torch.randint(3, longest, (BATCH,), generator=rng)
    t = torch.arange(steps)[:, None]
    x = ((t == start) | (t == start + length)).float()
    target = (length / longest).expand(steps, -1)
    return x[..., None], target[..., None], (t == start + length)[..., None]


def adding(rng: torch.Generator, steps: int = 40) -> Batch:
    """Uniform numbers, two of them marked; at the end their sum is asked for."""
    numbers, marks = torch.rand(steps, BATCH, generator=rng), torch.zeros(steps, BATCH)
    for half in (0, 1):
        where = torch.randint(0, steps // 2, (BATCH,), generator=rng) + half * (steps // 2)
        marks[where, torch.arange(BATCH)] = 1
    asked = (numbers * marks).sum(0).expand(steps, -1)
    return torch.stack([numbers, marks], -1), asked[..., None], (torch.arange(steps) == steps - 1)[:, None, None]


def electric(tested: bool, data_dir: Path | None) -> Callable[[torch.Generator], Batch]:
    """The next step of ElectricDevices, of its training or its test set."""
    data = ucr.load("ElectricDevices", data_dir=data_dir)
    series = torch.tensor(standardise(data.train, data.test)[tested], dtype=torch.float32)

    def draw(rng: torch.Generator) -> Batch:
        x = series[torch.randint(0, len(series), (BATCH,), generator=rng)].T[..., None]
        return x[:-1], x[1:], torch.ones(len(x) - 1, BATCH, 1, dtype=torch.bool)

    return draw


TASKS = ("timed spikes", "interval", "adding", "ElectricDevices")


def task(name: str, tested: bool, data_dir: Path | None) -> Callable[[torch.Generator], Batch]:
    """What draws a batch of it."""
    if name == "ElectricDevices":
        return electric(tested, data_dir)
    made: dict[str, Callable[[torch.Generator], Batch]] = {
        "timed spikes": timed_spikes,
        "interval": interval,
        "adding": adding,
    }
    return made[name]


def networks(inputs: int, peepholes: bool, units: int, count: int) -> dict[str, Tensor]:
    """So many of them, from `forget-one`, with a linear head at zero."""
    cell = Cell(inputs, units, peepholes=peepholes, output="tanh")
    drawn = [weights("forget-one", cell, seed) for seed in range(count)]
    found = {
        name: torch.from_numpy(np.stack([TORCH.stack(one, letter) for one in drawn])).float()
        for name, letter in LETTERS.items()
        if peepholes or name != "weight_ph"
    }
    return found | {"head": torch.zeros(count, units, 1), "offset": torch.zeros(count, 1, 1)}


def errors(found: dict[str, Tensor], batch: Batch) -> Tensor:
    """Each network's mean squared error where a target counts."""
    x, target, counts = batch
    y, _ = F.peephole_lstm(x, *(found.get(name) for name in LETTERS))  # type: ignore[arg-type]
    read = (y.flatten(1, 2) @ found["head"] + found["offset"]).view(*y.shape[:3], 1)
    wrong = torch.where(counts, (read - target).square(), 0.0)
    return wrong.sum((1, 2, 3)) / counts.expand_as(target).sum()


def learn(name: str, peepholes: bool, units: int, count: int, steps: int, data_dir: Path | None) -> NDArray[np.float32]:
    """The relative errors of `count` networks on fresh sequences after so many steps."""
    rng, draw = torch.Generator().manual_seed(0), task(name, False, data_dir)
    found = networks(draw(rng)[0].shape[-1], peepholes, units, count)
    for w in found.values():
        w.requires_grad_()
    adam = torch.optim.Adam(found.values(), RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        adam.zero_grad()
        errors(found, draw(rng)).sum().backward()  # type: ignore[no-untyped-call]
        clip(found)
        adam.step()
        decay.step()
    fresh, draw = torch.Generator().manual_seed(1), task(name, True, data_dir)
    with torch.no_grad():
        tests = [draw(fresh) for _ in range(20)]
        spread = torch.cat([target[counts.expand_as(target)] for _, target, counts in tests]).var()
        return (torch.stack([errors(found, batch) for batch in tests]).mean(0) / spread).numpy()


def clip(found: dict[str, Tensor], most: float = 1.0) -> None:
    """Each network's gradient on its own, at this norm."""
    squares = [w.grad.flatten(1).square().sum(1) for w in found.values() if w.grad is not None]
    factor = (most / (torch.stack(squares).sum(0).sqrt() + 1e-12)).clamp(max=1.0)
    for w in found.values():
        if w.grad is not None:
            w.grad *= factor.view(-1, *[1] * (w.dim() - 1))


def line(name: str, kinds: list[NDArray[np.float32]]) -> str:
    """A row of the table."""
    cells = []
    for found in kinds:
        low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
        cells.append(f"{middle:.3g} ({low:.2g} to {high:.2g}), {(found < SOLVED).sum()} of {len(found)}")
        if found is not kinds[0]:
            cells[-1] += f", p = {mannwhitneyu(kinds[0], found).pvalue:.2g}"
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3000, help="of Adam")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--data-dir", type=Path, help="folder with UCR files")
    options = parser.parse_args()
    print(f"{options.networks} networks each, {options.steps} steps of Adam, {date.today()}\n")
    print("| task | " + " | ".join(f"{'with' if kind else 'without'}, {units} units" for kind, units in KINDS) + " |")
    print("|---" * (len(KINDS) + 1) + "|")
    for name in options.tasks:
        print(line(name, [learn(name, *kind, options.networks, options.steps, options.data_dir) for kind in KINDS]))


if __name__ == "__main__":
    main()
