"""How a call is made: for its values, into a graph, or under a transformation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

_PLAIN = (Tensor, torch.nn.Parameter, type(None))


def eager(*tensors: Tensor | None) -> bool:
    """Whether these are ordinary tensors, called for their values and not to be traced."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or torch._C._get_tracing_state() is not None:
        return False
    return all(type(tensor) in _PLAIN for tensor in tensors)


def transformed(*tensors: Tensor | None) -> bool:
    """Whether a derivative or a map is asked of these that the kernels do not have: in a graph too."""
    if torch._C._are_functorch_transforms_active():
        return True
    if forward_mode() and not eager(*tensors):
        return True
    return any(tensor is not None and _dual(tensor) for tensor in tensors)


def batched(*gradients: Tensor | None) -> bool:
    """Whether autograd asks for many gradients at once (is_grads_batched=True), by a vmap of its own, an older one."""
    of_old = torch._C._functorch.is_legacy_batchedtensor
    return any(gradient is not None and of_old(gradient) for gradient in gradients)


def forward_mode() -> bool:
    """Whether derivatives by forward mode are being taken, of whatever."""
    return forward_ad._current_level >= 0


def _dual(tensor: Tensor) -> bool:
    return forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def readable(tensor: Tensor) -> bool:
    """Whether its numbers can be looked at, to refuse what is wrong with them."""
    if torch._C._are_functorch_transforms_active():
        return False
    return tensor.device.type != "meta" and eager(tensor)
