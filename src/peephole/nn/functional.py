"""The peephole LSTM and its next-step loss as functions, for one network or for many in one call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from peephole.nn import kernel, operators, reference

__all__ = ["next_step_loss", "peephole_lstm"]

BACKENDS = ("auto", "fused", "reference")
State = tuple[Tensor, Tensor]


def peephole_lstm(
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_ph: Tensor | None = None,
    bias: Tensor | None = None,
    state: State | None = None,
    *,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    output_activation: str = "tanh",
    lengths: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, State]:
    """Run an LSTM layer over `x` (T, B, I): outputs (T, B, H) and the last state, h and c (B, H) each.

    Weights are stacked i, f, g, o: `weight_ih` (4H, I), `weight_hh` (4H, H), `bias` (4H); peepholes `weight_ph`
    (3H) are i, f, o, and None leaves them out. With a leading replica axis R on the weights, R networks run in one
    call, on the same `x` or each on its own (R, T, B, I), and every output leads with R.

    `lengths` (B) ends sequences early: their state stays as it is and their outputs are zero. `backend` "fused"
    wants the compiled CPU kernels (float32 and float64), "reference" the plain loop; "auto" takes the first that
    serves.
    """
    networks = _Networks(x, weight_ih, weight_hh, weight_ph, bias)
    activations = _activations(gate_activation, cell_activation, output_activation)
    h, c = networks.initial(state)
    if lengths is not None:
        lengths = _checked_lengths(lengths, x)
    if not _fused(backend, x, h, c, *networks.weights):
        gate, cell_input, output = activations
        y, h, c = reference.peephole_lstm(
            x, *networks.weights, h, c, gate=gate, cell_input=cell_input, output=output, lengths=lengths
        )
        return y, (h, c)
    numbers = [kernel.ACTIVATIONS.index(name) for name in activations]
    lead = networks.lead
    w_ih, w_hh, w_ph, b = (lead(w) for w in networks.weights)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, h, c, *networks.weights))
    y, h, c, _ = operators.lstm(networks.shared_x(), w_ih, w_hh, w_ph, b, lead(h), lead(c), lengths, numbers, keep)
    return networks.trail(y), (networks.trail(h), networks.trail(c))


def next_step_loss(
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_ph: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    observed: Tensor | None = None,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    output_activation: str = "identity",
    backend: str = "auto",
) -> Tensor:
    """Mean squared error of h(t) against x(t+1), one value a network; the paper's regression, M = N, no output layer.

    Takes `x` (T, B, N) and weights as `peephole_lstm` does, replica axis included. Forward, loss and backward of a
    block of sequences run while its activations are in the cache. With `observed`, a mask of x's shape, missing
    inputs are zero and the mean is over the observed targets; what lies under the mask is never used.
    """
    networks = _Networks(x, weight_ih, weight_hh, weight_ph, bias)
    activations = _activations(gate_activation, cell_activation, output_activation)
    if networks.inputs != networks.units:
        raise ValueError(f"h estimates the next x, so units must equal inputs: {networks.units} and {networks.inputs}")
    if x.shape[-3] < 2:
        raise ValueError(f"a next step needs at least 2 steps, x has shape {tuple(x.shape)}")
    inputs, target, weight = _regression(x, observed)
    if x.requires_grad or not _fused(backend, x, *networks.weights):
        y, _ = peephole_lstm(
            inputs, weight_ih, weight_hh, weight_ph, bias, gate_activation=gate_activation,
            cell_activation=cell_activation, output_activation=output_activation, backend=backend,
        )  # fmt: skip
        if weight is None:
            return (y - target).square().mean((-3, -2, -1))
        error = torch.where(weight != 0, y - target, 0.0)
        return (weight * error.square()).sum((-3, -2, -1))
    numbers = [kernel.ACTIVATIONS.index(name) for name in activations]
    lead = networks.lead_x
    w_ih, w_hh, w_ph, b = (networks.lead(w) for w in networks.weights)
    differentiate = torch.is_grad_enabled() and any(w is not None and w.requires_grad for w in networks.weights)
    loss = operators.next_step_loss(
        lead(inputs),
        lead(target),
        None if weight is None else lead(weight),
        w_ih,
        w_hh,
        w_ph,
        b,
        numbers,
        differentiate,
    )
    return networks.trail(loss)


def _regression(x: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Inputs, targets and the targets' weights."""
    if observed is None:
        return x.narrow(-3, 0, x.shape[-3] - 1), x.narrow(-3, 1, x.shape[-3] - 1), None
    if observed.shape != x.shape:
        raise ValueError(f"observed has shape {tuple(observed.shape)}, x has {tuple(x.shape)}")
    mask = observed.to(torch.bool)
    filled = torch.where(mask, x, 0.0)
    seen = mask.narrow(-3, 1, x.shape[-3] - 1)
    count = seen.sum((-3, -2, -1), keepdim=True)
    if not torch.all(count > 0):
        raise ValueError("no target is observed, so there is no loss")
    weight = seen.to(x.dtype) / count
    return filled.narrow(-3, 0, x.shape[-3] - 1), filled.narrow(-3, 1, x.shape[-3] - 1), weight


