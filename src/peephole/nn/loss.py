"""The fused next-step loss as a PyTorch operator: its gradients come along with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from peephole.nn import kernel, modes, passes, reference
from peephole.nn.operands import Operands


@torch.library.custom_op("peephole::next_step_loss", mutates_args=(), device_types="cpu")
def next_step_loss_operator(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    w_ih: Tensor,
    w_hh: Tensor,
    w_ph: Tensor | None,
    bias: Tensor | None,
    activations: list[int],
    differentiate: bool,
    own: int = kernel.NONE,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`passes.next_step_loss`."""
    of = Operands(x, w_hh, activations)
    x, target = of.sequences(x, of.inputs), of.sequences(target, of.units)
    weight = None if weight is None else of.sequences(weight, of.units)
    if own not in (kernel.NONE, kernel.ESTIMATE, kernel.DETACHED) or (own and of.inputs != of.units):
        raise ValueError(f"own = {own}: 0, or, where inputs {of.inputs} and units {of.units} are as many, 1 or 2")
    (w_ih, w_hh), (w_ph, bias) = of.weights(w_ih, w_hh), of.vectors(w_ph, bias)
    return passes.next_step_loss(x, target, weight, w_ih, w_hh, w_ph, bias, activations, differentiate, own)


@next_step_loss_operator.register_fake
def _(x, target, weight, w_ih, w_hh, w_ph, bias, activations, differentiate, *_):  # type: ignore[no-untyped-def]
    replicas, units = w_hh.shape[0], w_hh.shape[2]
    shapes = (w_ih.shape, w_hh.shape, (replicas, 3 * units), (replicas, 4 * units)) if differentiate else ((0,),) * 4
    return x.new_empty(replicas), *(x.new_empty(shape) for shape in shapes)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:], *inputs[:7])
    ctx.mark_non_differentiable(*output[1:])
    ctx.activations, ctx.own = inputs[7], inputs[9]


def _differentiate(ctx: Any, grad_loss: Tensor, *_: Any) -> Any:
    gw, gu, gp, gb, *inputs = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True: gradients of gradients
        return None, None, None, *_differentiate_loop(ctx, grad_loss, inputs), None, None, None
    by_network = grad_loss[:, None]
    grad_p = None if inputs[5] is None else gp * by_network
    grad_b = None if inputs[6] is None else gb * by_network
    return None, None, None, gw * by_network[..., None], gu * by_network[..., None], grad_p, grad_b, None, None, None


def _differentiate_loop(ctx: Any, grad_loss: Tensor, inputs: list[Tensor | None]) -> list[Tensor | None]:
    """Gradients of the weights that can be differentiated again: those of the plain loop."""
    x, target, weight, w_ih, w_hh, w_ph, bias = inputs
    assert x is not None
    assert target is not None
    assert w_ih is not None
    assert w_hh is not None
    gate, cell_input, output = (kernel.ACTIVATIONS[number] for number in ctx.activations)
    zeros = x.new_zeros(w_hh.shape[0], x.shape[-2], w_hh.shape[-1])
    y, _, _ = reference.peephole_lstm(
        x, w_ih, w_hh, w_ph, bias, zeros, zeros, gate=gate, cell_input=cell_input, output=output,
        observed=~x.isnan() if ctx.own else None, detach_fill=ctx.own == kernel.DETACHED,
    )  # fmt: skip
    wanted = {k: w for k, w in enumerate(inputs[3:]) if w is not None and ctx.needs_input_grad[3 + k]}
    loss = reference.squared_error(y, target, weight)
    found = torch.autograd.grad(loss, list(wanted.values()), grad_loss, create_graph=True)
    by_weight = dict(zip(wanted, found, strict=True))
    return [by_weight.get(k) for k in range(4)]


next_step_loss_operator.register_autograd(_differentiate, setup_context=_setup)


class _NextStepLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        output = passes.next_step_loss(*inputs)
        _setup(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)


def next_step_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    w_ih: Tensor,
    w_hh: Tensor,
    w_ph: Tensor | None,
    bias: Tensor | None,
    activations: list[int],
    differentiate: bool,
    own: int = kernel.NONE,
) -> Tensor:
    """The loss of R networks; differentiable by the weights if asked. `own` says what NaN in x stands for."""
    arguments = (x, target, weight, w_ih, w_hh, w_ph, bias, activations, differentiate, own)
    if not modes.eager(*arguments[:7]):
        run: Any = next_step_loss_operator
    else:
        run = _NextStepLoss.apply if differentiate else passes.next_step_loss
    loss, *_ = run(*arguments)
    assert isinstance(loss, Tensor)
    return loss
