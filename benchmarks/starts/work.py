"""The tasks, the networks and their training: one run is a method, a head's start and a seed.

Every function that a process of its own runs takes a `Key`, not a task: each process reads a set once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from peephole import PeepholeLSTM, init
from peephole.data import split, standardise, ucr

UNITS, RATE, MARKS = 64, 1e-3, (0, 1, 5, 20)
SETS = {"next": ("ElectricDevices", "FordA", "Crop"), "label": ("ItalyPowerDemand", "GunPoint", "OSULeaf")}
BATCH = {"next": 32, "label": 8}  # a label set has 50 to 200 series: in large batches an epoch would be one step
# The head as torch draws it; fitted, its penalty by cross-validation alone; fitted with the remedy, which is no penalty
# below LEAST a row, and a warm-up.
HEADS = ("random head", "fitted head", "fitted, with remedy")
LEAST, WARM_UP = 1e-4, 100
ORDERS, TESTED = (1, 2, 10), 1000
Values = np.ndarray[Any, np.dtype[np.float64]]
Key = tuple[str, str, int, str | None]  # the kind of task, the set, how many training series, the folder


@dataclass(frozen=True)
class Task:
    """Inputs (B, T, 1) and what is asked for: the next step (B, T - 1, 1), or a class (B)."""

    x: Tensor
    goal: Tensor
    test_x: Tensor
    test_goal: Tensor
    batch: int
    classes: int = 0

    @property
    def outputs(self) -> int:
        """How many numbers the head gives."""
        return self.classes or 1


def loss(body: nn.Module, head: nn.Module, x: Tensor, goal: Tensor, label: bool, *, report: bool) -> Tensor:
    """Squared error of the next step; cross entropy of the label, or the share that is wrong."""
    y = body(x)[0]
    if not label:
        return nn.functional.mse_loss(head(y), goal)
    scores = head(y[:, -1])
    return (scores.argmax(-1) != goal).float().mean() if report else nn.functional.cross_entropy(scores, goal)


@cache
def task(kind: str, name: str, series: int, folder: str | None) -> Task:
    """A set as a task, standardised by its training part, which is a random choice of so many series."""
    data = ucr.load(name, data_dir=folder)
    chosen, kept = some(len(data.train), series), some(len(data.test), TESTED)
    x, test_x = (
        torch.tensor(part, dtype=torch.float32)[..., None] for part in standardise(data.train[chosen], data.test[kept])
    )
    if kind == "next":
        return Task(x[:, :-1], x[:, 1:], test_x[:, :-1], test_x[:, 1:], BATCH[kind])
    names, labels = np.unique(np.concatenate([data.train_labels[chosen], data.test_labels[kept]]), return_inverse=True)
    both = torch.as_tensor(labels)
    return Task(x, both[: len(x)], test_x, both[len(x) :], BATCH[kind], len(names))


def some(count: int, wanted: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """So many of `count` series at random, always the same ones."""
    return split(count, share=wanted / count, seed=0)[0] if wanted < count else np.arange(count)


def networks(work: Task, method: str, fitted: bool, seed: int, least: float = 0.0) -> tuple[nn.Module, nn.Linear]:
    """Body and head as they start; `least` is the fitted head's least penalty for each row of its regression."""
    torch.manual_seed(seed)
    head = nn.Linear(UNITS, work.outputs)
    # Without peepholes this is nn.LSTM, on faster kernels.
    body = PeepholeLSTM(1, UNITS, peepholes=False, batch_first=True)
    init.initialise_(body, method, generator=seed, steps=work.x.shape[1])
    if fitted:
        init.fit_body_and_readout_(body, head, work.x, work.goal, last=bool(work.classes), least=least)
    return body, head