def _activations(*names: str) -> tuple[str, ...]:
    for name in names:
        if name not in kernel.ACTIVATIONS:
            raise ValueError(f"unknown activation {name!r}: {', '.join(kernel.ACTIVATIONS)}")
    return names


def _checked_lengths(lengths: Tensor, x: Tensor) -> Tensor:
    if not isinstance(lengths, Tensor):
        raise TypeError(f"lengths must be a tensor, got {type(lengths).__name__}")
    if lengths.shape != (x.shape[-2],):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, a batch of {x.shape[-2]} wants ({x.shape[-2]},)")
    if lengths.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise ValueError(f"lengths must be whole numbers, got {lengths.dtype}")
    lengths = lengths.to(device=x.device, dtype=torch.int64).contiguous()
    if not torch.compiler.is_compiling() and lengths.device.type != "meta":  # a graph knows no numbers
        shortest, longest = (int(end) for end in torch.aminmax(lengths))
        if shortest < 1 or longest > x.shape[-3]:
            raise ValueError(f"lengths must lie from 1 to {x.shape[-3]}, the steps of x, got {shortest} to {longest}")
    return lengths


def _fused(backend: str, *tensors: Tensor | None) -> bool:
    """Whether the compiled kernels take these tensors; an error if they must and cannot."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: {', '.join(BACKENDS)}")
    if backend == "reference":
        return False
    first = tensors[0]
    assert first is not None
    if first.device.type != "cpu" or first.dtype not in (torch.float32, torch.float64):
        why = f"they take CPU float32 and float64, not {first.dtype}"
    elif operators.transformed(*tensors):
        why = "they have no forward-mode derivative and no rule for torch.func's transforms"
    elif not kernel.available():
        why = "the fused kernels were not built"
    else:
        return True
    if backend == "fused":
        raise kernel.KernelError(f"backend 'fused': {why} on {first.device}")
    return False


class _Networks:
    """One network or a stack of them: shapes checked, and the replica axis put on and taken off."""

    def __init__(self, x: Tensor, w_ih: Tensor, w_hh: Tensor, w_ph: Tensor | None, bias: Tensor | None) -> None:
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
        if 0 in (*x.shape, *w_hh.shape):
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
        for name, tensor in zip(("h0", "c0"), state, strict=True):
            self._check(name, tensor, shape)
        return state

    def lead(self, tensor: Any) -> Any:
        """With a replica axis, contiguous, as the kernels want it."""
        if tensor is None:
            return None
        return (tensor if self.stacked else tensor.unsqueeze(0)).contiguous()

    def lead_x(self, tensor: Tensor) -> Tensor:
        """The same for what may be shared by all networks."""
        return (tensor if tensor.dim() == 4 else tensor.unsqueeze(0)).contiguous()

    def shared_x(self) -> Tensor:
        """The input with its replica axis, of length 1 where the networks share it."""
        return self.lead_x(self.x)

    def trail(self, tensor: Tensor) -> Tensor:
        """Without the replica axis where there was none."""
        return tensor if self.stacked else tensor.squeeze(0)
