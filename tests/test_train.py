"""Descent over many networks at once, against torch's own optimiser and one network alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from peephole.nn import functional
from peephole.train import WEIGHTS, Course, Descent, Sequences, descend


def networks(
    replicas: int, units: int = 2, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Random weights of some networks."""
    rng = torch.Generator().manual_seed(1)
    shapes = {
        "weight_ih": (4 * units, units),
        "weight_hh": (4 * units, units),
        "weight_ph": (3 * units,),
        "bias": (4 * units,),
    }
    return {n: scale * torch.randn(replicas, *s, generator=rng, dtype=dtype) for n, s in shapes.items()}


def series(batch: int = 33, steps: int = 12, units: int = 2, dtype: torch.dtype = torch.float32) -> Sequences:
    """Random walks, standardised."""
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(steps, batch, units, generator=rng, dtype=dtype).cumsum(0)
    return Sequences((x - x.mean()) / x.std())


def some(weights: dict[str, Tensor], which: list[int]) -> dict[str, Tensor]:
    """Some of the networks."""
    return {name: weight[which] for name, weight in weights.items()}


def same(a: Course, b: Course, column: int, at: int) -> bool:
    """Whether one network's course is the same to the bit."""
    return (
        np.array_equal(a.train[:, column], b.train[:, at])
        and all(np.array_equal(a.watched[name][:, column], b.watched[name][:, at]) for name in a.watched)
        and all(torch.equal(a.weights[name][column], b.weights[name][at]) for name in WEIGHTS)
    )


def test_it_is_torch_s_momentum() -> None:
    """Twenty epochs are those of torch.optim.SGD over the plain loop, decay on everything but biases."""
    weights, data = networks(1, dtype=torch.float64), series(dtype=torch.float64)
    course = descend(weights, data, Descent(epochs=20))
    leaves = {name: weight[0].clone().requires_grad_() for name, weight in weights.items()}
    decayed = [leaves[name] for name in WEIGHTS if name != "bias"]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": 1e-4}, {"params": [leaves["bias"]]}]
    optimiser = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    for epoch in range(20):
        optimiser.zero_grad()
        y, _ = functional.peephole_lstm(
            data.x[:-1],
            leaves["weight_ih"],
            leaves["weight_hh"],
            leaves["weight_ph"],
            leaves["bias"],
            output_activation="identity",
            backend="reference",
        )
        loss = (y - data.x[1:]).square().mean()
        assert course.train[epoch, 0] == pytest.approx(loss.item(), rel=1e-10)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for name in WEIGHTS:
        assert torch.allclose(course.weights[name][0], leaves[name], rtol=1e-9, atol=1e-12)
    control = descend(weights, data, Descent(epochs=20, decay=1e-3))
    assert not torch.allclose(control.weights["weight_ih"][0], leaves["weight_ih"], rtol=1e-9)


@pytest.mark.parametrize("units", [1, 2, 6])
def test_groups_and_threads_change_nothing(units: int) -> None:
    """A network's course has the same bits alone, among others in any order, and on one thread or two."""
    weights, data, other = networks(5, units), series(units=units), series(batch=40, units=units)
    how, watch = Descent(epochs=30), {"test": other}
    together = descend(weights, data, how, watch=watch)
    for column in range(5):
        assert same(descend(some(weights, [column]), data, how, watch=watch), together, 0, column)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        order = [3, 0, 4]
        mixed = descend(some(weights, order), data, how, watch=watch)
    finally:
        torch.set_num_threads(threads)
    assert all(same(mixed, together, k, column) for k, column in enumerate(order))
    assert not same(mixed, together, 0, 0)


def test_what_diverges_is_frozen_and_counted() -> None:
    """A network that explodes gets an infinite loss and its epoch; the others' bits do not change."""
    weights, data = networks(3), series()
    weights["weight_ih"][1] = torch.inf
    course = descend(weights, data, Descent(epochs=10))
    assert course.diverged[1] >= 0
    assert course.diverged[[0, 2]].tolist() == [-1, -1]
    assert np.isinf(course.train[course.diverged[1] :, 1]).all()
    assert np.isfinite(course.train[:, [0, 2]]).all()
    assert same(descend(some(weights, [2]), data, Descent(epochs=10)), course, 0, 2)


def test_marks_and_progress() -> None:
    """Watched sequences are scored at the marks, by the weights after so many epochs; progress hears each epoch."""
    weights, data, heard = networks(2), series(), list[int]()
    course = descend(weights, data, Descent(epochs=25), watch={"again": data}, progress=heard.append)
    assert heard == list(range(1, 26))
    assert course.marks[0] == 0
    assert course.marks[-1] == 25
    assert np.allclose(course.watched["again"], course.train[course.marks], rtol=1e-6)
    assert (Descent(epochs=0).marks, Descent(epochs=1).marks) == ([0], [0, 1])


def test_gaps() -> None:
    """Missing entries change nothing, whatever lies there; a column never observed keeps its input weights' decay."""
    weights, data = networks(2), series()
    seen = torch.rand(data.x.shape, generator=torch.Generator().manual_seed(3)) > 0.4
    first = descend(weights, Sequences(torch.where(seen, data.x, torch.nan), seen), Descent(epochs=10))
    second = descend(weights, Sequences(torch.where(seen, data.x, 1e30), seen), Descent(epochs=10))
    assert all(same(first, second, k, k) for k in range(2))


def test_early_stopping() -> None:
    """With patience the best mark's weights come back; without, nothing stops."""
    weights, data = networks(3, scale=2.0), series(batch=4)
    other = series(batch=50)
    how = Descent(epochs=200, patience=3)
    course = descend(weights, data, how, watch={"validation": other})
    best = course.watched["validation"].min(0)
    again = descend(course.weights, data, Descent(epochs=0), watch={"validation": other})
    assert (course.stopped >= 0).any()
    stopped = course.stopped >= 0
    assert np.array_equal(again.watched["validation"][0][stopped], best[stopped])
    with pytest.raises(ValueError, match="watched as 'validation'"):
        descend(weights, data, how)
