"""From the calls of an LSTM to the signals of each of its layers and directions, each in its own time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from peephole.init.layers import Batch, Layer
from peephole.init.torch import StackedCell, stacked_cells
from peephole.inspect.unroll import Sequences, Signals, back, unroll
from peephole.inspect.watch import Call

State = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Piece:
    """One layer in one direction during one call; `gradient` is with respect to each h(t) (T, B, P).

    `direct` is the part of it that comes from what is made of h(t) outside the layer, None where it cannot be told.
    """

    layer: int
    reverse: bool
    seen: Sequences
    signals: Signals
    gradient: Tensor | None
    direct: Tensor | None


@dataclass(frozen=True, eq=False)
class Plain:
    """A call in one form, whatever was given: steps first, states (layers directions, B, ...), longest first."""

    x: Tensor
    lengths: Tensor | None
    state: State | None
    y: Tensor | None
    last: State
    gradients: tuple[Tensor, Tensor, Tensor] | None
    rounding: float


def goes_on(before: Call, call: Call) -> bool:
    """Whether a call continues the one before, of as many sequences: it was handed the state that came out there.

    For a call of a single step some number of h or c must be one that came out before: what models do to the others
    on the way, such as masks or norms, is theirs.
    """
    if call.state is None or isinstance(call.x, PackedSequence) or isinstance(before.x, PackedSequence):
        return False
    if before.outputs[-1].shape != call.outputs[-1].shape:
        return False
    if torch.equal(call.state[0], before.outputs[-2]):
        return True
    pairs = zip(call.state, before.outputs[-2:], strict=True)
    return _steps(call) == 1 and any(bool(((given == out) & (out != 0)).any()) for given, out in pairs)


def _steps(call: Call) -> int:
    """How many steps a call that is not packed has."""
    if isinstance(call.module, nn.LSTMCell):
        return 1
    return int(call.x.shape[1 if getattr(call.module, "batch_first", False) and call.x.dim() == 3 else 0])


@torch.no_grad()
def pieces(call: Call, most: int | None) -> list[Piece]:
    """Each layer and direction of a call, on its first `most` sequences (of a packed batch, the longest)."""
    cells = [_detached(cell) for cell in stacked_cells(call.module)]
    plain = _plain(call, cells[0].weight_ih, most)
    seen = list(_sequences(call, cells, plain))
    signals = [
        unroll(part, f"{call.name or 'the LSTM'}, layer {cell.layer}{' reverse' * reverse}")
        for part, (cell, reverse) in zip(seen, _directions(cells), strict=True)
    ]
    gradients = _gradients(cells, seen, signals, plain)
    return [
        Piece(cell.layer, reverse, part, signal, *gradient)
        for (cell, reverse), part, signal, gradient in zip(_directions(cells), seen, signals, gradients, strict=True)
    ]


def _directions(cells: list[StackedCell]) -> list[tuple[StackedCell, bool]]:
    """Each cell, and whether it is its layer's second."""
    return [(cell, k > 0 and cells[k - 1].layer == cell.layer) for k, cell in enumerate(cells)]


def _detached(cell: StackedCell) -> StackedCell:
    def plain(weight: Tensor | None) -> Tensor | None:
        return None if weight is None else weight.detach()

    return replace(
        cell, weight_ih=cell.weight_ih.detach(), weight_hh=cell.weight_hh.detach(), weight_ph=plain(cell.weight_ph),
        weight_hr=plain(cell.weight_hr), biases=tuple(bias.detach() for bias in cell.biases),
    )  # fmt: skip


def _plain(call: Call, like: Tensor, most: int | None) -> Plain:
    h, c = call.outputs[-2:]
    rounding = torch.finfo(h.dtype).eps if h.is_floating_point() else 0.0
    if isinstance(call.module, nn.LSTMCell):
        return _plain_cell(call, like, most, rounding)
    y, x, lengths, order = call.outputs[0], call.x, None, None
    grads = [
        torch.zeros_like(out) if grad is None else grad
        for out, grad in zip(call.outputs, call.grads or [None] * 3, strict=True)
    ]
    if isinstance(x, PackedSequence):
        order, sizes = x.sorted_indices, x.batch_sizes
        x, lengths = pad_packed_sequence(PackedSequence(x.data, sizes))
        y, grads[0] = (pad_packed_sequence(PackedSequence(part, sizes))[0] for part in (y, grads[0]))
        lengths = None if bool((lengths == len(x)).all()) else lengths

    def steps_first(part: Tensor) -> Tensor:
        if part.dim() == 2:
            part = part.unsqueeze(1)
        elif getattr(call.module, "batch_first", False) and not isinstance(call.x, PackedSequence):
            part = part.transpose(0, 1)
        return part.detach()[:, :most].to(like)

    def state_of(part: Tensor) -> Tensor:
        part = part.detach() if part.dim() == 3 else part.detach().unsqueeze(1)
        part = part if order is None else part.index_select(1, order)
        return part[:, :most].to(like)

    given = None if call.state is None else (state_of(call.state[0]), state_of(call.state[1]))
    return Plain(
        steps_first(x), None if lengths is None else lengths[:most], given, steps_first(y), (state_of(h), state_of(c)),
        (steps_first(grads[0]), state_of(grads[1]), state_of(grads[2])) if call.grads else None, rounding,
    )  # fmt: skip


