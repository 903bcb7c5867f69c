"""The fused layer as PyTorch operators: schema, shapes without data, gradients.

Every kernel is a `torch.library` operator, for `torch.compile`, `torch.export` and whatever else looks at a graph.
Ordinary eager calls take the same functions through `torch.autograd.Function`, which costs a third of an operator's
way through the dispatcher: that is half the time of a small layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from peephole.nn import kernel, modes, passes, reference
from peephole.nn.operands import Operands


@torch.library.custom_op("peephole::lstm", mutates_args=(), device_types="cpu")
def lstm_operator(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    w_ph: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    lengths: Tensor | None,
    activations: list[int],
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`passes.forward`."""
    of = Operands(x, w_hh, activations)
    x, lengths = of.sequences(x, of.inputs), of.maybe(lengths, of.batch, dtype=torch.int64)
    (w_ih, w_hh), (w_ph, bias) = of.weights(w_ih, w_hh), of.vectors(w_ph, bias)
    h0, c0 = (of.given(state, of.replicas, of.batch, of.units) for state in (h0, c0))
    return passes.forward(x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, activations, keep, traced=True)


@lstm_operator.register_fake
def _(x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, activations, keep):  # type: ignore[no-untyped-def]
    (replicas, _, units), (_, steps, batch, _) = w_hh.shape, x.shape
    state = (replicas, batch, units)
    tape = passes.tape_size(replicas, steps, batch, units, x.itemsize) if keep else 0
    return x.new_empty((replicas, steps, batch, units)), x.new_empty(state), x.new_empty(state), x.new_empty(tape)


@torch.library.custom_op("peephole::lstm_backward", mutates_args=(), device_types="cpu")
def lstm_backward_operator(
    grad_y: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    w_ph: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    lengths: Tensor | None,
    tape: Tensor,
    activations: list[int],
    x_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`passes.backward`."""
    of = Operands(x, w_hh, activations)
    grad_y, grad_h, grad_c = of.outputs(grad_y), of.state(grad_h), of.state(grad_c)
    x, lengths = of.sequences(x, of.inputs), of.maybe(lengths, of.batch, dtype=torch.int64)
    (w_ih, w_hh), (w_ph, _) = of.weights(w_ih, w_hh), of.vectors(w_ph, None)
    h0, c0 = (of.given(state, of.replicas, of.batch, of.units) for state in (h0, c0))
    tape = of.given(tape, tape.numel())
    return passes.backward(
        grad_y, grad_h, grad_c, x, w_ih, w_hh, w_ph, h0, c0, lengths, tape, activations, x_gradient
    )  # fmt: skip


@lstm_backward_operator.register_fake
def _(grad_y, grad_h, grad_c, x, w_ih, w_hh, w_ph, h0, c0, lengths, tape, activations, x_gradient):  # type: ignore[no-untyped-def]
    replicas, units = w_hh.shape[0], w_hh.shape[2]
    grad_x = x.new_empty((replicas, *x.shape[1:]) if x_gradient else 0)
    gp, gb = x.new_empty(replicas, 3 * units), x.new_empty(replicas, 4 * units)
    gw, gu, gh, gc = (x.new_empty(tensor.shape) for tensor in (w_ih, w_hh, h0, c0))
    return grad_x, gw, gu, gp, gb, gh, gc


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, activations, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, output[3])
    ctx.mark_non_differentiable(output[3])
    ctx.activations = activations


def _differentiate(ctx: Any, grad_y: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, _: Any) -> Any:
    x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, tape = saved = ctx.saved_tensors
    grads = (grad_y, grad_h, grad_c)
    # create_graph=True asks for gradients of gradients.
    another_way = torch.is_grad_enabled() or modes.transformed(*grads) or modes.batched(*grads)
    if another_way and not torch.compiler.is_compiling():
        found = _differentiate_loop(ctx, grads, (x, w_ih, w_hh, w_ph, bias, h0, c0), lengths)
        return *found, None, None, None
    run = passes.backward if modes.eager(*grads, *saved) else lstm_backward_operator
    gx, gw, gu, gp, gb, gh, gc = run(
        *grads, x, w_ih, w_hh, w_ph, h0, c0, lengths, tape, ctx.activations, ctx.needs_input_grad[0]
    )
    if not ctx.needs_input_grad[0]:
        gx = None
    elif x.shape[0] != gx.shape[0]:
        gx = gx.sum(0, keepdim=True)
    return gx, gw, gu, gp if w_ph is not None else None, gb if bias is not None else None, gh, gc, None, None, None


def _differentiate_loop(
    ctx: Any, grads: tuple[Tensor | None, ...], inputs: tuple[Tensor | None, ...], lengths: Tensor | None
) -> list[Tensor | None]:
    """Gradients as autograd can map them and differentiate them again: those of the plain loop, run once more."""
    gate, cell_input, output = (kernel.ACTIVATIONS[number] for number in ctx.activations)
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        outputs = reference.peephole_lstm(
            *inputs, gate=gate, cell_input=cell_input, output=output, lengths=lengths  # type: ignore[arg-type]
        )  # fmt: skip
    reached = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if grad is not None]
    wanted = {k: x for k, x in enumerate(inputs) if x is not None and ctx.needs_input_grad[k]}
    found = torch.autograd.grad(
        [out for out, _ in reached], list(wanted.values()), [grad for _, grad in reached], create_graph=again,
        allow_unused=True,
    )  # fmt: skip
    by_input = dict(zip(wanted, found, strict=True))
    return [by_input.get(k) for k in range(len(inputs))]


lstm_operator.register_autograd(_differentiate, setup_context=_setup)


class _Lstm(torch.autograd.Function):
    # A setup_context of its own would have torch inspect the signature at every call.
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        output = passes.forward(*inputs)
        _setup(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)


def lstm(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    w_ph: Tensor | None,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    lengths: Tensor | None,
    activations: list[int],
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs, last h and c of R networks, and the tape; differentiable if the tape is kept."""
    arguments = (x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, activations, keep)
    if not modes.eager(*arguments[:8]):
        run: Any = lstm_operator
    else:
        run = _Lstm.apply if keep else passes.forward
    y, h, c, tape = run(*arguments)
    return y, h, c, tape
