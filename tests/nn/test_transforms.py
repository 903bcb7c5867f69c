"""What PyTorch does to a function beyond calling it: other derivatives, checkpoints, export, tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.autograd import forward_ad

from peephole import PeepholeLSTM
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


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("way", [tangent, dual, per_sample])
def test_other_derivatives_compiled(way: Callable[[str], Tensor]) -> None:
    """In a graph too they are the loop's."""
    torch._dynamo.reset()
    compiled = torch.compile(way, backend="aot_eager")
    assert distance(compiled("auto").detach(), way("reference").detach()) < 1e-12


def test_the_tangent_of_a_gradient() -> None:
    """A tangent on what comes from above is not lost on the way back."""
    found = []
    for backend in ("auto", "reference"):
        function, w = function_of_weights(backend)
        y = function(w.requires_grad_())
        up = torch.ones_like(y)
        with forward_ad.dual_level():
            (grad,) = torch.autograd.grad(y, w, forward_ad.make_dual(up, 2 * up))  # type: ignore[no-untyped-call]
            tangent_of_it = forward_ad.unpack_dual(grad).tangent  # type: ignore[no-untyped-call]
        assert tangent_of_it is not None
        found.append(tangent_of_it)
    assert distance(*found) < 1e-12


@pytest.mark.parametrize("vectorize", [False, True])
def test_many_gradients_at_once(vectorize: bool) -> None:
    """A whole Jacobian, one gradient after the other or all in one, is that of the loop; so is the loss's."""
    jacobian: Any = torch.autograd.functional.jacobian
    function, w = function_of_weights("auto")
    loop, _ = function_of_weights("reference")
    got, wanted = (jacobian(f, w, vectorize=vectorize) for f in (function, loop))
    assert distance(got, wanted) < 1e-12
    x, u = draw(Case(4, 5, 3, 3))["x"], torch.stack([draw(Case(4, 5, 3, 3, seed=k))["weight_hh"] for k in range(2)])
    got, wanted = (
        jacobian(lambda u, b=backend: functional.next_step_loss(x, u, u, backend=b), u, vectorize=vectorize)
        for backend in ("auto", "reference")
    )
    assert distance(got, wanted) < 1e-12


@pytest.mark.parametrize("observed", [False, True])
def test_the_losses_second_derivative(observed: bool) -> None:
    """So is the loss's second derivative the loop's, for many networks at once."""
    leaves = draw(Case(4, 5, 3, 3, 2, state=False))
    leaves["observed"] = torch.arange(60).view(4, 5, 3) % 3 > 0 if observed else None

    def found(backend: str) -> list[Tensor]:
        weights = {name: leaves[name].clone().requires_grad_() for name in leaves if name not in ("x", "observed")}
        loss = functional.next_step_loss(**leaves | weights, backend=backend)
        first = torch.autograd.grad(loss[0] + 2 * loss[1], list(weights.values()), create_graph=True)
        penalty = torch.stack([grad.square().sum() for grad in first]).sum()
        return [*first, *torch.autograd.grad(penalty, list(weights.values()))]

    for got, wanted in zip(found("fused"), found("reference"), strict=True):
        assert distance(got.detach(), wanted.detach()) < 1e-12
        assert wanted.any()


def test_exported() -> None:
    """torch.export keeps the function as one operator, which answers other numbers as eager calls do."""
    function, w = function_of_weights("auto")
    module = torch.nn.Module()
    module.forward = function
    exported = torch.export.export(module, (w,))
    assert "peephole.lstm" in str(exported.graph)
    assert distance(exported.module()(2 * w), function(2 * w)) < 1e-12


@pytest.mark.parametrize("keep", [False, True])
def test_exported_for_any_batch(keep: bool) -> None:
    """An exported layer takes any batch and any number of steps, though its blocks are of several widths."""
    lstm = PeepholeLSTM(2, 3, dtype=torch.float64)
    sizes = {0: torch.export.Dim("T", min=2, max=99), 1: torch.export.Dim("B", min=2, max=999)}
    with torch.set_grad_enabled(keep):
        exported = torch.export.export(lstm, (torch.ones(5, 20, 2, dtype=torch.float64),), dynamic_shapes=(sizes,))
        for steps, batch in ((4, 5), (6, 70), (3, 300)):
            x = torch.randn(steps, batch, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            assert distance(exported.module()(x)[0].detach(), lstm(x)[0].detach()) < 1e-12


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
