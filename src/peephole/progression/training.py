"""Trains ensembles: each network on the subjects that it does not hold out, stopped early by those that it does.

Network r holds out fold r modulo the number of folds. So every subject is held out by some network, if there are as
many networks as folds, and its forecasts by those are what intervals and diagnoses are calibrated on. All networks of
a group advance in one call on the replica axis, and groups of a fixed size run beside each other, each on one thread:
so the same seed gives the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from peephole.init import fit_readout_, weights
from peephole.init.layouts import TORCH
from peephole.nn import missing
from peephole.progression.errors import ProgressionError
from peephole.progression.history import Array, Mask, asked
from peephole.progression.networks import (
    HEAD,
    LSTM,
    Inputs,
    Paper,
    Residual,
    features,
    filling,
    one_thread,
    residual,
    steps_first,
)
from peephole.theory import Cell
from peephole.train import Descent, Sequences, descend

REFITS = 2  # of the heads' start, each on gaps filled by the one before
GROUP = 5  # networks that advance in one call
LETTERS = dict(zip(LSTM, "WUVb", strict=True))
SOFT = 0.01  # standardised errors below this are squared, in a smooth absolute error
Progress = Callable[[int, int], None]  # network-epochs done, and of how many at most


@dataclass(frozen=True)
class Recipe:
    """How an ensemble is trained."""

    seeds: int
    seed: int
    method: str
    units: int
    fill: str
    loss_weight: str
    epochs: int
    rate: float
    decay: float
    patience: int


def train_residual(
    X: Array, held_out: Mask, horizons: int, recipe: Recipe, progress: Progress | None = None
) -> Residual:
    """Train the default architecture on standardised visits X (J, T, N); `held_out` is (R, J)."""
    inputs = Inputs.of(X, recipe.fill)
    targets = steps_first(asked(X, horizons))  # (T, J, K, N)
    groups = [slice(start, start + GROUP) for start in range(0, recipe.seeds, GROUP)]
    told = _Told(progress, recipe.seeds * recipe.epochs)

    def train(group: slice) -> dict[str, Tensor]:
        return _Group(inputs, targets, held_out[group], recipe, group.start).train(told.add)

    threads = min(len(groups), torch.get_num_threads())
    with one_thread(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = list(pool.map(train, groups))
    told.finish()
    return Residual({name: torch.cat([one[name] for one in found]) for name in found[0]}, recipe.fill, horizons)


class _Told:
    """Tells of progress, from any thread."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done, self.lock = progress, total, 0, Lock()

    def add(self, epochs: int) -> None:
        with self.lock:
            self.done += epochs
            if self.progress is not None:
                self.progress(self.done, self.total)

    def finish(self) -> None:
        """Training that was stopped early is complete, too."""
        self.add(self.total - self.done)


