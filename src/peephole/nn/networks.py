"""The tensors of one network or of many: shapes checked, and the replica axis put on and taken off."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

State = tuple[Tensor, Tensor]


class Networks:
    """One network or a stack of them: shapes checked, and the replica axis put on and taken off."""

    def __init__(self, x: Tensor, w_ih: Tensor, w_hh: Tensor, w_ph: Tensor | None, bias: Tensor | None) -> None:
        for name, given in (("x", x), ("weight_ih", w_ih), ("weight_hh", w_hh)):
            a_tensor(name, given)
        for name, perhaps in (("weight_ph", w_ph), ("bias", bias)):
            if perhaps is not None:
                a_tensor(name, perhaps)
        self.x, self.weights = x, (w_ih, w_hh, w_ph, bias)
        self.stacked = w_hh.dim() == 3
        if w_hh.dim() not in (2, 3) or x.dim() not in (3, 3 + self.stacked):
            raise ValueError(
                f"x (T, B, I) and weight_hh (4H, H), perhaps led by a replica axis, got {tuple(x.shape)} "
                f"and {tuple(w_hh.shape)}"
            )
        self.units, self.inputs, self.batch = w_hh.shape[-1], x.shape[-1], x.shape[-2]
        replicas = tuple(w_hh.shape[:1]) if self.stacked else ()
        wanted: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
            "weight_ih": (w_ih, (*replicas, 4 * self.units, self.inputs)),
            "weight_hh": (w_hh, (*replicas, 4 * self.units, self.units)),
            "weight_ph": (w_ph, (*replicas, 3 * self.units)),
            "bias": (bias, (*replicas, 4 * self.units)),
            "x": (x if x.dim() == 4 else None, (*replicas, *x.shape[-3:])),
        }
        for name, (tensor, shape) in wanted.items():
            self._check(name, tensor, shape)
        if not x.is_floating_point():
            raise ValueError(f"x must hold floating-point numbers, got {x.dtype}")
        self.replicas = replicas
        if 0 in (*x.shape[:-2], self.inputs, *w_hh.shape):
            raise ValueError(f"empty: x has shape {tuple(x.shape)}, weight_hh {tuple(w_hh.shape)}")

    def _check(self, name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
        if tensor is None:
            return
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, {shape} is wanted with x {tuple(self.x.shape)} "
                f"and weight_hh {tuple(self.weights[1].shape)}"
            )
        if tensor.dtype != self.x.dtype or tensor.device != self.x.device:
            raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, x is {self.x.dtype} on {self.x.device}")

    def initial(self, state: State | None) -> State:
        """h0 and c0 by network and sequence; zeros if none are given."""
        shape = (*self.replicas, self.batch, self.units)
        if state is None:
            zeros = self.x.new_zeros(shape)
            return zeros, zeros
        if not isinstance(state, tuple | list):
            raise TypeError(f"state must be a pair of tensors, h0 and c0, got {type(state).__name__}")
        if len(state) != 2:
            raise ValueError(f"state must be a pair of tensors, h0 and c0, got {len(state)} of them")
        for name, tensor in zip(("h0", "c0"), state, strict=True):
            a_tensor(name, tensor)
            self._check(name, tensor, shape)
        h, c = state
        return h, c

    def ended_at(self, lengths: Tensor) -> Tensor:
        """The input with zeros beyond each sequence's end, so that nothing there, NaN least of all, has a say."""
        steps = torch.arange(self.x.shape[-3], device=self.x.device)[:, None]
        return torch.where((steps < lengths)[..., None], self.x, 0.0)

    def lead(self, tensor: Any) -> Any:
        """With a replica axis, as the kernels read it."""
        if tensor is None:
            return None
        return _plain(tensor if self.stacked else tensor.unsqueeze(0))

    def lead_x(self, tensor: Tensor) -> Tensor:
        """The same for what may be shared by all networks."""
        return _plain(tensor if tensor.dim() == 4 else tensor.unsqueeze(0))

    def trail(self, tensor: Tensor) -> Tensor:
        """Without the replica axis where there was none."""
        return tensor if self.stacked else tensor.squeeze(0)


def a_tensor(name: str, given: Any) -> None:
    """Raise unless it is one."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(given).__name__}")


def _plain(tensor: Tensor) -> Tensor:
    """Numbers as they lie in memory: neither a view with strides nor the minus of one."""
    return tensor.resolve_neg().contiguous()
