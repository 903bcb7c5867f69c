"""Full-batch momentum descent on the next-step loss, for many networks at once (paper, Experimental Setup).

The networks of a call advance together and know nothing of each other: the kernels give each its own bits, and the
updates here are single additions and multiplications, which round alike wherever a number lies in a tensor. So a
network's whole course is the same, alone or among others, and for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from peephole.nn import functional

__all__ = ["Course", "Descent", "Sequences", "descend"]

WEIGHTS = ("weight_ih", "weight_hh", "weight_ph", "bias")
DIVERGED = 1e6  # a loss beyond this, in units of the data's variance, is given up


@dataclass(frozen=True)
class Sequences:
    """Series (T, B, N), standardised, and where they were observed; None where all that is not NaN was."""

    x: Tensor
    observed: Tensor | None = None


@dataclass(frozen=True)
class Descent:
    """How to descend; the defaults are the paper's. `decay` is the factor of w in its gradient; biases have none.

    `fill` and `loss_weight` say what gaps become, as for `functional.next_step_loss`.
    `patience` stops a network that has not improved its loss on the sequences watched as "validation" for so many
    marks, and keeps the weights of the best; None runs to the end.
    """

    epochs: int = 1000
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 1e-4
    output_activation: str = "identity"
    patience: int | None = None
    fill: str = "zero"
    loss_weight: str = "visit"

    @property
    def marks(self) -> list[int]:
        """The epochs at which the watched sequences are scored: about 12 to a factor of ten, and the last."""
        last = max(self.epochs, 1)
        grid = np.round(np.geomspace(1, last, 1 + int(12 * np.log10(last)))).astype(int)
        return sorted({0, *(mark for mark in grid.tolist() if mark < self.epochs), self.epochs})


@dataclass
class Course:
    """What became of R networks. Losses are infinite from where a network diverged."""

    train: NDArray[np.float64]  # (epochs + 1, R): the loss after so many epochs
    marks: list[int]
    watched: dict[str, NDArray[np.float64]]  # name: (marks, R)
    weights: dict[str, Tensor]
    diverged: NDArray[np.int64]  # (R): the epoch, or -1
    stopped: NDArray[np.int64]  # (R): the epoch of the best mark, or -1


def descend(
    weights: Mapping[str, Tensor],
    sequences: Sequences,
    how: Descent,
    *,
    watch: Mapping[str, Sequences] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Course:
    """Train R networks, `weights` stacked by name with the leading axis R; `progress` hears of each epoch.

    The loss of each is the squared error of h(t) against x(t + 1) over the whole batch, weighted as `how` says. One
    that diverges stays frozen where it did.
    """
    watch = watch or {}
    if how.patience is not None and "validation" not in watch:
        raise ValueError("patience needs sequences watched as 'validation'")
    state = _State(weights)
    marks, replicas = how.marks, len(weights["weight_hh"])
    course = Course(
        train=np.full((how.epochs + 1, replicas), np.inf),
        marks=marks,
        watched={name: np.full((len(marks), replicas), np.inf) for name in watch},
        weights={},
        diverged=np.full(replicas, -1),
        stopped=np.full(replicas, -1),
    )
    best = _Best(replicas)
    for epoch in range(how.epochs + 1):
        if epoch in marks and state.alive.any():
            row = marks.index(epoch)
            for name, other in watch.items():
                # To the end: whoever stands still from here on keeps this score.
                course.watched[name][row:] = _finite(_score(state.weights, other, how))
            if how.patience is not None:
                best.update(course.watched["validation"][row], row, state, how.patience, course.stopped, marks)
        if state.alive.any():
            losses, gradients = _step(state.weights, sequences, how, differentiate=epoch < how.epochs)
            course.train[epoch:] = _finite(losses)
            course.diverged[~np.isfinite(course.train[epoch]) & (course.diverged < 0)] = epoch
            state.alive &= torch.from_numpy(course.diverged < 0)
            if epoch < how.epochs:
                state.move(gradients, how)
        if epoch < how.epochs and progress is not None:
            progress(epoch + 1)
    course.weights = best.restored(state.weights) if how.patience is not None else state.weights
    return course


class _State:
    """Weights, velocities, and which networks still move."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = {name: weights[name].detach().clone() for name in WEIGHTS if name in weights}
        self.velocities = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        self.alive = torch.ones(len(weights["weight_hh"]), dtype=torch.bool)

    def move(self, gradients: Mapping[str, Tensor], how: Descent) -> None:
        """One step of momentum. Each operation rounds once: no fused one, which only some lanes would get."""
        frozen = not bool(self.alive.all())
        for name, weight in self.weights.items():
            gradient = gradients[name] if name == "bias" else weight * how.decay + gradients[name]
            step = self.velocities[name].mul_(how.momentum).add_(gradient) * how.rate
            if frozen:
                step = torch.where(self.alive.view(-1, *[1] * (weight.dim() - 1)), step, 0.0)
            weight.sub_(step)


class _Best:
    """The weights of each network's best mark, and how long ago that was."""

    def __init__(self, replicas: int) -> None:
        self.loss, self.row = np.full(replicas, np.inf), np.zeros(replicas, np.int64)
        self.weights: dict[str, Tensor] = {}

    def update(
        self,
        losses: NDArray[np.float64],
        row: int,
        state: _State,
        patience: int,
        stopped: NDArray[np.int64],
        marks: list[int],
    ) -> None:
        better = losses < self.loss
        better &= stopped < 0
        self.loss[better], self.row[better] = losses[better], row
        for name, weight in state.weights.items():
            mask = torch.from_numpy(better).view(-1, *[1] * (weight.dim() - 1))
            self.weights[name] = torch.where(mask, weight, self.weights.get(name, weight))
        late = (row - self.row >= patience) & (stopped < 0)
        stopped[late] = np.asarray(marks)[self.row[late]]
        state.alive &= torch.from_numpy(stopped < 0)

    def restored(self, last: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.weights.get(name, weight) for name, weight in last.items()}


def _step(
    weights: Mapping[str, Tensor], sequences: Sequences, how: Descent, *, differentiate: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Each network's loss, and the gradients of all."""
    leaves = {name: weight.detach().requires_grad_(differentiate) for name, weight in weights.items()}
    losses = _losses(leaves, sequences, how)
    if not differentiate:
        return losses, {}
    gradients = torch.autograd.grad(losses, list(leaves.values()), torch.ones_like(losses))
    return losses.detach(), dict(zip(leaves, gradients, strict=True))


def _score(weights: Mapping[str, Tensor], sequences: Sequences, how: Descent) -> Tensor:
    with torch.no_grad():
        return _losses(weights, sequences, how)


def _losses(weights: Mapping[str, Tensor], sequences: Sequences, how: Descent) -> Tensor:
    return functional.next_step_loss(
        sequences.x, weights["weight_ih"], weights["weight_hh"], weights.get("weight_ph"), weights.get("bias"),
        observed=sequences.observed, fill=how.fill, loss_weight=how.loss_weight,
        output_activation=how.output_activation,
    )  # fmt: skip


def _finite(losses: Tensor) -> NDArray[np.float64]:
    """As numbers, infinite where a network is lost."""
    numbers = losses.numpy().astype(np.float64)
    numbers[~(numbers < DIVERGED)] = np.inf  # NaN too
    return numbers
