"""What an LSTM operator of ONNX says, and several of them as one PeepholeLSTM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from peephole.init import layouts
from peephole.init.methods import Array
from peephole.interop.errors import InteropError
from peephole.nn import PeepholeLSTM
from peephole.nn.exported import ACTIVATIONS


@dataclass(frozen=True)
class Layer:
    """What an LSTM operator says: stacked weights of its directions in ONNX's order, and its functions."""

    W: Array
    R: Array
    B: Array | None
    P: Array | None
    functions: tuple[str, str, str]

    @property
    def sizes(self) -> tuple[int, int]:
        """Directions and units."""
        return len(self.W), self.R.shape[2]

    @classmethod
    def of(
        cls, attributes: Mapping[str, Any], W: Array | None, R: Array | None, B: Array | None, P: Array | None
    ) -> Self:
        """The layer of that operator; refused where PeepholeLSTM has no such cell, or where shapes do not fit."""
        if W is None or R is None:
            raise InteropError("an LSTM without W or R")
        for name, usual in (("clip", None), ("input_forget", 0), ("layout", 0)):
            if attributes.get(name, usual) != usual:
                raise InteropError(f"an LSTM with {name} = {attributes[name]}, which PeepholeLSTM has not")
        direction = attributes.get("direction", b"forward").decode(errors="replace")
        if direction not in ("forward", "bidirectional"):
            raise InteropError(f"an LSTM in direction {direction!r}: forward and bidirectional can be read")
        D = 2 if direction == "bidirectional" else 1
        H, I = (array.shape[-1] if array.ndim == 3 else 0 for array in (R, W))
        wanted = {"W": (D, 4 * H, I), "R": (D, 4 * H, H), "B": (D, 8 * H), "P": (D, 3 * H)}
        for slot, array in zip("WRBP", (W, R, B, P), strict=True):
            if array is not None and (array.shape != wanted[slot] or array.dtype not in (np.float32, np.float64)):
                raise InteropError(f"{slot} is {array.dtype} {array.shape}: floating-point {wanted[slot]} is expected")
        if attributes.get("hidden_size", H) != H or 0 in (H, I):
            raise InteropError(f"hidden_size = {attributes.get('hidden_size')} with R {R.shape} and W {W.shape}")
        return cls(W, R, B, P, _functions(attributes, D))


def attributes_of(node: Any) -> dict[str, Any]:
    """An operator's attributes by name."""
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _functions(attributes: Mapping[str, Any], directions: int) -> tuple[str, str, str]:
    """Our names of the operator's activations, which must be the same in both directions."""
    names = [
        name.decode(errors="replace")
        for name in attributes.get("activations", [b"Sigmoid", b"Tanh", b"Tanh"] * directions)
    ]
    alphas, betas = (iter(attributes.get(f"activation_{letter}", [])) for letter in ("alpha", "beta"))
    known = {theirs.lower(): (ours, pair) for ours, (theirs, pair) in ACTIVATIONS.items()}
    found = []
    for name in names:
        ours, pair = known.get(name.lower(), (None, None))
        if ours is None or (
            pair is not None and not np.allclose((next(alphas, None) or 0, next(betas, None) or 0), pair)
        ):
            raise InteropError(f"the activation {name!r}, or its alpha and beta, which PeepholeLSTM has not")
        found.append(ours)
    if len(found) != 3 * directions or found[:3] != found[-3:]:
        raise InteropError(f"activations {names}: three are expected, the same in both directions")
    return found[0], found[1], found[2]


def module_of(layers: list[Layer], batch_first: bool) -> PeepholeLSTM:
    """The chain as one module, if its layers are of one kind."""
    first = layers[0]
    (D, H), kind = first.sizes, first.W.dtype
    for layer in layers[1:]:
        same = (layer.sizes, layer.functions, layer.B is None, layer.P is None, layer.W.dtype) == (
            first.sizes, first.functions, first.B is None, first.P is None, kind
        )  # fmt: skip
        if not same or layer.W.shape[2] != D * H:
            raise InteropError("the layers differ in units, directions, functions, bias or peepholes")
    gate, cell_input, output = first.functions
    with torch.random.fork_rng(devices=[]):
        module = PeepholeLSTM(
            first.W.shape[2], H, len(layers), bias=first.B is not None, batch_first=batch_first, bidirectional=D == 2,
            peepholes=first.P is not None, gate_activation=gate, cell_activation=cell_input, output_activation=output,
            dtype=torch.float64 if kind == np.float64 else torch.float32,
        )  # fmt: skip
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in _named(layers)})
    return module


def _named(layers: list[Layer]) -> Iterator[tuple[str, Array]]:
    """Our parameters, in our order."""
    for number, layer in enumerate(layers):
        for direction, end in enumerate((f"l{number}", f"l{number}_reverse")[: layer.sizes[0]]):
            stacked = {"weight_ih": ("W", layer.W[direction]), "weight_hh": ("U", layer.R[direction])}
            if layer.P is not None:
                stacked["weight_ph"] = "V", layer.P[direction]
            if layer.B is not None:
                one, two = np.split(layer.B[direction], 2)
                stacked["bias"] = "b", one + two if two.any() else one
            for name, (letter, array) in stacked.items():
                yield f"{name}_{end}", layouts.TORCH.stack(layouts.ONNX.split(array, letter), letter)
