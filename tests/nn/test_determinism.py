"""The kernels' bits and their time: which circumstances change nothing, and that small numbers cost nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from peephole.nn import functional, kernel
from tests.nn.cases import DTYPES, ISAS, Case, assert_same, bits, draw, run, threads

PER_SEQUENCE = ("x", "h0", "c0")  # their last axis but one is the batch's


@pytest.fixture(autouse=True, params=ISAS)
def _isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One instruction set after the other."""
    monkeypatch.setattr(kernel, "_wish", request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [Case(20, 200, 1, 1), Case(9, 75, 6, 5, 3), Case(5, 150, 33, 17, lengths=True)])
def test_threads_and_repetition(case: Case, dtype: torch.dtype) -> None:
    """One thread or two, once or again: the same bits of every output and gradient. Another input: others."""
    leaves = draw(case, dtype)
    with threads(1):
        once = run(case, leaves)
    for count in (1, 2, 2, 3):
        with threads(count):
            assert_same(run(case, leaves), once)
    leaves["x"] = leaves["x"] + 1e-3
    with pytest.raises(AssertionError, match="other bits in"):
        assert_same(run(case, leaves), once)


def of_networks(leaves: dict[str, Any], chosen: list[int] | int, own: bool) -> list[Tensor]:
    """Outputs, next-step losses and the gradients of both, of the chosen networks."""
    part = {name: leaf if name == "x" and not own else leaf[chosen] for name, leaf in leaves.items()}
    taken = {name: leaf.clone().requires_grad_(own or name != "x") for name, leaf in part.items()}
    weights = {name: taken[name] for name in ("weight_hh", "weight_ph", "bias")}
    weights["weight_ih"] = weights["weight_hh"]  # as many inputs as units
    y, (h, c) = functional.peephole_lstm(taken["x"], **weights, state=(taken["h0"], taken["c0"]))
    torch.autograd.backward(y.square().sum() + h.sum() + c.sum())
    found = [y, h, c, *(leaf.grad.clone() for leaf in taken.values() if leaf.grad is not None)]
    loss = functional.next_step_loss(part["x"], **weights)
    torch.autograd.backward(loss.sum())
    return [out.detach() for out in (*found, loss, *(w.grad for w in weights.values() if w.grad is not None))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("batch", [3, 75])
def test_a_replica_alone(batch: int, own: bool, dtype: torch.dtype) -> None:
    """A network gets the same bits alone and among others in any place: outputs, losses and all gradients."""
    leaves = draw(Case(9, batch, 5, 5, 4, own), dtype)
    together, turned = of_networks(leaves, [0, 1, 2, 3], own), of_networks(leaves, [3, 2, 1, 0], own)
    for r in range(4):
        alone = of_networks(leaves, r, own)
        assert len(alone) == len(together) > 10
        for one, among, other_place in zip(alone, together, turned, strict=True):
            assert torch.equal(bits(one), bits(among[r]))
            assert torch.equal(bits(one), bits(other_place[3 - r]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(6, 1, 1), (5, 3, 7), (3, 17, 16), (3, 40, 33)])
def test_a_sequence_anywhere(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    """A sequence's outputs and gradients have the same bits in any place of any batch, whatever stands beside it."""
    steps, inputs, units = sizes
    leaves = draw(Case(steps, 140, inputs, units), dtype)

    def answer(chosen: Tensor) -> list[Tensor]:
        weights = {name: leaf for name, leaf in leaves.items() if name not in PER_SEQUENCE}
        x, h0, c0 = (leaves[name][..., chosen, :].requires_grad_() for name in PER_SEQUENCE)
        y, (h, c) = functional.peephole_lstm(x, **weights, state=(h0, c0))
        torch.autograd.backward([y, h, c], [y.detach(), h.detach(), c.detach()])
        found = [y.detach(), h.detach(), c.detach(), x.grad, h0.grad, c0.grad]
        return [tensor for tensor in found if tensor is not None]

    whole = answer(torch.arange(140))
    assert len(whole) == 6
    generator = torch.Generator().manual_seed(3)
    for count in (1, 2, 5, 8, 16, 17, 31, 32, 33, 64, 65, 140):
        chosen = torch.randperm(140, generator=generator)[:count]
        for got, all_of_it in zip(answer(chosen), whole, strict=True):
            assert torch.equal(bits(got), bits(all_of_it[..., chosen, :])), count


def best_times(case: Case, dtype: torch.dtype, scales: tuple[float, ...]) -> list[float]:
    """Seconds of the fastest of several runs, forward and backward, with every leaf and gradient scaled."""
    times: dict[float, list[float]] = {scale: [] for scale in scales}
    for _ in range(7):
        for scale in scales:
            leaves = {name: (leaf * scale).requires_grad_() for name, leaf in draw(case, dtype).items()}
            x, w_ih, w_hh, w_ph, h, c = leaves.values()
            upstream = torch.full((case.steps, case.batch, case.units), scale, dtype=dtype)
            start = time.perf_counter()
            y, _ = functional.peephole_lstm(x, w_ih, w_hh, w_ph, state=(h, c))
            torch.autograd.backward(y, upstream)
            times[scale].append(time.perf_counter() - start)
    return [min(found) for found in times.values()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activations", [("sigmoid", "tanh", "tanh"), ("hard_sigmoid", "identity", "identity")])
def test_small_numbers_cost_nothing(activations: tuple[str, str, str], dtype: torch.dtype) -> None:
    """Numbers too small for a full mantissa take less than three times as long as others."""
    case = Case(100, 256, 8, 16, bias=False, activations=activations)
    small = {torch.float32: 1e-40, torch.float64: 1e-310}[dtype]
    assert 0 < torch.tensor(small, dtype=dtype) < torch.finfo(dtype).tiny
    ordinary, *others = best_times(case, dtype, (1.0, small, small**0.5))
    assert max(others) < 3 * ordinary


@pytest.mark.parametrize("count", [1, 2])
def test_the_callers_small_numbers_stay(count: int) -> None:
    """The kernels take them as zero for themselves alone: after a call, torch has them as before."""
    case = Case(5, 200, 3, 4)
    with threads(count):
        small = torch.full((1 << 16,), 1e-40)
        for _ in range(3):
            run(case, draw(case, torch.float32))
            assert (small * 0.5).count_nonzero() == small.numel()
