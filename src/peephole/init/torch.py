"""Methods put into PyTorch modules: `nn.LSTM` and `PeepholeLSTM` (every layer and direction), and `nn.LSTMCell`."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from peephole.init.layouts import TORCH
from peephole.init.methods import STEPS, Array, Distribution, find
from peephole.init.weights import output_variance, weights
from peephole.theory import Cell, ExplosionError, TheoryError, Variances

Generator = torch.Generator | int | np.integer[Any] | None


@dataclass(frozen=True)
class StackedCell:
    """One layer in one direction: its parameters, gates stacked i, f, c, o and peepholes i, f, o; its activations."""

    weight_ih: Tensor
    weight_hh: Tensor
    weight_ph: Tensor | None = None
    weight_hr: Tensor | None = None
    biases: tuple[Tensor, ...] = ()
    layer: int = 0
    gate: str = "sigmoid"
    cell_input: str = "tanh"
    output: str = "tanh"  # torch's own; the paper's cell has the identity

    def cell(self, input_variance: float = 1.0) -> Cell:
        """The cell as the theory sees it."""
        (rows, inputs), peepholes = self.weight_ih.shape, self.weight_ph is not None
        return Cell(
            inputs, rows // 4, peepholes, gate=self.gate, cell_input=self.cell_input, output=self.output,
            input_variance=input_variance,
        )  # fmt: skip


@runtime_checkable
class HasStackedCells(Protocol):
    """A module that tells its cells itself: all that the functions here need of it."""

    def stacked_cells(self) -> Iterator[StackedCell]:
        """Each layer, forward before reverse."""


LSTM = TypeVar("LSTM", bound=nn.LSTM | nn.LSTMCell | HasStackedCells)


@overload  # an LSTM is an nn.Module too: the first that fits counts
def initialise_(  # type: ignore[overload-overlap]
    module: LSTM, name: str, *, generator: Generator = ..., distribution: Distribution | None = ..., steps: int = ...
) -> LSTM: ...
@overload
def initialise_(
    module: nn.Module,
    name: str,
    *,
    generator: Generator = ...,
    distribution: Distribution | None = ...,
    steps: int = ...,
) -> dict[str, nn.Module]: ...
def initialise_(
    module: Any,
    name: str,
    *,
    generator: Generator = None,
    distribution: Distribution | None = None,
    steps: int = STEPS,
) -> Any:
    """Draw weights and biases by the method of that name, in place; returns the LSTM that was given.

    Any other module is searched for LSTMs: then a dictionary of those that were touched, by name, comes back.

    Each gate's matrix is drawn on its own, with its own fan-in: a later layer's inputs are the units (of both
    directions, or what they are projected to) of the layer before, with their `output_variance` (1 where that
    explodes). Where there are two biases, the second becomes zero, for their sum counts.

    The same generator state gives the same numbers; so does the same number in place of a generator, and that in
    every framework. Without either, torch's default generator decides, and so `torch.manual_seed` does.
    `distribution` and `steps` are those of `init.weights`.

    A weight that is computed from others (parametrizations, pruning) is refused. On the device `meta` there is nothing
    to draw: initialise after `to_empty`.
    """
    method = find(name)

    def drawn(cell: Cell, seed: int, part: int, projected: int) -> dict[str, Array]:
        return weights(name, cell, seed, part=part, projected=projected, distribution=distribution, steps=steps)

    def variances(part: nn.Module, cell: Cell) -> Variances:
        try:
            return method.variances(cell)
        except TheoryError as error:
            raise TheoryError(f"{name} cannot initialise {part}: {error}") from error

    def leaving(cell: Cell) -> float:
        if method.variances(cell) == method.variances(replace(cell, input_variance=2 * cell.input_variance)):
            return 1.0  # whatever enters, this method draws the same
        try:
            return output_variance(name, cell, steps=steps)
        except ExplosionError:
            return 1.0

    return _fill_(module, variances, leaving, drawn, generator)


@overload
def variances_(  # type: ignore[overload-overlap]
    module: LSTM, v: Variances, *, generator: Generator = ..., distribution: Distribution = ...
) -> LSTM: ...
@overload
def variances_(
    module: nn.Module, v: Variances, *, generator: Generator = ..., distribution: Distribution = ...
) -> dict[str, nn.Module]: ...
def variances_(module: Any, v: Variances, *, generator: Generator = None, distribution: Distribution = "normal") -> Any:
    """Draw weights with the given variances, the same in every layer; biases become zero. Else as `initialise_`."""

    def drawn(cell: Cell, seed: int, part: int, projected: int) -> dict[str, Array]:
        return weights("normalized", cell, seed, variances=v, part=part, projected=projected, distribution=distribution)

    return _fill_(module, lambda part, cell: v, lambda cell: 1.0, drawn, generator)


def lstms(module: nn.Module) -> dict[str, nn.Module]:
    """The LSTMs in a module, by name; the module itself, if it is one, under the empty name."""
    framework = type(module).__module__.partition(".")[0]
    if framework in ("keras", "flax", "equinox"):  # on its torch backend, a layer of Keras is an nn.Module too
        raise TheoryError(f"a {type(module).__name__} of {framework}: peephole.init.{framework} is for these")
    if not isinstance(module, nn.Module):
        raise TheoryError(
            f"module is a {type(module).__name__}: a torch.nn.Module that is, or holds, an LSTM is needed"
        )
    found = {name: part for name, part in module.named_modules() if is_lstm(part)}
    if not found:
        raise TheoryError(
            f"no LSTM in {type(module).__name__}: nn.LSTM, nn.LSTMCell and PeepholeLSTM are covered, alone or inside "
            "any module"
        )
    return found


def is_lstm(module: nn.Module) -> bool:
    """Whether the module itself is an LSTM that the functions here cover."""
    return isinstance(module, (nn.LSTM, nn.LSTMCell, HasStackedCells))


def stacked_cells(module: nn.Module) -> Iterator[StackedCell]:
    """Each layer and direction of an LSTM, forward before reverse."""
    if isinstance(module, HasStackedCells):
        yield from module.stacked_cells()
    elif isinstance(module, nn.LSTMCell):
        yield _torch_s_own(module, "", 0)
    elif isinstance(module, nn.LSTM):
        for layer in range(module.num_layers):
            for direction in ("", "_reverse") if module.bidirectional else ("",):
                yield _torch_s_own(module, f"_l{layer}{direction}", layer)


def writable_cells(module: nn.Module) -> list[StackedCell]:
    """The same, where what is written into them stays: each array must be a parameter, not computed from others."""
    parameters = {id(parameter) for parameter in module.parameters()}
    cells = list(stacked_cells(module))
    for cell in cells:
        arrays = {name: getattr(cell, name) for name in ("weight_ih", "weight_hh", "weight_ph", "weight_hr")}
        for name, array in [*arrays.items(), *(("bias", bias) for bias in cell.biases)]:
            if array is not None and id(array) not in parameters:
                raise TheoryError(
                    f"{name} of layer {cell.layer} of {type(module).__name__} is not a parameter but computed from "
                    "others (a parametrization, weight_norm, pruning), so what is drawn would be lost: initialise first"
                )
    return cells


def seed_of(generator: Generator) -> int:
    """A number from a generator on any device, or from torch's default one; a number as it is."""
    if isinstance(generator, numbers.Integral) and not isinstance(generator, bool):
        return int(generator)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TheoryError(f"generator is a {type(generator).__name__}: a whole number, a torch.Generator or None")
    # Under `with torch.device("meta")` too, a seed must be a number.
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (1,), generator=generator, device=device).item())


