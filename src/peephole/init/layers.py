"""One layer of an LSTM on its own: a copy that can be rescaled, run on a batch and measured; `calibrate.py` asks."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from peephole.init.layouts import TORCH
from peephole.init.torch import StackedCell, stacked_cells
from peephole.theory import TheoryError

Quantity = Literal["h", "preactivation"]
Parts = Literal["cell-input", "all"]


@dataclass(frozen=True)
class Batch:
    """What enters a layer: x (T, B, I), and each sequence's length, longest first, unless all are whole."""

    x: Tensor
    lengths: Tensor | None = None

    def within(self, skip: int, reverse: bool) -> Tensor:
        """The steps (T, B) that count: inside the sequence, after the first `skip` of the direction's own time."""
        steps = torch.arange(self.x.shape[0], device=self.x.device)[:, None].expand(self.x.shape[:2])
        ends = self.x.shape[0] if self.lengths is None else self.lengths.to(self.x.device)
        return (steps < ends) & ((ends - 1 - steps if reverse else steps) >= skip)


def read(x: Any, observed: Any, fill: str | None, like: Tensor, batch_first: bool) -> Batch:
    """The user's batch, steps first, in the weights' type and place, nothing missing any more."""
    if not isinstance(x, (Tensor, PackedSequence)):
        raise TheoryError(f"x is a {type(x).__name__}: a tensor or a PackedSequence of sequences is needed")
    packed = isinstance(x, PackedSequence)
    data, mask = (part.data if isinstance(part, PackedSequence) else part for part in (x, observed))
    if data.shape[-1:] != like.shape[1:] or data.dim() not in ((2,) if packed else (2, 3)) or 0 in data.shape:
        wanted = "(steps, I) or three dimensions, I last" if not packed else "(steps of all, I), packed"
        raise TheoryError(f"x has shape {tuple(data.shape)}: {wanted}, none of them 0 and I = {like.shape[1]}")
    if fill not in (None, "zero"):
        raise TheoryError(f"fill = {fill!r}: 'zero', or None where nothing is missing")
    seen = _seen(data, mask)
    present = seen & ~data.isnan() if fill == "zero" else seen
    values = torch.where(present, data, 0)
    refuse_not_finite(x, values, "; say observed=, a mask, or fill='zero'")
    if not bool(present.any()):
        raise TheoryError("nothing in x is observed: there is nothing to measure")
    if not bool(values.any()):
        raise TheoryError("x is 0 wherever it is observed: there is no signal to measure")
    values = values.to(like)
    if isinstance(
        x, PackedSequence
    ):  # without their indices the sequences stay in the order of their lengths, longest first
        return Batch(*pad_packed_sequence(PackedSequence(values, x.batch_sizes)))
    if values.dim() == 2:
        return Batch(values.unsqueeze(1))
    return Batch(values.transpose(0, 1) if batch_first else values)


def _seen(data: Tensor, mask: Any) -> Tensor:
    if mask is None:
        return torch.ones_like(data, dtype=torch.bool)
    if not isinstance(mask, Tensor) or mask.shape != data.shape:
        shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise TheoryError(f"observed is {shape}, x has shape {tuple(data.shape)}: one mark for each entry is needed")
    return mask.to(data.device, torch.bool)


def refuse_not_finite(x: Tensor | PackedSequence, values: Tensor | None = None, hint: str = "") -> None:
    """Raise at the first of x, or of its `values`, that is not finite, with the indices that the user knows."""
    if values is None:
        values = x.data if isinstance(x, PackedSequence) else x
    if bool(values.isfinite().all()):
        return
    if isinstance(x, PackedSequence):
        values, _ = pad_packed_sequence(PackedSequence(values, x.batch_sizes, x.sorted_indices, x.unsorted_indices))
    at = tuple((~values.isfinite()).nonzero()[0].tolist())
    where = "step {}, sequence {}, input {}".format(*at) if isinstance(x, PackedSequence) else list(at)
    if bool(values[at].isnan()):
        raise TheoryError(f"NaN in the batch without missing-value support: x is nan first at {where}{hint}")
    raise TheoryError(f"infinity in the batch: x is {values[at].item()} first at {where}")