class _Group:
    """Some networks on their way."""

    def __init__(self, inputs: Inputs, targets: Tensor, held_out: Mask, recipe: Recipe, first: int) -> None:
        self.inputs, self.recipe = inputs, recipe
        seen = missing.observed(targets)
        self.targets = torch.where(seen, targets, 0.0)
        held = torch.from_numpy(held_out)[:, None, :, None, None]
        self.trained, self.watched = (_shares(seen & part) for part in (~held, held))
        cell = Cell(inputs.size, recipe.units, output="tanh")
        seeds = [recipe.seed + first + r for r in range(len(held_out))]
        self.weights = stacked(recipe.method, cell, seeds)
        self._fit_heads(targets, held_out, self.inputs.visit.unsqueeze(0))
        for _ in range(REFITS if self.inputs.own is not None else 0):
            with torch.no_grad():
                filled = filling(self.weights, self.inputs, targets.shape[-2])[1]
            self._fit_heads(targets, held_out, filled)

    @torch.no_grad()
    def _fit_heads(self, targets: Tensor, held_out: Mask, filled: Tensor) -> None:
        """Each head's start: ridge regression on what its LSTM, as drawn, makes of the training subjects.

        `filled` are their visits without gaps (R, T, J, N), or the same for all networks (1, T, J, N).
        """
        filled = filled.expand(len(held_out), *filled.shape[1:])
        u = torch.cat([filled, self.inputs.known.expand(len(held_out), *self.inputs.known.shape)], -1)
        seen, _ = features(self.weights, u)
        changes = (targets - filled.unsqueeze(-2)).flatten(-2)
        heads = []
        for r, held in enumerate(held_out):
            mine = torch.from_numpy(~held)
            wanted = changes[r][:, mine]
            unknown = wanted.isnan().all(0).all(0)  # where there is nothing to learn from, no change
            layer = nn.Linear(seen.shape[-1], changes.shape[-1])
            fit_readout_(layer, seen[r][:, mine], torch.where(unknown, 0.0, wanted))
            heads.append(layer)
        for name, part in zip(HEAD, ("weight", "bias"), strict=True):
            self.weights[name] = torch.stack([getattr(layer, part) for layer in heads])

    def train(self, told: Callable[[int], None]) -> dict[str, Tensor]:
        """The weights at which each network forecast its held-out subjects best, by absolute error."""
        replicas = len(self.weights["bias"])
        leaves = {name: w.detach().clone().requires_grad_() for name, w in self.weights.items()}
        adam = torch.optim.Adam(leaves.values(), lr=self.recipe.rate)
        best = {name: w.detach().clone() for name, w in leaves.items()}
        least, since = torch.full((replicas,), float("inf")), torch.zeros(replicas)
        for epoch in range(self.recipe.epochs + 1):
            errors = residual(leaves, self.inputs, self.targets.shape[-2]) - self.targets
            score = _total(errors.detach().abs(), self.watched)
            better = score < least
            least = torch.where(better, score, least)
            for name, w in leaves.items():
                best[name][better] = w.detach()[better]
            since = torch.where(better, 0.0, since + 1)
            if epoch == self.recipe.epochs or bool((since > self.recipe.patience).all()):
                break
            loss = _total(torch.sqrt(errors.square() + SOFT**2), self.trained).sum()
            size = sum(leaves[name].square().sum() for name in ("weight_ih", "weight_hh", "head_weight"))
            adam.zero_grad()
            (loss + self.recipe.decay * size).backward()  # type: ignore[no-untyped-call]
            adam.step()
            told(replicas)
        return best


def _shares(counted: Tensor) -> Tensor:
    """Weights (R, T, J, K, N): each horizon and feature counts alike, and of it each target."""
    number = counted.sum((1, 2), keepdim=True)
    pairs = (number > 0).sum((3, 4), keepdim=True)
    return counted / (number * pairs).clamp(min=1)


def _total(errors: Tensor, shares: Tensor) -> Tensor:
    return (errors * shares).sum((1, 2, 3, 4))


def stacked(method: str, cell: Cell, seeds: list[int]) -> dict[str, Tensor]:
    """The start of a network for each seed."""
    drawn = [weights(method, cell, seed) for seed in seeds]
    return {
        name: torch.from_numpy(np.stack([TORCH.stack(one, letter) for one in drawn]).astype(np.float32))
        for name, letter in LETTERS.items()
    }


def train_paper(X: Array, held_out: Mask, horizons: int, recipe: Recipe, progress: Progress | None = None) -> Paper:
    """Train the paper's cell by full-batch momentum descent, the start following the gaps; arguments as above."""
    size, seen = X.shape[-1], ~np.isnan(X)
    shares: NDArray[np.float64] = seen[seen.any(-1)].mean(-1)
    cell = Cell(size, size, observed=1.0 if shares.min() == 1 else tuple(shares.tolist()))
    start = stacked(recipe.method, cell, [recipe.seed + r for r in range(recipe.seeds)])
    x = steps_first(X).expand(recipe.seeds, -1, -1, -1).contiguous()
    there = missing.observed(x)
    held = torch.from_numpy(held_out)[:, None, :, None]
    parts = Sequences(x, there & ~held), Sequences(x, there & held)
    how = Descent(
        epochs=recipe.epochs, rate=recipe.rate, decay=recipe.decay, patience=recipe.patience,
        fill=recipe.fill, loss_weight=recipe.loss_weight,
    )  # fmt: skip
    total = recipe.seeds * recipe.epochs
    try:
        course = descend(
            start, parts[0], how, watch={"validation": parts[1]},
            progress=None if progress is None else lambda epoch: progress(recipe.seeds * epoch, total),
        )  # fmt: skip
    except ValueError as error:
        raise ProgressionError(f"the paper's architecture cannot be trained on these visits: {error}") from None
    return Paper(course.weights, recipe.fill, 1)
