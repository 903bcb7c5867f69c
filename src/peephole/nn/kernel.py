"""The fused CPU kernels, reached through plain pointers so that one build serves any torch."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ACTIVATIONS = ("sigmoid", "tanh", "identity", "relu", "hard_sigmoid")  # as csrc/problem.h numbers them
FORWARD, BACKWARD, NEXT_STEP_LOSS = range(3)  # as csrc/kernels.h numbers them
NONE, ESTIMATE, DETACHED = range(3)  # what NaN in x stands for, as csrc/problem.h numbers it

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
    parallel = _openmp()
    library.peephole_use_openmp(ctypes.cast(parallel, ctypes.c_void_p) if parallel else None)
    return library


def _openmp() -> Any:
    return getattr(ctypes.CDLL(None), "GOMP_parallel", None)


def shares_threads() -> bool:
    """Whether the kernels run on torch's own pool of threads."""
    return _openmp() is not None


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


# Read once: backward takes the tape of a forward to be of its own instruction set's layout.
_wish = os.environ.get("PEEPHOLE_ISA", "")


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
    """Name, number and vector bytes of the one in use: the best, or the one PEEPHOLE_ISA named when Python started."""
    return _chosen(_wish)


def run(
    operation: int,
    vectors: int,
    activations: list[int],
    tensors: dict[str, Tensor | None],
    scale: float = 0.0,
    loss: Tensor | None = None,
    own: int = NONE,
) -> None:
    """Hand the problem to the kernels, in blocks of so many vectors, as problem.h says."""
    x, w_hh = tensors["x"], tensors["w_hh"]
    assert x is not None
    assert w_hh is not None
    leading, *sizes = x.shape
    flags = (x.itemsize == 8, vectors, *activations, leading == 1, torch.get_num_threads(), own)
    given = map(tensors.get, _TENSORS)
    pointers = [0 if tensor is None else tensor.data_ptr() for tensor in given]
    at_loss = 0 if loss is None else loss.data_ptr()
    problem = _PROBLEM.pack(w_hh.shape[0], *sizes, w_hh.shape[2], *flags, *pointers, scale, at_loss)
    library = _library()
    assert library is not None
    if library.peephole_run(instruction_set()[1], operation, problem):
        raise MemoryError(f"the kernels ran out of memory for x {tuple(x.shape)} and weight_hh {tuple(w_hh.shape)}")


_poisoned = False


def empty(like: Tensor, *shape: int) -> Tensor:
    """Fresh memory; NaN where tests ask for it."""
    out = like.new_empty(shape)
    return out.fill_(torch.nan) if _poisoned else out


def poison(on: bool) -> None:
    """Fill all fresh memory, in Python and in the kernels, with NaN: what is read before it is written then shows."""
    global _poisoned
    _poisoned = on
    library = _library()
    if library is not None:
        library.peephole_poison(int(on))