def _plain_cell(call: Call, like: Tensor, most: int | None, rounding: float) -> Plain:
    """A cell's call: one step of one layer, whose h is its output."""

    def step(part: Tensor) -> Tensor:
        part = part.detach() if part.dim() == 2 else part.detach().unsqueeze(0)
        return part[:most].unsqueeze(0).to(like)

    h, c = (step(part) for part in call.outputs)
    given = None if call.state is None else (step(call.state[0]), step(call.state[1]))
    gradients = None
    if call.grads:
        at_h, at_c = (
            torch.zeros_like(out) if grad is None else step(grad) for out, grad in zip((h, c), call.grads, strict=True)
        )
        gradients = (torch.zeros_like(h), at_h, at_c)
    return Plain(step(call.x), None, given, h, (h, c), gradients, rounding)


def _sequences(call: Call, cells: list[StackedCell], plain: Plain) -> Iterator[Sequences]:
    """What each layer and direction saw. The last layer's h is the output; those below run once more, on their own."""
    entering, top = plain.x, cells[-1].layer
    index = 0
    for number in range(top + 1):
        own = [cell for cell in cells if cell.layer == number]
        h_0, c_0 = (None, None) if plain.state is None else (part[index : index + len(own)] for part in plain.state)
        state = None if h_0 is None or c_0 is None else (h_0, c_0)
        y = plain.y if number == top else None
        if y is None:
            # As the model ran, with or without a graph: torch has a kernel for each, which round differently.
            with torch.set_grad_enabled(bool(call.grads)):
                y = _layer(call.module, number).run(Batch(entering, plain.lengths), state).x.detach()
        for k, (cell, h) in enumerate(zip(own, y.chunk(len(own), -1), strict=True)):
            x, h = (backwards(part, plain.lengths) if k else part for part in (entering, h))
            h0, c0 = (
                (torch.zeros_like(h[0]), h.new_zeros(h.shape[1], cell.weight_hh.shape[0] // 4))
                if state is None
                else (state[0][k], state[1][k])
            )
            before = torch.cat([h0.unsqueeze(0), h[:-1]])
            last = plain.last[0][index + k], plain.last[1][index + k]
            yield Sequences(cell, x, before, h, c0, last, plain.lengths, plain.rounding)
        entering, index = y, index + len(own)


def _layer(module: nn.Module, number: int) -> Layer:
    with torch.no_grad():  # it copies weights
        return Layer(module, number)


def _gradients(
    cells: list[StackedCell], seen: list[Sequences], signals: list[Signals], plain: Plain
) -> list[tuple[Tensor | None, Tensor | None]]:
    """The gradient with respect to each h(t), and its direct part, from the last layer down."""
    found: list[tuple[Tensor | None, Tensor | None]] = [(None, None)] * len(cells)
    if plain.gradients is None:
        return found
    upstream, at_h, at_c = plain.gradients
    for number in range(cells[-1].layer, -1, -1):
        own = [k for k, cell in enumerate(cells) if cell.layer == number]
        entering: Tensor | None = None
        for k, grad in zip(own, upstream.chunk(len(own), -1), strict=True):
            reverse = k > own[0]
            down = backwards(grad, plain.lengths) if reverse else grad
            down = with_last(down, at_h[k], plain.lengths)
            gradient, at_x = back(seen[k], signals[k], down, at_c[k])
            found[k] = gradient, down
            at_x = backwards(at_x, plain.lengths) if reverse else at_x
            entering = at_x if entering is None else entering + at_x
        assert entering is not None
        upstream = entering
    return found


def with_last(upstream: Tensor, at_h: Tensor, lengths: Tensor | None) -> Tensor:
    """The gradient with respect to each h(t) (T, B, P), that of each sequence's last h (B, P) added to it."""
    upstream = upstream.clone()
    if lengths is None:
        upstream[-1] += at_h
    else:
        upstream[lengths.to(upstream.device) - 1, torch.arange(upstream.shape[1], device=upstream.device)] += at_h
    return upstream


def backwards(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence (T, B, ...) with its steps in reverse, the padding after it left where it is."""
    if lengths is None:
        return x.flip(0)
    steps, ends = torch.arange(len(x), device=x.device)[:, None], lengths.to(x.device)
    order = torch.where(steps < ends, ends - 1 - steps, steps)
    return x.gather(0, order.unsqueeze(-1).expand_as(x))


def joined(parts: list[Piece]) -> Piece:
    """The pieces of calls that continue each other as one."""
    if len(parts) == 1:
        return parts[0]

    def together(tensors: list[Any]) -> Any:
        return None if tensors[0] is None else torch.cat(tensors)

    first = parts[0].seen
    seen = Sequences(
        first.cell, together([part.seen.x for part in parts]), together([part.seen.before for part in parts]),
        together([part.seen.h for part in parts]), together([part.signals.c_before for part in parts]), None, None,
        first.rounding,
    )  # fmt: skip
    signals = Signals(
        **{name: together([getattr(part.signals, name) for part in parts]) for name in vars(parts[0].signals)}
    )
    # What a call's last state gets from the calls after it has come back through time already: it is not direct.
    return Piece(parts[0].layer, parts[0].reverse, seen, signals, together([part.gradient for part in parts]), None)
