"""The cell against one that no one here wrote: the LSTM operator of ONNX Runtime, with peepholes, in float32."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

from peephole import PeepholeLSTM

T, B, I = 9, 5, 4
LENGTHS = torch.tensor([3, 9, 1, 7, 4])
GATES = (0, 3, 1, 2)  # i f g o as ONNX's i o f c
PEEPHOLES = (0, 2, 1)  # i f o as ONNX's i o f
# ONNX's LSTM has no identity; its Affine, 1 a + 0, is one.
NAMES = {"sigmoid": "Sigmoid", "tanh": "Tanh", "identity": "Affine", "relu": "Relu"}
EPS = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Problem:
    """A layer and what it is given."""

    lstm: PeepholeLSTM
    x: Tensor
    state: tuple[Tensor, Tensor] | None
    lengths: Tensor | None

    @classmethod
    def draw(cls, units: int, both: bool, output: str, backend: str, state: bool, lengths: bool) -> Problem:
        """Weights of the size of 1/sqrt(M), peepholes of 1/2 and biases, so that each has its part in the output."""
        torch.manual_seed(units)
        lstm = PeepholeLSTM(I, units, bidirectional=both, output_activation=output, backend=backend)
        for name, parameter in lstm.named_parameters():
            torch.nn.init.normal_(parameter, std=0.5 if parameter.dim() == 1 else 0.7 * parameter.shape[1] ** -0.5)
            assert name.startswith(("weight", "bias"))
        shape = (1 + both, B, units)
        initial = (torch.randn(shape), torch.randn(shape)) if state else None
        return cls(lstm, torch.randn(T, B, I), initial, LENGTHS if lengths else None)


def ours(problem: Problem) -> list[Tensor]:
    """The layer's outputs, padded with zeros, and its last h and c."""
    x: Any = problem.x
    if problem.lengths is not None:
        x = torch.nn.utils.rnn.pack_padded_sequence(x, problem.lengths, enforce_sorted=False)
    with torch.no_grad():
        y, (h, c) = problem.lstm(x, problem.state)
    if problem.lengths is not None:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y)
    return [y, h, c]


def theirs(problem: Problem, peepholes: tuple[int, ...] = PEEPHOLES) -> list[Tensor]:
    """The same by ONNX Runtime, the peepholes' blocks taken in the given order."""
    lstm = problem.lstm
    given = {"X": problem.x} | onnx_weights(lstm, peepholes)
    if problem.lengths is not None:
        given["sequence_lens"] = problem.lengths.int()
    if problem.state is not None:
        given["initial_h"], given["initial_c"] = problem.state
    arrays = {name: tensor.detach().numpy() for name, tensor in given.items()}
    model = onnx_model(lstm, arrays)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    y, h, c = (torch.from_numpy(array) for array in session.run(None, arrays))
    # (T, directions, B, M) there, (T, B, directions M) here.
    return [y.transpose(1, 2).flatten(2), h, c]


def onnx_weights(lstm: PeepholeLSTM, peepholes: tuple[int, ...]) -> dict[str, Tensor]:
    """W, R, B and P, directions first, gates in ONNX's order; the second of its two biases is zero."""
    by_direction: dict[str, list[Tensor]] = {"W": [], "R": [], "B": [], "P": []}
    for suffix in ("l0", "l0_reverse") if lstm.bidirectional else ("l0",):
        for name, kind in (("W", "weight_ih"), ("R", "weight_hh"), ("B", "bias")):
            by_direction[name].append(blocks(lstm, f"{kind}_{suffix}", GATES))
        by_direction["B"][-1] = torch.cat([by_direction["B"][-1], torch.zeros(4 * lstm.hidden_size)])
        by_direction["P"].append(blocks(lstm, f"weight_ph_{suffix}", peepholes))
    return {name: torch.stack(tensors) for name, tensors in by_direction.items()}


def blocks(lstm: PeepholeLSTM, name: str, order: tuple[int, ...]) -> Tensor:
    """A stacked parameter, its gates in another order."""
    stacked = lstm.get_parameter(name).detach()
    return stacked.reshape(len(order), lstm.hidden_size, *stacked.shape[1:])[list(order)].reshape(stacked.shape)


def onnx_model(lstm: PeepholeLSTM, arrays: dict[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """One LSTM node with its activations; inputs that are not given are left out by an empty name."""
    slots = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    directions = 1 + lstm.bidirectional
    names = [lstm.gate_activation, lstm.cell_activation, lstm.output_activation]
    affine: dict[str, Any] = {"activation_alpha": [1.0] * directions, "activation_beta": [0.0] * directions}
    node = helper.make_node(
        "LSTM",
        [slot if slot in arrays else "" for slot in slots],
        ["Y", "Y_h", "Y_c"],
        hidden_size=lstm.hidden_size,
        direction="bidirectional" if lstm.bidirectional else "forward",
        activations=[NAMES[name] for name in names] * directions,
        **(affine if lstm.output_activation == "identity" else {}),
    )
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    last = ["directions", "B", "M"]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["T", *last] if name == "Y" else last)
        for name in node.output
    ]
    graph = helper.make_graph([node], "lstm", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def farthest(got: list[Tensor], wanted: list[Tensor]) -> float:
    """The greatest difference of an element, over the root mean square of its tensor."""
    assert [a.shape for a in got] == [b.shape for b in wanted]
    ratios = [float((a - b).abs().max() / b.square().mean().sqrt()) for a, b in zip(got, wanted, strict=True)]
    assert np.isfinite(ratios).all()
    return max(ratios)


def tolerance(units: int) -> float:
    """What float32 alone does: independent roundings, each of standard deviation eps / sqrt(12), add up.

    A step's sums round I + M times and its activations some 25 times (ONNX Runtime's are rational approximations,
    good to a few units in the last place). T steps and two sides do so; 6 standard deviations cover the greatest
    of some thousand elements.
    """
    return 6 * EPS * float(np.sqrt(2 * T * (I + units + 25) / 12))


@pytest.mark.parametrize("backend", ["fused", "reference"])
@pytest.mark.parametrize("output", ["tanh", "identity"])
@pytest.mark.parametrize("units", [1, 3, 16, 33])
def test_equals_onnx_runtime(units: int, output: str, backend: str) -> None:
    """Outputs and last states are ONNX Runtime's: one and both directions, with and without states and lengths."""
    for both, state, lengths in itertools.product((False, True), repeat=3):
        problem = Problem.draw(units, both, output, backend, state, lengths)
        assert farthest(ours(problem), theirs(problem)) < tolerance(units), (both, state, lengths)


@pytest.mark.parametrize(
    "wrong", [order for order in itertools.permutations(range(3)) if order != PEEPHOLES], ids=lambda order: str(order)
)
def test_another_order_of_the_peepholes_fails(wrong: tuple[int, ...]) -> None:
    """Control: with the peepholes in any other order than i, o, f the outputs are far off."""
    problem = Problem.draw(16, True, "identity", "fused", state=True, lengths=True)
    assert farthest(ours(problem), theirs(problem, wrong)) > 1e4 * tolerance(16)


def test_the_identity_is_not_the_tanh() -> None:
    """Control: ONNX Runtime heeds the activations, for with the other output function it disagrees."""
    problem = Problem.draw(16, False, "identity", "fused", state=True, lengths=False)
    answer = ours(problem)
    problem.lstm.output_activation = "tanh"
    assert farthest(answer, theirs(problem)) > 1e4 * tolerance(16)
