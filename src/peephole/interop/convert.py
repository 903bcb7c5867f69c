"""Weights between PeepholeLSTM and the cells of other frameworks: one table, `init.layouts`, and one loop each way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from peephole.init import layouts
from peephole.init.methods import Array
from peephole.init.torch import StackedCell, is_lstm, stacked_cells
from peephole.interop.errors import InteropError
from peephole.nn import PeepholeLSTM

FRAMEWORKS = {
    "torch": layouts.TORCH,
    "torchrecurrent": layouts.TORCHRECURRENT,
    "keras": layouts.KERAS,
    "flax-linen": layouts.LINEN,
    "flax-nnx": layouts.NNX,
    "flax-nnx-optimized": layouts.NNX_OPTIMIZED,
    "equinox": layouts.EQUINOX,
}
USUAL = ("sigmoid", "tanh", "tanh")  # gate, cell input, output: all that torch and Equinox have
FIXED = ("torch", "equinox")


def export_weights(module: nn.Module, framework: str) -> list[dict[str, Array]]:
    """The arrays that make a framework's own cells equal to an LSTM: one dictionary a layer, forward before reverse.

    Names and shapes are the framework's, dots between what is nested: `kernel` (I, 4H) in Keras, `ii.kernel` (I, H)
    in Flax's linen. `framework` is torch (`nn.LSTMCell`), torchrecurrent (`PeepholeLSTMCell`), keras, flax-linen,
    flax-nnx, flax-nnx-optimized or equinox. `module` is a PeepholeLSTM, `nn.LSTM` or `nn.LSTMCell`; two biases are
    summed. What the framework has no cell for is an `InteropError`: peepholes that are not zero, other functions.
    """
    layout = _layout(framework)
    if not is_lstm(module):
        raise InteropError(f"{type(module).__name__} is no LSTM: PeepholeLSTM, nn.LSTM and nn.LSTMCell are converted")
    return [_exported(cell, framework, layout) for cell in stacked_cells(module)]


def import_weights(
    framework: str, weights: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, bidirectional: bool = False,
    **options: Any,
) -> PeepholeLSTM:  # fmt: skip
    """A PeepholeLSTM with the weights of a framework's cells, given as `export_weights` returns them.

    One dictionary makes one layer; two directions of each layer follow one another with `bidirectional`. Arrays may be
    of NumPy, JAX or whatever `numpy.asarray` takes. Without biases in them the module has none, and peepholes only
    where they have. `options` are further arguments of PeepholeLSTM, such as `batch_first` and the activations.
    """
    layout = _layout(framework)
    cells = [weights] if isinstance(weights, Mapping) else [*weights]
    if not cells or len(cells) % (1 + bidirectional):
        raise InteropError(f"{len(cells)} cells make no LSTM{' of two directions' if bidirectional else ''}")
    read = [_read(framework, layout, cell, place) for place, cell in enumerate(cells)]
    tensors = dict(_named(read, bidirectional))
    inputs, units = tensors["weight_ih_l0"].shape[1], tensors["weight_hh_l0"].shape[1]
    with torch.random.fork_rng(devices=[]):  # what is overwritten must not cost the user's generator a draw
        module = PeepholeLSTM(
            inputs, units, len(cells) // (1 + bidirectional), bidirectional=bidirectional, bias="bias_l0" in tensors,
            peepholes="weight_ph_l0" in tensors, dtype=tensors["weight_ih_l0"].dtype, **options,
        )  # fmt: skip
    for name, parameter in module.state_dict().items():
        if name not in tensors or tensors[name].shape != parameter.shape or tensors[name].dtype != parameter.dtype:
            found = f"{tensors[name].dtype} {tuple(tensors[name].shape)}" if name in tensors else "missing"
            raise InteropError(f"{name} is {found}, and {parameter.dtype} {tuple(parameter.shape)} by the other arrays")
    if more := tensors.keys() - module.state_dict().keys():
        raise InteropError(f"{min(more)} in one cell, and not in the first")
    module.load_state_dict(tensors)
    return module


def _layout(framework: str) -> layouts.Layout:
    if framework not in FRAMEWORKS:
        raise InteropError(f"unknown framework {framework!r}: {', '.join(FRAMEWORKS)}")
    return FRAMEWORKS[framework]


def _exported(cell: StackedCell, framework: str, layout: layouts.Layout) -> dict[str, Array]:
    functions = (cell.gate, cell.cell_input, cell.output)
    if cell.cell_input != cell.output or (framework in FIXED and functions != USUAL):
        raise InteropError(
            f"{framework} has no cell with gates {cell.gate}, cell input {cell.cell_input}, output {cell.output}"
        )
    if cell.weight_hr is not None:
        raise InteropError("projections (proj_size) are not converted")
    blocks = _blocks(cell)
    if "V" not in layout.arrays.values() and any(array.any() for key, array in blocks.items() if key[0] == "V"):
        raise InteropError(f"{framework} has no peepholes, and those of layer {cell.layer} are not all zero")
    if not cell.biases and layout.needs_bias:
        blocks |= {f"b_{gate}": np.zeros(len(block), block.dtype) for gate, block in _gates(blocks)}
    return layout.write(blocks)


def _gates(blocks: Mapping[str, Array]) -> list[tuple[str, Array]]:
    return [(key[2:], block) for key, block in blocks.items() if key[0] == "U"]


def _blocks(cell: StackedCell) -> dict[str, Array]:
    """Each gate's W, U, V and b by the names of `init.weights`."""
    blocks = layouts.TORCH.split(_array(cell.weight_ih), "W") | layouts.TORCH.split(_array(cell.weight_hh), "U")
    if cell.weight_ph is not None:
        blocks |= layouts.TORCH.split(_array(cell.weight_ph), "V")
    if cell.biases:
        blocks |= layouts.TORCH.split(_array(sum(cell.biases[1:], cell.biases[0])), "b")
    return blocks


