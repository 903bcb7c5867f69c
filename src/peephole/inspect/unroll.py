"""What `nn.LSTM` hides, from its weights: gates and cell state of one layer and direction, and back through time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from peephole.init.torch import StackedCell
from peephole.inspect.errors import InspectError
from peephole.nn.reference import ACTIVATIONS

ROUNDING = 500  # how many units in the last place of the largest pre-activation two ways to add may differ by

# The slope of each activation, from its value.
SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda y: y * (1 - y),
    "tanh": lambda y: 1 - y * y,
    "identity": torch.ones_like,
    "relu": lambda y: (y > 0).to(y.dtype),
    "hard_sigmoid": lambda y: ((y > 0) & (y < 1)).to(y.dtype) / 6,
}


@dataclass(frozen=True, eq=False)
class Sequences:
    """What one layer and direction saw, in its own time: x (T, B, I), h before and after each step (T, B, P).

    `c` is the cell state before the first step (B, H), or before each (T, B, H) where it is known; `last` are h and c
    after each sequence's last step, as the module put them out. Beyond `lengths` nothing counts.
    """

    cell: StackedCell
    x: Tensor
    before: Tensor
    h: Tensor
    c: Tensor
    last: tuple[Tensor, Tensor] | None = None
    lengths: Tensor | None = None
    rounding: float = 1e-7  # of the type in which the module put out h

    @property
    def mask(self) -> Tensor | None:
        """Which steps (T, B) are within their sequence; None where all are."""
        if self.lengths is None:
            return None
        return torch.arange(len(self.x), device=self.x.device)[:, None] < self.lengths.to(self.x.device)


@dataclass(frozen=True, eq=False)
class Signals:
    """Gates, cell input and cell state of every step (T, B, H), and c before the step."""

    i: Tensor
    f: Tensor
    z: Tensor
    o: Tensor
    c: Tensor
    c_before: Tensor


def unroll(seen: Sequences, where: str) -> Signals:
    """Gates and states of all steps, from the weights and the outputs h; raises unless they make these outputs.

    Every h(t - 1) is known, so one product serves all steps and no rounding error is fed back.
    """
    cell, (steps, batch, _) = seen.cell, seen.x.shape
    gate, squash, out = (ACTIVATIONS[name] for name in (cell.gate, cell.cell_input, cell.output))
    a = seen.x.reshape(steps * batch, -1) @ cell.weight_ih.T
    a.addmm_(seen.before.reshape(steps * batch, -1), cell.weight_hh.T)
    for bias in cell.biases:
        a += bias
    size = float(a.abs().amax()) if a.numel() else 0.0
    i, f, z, o = a.view(steps, batch, -1).chunk(4, -1)
    p_i, p_f, p_o = (None, None, None) if cell.weight_ph is None else cell.weight_ph.chunk(3)
    each = seen.c.dim() == 3
    c_before = seen.c if each else torch.empty_like(i)
    c = torch.empty_like(i)
    state = seen.c
    for t in range(steps):
        if each:
            state = seen.c[t]
        else:
            c_before[t] = state
        if p_i is not None and p_f is not None:
            i[t].addcmul_(p_i, state)
            f[t].addcmul_(p_f, state)
        i[t], f[t], z[t] = gate(i[t]), gate(f[t]), squash(z[t])
        torch.mul(i[t], z[t], out=c[t])
        state = c[t].addcmul_(f[t], state)
        if p_o is not None:
            o[t].addcmul_(p_o, state)
        o[t] = gate(o[t])
    made = o * out(c)
    made = made if cell.weight_hr is None else made @ cell.weight_hr.T
    _check(made, seen.h, seen.mask, seen.rounding * (1 + size), where)
    if seen.last is not None:
        for mine, own in zip((seen.h, c), seen.last, strict=True):
            _check(_at_end(mine, seen.lengths), own, None, seen.rounding * (1 + size), where)
    return Signals(i, f, z, o, c, c_before)


def _check(made: Tensor, own: Tensor, mask: Tensor | None, rounding: float, where: str) -> None:
    """Raise unless what was recomputed is the module's own, to the rounding of its type."""
    off = torch.where(own.isfinite() & made.isfinite(), made - own, 0.0).abs_()
    if mask is not None:
        off = off * mask[..., None]
    worst, largest = float(off.amax()), float(own.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    allowed = ROUNDING * rounding * max(1.0, largest)
    if worst > allowed:
        raise InspectError(
            f"{where}: what its weights make differs from its outputs by {worst:.2g}, more than rounding "
            f"({allowed:.2g}): its forward is not that of an LSTM with these weights"
        )


def _at_end(values: Tensor, lengths: Tensor | None) -> Tensor:
    """What (T, B, ...) is at each sequence's last step."""
    if lengths is None:
        return values[-1]
    return values[lengths.to(values.device) - 1, torch.arange(values.shape[1], device=values.device)]


def back(seen: Sequences, s: Signals, upstream: Tensor, last_c: Tensor) -> tuple[Tensor, Tensor]:
    """The loss's whole gradient with respect to each h(t) (T, B, P) and each x(t) (T, B, I): back through time.

    `upstream` (T, B, P) is the gradient by what is made of h(t) outside the layer, `last_c` (B, H) that with respect to
    each sequence's last c.
    """
    cell, steps = seen.cell, len(seen.x)
    out = ACTIVATIONS[cell.output](s.c)
    # One product a step is all that has to wait for the step after; the slopes are known beforehand.
    slope_o = SLOPES[cell.gate](s.o) * out
    slope_c = s.o * SLOPES[cell.output](out)
    slope_i, slope_f = SLOPES[cell.gate](s.i) * s.z, SLOPES[cell.gate](s.f) * s.c_before
    slope_z = SLOPES[cell.cell_input](s.z) * s.i
    p_i, p_f, p_o = (None, None, None) if cell.weight_ph is None else cell.weight_ph.chunk(3)
    grad = torch.empty_like(upstream)
    da = upstream.new_zeros(*s.i.shape[:2], 4 * s.i.shape[-1])
    d_i, d_f, d_z, d_o = da.chunk(4, -1)
    dc = torch.zeros_like(s.c[0])
    for t in reversed(range(steps)):
        dh = grad[t]
        if t + 1 < steps:
            torch.addmm(upstream[t], da[t + 1], cell.weight_hh, out=dh)
        else:
            dh.copy_(upstream[t])
        if seen.lengths is None:
            dc = last_c.clone() if t == steps - 1 else dc
        else:
            dc += torch.where((seen.lengths.to(dc.device) == t + 1)[:, None], last_c, 0.0)
        dm = dh if cell.weight_hr is None else dh @ cell.weight_hr
        torch.mul(dm, slope_o[t], out=d_o[t])
        dc.addcmul_(dm, slope_c[t])
        if p_o is not None:
            dc.addcmul_(d_o[t], p_o)
        torch.mul(dc, slope_i[t], out=d_i[t])
        torch.mul(dc, slope_f[t], out=d_f[t])
        torch.mul(dc, slope_z[t], out=d_z[t])
        dc.mul_(s.f[t])
        if p_i is not None and p_f is not None:
            dc.addcmul_(d_i[t], p_i).addcmul_(d_f[t], p_f)
    return grad, (da.flatten(0, 1) @ cell.weight_ih).view_as(seen.x)
