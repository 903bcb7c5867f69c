"""An ONNX graph that is a chain of LSTM operators, read as a PeepholeLSTM. Nothing of it is run."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from peephole.init.methods import Array
from peephole.interop.errors import InteropError
from peephole.interop.operators import Layer, attributes_of, module_of
from peephole.nn import PeepholeLSTM

LARGEST = 2**31
# Operators that move numbers without changing them, and what makes lengths and shapes.
NEUTRAL = {
    "Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Gather", "Identity", "Less", "Mul", "Reshape", "Shape",
    "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
# Which of their inputs hold the numbers that they move, where it is not the first alone: places from and to.
NUMBERS = {"Concat": (0, None), "Mul": (0, None), "Where": (1, None), "ConstantOfShape": (0, 0), "Shape": (0, 0),
           "Less": (0, 0)}  # fmt: skip
SLOTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")


def read(path: str) -> PeepholeLSTM:
    """The module of the chain in that file."""
    model = _parsed(path)
    try:
        batch_first, layers = _Chain(model).follow()
        return module_of(layers, batch_first)
    except InteropError as error:
        raise InteropError(f"{path}: {error}") from None


def _parsed(path: str) -> Any:
    """The protobuf, if it is one and a valid model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if os.path.getsize(path) > LARGEST:
        raise InteropError(f"{path}: larger than the 2 GiB that an ONNX file can hold")
    with open(path, "rb") as file:
        content = file.read()
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        raise InteropError(f"{path}: not an ONNX file") from None
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise InteropError(f"{path}: the weights lie in another file; save the model in one")
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise InteropError(f"{path}: not a valid ONNX model ({' '.join(str(error).split())[:200]})") from None
    return model


