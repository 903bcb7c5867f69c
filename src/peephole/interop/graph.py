"""An LSTM written as an ONNX graph: one LSTM operator for each layer, and what brings its inputs into their shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from peephole.init import layouts
from peephole.init.methods import Array
from peephole.init.torch import StackedCell
from peephole.nn import exported

# Old enough for every runtime of the last years: LSTM and its neighbours have not changed since, but for bfloat16.
OPSET, IR = 17, 8
INPUTS, OUTPUTS = ("x", "h0", "c0", "lengths"), ("y", "h", "c")
WHOLE = -1  # the length of a sequence that goes on to the end


def write(cells: Sequence[StackedCell], batch_first: bool) -> Any:
    """The model (an `onnx.ModelProto`) of cells in the order of layers, forward before reverse.

    Its inputs are x (T, B, I), or (B, T, I) with `batch_first`, and three that may be left out: h0 and c0 (layers
    directions, B, H), zero by default, and lengths (B), of which -1 is the whole sequence. Outputs y, h and c.
    """
    from onnx import TensorProto, checker, helper

    layers = [[cell for cell in cells if cell.layer == number] for number in range(cells[-1].layer + 1)]
    units, directions = len(cells[0].weight_hh) // 4, len(layers[0])
    first, second = ("batch", "steps") if batch_first else ("steps", "batch")
    state: list[int | str] = [len(cells), "batch", units]
    described: dict[str, tuple[int, list[int | str]]] = {
        "x": (TensorProto.FLOAT, [first, second, cells[0].weight_ih.shape[1]]),
        "h0": (TensorProto.FLOAT, state),
        "c0": (TensorProto.FLOAT, state),
        "lengths": (TensorProto.INT64, ["batch"]),
        "y": (TensorProto.FLOAT, [first, second, directions * units]),
        "h": (TensorProto.FLOAT, state),
        "c": (TensorProto.FLOAT, state),
    }
    nodes = [*_entry(len(layers), batch_first)]
    arrays: dict[str, Any] = {
        "h0": np.zeros((len(cells), 1, units), np.float32),
        "c0": np.zeros((len(cells), 1, units), np.float32),
        "lengths": np.array([WHOLE], np.int64),
        "zero": np.array(0, np.int64),
        "cells": np.array([len(cells)], np.int64),
        "units": np.array([units], np.int64),
        "joined": np.array([0, 0, directions * units], np.int64),
    }
    for number, layer in enumerate(layers):
        arrays |= {f"{name}_l{number}": array for name, array in weights(layer).items()}
        nodes += _layer(number, layer, len(layers), batch_first)
    for name in "hc":
        nodes.append(helper.make_node("Concat", [f"{name}_l{k}" for k in range(len(layers))], [name], axis=0))
    values = {name: helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in described.items()}
    graph = helper.make_graph(
        nodes, "lstm", [values[name] for name in INPUTS], [values[name] for name in OUTPUTS],
        [_tensor(name, array) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(
        graph, producer_name="peephole", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR
    )
    checker.check_model(model, full_check=True)
    return model


def weights(layer: Sequence[StackedCell]) -> dict[str, Array]:
    """W, R, and where they are, B and P of a layer's directions, in ONNX's order."""
    rows = [_direction(cell) for cell in layer]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _direction(cell: StackedCell) -> dict[str, Array]:
    found = {"W": _reordered(cell.weight_ih, "W"), "R": _reordered(cell.weight_hh, "U")}
    if cell.biases:  # ONNX has two, of which the second is zero where we have one
        stacked = [_reordered(bias, "b") for bias in cell.biases]
        found["B"] = np.concatenate([*stacked, np.zeros_like(stacked[0])][:2])
    if cell.weight_ph is not None:
        found["P"] = _reordered(cell.weight_ph, "V")
    return found


def _reordered(stacked: Tensor, letter: str) -> Array:
    return layouts.ONNX.stack(layouts.TORCH.split(stacked.detach().cpu().numpy(), letter), letter)


def _entry(layers: int, batch_first: bool) -> Iterator[Any]:
    """The input with the steps first, every layer's part of the states, and a length for each sequence."""
    from onnx import TensorProto
    from onnx.helper import make_node

    if batch_first:
        yield make_node("Transpose", ["x"], ["x_l0"], perm=[1, 0, 2])
    entering = "x_l0" if batch_first else "x"
    yield make_node("Shape", [entering], ["steps"], start=0, end=1)
    yield make_node("Shape", [entering], ["batch"], start=1, end=2)
    yield make_node("Concat", ["cells", "batch", "units"], ["state"], axis=0)
    for name in ("h0", "c0"):  # what is left out has a batch of one
        yield make_node("Expand", [name, "state"], [f"{name}_all"])
        yield make_node("Split", [f"{name}_all"], [f"{name}_l{number}" for number in range(layers)], axis=0)
    yield make_node("Less", ["lengths", "zero"], ["whole"])
    yield make_node("Where", ["whole", "steps", "lengths"], ["ends"])
    yield make_node("Expand", ["ends", "batch"], ["ends_all"])
    yield make_node("Cast", ["ends_all"], ["ends_int32"], to=TensorProto.INT32)


def _layer(number: int, layer: Sequence[StackedCell], layers: int, batch_first: bool) -> Iterator[Any]:
    """The operator, and its outputs (T, directions, B, H) as (T, B, directions H)."""
    from onnx.helper import make_node

    of, cell, directions = f"_l{number}", layer[0], len(layer)
    entering = f"x{of}" if number or batch_first else "x"
    bias, peepholes = f"B{of}" if cell.biases else "", f"P{of}" if cell.weight_ph is not None else ""
    yield make_node(
        "LSTM",
        [entering, f"W{of}", f"R{of}", bias, "ends_int32", f"h0{of}", f"c0{of}", peepholes],
        [f"Y{of}", f"h{of}", f"c{of}"],
        hidden_size=len(cell.weight_hh) // 4,
        direction="bidirectional" if directions == 2 else "forward",
        **exported.attributes((cell.gate, cell.cell_input, cell.output), directions),
    )
    leaving = f"x_l{number + 1}" if number + 1 < layers else "y_steps_first" if batch_first else "y"
    yield make_node("Transpose", [f"Y{of}"], [f"Y{of}_batch_first"], perm=[0, 2, 1, 3])
    yield make_node("Reshape", [f"Y{of}_batch_first", "joined"], [leaving])
    if leaving == "y_steps_first":
        yield make_node("Transpose", [leaving], ["y"], perm=[1, 0, 2])


def _tensor(name: str, array: Array) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ascontiguousarray(array), name)
