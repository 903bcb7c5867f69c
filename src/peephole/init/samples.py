"""What a readout is fitted to, as rows: features, targets with classes as one-hot, and which targets are observed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from peephole.theory import TheoryError


class NotFiniteError(TheoryError):
    """A number that nothing can be fitted to; where it comes from, the caller may know better."""


def rows(inputs: int, outputs: int, features: Any, targets: Any, observed: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Features (rows, inputs), targets (rows, outputs) and a mask like these; rows without any target are left out."""
    _same_order(features, targets)
    features, targets, observed = (
        part.data if isinstance(part, PackedSequence) else part for part in (features, targets, observed)
    )
    _check_shapes(inputs, outputs, features, targets, observed)
    # float64 has to exist where the products are made
    place = torch.device("cpu") if features.device.type == "mps" else features.device
    x, y = features.detach().to(place).reshape(-1, inputs), targets.detach().to(place)
    classes = not y.is_floating_point()
    y = y.reshape(-1, 1 if classes else outputs)
    seen = torch.ones_like(y, dtype=torch.bool)
    if observed is not None:
        each = y.shape[1] if observed.shape == targets.shape else 1
        seen = observed.to(place, torch.bool).reshape(-1, each).expand_as(y)
    if classes:
        y, seen = _one_hot(y.long(), seen, outputs), seen.expand(-1, outputs)
    return _used(x, y, seen if classes else seen & ~y.isnan())


def _same_order(features: Any, targets: Any) -> None:
    if not isinstance(features, PackedSequence) or not isinstance(targets, PackedSequence):
        return
    orders = [part.sorted_indices for part in (features, targets)]
    if not torch.equal(features.batch_sizes, targets.batch_sizes) or (
        None not in orders and not torch.equal(*[order.cpu() for order in orders if order is not None])
    ):
        raise TheoryError("features and targets are packed in different orders, or of different lengths")


def _check_shapes(inputs: int, outputs: int, features: Any, targets: Any, observed: Any) -> None:
    if not isinstance(features, Tensor) or not isinstance(targets, Tensor):
        raise TheoryError(f"features and targets are tensors, not {type(features).__name__}, {type(targets).__name__}")
    lead = features.shape[:-1]
    wanted = [(*lead, outputs)] + ([lead] if outputs == 1 else [])
    if not targets.is_floating_point():
        wanted = [lead]
        if outputs == 1:
            raise TheoryError(
                f"targets of {targets.dtype} are classes, and a head of 1 output has only one: make the targets "
                "float, or the head of 2 outputs"
            )
    if features.shape[-1:] != (inputs,) or targets.shape not in wanted:
        raise TheoryError(
            f"features have shape {tuple(features.shape)}, targets {tuple(targets.shape)} of {targets.dtype}: a head "
            f"from {inputs} to {outputs} takes (..., {inputs}) and (..., {outputs}), or classes (...) of whole numbers"
        )
    if observed is not None and (not isinstance(observed, Tensor) or observed.shape not in (targets.shape, lead)):
        shape = tuple(observed.shape) if isinstance(observed, Tensor) else type(observed).__name__
        raise TheoryError(f"observed is {shape}, targets have shape {tuple(targets.shape)}: theirs, or {tuple(lead)}")


def _one_hot(labels: Tensor, seen: Tensor, count: int) -> Tensor:
    wrong = seen & ((labels < 0) | (labels >= count))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        hint = "" if labels[row, 0] >= 0 else "; where there is no label, say so by observed="
        raise TheoryError(
            f"class {int(labels[row, 0])} in row {row}: a head of {count} outputs has 0 to {count - 1}{hint}"
        )
    return (torch.where(seen, labels, 0) == torch.arange(count, device=labels.device)).to(torch.float64)


def _used(x: Tensor, y: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows with a target, zero for those missing; raises where one is not finite."""
    used = seen.any(1)
    if not bool(used.all()):
        x, y, seen = x[used], y[used], seen[used]
    y = y if bool(seen.all()) else torch.where(seen, y, 0)
    for name, part in (("features", x), ("targets", y)):
        # A sum is finite where all its terms are, and is taken in a fraction of the time; only then one by one.
        if not math.isfinite(part.sum().item()) and not bool(part.isfinite().all()):
            row, column = (~part.isfinite()).nonzero()[0].tolist()
            value, row = part[row, column].item(), int(used.nonzero()[row, 0])
            raise NotFiniteError(f"{name} hold {value}, first in row {row}, column {column}: nothing is fitted to that")
    return x, y, seen
