"""The layer inside a model that `torch.onnx.export` traces: it becomes ONNX's own LSTM operator, peepholes included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from peephole.init.layouts import ONNX, TORCH
from peephole.nn.networks import State

# ONNX's names, and the alpha and beta of those that have them. There is no identity: 1 a + 0 is one.
ACTIVATIONS: dict[str, tuple[str, tuple[float, float] | None]] = {
    "sigmoid": ("Sigmoid", None),
    "tanh": ("Tanh", None),
    "identity": ("Affine", (1.0, 0.0)),
    "relu": ("Relu", None),
    "hard_sigmoid": ("HardSigmoid", (1 / 6, 0.5)),
}


def asked(weight_hh: Tensor) -> bool:
    """Whether a model is being traced for ONNX, and this is a single network, for the operator knows no replicas."""
    # The first question is cheap, and the answer of almost every call.
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export() and weight_hh.dim() == 2


def attributes(activations: Sequence[str], directions: int = 1) -> dict[str, Any]:
    """The operator's attributes that say which functions it has: gate, cell input and output, for each direction."""
    chosen = [ACTIVATIONS[name] for name in activations] * directions
    found: dict[str, Any] = {"activations": [name for name, _ in chosen]}
    scaled = [pair for _, pair in chosen if pair is not None]
    if scaled:
        found |= {"activation_alpha": [a for a, _ in scaled], "activation_beta": [b for _, b in scaled]}
    return found


def peephole_lstm(
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    h: Tensor,
    c: Tensor,
    lengths: Tensor | None,
    activations: Sequence[str],
) -> tuple[Tensor, State]:
    """The operator in place of the values, which tracing does not ask for: one layer, one direction."""
    w_ih, w_hh, w_ph, bias = weights
    (steps, batch, _), units = x.shape, w_hh.shape[-1]
    both = None if bias is None else torch.cat([_reordered(bias, TORCH.gates, ONNX.gates), torch.zeros_like(bias)])
    inputs = [
        x,
        _reordered(w_ih, TORCH.gates, ONNX.gates)[None],
        _reordered(w_hh, TORCH.gates, ONNX.gates)[None],
        None if both is None else both[None],
        None if lengths is None else lengths.to(torch.int32),
        h[None],
        c[None],
        None if w_ph is None else _reordered(w_ph, TORCH.peepholes, ONNX.peepholes)[None],
    ]
    y, h, c = torch.onnx.ops.symbolic_multi_out(
        "LSTM", inputs, {"hidden_size": units} | attributes(activations), dtypes=[x.dtype] * 3,
        shapes=[(steps, 1, batch, units), (1, batch, units), (1, batch, units)],
    )  # fmt: skip
    return y.squeeze(1), (h.squeeze(0), c.squeeze(0))


def _reordered(stacked: Tensor, given: Sequence[str], wanted: Sequence[str]) -> Tensor:
    blocks = stacked.chunk(len(given))
    return torch.cat([blocks[given.index(gate)] for gate in wanted])
