"""Methods put into PyTorch modules: `nn.LSTM` and `PeepholeLSTM` (every layer and direction), and `nn.LSTMCell`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from peephole.init.methods import Array, draw, find
from peephole.theory import Cell, TheoryError, Variances

ROWS = ("i", "f", "c", "o")  # the order in which torch stacks the gates' rows
PEEPHOLES = ("i", "f", "o")  # and the order of the peepholes
Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class StackedCell:
    """One layer in one direction: its parameters, gates stacked i, f, c, o and peepholes i, f, o; its activations."""

    weight_ih: Tensor
    weight_hh: Tensor
    weight_ph: Tensor | None = None
    biases: tuple[Tensor, ...] = ()
    gate: str = "sigmoid"
    cell_input: str = "tanh"
    output: str = "tanh"  # torch's own; the paper's cell has the identity

    @property
    def cell(self) -> Cell:
        """The cell as the theory sees it."""
        (_, inputs), (_, units) = self.weight_ih.shape, self.weight_hh.shape
        peepholes = self.weight_ph is not None
        return Cell(inputs, units, peepholes, gate=self.gate, cell_input=self.cell_input, output=self.output)


@runtime_checkable
class HasStackedCells(Protocol):
    """A module that tells its cells itself: all that the functions here need of it."""

    def stacked_cells(self) -> Iterator[StackedCell]:
        """Each layer, forward before reverse."""


def initialise_(module: Module, name: str, *, generator: torch.Generator | None = None) -> Module:
    """Draw the module's weights by the method of that name, in place; biases become zero.

    Each gate's matrix is drawn on its own, with its own fan-in: a later layer's inputs are the units
    (of both directions) of the layer before. The same generator state gives the same numbers; without
    a generator, torch's default one decides, and so `torch.manual_seed` does.
    """
    method = find(name)

    def variances(cell: Cell) -> Variances:
        try:
            return method.variances(cell)
        except TheoryError as error:
            raise TheoryError(f"{name} cannot initialise {module}: {error}") from error

    return _fill_(module, variances, generator, method.orthogonal)


def variances_(module: Module, v: Variances, *, generator: torch.Generator | None = None) -> Module:
    """Draw the module's weights with the given variances, the same ones in every layer; biases become zero."""
    return _fill_(module, lambda cell: v, generator, orthogonal=False)


def _fill_(
    module: Module,
    variances: Callable[[Cell], Variances],
    generator: torch.Generator | None,
    orthogonal: bool,
) -> Module:
    parts = [(part, _checked(variances(part.cell), part.cell)) for part in _parts(module)]
    # Under `with torch.device("meta")` too, a seed must be a number.
    device = "cpu" if generator is None else generator.device
    seed = torch.randint(2**62, (1,), generator=generator, device=device).item()
    rng = np.random.default_rng(int(seed))
    with torch.no_grad():
        for part, v in parts:
            gates = draw(part.cell, v, rng, orthogonal)
            _copy_(part.weight_ih, [gates[f"W_{gate}"] for gate in ROWS])
            _copy_(part.weight_hh, [gates[f"U_{gate}"] for gate in ROWS])
            if part.weight_ph is not None:
                _copy_(part.weight_ph, [gates[f"V_{gate}"] for gate in PEEPHOLES])
            for bias in part.biases:
                nn.init.zeros_(bias)
    return module


def _checked(v: Variances, cell: Cell) -> Variances:
    """The same, or an error before any weight is touched."""
    v.check(cell)
    return v


def _parts(module: nn.Module) -> Iterator[StackedCell]:
    if isinstance(module, HasStackedCells):
        yield from module.stacked_cells()
    elif isinstance(module, nn.LSTMCell):
        yield _torch_s_own(module, "")
    elif isinstance(module, nn.LSTM):
        if module.proj_size:
            raise TheoryError(f"proj_size = {module.proj_size}: projections are not covered yet")
        for layer in range(module.num_layers):
            for direction in ("", "_reverse") if module.bidirectional else ("",):
                yield _torch_s_own(module, f"_l{layer}{direction}")
    else:
        raise TheoryError(f"{type(module).__name__} is not covered: nn.LSTM and nn.LSTMCell are, and PeepholeLSTM")


def _torch_s_own(module: nn.LSTM | nn.LSTMCell, suffix: str) -> StackedCell:
    w_ih, w_hh = (getattr(module, f"weight_{side}{suffix}") for side in ("ih", "hh"))
    biases = tuple(getattr(module, f"bias_{side}{suffix}") for side in ("ih", "hh")) if module.bias else ()
    return StackedCell(w_ih, w_hh, biases=biases)


def _copy_(parameter: Tensor, blocks: list[Array]) -> None:
    parameter.copy_(torch.from_numpy(np.concatenate(blocks)))
