"""What PyTorch does to a function beyond calling it: other derivatives, checkpoints, export, tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.autograd import forward_ad

from peephole.nn import functional
from tests.nn.cases import Case, distance, draw


def function_of_weights(backend: str) -> tuple[Any, Tensor]:
    """The outputs as a function of the input weights, and these."""
    leaves = draw(Case(4, 5, 2, 3))
    rest = [leaves[name] for name in ("weight_hh", "weight_ph", "bias")]
    return lambda w: functional.peephole_lstm(leaves["x"], w, *rest, backend=backend)[0], leaves["weight_ih"]


def tangent(backend: str) -> Tensor:
    """A derivative by forward mode."""
    function, w = function_of_weights(backend)
    found: Tensor = torch.func.jvp(function, (w,), (w,))[1]
    return found


def dual(backend: str) -> Tensor:
    """A derivative by forward mode, the other way."""
    function, w = function_of_weights(backend)
    with forward_ad.dual_level():
        out = forward_ad.unpack_dual(function(forward_ad.make_dual(w, w)))  # type: ignore[no-untyped-call]
        return torch.zeros_like(out.primal) if out.tangent is None else out.tangent


def per_sample(backend: str) -> Tensor:
    """Gradients of many weights at once."""
    function, w = function_of_weights(backend)
    found: Tensor = torch.func.vmap(torch.func.grad(lambda w: function(w).sum()))(torch.stack((w, 2 * w)))
    return found


def second(backend: str) -> Tensor:
    """A gradient's gradient."""
    function, w = function_of_weights(backend)
    w.requires_grad_()
    (first,) = torch.autograd.grad(function(w).sum(), w, create_graph=True)
    # With another term beside it a penalty that lacks its graph would be lost without a word.
    return torch.autograd.grad(first.square().sum() + w.sum(), w)[0]


def checkpointed(backend: str) -> Tensor:
    """A gradient through a checkpoint."""
    function, w = function_of_weights(backend)
    out = torch.utils.checkpoint.checkpoint(function, w.requires_grad_(), use_reentrant=False)
    assert isinstance(out, Tensor)
    return torch.autograd.grad(out.square().sum(), w)[0]


# torch itself, when it loads what forward mode needs, calls what it has deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("way", [tangent, dual, per_sample, second, checkpointed])
def test_other_derivatives(way: Callable[[str], Tensor]) -> None:
    """What the kernels cannot differentiate they leave to the loop: the answer is right, never zero or missing."""
    assert distance(way("auto").detach(), way("reference").detach()) < 1e-12


def test_the_losses_second_derivative() -> None:
    """The fused loss says that it has no second derivative."""
    leaves = draw(Case(4, 5, 3, 3, state=False))
    w = leaves.pop("weight_ih").requires_grad_()
    loss = functional.next_step_loss(weight_ih=w, **leaves)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        torch.autograd.grad(loss, w, create_graph=True)
    loss = functional.next_step_loss(weight_ih=w, **leaves, backend="reference")
    (first,) = torch.autograd.grad(loss, w, create_graph=True)
    assert torch.autograd.grad(first.square().sum(), w)[0].any()


def test_exported() -> None:
    """torch.export keeps the function as one operator, which answers other numbers as eager calls do."""
    function, w = function_of_weights("auto")
    module = torch.nn.Module()
    module.forward = function
    exported = torch.export.export(module, (w,))
    assert "peephole.lstm" in str(exported.graph)
    assert distance(exported.module()(2 * w), function(2 * w)) < 1e-12


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced() -> None:
    """The old tracer too keeps it as an operator, and not the numbers of one call."""
    function, w = function_of_weights("auto")
    traced = torch.jit.trace(function, (w,), check_trace=False)  # type: ignore[no-untyped-call]
    assert distance(traced(2 * w), function(2 * w)) < 1e-12


def test_changed_in_place() -> None:
    """A weight that is changed between forward and backward is noticed."""
    function, w = function_of_weights("auto")
    y = function(w.requires_grad_())
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(y.sum())
