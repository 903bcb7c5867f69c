"""The fused kernels as PyTorch operators: schema, shapes without data, gradients.

Every kernel is a `torch.library` operator, for `torch.compile`, `torch.export` and whatever else looks at a graph.
Ordinary eager calls take the same functions through `torch.autograd.Function`, which costs a third of an operator's
way through the dispatcher: that is half the time of a small layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from peephole.nn import kernel, reference

_PLAIN = (Tensor, torch.nn.Parameter, type(None))


def _eager(*tensors: Tensor | None) -> bool:
    """Whether these are ordinary tensors, called for their values and not to be traced."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or torch._C._get_tracing_state() is not None:
        return False
    return all(type(tensor) in _PLAIN for tensor in tensors)


def transformed(*tensors: Tensor | None) -> bool:
    """Whether a derivative or a map is asked of these that the kernels do not have."""
    if torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active():
        return True
    if forward_ad._current_level < 0:
        return False
    return any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)  # type: ignore[no-untyped-call]


# --- the layer --------------------------------------------------------------------------------------------------


@torch.library.custom_op("peephole::lstm", mutates_args=())
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
    """`kernel.forward`."""
    return kernel.forward(x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, activations, keep)


@lstm_operator.register_fake
def _(x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, activations, keep):  # type: ignore[no-untyped-def]
    (replicas, _, units), (_, steps, batch, _) = w_hh.shape, x.shape
    state = (replicas, batch, units)
    tape = kernel.tape_size(replicas, steps, batch, units, x.itemsize) if keep else 0
    return x.new_empty((replicas, steps, batch, units)), x.new_empty(state), x.new_empty(state), x.new_empty(tape)


@torch.library.custom_op("peephole::lstm_backward", mutates_args=())
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
    """`kernel.backward`."""
    return kernel.backward(
        grad_y, grad_h, grad_c, x, w_ih, w_hh, w_ph, h0, c0, lengths, tape, activations, x_gradient
    )  # fmt: skip


@lstm_backward_operator.register_fake
def _(grad_y, grad_h, grad_c, x, w_ih, w_hh, w_ph, h0, c0, lengths, tape, activations, x_gradient):  # type: ignore[no-untyped-def]
    replicas, units = w_hh.shape[0], w_hh.shape[2]
    grad_x = x.new_empty((replicas, *x.shape[1:]) if x_gradient else 0)
    gp, gb = x.new_empty(replicas, 3 * units), x.new_empty(replicas, 4 * units)
    return grad_x, torch.empty_like(w_ih), torch.empty_like(w_hh), gp, gb, torch.empty_like(h0), torch.empty_like(c0)


def _setup_lstm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, activations, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, output[3])
    ctx.mark_non_differentiable(output[3])
    ctx.activations = activations


def _differentiate_lstm(ctx: Any, grad_y: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, _: Any) -> Any:
    x, w_ih, w_hh, w_ph, bias, h0, c0, lengths, tape = saved = ctx.saved_tensors
    grads = (grad_y, grad_h, grad_c)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True: gradients of gradients
        found = _differentiate_loop(ctx, grads, (x, w_ih, w_hh, w_ph, bias, h0, c0), lengths)
        return *found, None, None, None
    run = kernel.backward if _eager(*grads, *saved) else lstm_backward_operator
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
    """Gradients that can be differentiated again: those of the plain loop, run once more."""
    gate, cell_input, output = (kernel.ACTIVATIONS[number] for number in ctx.activations)
    outputs = reference.peephole_lstm(
        *inputs, gate=gate, cell_input=cell_input, output=output, lengths=lengths  # type: ignore[arg-type]
    )  # fmt: skip
    reached = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if grad is not None]
    wanted = {k: x for k, x in enumerate(inputs) if x is not None and ctx.needs_input_grad[k]}
    found = torch.autograd.grad(
        [out for out, _ in reached], list(wanted.values()), [grad for _, grad in reached], create_graph=True,
        allow_unused=True,
    )  # fmt: skip
    by_input = dict(zip(wanted, found, strict=True))
    return [by_input.get(k) for k in range(len(inputs))]


lstm_operator.register_autograd(_differentiate_lstm, setup_context=_setup_lstm)


class _Lstm(torch.autograd.Function):
    # A setup_context of its own would have torch inspect the signature at every call.
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        output = kernel.forward(*inputs)
        _setup_lstm(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate_lstm)


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
    if not _eager(*arguments[:8]):
        run: Any = lstm_operator
    else:
        run = _Lstm.apply if keep else kernel.forward
    y, h, c, tape = run(*arguments)
    return y, h, c, tape


# --- the next-step loss -----------------------------------------------------------------------------------------


@torch.library.custom_op("peephole::next_step_loss", mutates_args=())
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`kernel.next_step_loss`."""
    return kernel.next_step_loss(x, target, weight, w_ih, w_hh, w_ph, bias, activations, differentiate)


@next_step_loss_operator.register_fake
def _(x, target, weight, w_ih, w_hh, w_ph, bias, activations, differentiate):  # type: ignore[no-untyped-def]
    replicas, units = w_hh.shape[0], w_hh.shape[2]
    shapes = (w_ih.shape, w_hh.shape, (replicas, 3 * units), (replicas, 4 * units)) if differentiate else ((0,),) * 4
    return x.new_empty(replicas), *(x.new_empty(shape) for shape in shapes)


def _setup_loss(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.present = (inputs[5] is not None, inputs[6] is not None)


def _differentiate_loss(ctx: Any, grad_loss: Tensor, *_: Any) -> Any:
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError("the fused next_step_loss has no second derivative; backend='reference' has")
    gw, gu, gp, gb = ctx.saved_tensors
    by_network = grad_loss[:, None]
    grad_p = gp * by_network if ctx.present[0] else None
    grad_b = gb * by_network if ctx.present[1] else None
    return None, None, None, gw * by_network[..., None], gu * by_network[..., None], grad_p, grad_b, None, None


next_step_loss_operator.register_autograd(_differentiate_loss, setup_context=_setup_loss)


class _NextStepLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        output = kernel.next_step_loss(*inputs)
        _setup_loss(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate_loss)


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
) -> Tensor:
    """The loss of R networks; differentiable by the weights if asked."""
    arguments = (x, target, weight, w_ih, w_hh, w_ph, bias, activations, differentiate)
    if not _eager(*arguments[:7]):
        run: Any = next_step_loss_operator
    else:
        run = _NextStepLoss.apply if differentiate else kernel.next_step_loss
    loss, *_ = run(*arguments)
    assert isinstance(loss, Tensor)
    return loss
