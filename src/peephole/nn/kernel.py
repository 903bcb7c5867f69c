"""The fused CPU kernels, reached through plain pointers so that one build serves any torch."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

ACTIVATIONS = ("sigmoid", "tanh", "identity", "relu", "hard_sigmoid")  # as csrc/problem.h numbers them
FEW_UNITS = 3  # up to which a block is four vectors wide, as measured
TAPED = 6  # numbers that backward keeps for each unit and step, as in csrc/block.h
_FORWARD, _BACKWARD, _NEXT_STEP_LOSS = range(3)

# struct Problem of csrc/problem.h: sizes, flags, pointers, the scale of the loss and the loss.
_TENSORS = (
    "x", "w_ih", "w_hh", "w_ph", "bias", "h0", "c0", "lengths", "y", "h_last", "c_last", "tape",
    "grad_y", "grad_h_last", "grad_c_last", "grad_x", "grad_h0", "grad_c0",
    "grad_w_ih", "grad_w_hh", "grad_w_ph", "grad_bias", "target", "weight",
)  # fmt: skip
_PROBLEM = struct.Struct(f"=5q8i{len(_TENSORS)}QdQ")


class KernelError(RuntimeError):
    """The compiled kernels are missing, or cannot do what was asked of them."""


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they were not built."""
    # An editable install keeps the compiled part in another folder than the source.
    found = [file for folder in import_module("peephole.nn").__path__ for file in Path(folder).glob("_kernels.*")]
    if forced := os.environ.get("PEEPHOLE_KERNELS"):  # make sanitize builds another library
        found = [Path(forced)]
    if not found:
        return None
    library = ctypes.CDLL(str(found[0]))
    library.peephole_instruction_set.restype = ctypes.c_char_p
    # The threads that torch already has; without its OpenMP the kernels start threads of their own, a call long.
    parallel = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    library.peephole_use_openmp(ctypes.cast(parallel, ctypes.c_void_p) if parallel else None)
    return library


def available() -> bool:
    """Whether the fused kernels were built."""
    return _library() is not None


# The answer is the same all through a process: torch.compile need not look inside. (The public
# torch.compiler.assume_constant_result says the same, and costs a second at import.)
available._dynamo_marked_constant = True  # type: ignore[attr-defined]


def instruction_sets() -> dict[str, int]:
    """The instruction sets that this machine has a kernel for, best first, with the bytes of their vectors."""
    return {name: width for name, _, width in _sets()}


def _sets() -> Iterator[tuple[str, int, int]]:
    library = _library()
    if library is None:
        return
    k = 0
    while (name := library.peephole_instruction_set(k)) is not None:
        if width := library.peephole_vector_bytes(k):
            yield name.decode(), k, width
        k += 1


@cache
def _chosen(wish: str) -> tuple[str, int, int]:
    sets = list(_sets())
    if not sets:
        raise KernelError("the fused kernels were not built: reinstall peephole where there is a C++ compiler")
    for name, k, width in sets:
        if wish in ("", name):
            return name, k, width
    raise KernelError(f"PEEPHOLE_ISA={wish}: this machine has {', '.join(name for name, *_ in sets)}")


def instruction_set() -> tuple[str, int, int]:
    """Name, number and vector bytes of the instruction set in use: the best, or the one that PEEPHOLE_ISA names."""
    return _chosen(os.environ.get("PEEPHOLE_ISA", ""))


def _vectors(batch: int, units: int, itemsize: int) -> tuple[int, int]:
    """Vectors of sequences to a block, and sequences to a vector.

    Two make the most of each weight that is read; four, where there are few units, so that one step's wait for the
    step before is filled with other sequences' work; fewer, where the batch would fill a single such block and
    leave other threads without work. It must not depend on their number, or the bits of a sum would.
    """
    lanes = instruction_set()[2] // itemsize
    most = 4 if units <= FEW_UNITS else 2
    return next(
        vectors for vectors in (4, 2, 1) if vectors == 1 or (vectors <= most and batch > vectors * lanes)
    ), lanes