def _array(tensor: Tensor) -> Array:
    try:
        return np.array(tensor.detach().cpu().numpy())
    except (TypeError, NotImplementedError) as error:
        raise InteropError(
            f"weights of {tensor.dtype} on {tensor.device}: convert module.float() on the CPU"
        ) from error


def _read(framework: str, layout: layouts.Layout, cell: Mapping[str, Any], place: int) -> dict[str, Array]:
    """A cell's arrays, checked and split by gate."""
    if unknown := [name for name in cell if name not in layout.arrays]:
        raise InteropError(f"cell {place}: {unknown[0]!r} is no array of {framework}: {', '.join(layout.arrays)}")
    arrays = {name: np.asarray(array) for name, array in cell.items() if array is not None}
    for name, part in layout.arrays.items():
        if name not in arrays:
            if part[0] in "WU" or layout.needs_bias:
                raise InteropError(f"cell {place}: {name} is missing")
            continue
        array, stacked = arrays[name], len(part) == 1
        blocks = 1 if not stacked else 3 if part == "V" else 4
        long = array.shape[-1] if layout.transposed and array.ndim else array.shape[0] if array.ndim else 0
        if array.ndim != (2 if part[0] in "WU" else 1) or not long or long % blocks:
            raise InteropError(f"cell {place}: {name} has shape {array.shape}, which no LSTM has there")
        if array.dtype not in (np.float16, np.float32, np.float64):
            raise InteropError(f"cell {place}: {name} is {array.dtype}; float32 or float64 is wanted")
    return layout.read(arrays)


def _named(cells: Sequence[Mapping[str, Array]], bidirectional: bool) -> Iterator[tuple[str, Tensor]]:
    """The parameters of PeepholeLSTM, in its names."""
    ours = {"weight_ih": "W", "weight_hh": "U", "weight_ph": "V", "bias": "b"}
    for place, blocks in enumerate(cells):
        layer, reverse = divmod(place, 1 + bidirectional)
        for name, letter in ours.items():
            if f"{letter}_i" in blocks:
                stacked = np.array(layouts.TORCH.stack(blocks, letter))
                yield f"{name}_l{layer}" + "_reverse" * reverse, torch.from_numpy(stacked)
