"""The peephole LSTM and its next-step loss as functions, for one network or for many in one call."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from peephole.nn import exported, kernel, loss, modes, operators, reference
from peephole.nn.networks import Networks, State, a_tensor

__all__ = ["next_step_loss", "peephole_lstm"]

BACKENDS = ("auto", "fused", "reference")


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

    `lengths` (B) ends sequences early: their state stays as it is, their outputs are zero, and what `x` holds beyond
    is never used. `backend` "fused" wants the compiled CPU kernels (float32 and float64), "reference" the plain loop;
    "auto" takes the first that serves.
    """
    networks = Networks(x, weight_ih, weight_hh, weight_ph, bias)
    activations = _activations(gate_activation, cell_activation, output_activation)
    h, c = networks.initial(state)
    if lengths is not None:
        lengths = _checked_lengths(lengths, x)
        x = networks.ended_at(lengths)
    if exported.asked(weight_hh):
        return exported.peephole_lstm(x, networks.weights, h, c, lengths, activations)
    if not _fused(backend, x, h, c, *networks.weights) or networks.batch == 0:
        gate, cell_input, output = activations
        with torch.autocast(x.device.type, enabled=False) if _autocast(x) else nullcontext():
            y, h, c = reference.peephole_lstm(
                x, *networks.weights, h, c, gate=gate, cell_input=cell_input, output=output, lengths=lengths
            )
        return y, (h, c)
    numbers = [kernel.ACTIVATIONS.index(name) for name in activations]
    lead = networks.lead
    w_ih, w_hh, w_ph, b = (lead(w) for w in networks.weights)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, h, c, *networks.weights))
    y, h, c, _ = operators.lstm(networks.lead_x(x), w_ih, w_hh, w_ph, b, lead(h), lead(c), lengths, numbers, keep)
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
    inputs are zero and the mean is over the observed targets; what lies under the mask is never used. A network
    without a single one is refused; under `torch.compile` and `torch.func`, where no number can be looked at, its
    loss is zero.
    """
    networks = Networks(x, weight_ih, weight_hh, weight_ph, bias)
    activations = _activations(gate_activation, cell_activation, output_activation)
    if x.shape[-2] == 0:
        raise ValueError(f"empty: x has shape {tuple(x.shape)}, and a mean over nothing is no loss")
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
        return reference.squared_error(y, target, weight)
    numbers = [kernel.ACTIVATIONS.index(name) for name in activations]
    lead = networks.lead_x
    w_ih, w_hh, w_ph, b = (networks.lead(w) for w in networks.weights)
    differentiate = torch.is_grad_enabled() and any(w is not None and w.requires_grad for w in networks.weights)
    weight = None if weight is None else lead(weight)
    found = loss.next_step_loss(lead(inputs), lead(target), weight, w_ih, w_hh, w_ph, b, numbers, differentiate)
    return networks.trail(found)


def _regression(x: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Inputs, targets and the targets' weights."""
    if observed is None:
        return x.narrow(-3, 0, x.shape[-3] - 1), x.narrow(-3, 1, x.shape[-3] - 1), None
    a_tensor("observed", observed)
    if observed.shape != x.shape:
        raise ValueError(f"observed has shape {tuple(observed.shape)}, x has {tuple(x.shape)}")
    mask = observed.to(torch.bool)
    filled = torch.where(mask, x, 0.0)
    seen = mask.narrow(-3, 1, x.shape[-3] - 1)
    count = seen.sum((-3, -2, -1), keepdim=True)
    if modes.readable(count) and not torch.all(count > 0):
        raise ValueError("no target is observed, so there is no loss")
    weight = seen.to(x.dtype) / count.clamp(min=1)  # in a graph, which knows no numbers, such a loss is zero
    return filled.narrow(-3, 0, x.shape[-3] - 1), filled.narrow(-3, 1, x.shape[-3] - 1), weight


def _activations(*names: str) -> tuple[str, ...]:
    for name in names:
        if name not in kernel.ACTIVATIONS:
            raise ValueError(f"unknown activation {name!r}: {', '.join(kernel.ACTIVATIONS)}")
    return names


def _checked_lengths(lengths: Tensor, x: Tensor) -> Tensor:
    a_tensor("lengths", lengths)
    if lengths.shape != (x.shape[-2],):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, a batch of {x.shape[-2]} wants ({x.shape[-2]},)")
    if lengths.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise ValueError(f"lengths must be whole numbers, got {lengths.dtype}")
    lengths = lengths.to(device=x.device, dtype=torch.int64).contiguous()
    if modes.readable(lengths) and lengths.numel():
        shortest, longest = (int(end) for end in torch.aminmax(lengths))
        if shortest < 1 or longest > x.shape[-3]:
            raise ValueError(f"lengths must lie from 1 to {x.shape[-3]}, the steps of x, got {shortest} to {longest}")
    return lengths


def _autocast(x: Tensor) -> bool:
    """Whether matrix products would be rounded to half precision, which the loop must not let happen."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


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
    elif modes.transformed(*tensors):
        why = "they have no forward-mode derivative and no rule for torch.func's transforms"
    elif not kernel.available():
        why = "the fused kernels were not built"
    else:
        return True
    if backend == "fused":
        raise kernel.KernelError(f"backend 'fused': {why} on {first.device}")
    return False
