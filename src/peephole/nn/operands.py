"""What the operators refuse when they are called by themselves: the kernels read memory as they are told to."""

from __future__ import annotations

import torch
from torch import Tensor

from peephole.nn import kernel, modes

Shape = tuple[int, ...]


class Operands:
    """The sizes of a problem, and each of its tensors as the kernels read it, or refused."""

    def __init__(self, x: Tensor, w_hh: Tensor, activations: list[int]) -> None:
        if x.dim() != 4 or w_hh.dim() != 3 or x.shape[0] not in (1, w_hh.shape[0]) or 0 in (*x.shape, *w_hh.shape):
            raise ValueError(
                f"x (1 or R, T, B, I) and w_hh (R, 4H, H) wanted, got {tuple(x.shape)} and {tuple(w_hh.shape)}"
            )
        if x.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"the kernels take float32 and float64, not {x.dtype}")
        if len(activations) != 3 or not set(activations) <= set(range(len(kernel.ACTIVATIONS))):
            raise ValueError(f"three activations, numbered as {kernel.ACTIVATIONS}, are wanted, got {activations}")
        if modes.forward_mode():  # a tangent would be lost without a word
            raise NotImplementedError(
                "the operators of peephole have no forward-mode derivative; peephole.nn.functional takes the loop"
            )
        self.like = x
        self.replicas, _, self.units = w_hh.shape
        _, self.steps, self.batch, self.inputs = x.shape

    def given(self, tensor: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor that must be there: contiguous, or refused where it does not fit."""
        wanted = dtype or self.like.dtype
        if tuple(tensor.shape) != shape or tensor.dtype != wanted:
            raise ValueError(
                f"{shape} of {wanted} is wanted, got {tuple(tensor.shape)} of {tensor.dtype} with x "
                f"{tuple(self.like.shape)} and {self.units} units"
            )
        return tensor.resolve_neg().contiguous()

    def maybe(self, tensor: Tensor | None, *shape: int, dtype: torch.dtype | None = None) -> Tensor | None:
        """The same for one that may be missing."""
        return None if tensor is None else self.given(tensor, *shape, dtype=dtype)

    def sequences(self, tensor: Tensor, columns: int) -> Tensor:
        """One with the leading axis of x, of so many numbers a step."""
        return self.given(tensor, *self.like.shape[:3], columns)

    def weights(self, w_ih: Tensor, w_hh: Tensor) -> tuple[Tensor, Tensor]:
        """The two matrices."""
        R, rows = self.replicas, 4 * self.units
        return self.given(w_ih, R, rows, self.inputs), self.given(w_hh, R, rows, self.units)

    def vectors(self, w_ph: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Peepholes and bias."""
        R, H = self.replicas, self.units
        return self.maybe(w_ph, R, 3 * H), self.maybe(bias, R, 4 * H)

    def outputs(self, tensor: Tensor | None) -> Tensor | None:
        """By network, step, sequence and unit."""
        return self.maybe(tensor, self.replicas, self.steps, self.batch, self.units)

    def state(self, tensor: Tensor | None) -> Tensor | None:
        """By network, sequence and unit."""
        return self.maybe(tensor, self.replicas, self.batch, self.units)