class _Chain:
    """The graph by the names of its values."""

    def __init__(self, model: Any) -> None:
        self.graph = model.graph
        for node in self.graph.node:
            if node.domain not in ("", "ai.onnx") or node.op_type not in NEUTRAL | {"LSTM"}:
                raise InteropError(f"the operator {node.op_type!r}: only a chain of LSTM operators can be read")
        self.producer = {name: node for node in self.graph.node for name in node.output if name}
        self.initial = {tensor.name: tensor for tensor in self.graph.initializer}
        self.inputs = {value.name for value in self.graph.input}
        self.states: list[str] = []
        self.required = [value.name for value in self.graph.input if value.name not in self.initial]

    def follow(self) -> tuple[bool, list[Layer]]:
        """From the first output back to the input: whether the batch comes first, and the layers."""
        if not self.graph.output:
            raise InteropError("the graph has no output")
        value, last = self._swapped(self._through(self.graph.output[0].name))
        layers: list[Layer] = []
        while True:
            value, layer = self._layer(value)
            layers.insert(0, layer)
            if value in self.inputs:
                first = False
                break
            node = self.producer.get(value)
            if node is not None and node.op_type == "Transpose" and self._through(node.input[0]) in self.inputs:
                value, first = self._swapped(value)
                value = self._through(value)
                break
        if value in self.initial:
            raise InteropError(f"the LSTM reads {value!r}, a constant, in place of an input")
        if first != last:
            raise InteropError("the batch comes first in the input or in the output, and not in the other")
        for name in self.states:
            self._zero_or_given(name, value)
        if sum(node.op_type == "LSTM" for node in self.graph.node) != len(layers):
            raise InteropError("an LSTM operator stands outside of the chain from the input to the first output")
        return first, layers

    def _through(self, name: str) -> str:
        """The value itself, where it was only given other names."""
        while name in self.producer and self.producer[name].op_type == "Identity":
            name = self.producer[name].input[0]
        return name

    def _swapped(self, value: str) -> tuple[str, bool]:
        """What was transposed from steps first to batch first or back, and whether it was."""
        node = self.producer.get(value)
        if node is not None and node.op_type == "Transpose" and attributes_of(node).get("perm") == [1, 0, 2]:
            return self._through(node.input[0]), True
        return value, False

    def _layer(self, value: str) -> tuple[str, Layer]:
        """The LSTM that put out a value (T, B, directions H), and what it reads."""
        node, directions_joined = self._joined(value)
        slots = dict(zip(SLOTS, [*node.input, *[""] * len(SLOTS)], strict=False))
        found = [self._constant(slots[slot]) if slots[slot] else None for slot in "WRBP"]
        if any(slots[slot] and array is None for slot, array in zip("WRBP", found, strict=True)):
            raise InteropError("an LSTM whose weights are not constants of the file")
        layer = Layer.of(attributes_of(node), *found)
        if layer.sizes[0] == 2 and not directions_joined:
            raise InteropError(f"{value!r}: the two directions of an LSTM are not joined as in torch")
        self.states += [slots[slot] for slot in ("initial_h", "initial_c") if slots[slot]]
        if slots["sequence_lens"] and not self._leaves(slots["sequence_lens"]) & self.inputs - {*self.required[:1]}:
            raise InteropError("the lengths of the sequences are constant")
        return self._through(slots["X"]), layer

    def _joined(self, value: str) -> tuple[Any, bool]:
        """The LSTM whose Y (T, directions, B, H) became this value, and whether both directions could have."""
        node = self.producer.get(value)
        if node is not None and node.op_type == "Squeeze":
            if self._squeezed(node) != [1]:
                raise InteropError(f"{value!r}: a Squeeze of other axes than the direction")
            return self._lstm(node.input[0]), False
        if node is not None and node.op_type == "Reshape":
            source = self.producer.get(self._through(node.input[0]))
            if source is not None and attributes_of(source).get("perm") == [0, 2, 1, 3]:
                self._check_shape(value, node.input[1])
                return self._lstm(source.input[0]), True
        what = "which no operator puts out" if node is None else f"the output of {node.op_type!r}"
        raise InteropError(f"{value!r}, {what}, where the outputs of an LSTM, (steps, batch, units), are expected")

    def _check_shape(self, value: str, name: str) -> None:
        """Raise unless a shape has three numbers; where it is computed, from other shapes, it is taken at its word."""
        shape = self._constant(name)
        if shape is not None and shape.shape != (3,):
            raise InteropError(f"{value!r}: a Reshape to {shape.tolist()}, where (steps, batch, units) are expected")
        if shape is None and self._leaves(name) & self.inputs:
            raise InteropError(f"{value!r}: a Reshape to what an input says")

    def _lstm(self, name: str) -> Any:
        node = self.producer.get(self._through(name))
        if node is None or node.op_type != "LSTM" or node.output[0] != self._through(name):
            raise InteropError(f"{name!r} is not the first output of an LSTM")
        return node

    def _squeezed(self, node: Any) -> list[int] | None:
        if len(node.input) > 1:
            axes = self._constant(node.input[1])
            return None if axes is None else axes.tolist()
        found: list[int] | None = attributes_of(node).get("axes")
        return found

    def _constant(self, name: str) -> Array | None:
        """The numbers of a value that no input can change."""
        from onnx import numpy_helper

        name = self._through(name)
        tensor = self.initial.get(name) if name not in self.inputs else None
        node = self.producer.get(name)
        if node is not None and node.op_type == "Constant":
            tensor = attributes_of(node).get("value")
        if tensor is None:
            return None
        try:
            return np.array(numpy_helper.to_array(tensor))
        except (ValueError, TypeError) as error:
            raise InteropError(f"{name!r}: {' '.join(str(error).split())}") from None

    def _leaves(self, name: str) -> set[str]:
        """The inputs and constants that a value is made of."""
        leaves, waiting, seen = set(), [name], set()
        while waiting:
            value = waiting.pop()
            if value in seen or not value:
                continue
            seen.add(value)
            node = self.producer.get(value)
            if node is None or node.op_type == "Constant":
                leaves.add(value)
            elif node.op_type == "Shape":  # which says nothing of the numbers
                continue
            elif node.op_type == "LSTM":
                raise InteropError("an LSTM starts from, or ends by, what another one put out")
            else:
                waiting += [*node.input]
        return leaves

    def _zero_or_given(self, state: str, x: str) -> None:
        """Refuse an initial state that the file makes itself, of constants or of x: the module would start at zero."""
        waiting, seen = [state], set()
        while waiting:
            name = waiting.pop()
            node = self.producer.get(name)
            if name in seen or not name:
                continue
            seen.add(name)
            if node is not None and node.op_type == "LSTM":
                raise InteropError("an LSTM starts from, or ends by, what another one put out")
            first, last = (0, 0) if node is None else NUMBERS.get(node.op_type, (0, 1))
            sources = [] if node is None else list(node.input)[first:last]
            waiting += sources
            if name == x:
                raise InteropError(f"an initial state that is made of the input {x!r}, which PeepholeLSTM has not")
            if not sources and self._numbers(name).any():
                raise InteropError(f"{name!r}: an initial state of its own, which PeepholeLSTM has not")

    def _numbers(self, name: str) -> Array:
        """What the file says that a value holds: zero, where an input of the graph does without a default."""
        from onnx import numpy_helper

        node = self.producer.get(name)
        if node is not None and node.op_type == "ConstantOfShape":
            value = attributes_of(node).get("value")
            return np.zeros(1) if value is None else np.array(numpy_helper.to_array(value))
        tensor = self.initial.get(name)
        array = self._constant(name) if tensor is None else np.array(numpy_helper.to_array(tensor))
        return np.array([node is not None]) if array is None else array
