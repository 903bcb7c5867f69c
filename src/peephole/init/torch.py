"""Methods put into PyTorch's own modules: `nn.LSTM` (every layer and direction) and `nn.LSTMCell`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from peephole.init.methods import Array, draw, find
from peephole.theory import Cell, TheoryError, Variances

ROWS = ("i", "f", "c", "o")  # the order in which torch stacks the gates' rows
Module = TypeVar("Module", bound=nn.Module)


def initialise_(module: Module, name: str, *, generator: torch.Generator | None = None) -> Module:
    """Draw the module's weights by the method of that name, in place; biases become zero.

    Each gate's matrix is drawn on its own, with its own fan-in: a later layer's inputs are the units
    (of both directions) of the layer before. The same generator state gives the same numbers.
    """
    method = find(name)
    return _fill_(module, method.variances, generator, method.orthogonal)


def variances_(module: Module, v: Variances, *, generator: torch.Generator | None = None) -> Module:
    """Draw the module's weights with the given variances, the same ones in every layer; biases become zero."""
    return _fill_(module, lambda cell: v, generator, orthogonal=False)


def _fill_(
    module: Module,
    variances: Callable[[Cell], Variances],
    generator: torch.Generator | None,
    orthogonal: bool,
) -> Module:
    seed = torch.randint(2**62, (1,), generator=generator).item()
    rng = np.random.default_rng(int(seed))
    with torch.no_grad():
        for suffix, inputs, units in _layers(module):
            # Table 1 and its kin are for the paper's cell; torch's own has tanh on the way out and no peepholes.
            cell = Cell(inputs, units, peepholes=False, output="tanh")
            v = variances(cell)
            v.check(cell)
            gates = draw(cell, v, rng, orthogonal)
            _copy_(getattr(module, f"weight_ih{suffix}"), [gates[f"W_{gate}"] for gate in ROWS])
            _copy_(getattr(module, f"weight_hh{suffix}"), [gates[f"U_{gate}"] for gate in ROWS])
            if module.bias:
                nn.init.zeros_(getattr(module, f"bias_ih{suffix}"))
                nn.init.zeros_(getattr(module, f"bias_hh{suffix}"))
    return module


def _layers(module: nn.Module) -> Iterator[tuple[str, int, int]]:
    """Suffix of the parameters' names, inputs and units, for each layer and direction."""
    if isinstance(module, nn.LSTMCell):
        yield "", module.input_size, module.hidden_size
    elif isinstance(module, nn.LSTM):
        if module.proj_size:
            raise TheoryError(f"proj_size = {module.proj_size}: projections are not covered yet")
        directions = ("", "_reverse") if module.bidirectional else ("",)
        for layer in range(module.num_layers):
            inputs = module.input_size if layer == 0 else module.hidden_size * len(directions)
            yield from ((f"_l{layer}{direction}", inputs, module.hidden_size) for direction in directions)
    else:
        raise TheoryError(f"{type(module).__name__} is not covered: nn.LSTM and nn.LSTMCell are")


def _copy_(parameter: torch.Tensor, blocks: list[Array]) -> None:
    parameter.copy_(torch.from_numpy(np.concatenate(blocks)))
