"""The kernels' three operations on tensors: forward, backward, and the next-step loss with its gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from peephole.nn import kernel
from peephole.nn.kernel import empty

FEW_UNITS = 3  # up to which a block is four vectors wide, as measured
TAPED = 6  # numbers that backward keeps for each unit and step, as in csrc/block.h
WIDEST = 64  # bytes of the widest vector of any instruction set

Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def _most_vectors(units: int) -> int:
    return 4 if units <= FEW_UNITS else 2


def _block(batch: int, units: int, itemsize: int) -> tuple[int, int]:
    """Vectors of sequences to a block, and sequences to a block.

    Two make the most of each weight that is read; four, where there are few units, so that one step's wait for the
    step before is filled with other sequences' work; fewer, where the batch would fill a single such block and
    leave other threads without work. It must not depend on their number, or the bits of a sum would.
    """
    lanes = kernel.instruction_set()[2] // itemsize
    most = _most_vectors(units)
    vectors = next(v for v in (4, 2, 1) if v == 1 or (v <= most and batch > v * lanes))
    return vectors, vectors * lanes


def _tape(replicas: int, steps: int, batch: int, units: int, block: int) -> int:
    """How many numbers backward keeps of whole blocks of so many sequences."""
    return replicas * steps * TAPED * units * ((batch + block - 1) // block * block)


def tape_size(replicas: int, steps: int, batch: int, units: int, itemsize: int) -> int:
    """The same on any machine and without a question about the batch: as many as the widest blocks would take.

    A graph that is traced, exported or kept in a shared cache has this size in it.
    """
    return _tape(replicas, steps, batch, units, _most_vectors(units) * (WIDEST // itemsize))


def forward(
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
    traced: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs, last h and c of R networks, and the tape if it is to be kept; see csrc/problem.h for the shapes.

    Called from a graph, the tape has the size that the graph knows, and zeros where it is not used.
    """
    (replicas, _, units), (_, steps, batch, _) = w_hh.shape, x.shape
    vectors, block = _block(batch, units, x.itemsize)
    y = empty(x, replicas, steps, batch, units)
    h, c = empty(x, replicas, batch, units), empty(x, replicas, batch, units)
    used = _tape(replicas, steps, batch, units, block) if keep else 0
    if keep and traced:
        tape = empty(x, tape_size(replicas, steps, batch, units, x.itemsize))
        tape[used:].zero_()
    else:
        tape = empty(x, used)
    kernel.run(kernel.FORWARD, vectors, activations, {
        "x": x, "w_ih": w_ih, "w_hh": w_hh, "w_ph": w_ph, "bias": bias, "h0": h0, "c0": c0, "lengths": lengths,
        "y": y, "h_last": h, "c_last": c, "tape": tape if keep else None,
    })  # fmt: skip
    if lengths is not None:
        ended = torch.arange(steps, device=x.device)[:, None] >= lengths
        y.masked_fill_(ended[..., None], 0.0)
    return y, h, c, tape


def backward(
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
    """Gradients of x (by replica), the four weights, h0 and c0."""
    (replicas, _, units), (_, steps, batch, _) = w_hh.shape, x.shape
    vectors, block = _block(batch, units, x.itemsize)
    if tape.numel() < (used := _tape(replicas, steps, batch, units, block)):
        raise ValueError(f"the tape holds {tape.numel()} numbers, {used} are wanted: it is of another forward")
    grad_x = empty(x, replicas, *x.shape[1:]) if x_gradient else x.new_empty(0)
    gw, gu, gp, gb = _gradients(w_ih, w_hh)
    gh, gc = empty(x, *h0.shape), empty(x, *c0.shape)
    kernel.run(kernel.BACKWARD, vectors, activations, {
        "x": x, "w_ih": w_ih, "w_hh": w_hh, "w_ph": w_ph, "h0": h0, "c0": c0, "lengths": lengths, "tape": tape,
        "grad_y": _plain(grad_y), "grad_h_last": _plain(grad_h), "grad_c_last": _plain(grad_c),
        "grad_x": grad_x if x_gradient else None, "grad_w_ih": gw, "grad_w_hh": gu, "grad_w_ph": gp,
        "grad_bias": gb, "grad_h0": gh, "grad_c0": gc,
    })  # fmt: skip
    return grad_x, gw, gu, gp, gb, gh, gc


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The squared error of h(t) against target(t), averaged or weighted, of R networks, and its gradients at once.

    `own` says what NaN in x stands for.
    """
    loss = x.new_empty(w_hh.shape[0], dtype=torch.float64)
    gw, gu, gp, gb = _gradients(w_ih, w_hh) if differentiate else (x.new_empty(0) for _ in range(4))
    tensors = {"x": x, "target": target, "weight": weight, "w_ih": w_ih, "w_hh": w_hh, "w_ph": w_ph, "bias": bias}
    if differentiate:
        tensors |= {"grad_w_ih": gw, "grad_w_hh": gu, "grad_w_ph": gp, "grad_bias": gb}
    vectors, _ = _block(x.shape[2], w_hh.shape[2], x.itemsize)
    kernel.run(kernel.NEXT_STEP_LOSS, vectors, activations, tensors, 1.0 / max(target[0].numel(), 1), loss, own)
    return loss.to(x.dtype), gw, gu, gp, gb


def _gradients(w_ih: Tensor, w_hh: Tensor) -> Gradients:
    """Memory for the gradients of weight_ih, weight_hh, weight_ph and bias."""
    replicas, units = w_hh.shape[0], w_hh.shape[2]
    shapes = w_ih.shape, w_hh.shape, (replicas, 3 * units), (replicas, 4 * units)
    gw, gu, gp, gb = (empty(w_ih, *shape) for shape in shapes)
    return gw, gu, gp, gb


def _plain(tensor: Tensor | None) -> Tensor | None:
    """An upstream gradient as the memory that the kernels read: torch may hand over a view, or the minus of one."""
    return None if tensor is None else tensor.resolve_neg().contiguous()