def tape_size(replicas: int, steps: int, batch: int, units: int, itemsize: int) -> int:
    """How many numbers backward keeps: those of whole blocks."""
    vectors, lanes = _vectors(batch, units, itemsize)
    block = vectors * lanes
    return replicas * steps * TAPED * units * ((batch + block - 1) // block * block)


def _run(
    operation: int,
    activations: list[int],
    tensors: dict[str, Tensor | None],
    scale: float = 0.0,
    loss: Tensor | None = None,
) -> None:
    """Hand the problem to the kernels. Weights and states lead with the replica; x and target may be shared."""
    x, w_hh = tensors["x"], tensors["w_hh"]
    assert x is not None
    assert w_hh is not None
    leading, *sizes = x.shape
    flags = (
        x.itemsize == 8,
        _vectors(sizes[1], w_hh.shape[2], x.itemsize)[0],
        *activations,
        leading == 1,
        torch.get_num_threads(),
        0,
    )
    given = map(tensors.get, _TENSORS)
    pointers = [0 if tensor is None else tensor.data_ptr() for tensor in given]
    at_loss = 0 if loss is None else loss.data_ptr()
    problem = _PROBLEM.pack(w_hh.shape[0], *sizes, w_hh.shape[2], *flags, *pointers, scale, at_loss)
    library = _library()
    assert library is not None
    if library.peephole_run(instruction_set()[1], operation, problem):
        raise MemoryError(f"the kernels ran out of memory for x {tuple(x.shape)} and weight_hh {tuple(w_hh.shape)}")


def _empty(like: Tensor, *shape: int) -> Tensor:
    """Fresh memory; NaN where tests ask for it."""
    out = like.new_empty(shape)
    return out.fill_(torch.nan) if _poisoned else out


_poisoned = False


def poison(on: bool) -> None:
    """Fill all fresh memory, in Python and in the kernels, with NaN: what is read before it is written then shows."""
    global _poisoned
    _poisoned = on
    library = _library()
    if library is not None:
        library.peephole_poison(int(on))


Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs, last h and c of R networks, and the tape if it is to be kept; see csrc/problem.h for the shapes."""
    (replicas, _, units), (_, steps, batch, _) = w_hh.shape, x.shape
    y = _empty(x, replicas, steps, batch, units)
    h, c = _empty(x, replicas, batch, units), _empty(x, replicas, batch, units)
    tape = _empty(x, tape_size(replicas, steps, batch, units, x.itemsize) if keep else 0)
    _run(_FORWARD, activations, {
        "x": x, "w_ih": w_ih, "w_hh": w_hh, "w_ph": w_ph, "bias": bias, "h0": h0, "c0": c0, "lengths": lengths,
        "y": y, "h_last": h, "c_last": c, "tape": tape if keep else None,
    })  # fmt: skip
    if lengths is not None:
        ended = torch.arange(steps)[:, None] >= lengths
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
    replicas = w_hh.shape[0]
    grad_x = _empty(x, replicas, *x.shape[1:]) if x_gradient else x.new_empty(0)
    gw, gu, gp, gb = _gradients(w_ih, w_hh)
    gh, gc = _empty(x, *h0.shape), _empty(x, *c0.shape)
    _run(_BACKWARD, activations, {
        "x": x, "w_ih": w_ih, "w_hh": w_hh, "w_ph": w_ph, "h0": h0, "c0": c0, "lengths": lengths, "tape": tape,
        "grad_y": _contiguous(grad_y), "grad_h_last": _contiguous(grad_h), "grad_c_last": _contiguous(grad_c),
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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The squared error of h(t) against target(t), averaged or weighted, of R networks, and its gradients at once."""
    loss = torch.empty(w_hh.shape[0], dtype=torch.float64)
    gw, gu, gp, gb = _gradients(w_ih, w_hh) if differentiate else (x.new_empty(0) for _ in range(4))
    tensors = {"x": x, "target": target, "weight": weight, "w_ih": w_ih, "w_hh": w_hh, "w_ph": w_ph, "bias": bias}
    if differentiate:
        tensors |= {"grad_w_ih": gw, "grad_w_hh": gu, "grad_w_ph": gp, "grad_bias": gb}
    _run(_NEXT_STEP_LOSS, activations, tensors, 1.0 / max(target[0].numel(), 1), loss)
    return loss.to(x.dtype), gw, gu, gp, gb


def _gradients(w_ih: Tensor, w_hh: Tensor) -> Gradients:
    """Memory for the gradients of weight_ih, weight_hh, weight_ph and bias."""
    replicas, units = w_hh.shape[0], w_hh.shape[2]
    shapes = w_ih.shape, w_hh.shape, (replicas, 3 * units), (replicas, 4 * units)
    gw, gu, gp, gb = (_empty(w_ih, *shape) for shape in shapes)
    return gw, gu, gp, gb


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