class Layer:
    """A layer of a module, both directions: its cells, and a copy of them that runs."""

    def __init__(self, module: nn.Module, number: int) -> None:
        self.own = [cell for cell in stacked_cells(module) if cell.layer == number]
        self._copy = _copied(module, self.own, number)
        self._cells = list(stacked_cells(self._copy))

    def rescale_(self, factor: float, parts: Parts, *, own: bool = False) -> None:
        """Give the copy, or the module itself, its own weights times a factor."""
        for target, source in zip(self.own if own else self._cells, self.own, strict=True):
            units = len(source.weight_hh) // 4
            first = TORCH.gates.index("c") * units
            rows = slice(first, first + units) if parts == "cell-input" else slice(None)
            target.weight_ih[rows] = source.weight_ih[rows] * factor
            target.weight_hh[rows] = source.weight_hh[rows] * factor

    def run(self, batch: Batch, state: tuple[Tensor, Tensor] | None = None) -> Batch:
        """The layer's outputs, zero after a sequence's end; `state` is h and c (directions, B, H) before them."""
        entering = batch.x if batch.lengths is None else pack_padded_sequence(batch.x, batch.lengths)
        y = self._copy.forward(entering, state)[0]  # `forward` itself: a module's hooks are not for these runs
        return Batch(y) if batch.lengths is None else Batch(pad_packed_sequence(y)[0], batch.lengths)

    def measure(self, quantity: Quantity, entering: Batch, leaving: Batch, skip: int) -> float:
        """Var(h), or the mean square of W x + U h + b over all four gates: all units, sequences and steps at once."""
        found = []
        for reverse, y in enumerate(leaving.x.chunk(len(self._cells), -1)):
            values = y if quantity == "h" else _preactivation(self._cells[reverse], entering.x, y, bool(reverse))
            found.append(values[entering.within(skip, bool(reverse))].double())
        if quantity == "h":
            return float(torch.cat(found).var(unbiased=False))
        return float(torch.cat(found).square().mean())


def _preactivation(cell: StackedCell, x: Tensor, y: Tensor, reverse: bool) -> Tensor:
    """W x + U h + b (T, B, 4H), h the output of the step before, in the direction's own time; without V c."""
    first = torch.zeros_like(y[:1])
    before = torch.cat([y[1:], first] if reverse else [first, y[:-1]])
    a = x @ cell.weight_ih.T + before @ cell.weight_hh.T
    for bias in cell.biases:
        a = a + bias
    return a


def _copied(module: nn.Module, own: list[StackedCell], number: int) -> Any:
    """A module of this one layer with weights of its own: nothing drawn, no dropout, steps first."""
    first = own[0].weight_ih
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):  # a cell is a layer of one direction
        new: Any = nn.LSTM(
            first.shape[1], len(first) // 4, bias=bool(own[0].biases), bidirectional=len(own) == 2,
            proj_size=0 if own[0].weight_hr is None else len(own[0].weight_hr), device="meta", dtype=first.dtype,
        ).to_empty(device=first.device)  # fmt: skip
        for to, of in zip(stacked_cells(new), own, strict=True):
            to.weight_ih.copy_(of.weight_ih)
            to.weight_hh.copy_(of.weight_hh)
            if to.weight_hr is not None and of.weight_hr is not None:
                to.weight_hr.copy_(of.weight_hr)
            for bias, its in zip(to.biases, of.biases, strict=True):
                bias.copy_(its)
        return new
    # Any other that tells its cells and names its parameters as torch does: itself, with one layer's parameters.
    new = copy.copy(module)
    end = re.compile(rf"_l{number}(_reverse)?$")
    new.__dict__["_parameters"] = {
        end.sub(r"_l0\1", name): nn.Parameter(value.detach().clone(), requires_grad=False)
        for name, value in module.named_parameters(recurse=False)
        if end.search(name)
    }
    new.input_size, new.num_layers, new.dropout, new.batch_first, new.training = first.shape[1], 1, 0.0, False, False
    return new
