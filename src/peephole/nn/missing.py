"""Gaps in sequences: what is put where an entry is missing, and how much each target counts that is not.

Sequences are (T, B, N), T visits of B subjects with N features, perhaps led by a replica axis. Everything is chosen
by `torch.where`, nothing multiplied by a mask: what lies under a gap, NaN and infinity among it, never shows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from peephole.nn import modes
from peephole.nn.networks import a_tensor

__all__ = ["FILLS", "WEIGHTS", "fill", "loss_weights", "observed"]

FILLS = ("zero", "scaled", "unit-variance", "model", "forward")
"""What may be put where an input is missing; see `fill`."""

WEIGHTS = ("visit", "subject", "feature", "global")
"""How the observed targets may share the loss; see `loss_weights`."""

EXPONENTS = {"scaled": 1.0, "unit-variance": -0.5}  # of the visit's share observed, by which it is multiplied
STEPS, SUBJECTS, FEATURES = -3, -2, -1


def observed(x: Tensor) -> Tensor:
    """Which entries of `x` are there: all that are not NaN. A mask of x's shape."""
    a_tensor("x", x)
    return ~x.isnan()


def fill(x: Tensor, observed: Tensor, how: str) -> Tensor:
    """`x` (T, B, N) without its gaps, by one of the fills that need no network.

    With r the share of a visit's features that are observed, the missing ones become zero under "zero", "scaled"
    (the visit is multiplied by r) and "unit-variance" (by 1 / sqrt(r)). Under "forward" they take the feature's last
    observed value, or zero before the first. "model" is a matter of `next_step_loss`.
    """
    _one_of("fill", how, FILLS)
    if how == "model":
        raise ValueError("fill 'model' takes the network's own estimates: next_step_loss(..., fill='model')")
    mask = as_mask(x, observed)
    if how == "forward":
        return _carried_forward(x, mask)
    filled = torch.where(mask, x, 0.0)
    if how == "zero":
        return filled
    share = mask.sum(FEATURES, keepdim=True).to(x.dtype) / x.shape[FEATURES]
    return filled * torch.where(share > 0, share, 1.0) ** EXPONENTS[how]


def loss_weights(observed: Tensor, how: str, *, dtype: torch.dtype | None = None) -> Tensor:
    """The weight of each target in the loss, of the shape of `observed` (T, B, N), which marks those that are there.

    "visit": subjects weigh alike, of a subject its visits, of a visit its features. "subject": subjects weigh alike,
    of a subject all its targets. "feature": features weigh alike. "global": all targets weigh alike. Subjects, visits
    and features without a target do not count. The weights of a network sum to 1 and are zero where a target is
    missing; a network without a single target is refused.
    """
    _one_of("loss_weight", how, WEIGHTS)
    mask = observed.to(torch.bool)
    if how == "visit":
        each = mask.sum(FEATURES, keepdim=True)
        visits = _some(each, STEPS)
        count = _some(visits, SUBJECTS) * visits * each
    elif how == "subject":
        each = mask.sum((STEPS, FEATURES), keepdim=True)
        count = _some(each, SUBJECTS) * each
    elif how == "feature":
        each = mask.sum((STEPS, SUBJECTS), keepdim=True)
        count = _some(each, FEATURES) * each
    else:
        count = mask.sum((STEPS, SUBJECTS, FEATURES), keepdim=True)
    _refuse_nothing(count)
    # One reciprocal of a whole number, rounded once: on complete data it is the plain mean's factor to the bit.
    wide = torch.float32 if count.device.type == "mps" else torch.float64  # which has no other
    weight = count.clamp(min=1).to(wide).reciprocal().to(dtype or torch.get_default_dtype())
    return torch.where(mask, weight, 0.0)


def as_mask(x: Tensor, observed: Tensor) -> Tensor:
    """`observed` as truth values, if it is a mask of x's shape."""
    a_tensor("observed", observed)
    if observed.shape != x.shape:
        raise ValueError(f"observed has shape {tuple(observed.shape)}, x has {tuple(x.shape)}")
    return observed.to(torch.bool)


def gaps(x: Tensor, given: Tensor | None) -> Tensor | None:
    """Which entries count as observed: not NaN, and marked where marks are `given`. None if x has no gap at all.

    In a graph, where no number can be looked at, complete data has a mask too.
    """
    if given is not None:
        return as_mask(x, given) & observed(x)
    if not modes.readable(x):
        return observed(x)
    # A sum is NaN if any part of it is: one pass without a tensor of its own. Infinities are looked at again.
    if not x.detach().sum().isnan():
        return None
    seen = observed(x)
    return None if bool(seen.all()) else seen


def check(how: str, weight: str) -> None:
    """Raise unless both are known by name."""
    _one_of("fill", how, FILLS)
    _one_of("loss_weight", weight, WEIGHTS)


def _some(count: Tensor, axis: int) -> Tensor:
    """How many along the axis have anything."""
    return (count > 0).sum(axis, keepdim=True)


def _carried_forward(x: Tensor, mask: Tensor) -> Tensor:
    steps = torch.arange(x.shape[STEPS], device=x.device).view(-1, 1, 1)
    last = torch.where(mask, steps, -1).cummax(STEPS).values
    return torch.where(last >= 0, x.gather(STEPS, last.clamp(min=0)), 0.0)


def _refuse_nothing(count: Tensor) -> None:
    """In a graph, which knows no numbers, the loss of nothing is zero."""
    if not modes.readable(count):
        return
    empty = ~(count > 0).flatten(STEPS).any(-1)
    if not bool(empty.any()):
        return
    of = "" if empty.dim() == 0 else f" of network {int(empty.nonzero()[0])}"
    raise ValueError(
        f"no target{of} is observed, so there is no loss: targets are what is observed from the second visit on"
    )


def _one_of(what: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}: {', '.join(names)}")
