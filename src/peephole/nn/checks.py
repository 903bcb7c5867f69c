"""What the layer refuses: as `torch.nn.LSTM` does, by the same kind of error, with the shapes that were met."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

State = tuple[Tensor, Tensor]


def sizes(**given: int) -> None:
    """Raise unless each is a whole number above zero."""
    for name, size in given.items():
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")


def flags(**given: bool) -> None:
    """Raise unless each is True or False: `PeepholeLSTM(3, 4, bias=1)` is a misplaced argument."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")


def names(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raise unless each is among the known ones."""
    for name in given:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}: {', '.join(known)}")


def dropout(share: float, num_layers: int) -> None:
    """Raise unless it is a probability; warn where nothing would be dropped."""
    if not isinstance(share, numbers.Real) or isinstance(share, bool) or not 0 <= share <= 1:
        raise ValueError(f"dropout should be a number in range [0, 1], the probability of a zero, got {share!r}")
    if share > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
            f"num_layers greater than 1, but got dropout={share} and num_layers={num_layers}",
            stacklevel=3,
        )


def same_kind(x: Any, hx: Any, weight: Tensor) -> tuple[Tensor, State | None]:
    """Input and state, of the weights' dtype and device or refused; autocast's half precision is widened instead."""
    if not isinstance(x, Tensor):
        raise TypeError(f"input must be a Tensor or a PackedSequence, got {type(x).__name__}")
    if hx is not None and not (isinstance(hx, tuple | list) and [isinstance(s, Tensor) for s in hx] == [True, True]):
        of = f" of {', '.join(type(s).__name__ for s in hx) or 'nothing'}" if isinstance(hx, tuple | list) else ""
        raise TypeError(f"hx must be a tuple of two tensors, h0 and c0, got {type(hx).__name__}{of}")
    kind = weight.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        x, hx = _widened(x, weight), None if hx is None else (_widened(hx[0], weight), _widened(hx[1], weight))
    if x.dtype != weight.dtype:
        raise ValueError(
            f"input of shape {tuple(x.shape)} is {x.dtype}, the weights are {weight.dtype}. Convert input: "
            f"input.to({weight.dtype}), or convert model: model.to({x.dtype})"
        )
    if x.device != weight.device:
        raise RuntimeError(f"input and parameters are not on the same device: {x.device} and {weight.device}")
    for k, tensor in enumerate(hx or ()):
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise RuntimeError(f"hx[{k}] is {tensor.dtype} on {tensor.device}, input is {x.dtype} on {x.device}")
    return x, hx


def _widened(tensor: Tensor, weight: Tensor) -> Tensor:
    return tensor.to(weight.dtype) if tensor.is_floating_point() else tensor


def input_shape(x: Tensor, width: int) -> bool:
    """Whether the input is a batch; raise unless it is one or a single sequence, of this width and not empty."""
    if x.dim() not in (2, 3):
        raise ValueError(f"PeepholeLSTM: expected input to be 2D or 3D, got {x.dim()}D of shape {tuple(x.shape)}")
    if x.shape[-1] != width:
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size: expected {width}, got {x.shape[-1]} in {tuple(x.shape)}"
        )
    return x.dim() == 3


def packed_shape(data: Tensor, width: int) -> None:
    """Raise unless packed steps have this width."""
    if data.dim() != 2 or data.shape[-1] != width:
        raise RuntimeError(f"packed input must have shape (steps, {width}), got {tuple(data.shape)}")


def some_steps(x: Tensor) -> None:
    """Raise unless (T, B, I) has a step."""
    if x.shape[0] == 0:
        raise RuntimeError(f"expected sequence length to be larger than 0, got (T, B, I) = {tuple(x.shape)}")


def state_shape(hx: State | None, batched_shape: tuple[int, int, int], batched: bool) -> None:
    """Raise unless h0 and c0 have this shape, without the batch's axis where the input has none."""
    shape = batched_shape if batched else batched_shape[::2]
    for k, tensor in enumerate(hx or ()):
        if tensor.dim() != len(shape):
            raise RuntimeError(
                f"for {'batched 3-D' if batched else 'unbatched 2-D'} input, hx[{k}] should also be {len(shape)}-D, "
                f"got shape {tuple(tensor.shape)}"
            )
        if tuple(tensor.shape) != shape:
            raise RuntimeError(f"expected hx[{k}] of size {shape}, got {tuple(tensor.shape)}")