def _fill_(
    module: nn.Module,
    variances: Callable[[nn.Module, Cell], Variances],
    leaving: Callable[[Cell], float],
    drawn: Callable[[Cell, int, int, int], dict[str, Array]],
    generator: Generator,
) -> Any:
    found = lstms(module)
    parts = [pair for part in found.values() for pair in _with_cells(part, variances, leaving)]
    seed = seed_of(generator)
    with torch.no_grad():
        for number, (part, cell) in enumerate(parts):
            projected = 0 if part.weight_hr is None else len(part.weight_hr)
            _copy_(part, drawn(cell, seed, number, projected))
    return module if "" in found else found


def _with_cells(
    module: nn.Module, variances: Callable[[nn.Module, Cell], Variances], leaving: Callable[[Cell], float]
) -> list[tuple[StackedCell, Cell]]:
    """Each layer's cell, its Var(x) what leaves the layer before; errors come before any weight is touched."""
    pairs: list[tuple[StackedCell, Cell]] = []
    entering = 1.0
    for part in writable_cells(module):
        if pairs and part.layer != pairs[-1][0].layer:
            entering = leaving(pairs[-1][1])
        cell = part.cell(entering)
        variances(module, cell).check(cell)
        pairs.append((part, cell))
    return pairs


def _torch_s_own(module: nn.LSTM | nn.LSTMCell, suffix: str, layer: int) -> StackedCell:
    w_ih, w_hh = (getattr(module, f"weight_{side}{suffix}") for side in ("ih", "hh"))
    biases = tuple(getattr(module, f"bias_{side}{suffix}") for side in ("ih", "hh")) if module.bias else ()
    return StackedCell(w_ih, w_hh, weight_hr=getattr(module, f"weight_hr{suffix}", None), biases=biases, layer=layer)


def _copy_(part: StackedCell, drawn: dict[str, Array]) -> None:
    targets = {"W": part.weight_ih, "U": part.weight_hh, "V": part.weight_ph, "b": next(iter(part.biases), None)}
    for letter, parameter in targets.items():
        if parameter is not None:
            parameter.copy_(torch.from_numpy(TORCH.stack(drawn, letter)))
    if part.weight_hr is not None:
        part.weight_hr.copy_(torch.from_numpy(drawn["P"]))
    for bias in part.biases[1:]:
        bias.zero_()