def batches(work: Task, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end, shuffled anew each epoch."""
    rng = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(work.x), generator=rng)
        for start in range(0, len(order), work.batch):
            part = order[start : start + work.batch]
            yield work.x[part], work.goal[part]


def train(work: Task, body: nn.Module, head: nn.Module, seed: int, rates: Iterator[float]) -> Iterator[None]:
    """Adam, one step each time it is asked; gradients clipped at norm 1."""
    weights = [*body.parameters(), *head.parameters()]
    adam = torch.optim.Adam(weights)
    for (x, goal), rate in zip(batches(work, seed), rates, strict=False):
        adam.param_groups[0]["lr"] = rate
        adam.zero_grad()
        loss(body, head, x, goal, bool(work.classes), report=False).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        adam.step()
        yield


@torch.no_grad()
def reported(work: Task, body: nn.Module, head: nn.Module, series: int | None = None) -> float:
    """What is reported of the test set, or of its first so many series."""
    return float(loss(body, head, work.test_x[:series], work.test_goal[:series], bool(work.classes), report=True))


def run(key: Key, method: str, start: str, seed: int) -> list[float]:
    """The test error at each of the MARKS."""
    work = task(*key)
    remedy = start == HEADS[2]
    body, head = networks(work, method, start != HEADS[0], seed, LEAST if remedy else 0.0)
    steps = -(-len(work.x) // work.batch)
    rates = map(warm_up, itertools.count()) if remedy else itertools.repeat(RATE)
    errors, trained = [reported(work, body, head)], train(work, body, head, seed, rates)
    for before, after in itertools.pairwise(MARKS):
        for _ in range((after - before) * steps):
            next(trained)
        errors.append(reported(work, body, head))
    return errors


def peers(key: Key) -> dict[str, float]:
    """Persistence and AR(p) by least squares on the same training part; the most frequent class of that."""
    work = task(*key)
    if work.classes:
        return {"most frequent class": float((work.test_goal != work.goal.mode().values).float().mean())}
    x, goal, test_x, test_goal = (
        part[..., 0].double().numpy() for part in (work.x, work.goal, work.test_x, work.test_goal)
    )
    errors = {"persistence": float(np.mean((test_x - test_goal) ** 2))}
    return errors | {f"AR({order})": autoregression(x, goal, test_x, test_goal, order) for order in ORDERS}


def autoregression(x: Values, goal: Values, test_x: Values, test_goal: Values, order: int) -> float:
    """The test error of a regression on the last `order` values and 1; on as many as there are at the first steps."""

    def rows(values: Values, first: int, last: int, lags: int) -> Values:
        """All lags of steps first to last - 1, series by series."""
        columns = [values[:, first - lag : last - lag].ravel() for lag in range(lags)]
        return np.column_stack([*columns, np.ones(len(columns[0]))])

    squares, steps = 0.0, x.shape[1]
    early = [(step, step + 1, step + 1) for step in range(min(order - 1, steps))]
    for first, last, lags in [*early, (order - 1, steps, order)]:
        weights = np.linalg.lstsq(rows(x, first, last, lags), goal[:, first:last].ravel(), rcond=None)[0]
        squares += np.sum((rows(test_x, first, last, lags) @ weights - test_goal[:, first:last].ravel()) ** 2)
    return float(squares / test_goal.size)


def warm_up(step: int) -> float:
    """The rate, rising in equal steps to RATE."""
    return RATE * min(1.0, (step + 1) / WARM_UP)


# The rate of each step, and the fitted head's least penalty for each row.
REMEDIES: dict[str, tuple[Callable[[int], float], float]] = {
    "rate 0.01": (lambda k: 0.01, 0.0),
    "rate 0.001": (lambda k: RATE, 0.0),
    "rate 0.0001": (lambda k: 0.0001, 0.0),
    "warm-up": (warm_up, 0.0),
    "least penalty": (lambda k: RATE, LEAST),
    "warm-up, least penalty": (warm_up, LEAST),
}
SHOWN, EVERY, STEPS, FEW = ("torch-default", "proposed-4"), 4, 100, 200


def first_steps(key: Key, method: str, seed: int) -> dict[str, list[float]]:
    """The test error (of FEW series) at every fourth of Adam's first steps from a fitted head, by remedy."""
    work, curves = task(*key), {}
    for name, (rate, least) in REMEDIES.items():
        body, head = networks(work, method, True, seed, least)
        trained = train(work, body, head, seed, map(rate, itertools.count()))
        curves[name] = [reported(work, body, head, FEW)]
        for _ in range(STEPS // EVERY):
            for _ in range(EVERY):
                next(trained)
            curves[name].append(reported(work, body, head, FEW))
    return curves
