"""To ONNX and back, judged by ONNX Runtime; and what must be refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peephole import PeepholeLSTM
from peephole.init.layouts import ONNX, Layout
from peephole.interop import DisagreementError, InteropError, graph
from peephole.interop import onnx as ours
from peephole.nn.exported import ACTIVATIONS

I, H = 3, 5
SHAPES = list(itertools.product((1, 3), *[(False, True)] * 4))  # layers, both directions, batch first, bias, peepholes


def drawn(module: Any, std: float = 0.4) -> Any:
    """A module whose every parameter has its part in the outputs."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std, generator=generator)
    return module


def lstm(layers: int, both: bool, batch_first: bool, bias: bool, peepholes: bool) -> PeepholeLSTM:
    """A layer of that shape, and of functions that are not ONNX's own."""
    made: PeepholeLSTM = drawn(
        PeepholeLSTM(
            I, H, layers, bidirectional=both, batch_first=batch_first, bias=bias, peepholes=peepholes,
            gate_activation="hard_sigmoid", output_activation="identity",
        )
    )  # fmt: skip
    return made


def session(path: Path) -> Any:
    """ONNX Runtime, without its warning of inputs that may be left out."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def far(got: Any, wanted: torch.Tensor) -> float:
    """The greatest difference over the root mean square."""
    return float(np.abs(got - wanted.detach().numpy()).max() / wanted.detach().square().mean().sqrt())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_there_and_back(shape: Any, tmp_path: Path) -> None:
    """The same module comes back bit for bit, and the file is valid and has one operator for each layer."""
    module, path = lstm(*shape), tmp_path / "lstm.onnx"
    assert ours.export(module, path) < 1e-5
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node].count("LSTM") == shape[0]
    back = ours.load(path)
    assert repr(back) == repr(module)
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, back.get_parameter(name))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("both", "batch_first"), list(itertools.product((False, True), repeat=2)))
def test_any_batch_and_length(both: bool, batch_first: bool, tmp_path: Path) -> None:
    """One file serves every T and B, with and without states and lengths: each input but x may be left out."""
    module = lstm(2, both, batch_first, bias=True, peepholes=True)
    ours.export(module, tmp_path / "a.onnx")
    runtime = session(tmp_path / "a.onnx")
    assert [value.name for value in runtime.get_inputs()] == ["x"]
    for (T, B), state, ends in itertools.product(((1, 1), (12, 4)), (False, True), (False, True)):
        x = torch.randn((B, T, I) if batch_first else (T, B, I))
        h, c = torch.randn((2, 2 + 2 * both, B, H))
        lengths = torch.arange(B).add(1).clamp(max=T)
        given = {"x": x.numpy()}
        given |= {"h0": h.numpy(), "c0": c.numpy()} if state else {}
        given |= {"lengths": lengths.numpy()} if ends else {}
        packed: Any = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False) if ends else x
        wanted, (h_last, c_last) = module(packed, (h, c) if state else None)
        if ends:
            wanted, _ = pad_packed_sequence(wanted, batch_first)
        got = dict(zip(graph.OUTPUTS, runtime.run(None, given), strict=True))
        y = got["y"][:, : wanted.shape[1]] if batch_first else got["y"][: len(wanted)]
        assert max(far(y, wanted), far(got["h"], h_last), far(got["c"], c_last)) < 1e-5
        if ends:
            whole = runtime.run(None, given | {"lengths": np.full(B, graph.WHOLE)})
            assert all(
                map(np.array_equal, whole, runtime.run(None, {k: v for k, v in given.items() if k != "lengths"}))
            )


def test_every_activation(tmp_path: Path) -> None:
    """All 125 triples of functions are exported, agree with ONNX Runtime and come back."""
    for functions in itertools.product(ACTIVATIONS, repeat=3):
        names: dict[str, Any] = dict(
            zip(("gate_activation", "cell_activation", "output_activation"), functions, strict=True)
        )
        module = drawn(PeepholeLSTM(I, H, bidirectional=True, **names), std=0.2)
        ours.export(module, tmp_path / "a.onnx")
        assert repr(ours.load(tmp_path / "a.onnx")) == repr(module)


def test_torch_s_own(tmp_path: Path) -> None:
    """An `nn.LSTM` with its two biases is exported, and comes back as `from_torch` would have it."""
    module = drawn(nn.LSTM(I, H, 2, bidirectional=True, batch_first=True))
    ours.export(module, tmp_path / "a.onnx")
    back, wanted = ours.load(tmp_path / "a.onnx"), PeepholeLSTM.from_torch(module, peepholes=False)
    assert repr(back) == repr(wanted)
    assert all(map(torch.equal, back.parameters(), wanted.parameters()))


def test_dropout_is_left_out(tmp_path: Path) -> None:
    """A module in training is exported as in evaluation, and still trains."""
    module = drawn(PeepholeLSTM(I, H, 2, dropout=0.9))
    before = torch.get_rng_state()
    ours.export(module, tmp_path / "a.onnx")
    assert module.training
    assert torch.equal(torch.get_rng_state(), before)
    assert ours.load(tmp_path / "a.onnx").dropout == 0


WRONG: dict[str, tuple[str, Any]] = {
    "peepholes as ours, i f o": ("interop.graph.layouts.ONNX", Layout(ONNX.gates, ("i", "f", "o"))),
    "peepholes as o i f": ("interop.graph.layouts.ONNX", Layout(ONNX.gates, ("o", "i", "f"))),
    "gates as ours, i f c o": ("interop.graph.layouts.ONNX", Layout(("i", "f", "c", "o"), ("i", "o", "f"))),
    "another hard sigmoid": ("nn.exported.ACTIVATIONS", ACTIVATIONS | {"hard_sigmoid": ("HardSigmoid", (0.2, 0.5))}),
    "tanh for the identity": ("nn.exported.ACTIVATIONS", ACTIVATIONS | {"identity": ("Tanh", None)}),
}


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG)
def test_a_wrong_layout_is_not_written(name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with peepholes or gates in another order ONNX Runtime disagrees, and the file before stays as it was."""
    path, module = tmp_path / "a.onnx", lstm(1, True, False, bias=True, peepholes=True)
    path.write_text("before")
    monkeypatch.setattr(f"peephole.{name}", value)
    with pytest.raises(DisagreementError, match="ONNX Runtime's y differs from the module's by"):
        ours.export(module, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_small_peephole_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: peepholes of a hundredth in the wrong order are found out too."""
    module = lstm(1, False, False, bias=True, peepholes=True)
    with torch.no_grad():
        module.get_parameter("weight_ph_l0").div_(100)
    monkeypatch.setattr("peephole.interop.graph.layouts.ONNX", WRONG["peepholes as ours, i f o"][1])
    with pytest.raises(DisagreementError, match="differs"):
        ours.export(module, tmp_path / "a.onnx")


@pytest.mark.parametrize("std", [0.0, 1e-4, 3.0])
def test_weights_of_any_size(std: float, tmp_path: Path) -> None:
    """Networks that are silent, weak or beyond any sensible start are exported too: rounding is not disagreement."""
    for functions in itertools.product(("sigmoid", "hard_sigmoid"), ("tanh",), ("tanh", "identity", "relu")):
        names: dict[str, Any] = dict(
            zip(("gate_activation", "cell_activation", "output_activation"), functions, strict=True)
        )
        ours.export(drawn(PeepholeLSTM(I, 64, 2, bidirectional=True, **names), std), tmp_path / "a.onnx")


def _nan() -> PeepholeLSTM:
    module = PeepholeLSTM(I, H)
    nn.init.constant_(module.get_parameter("bias_l0"), np.nan)
    return module


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.GRU(I, H), "GRU is no LSTM"),
        (nn.Sequential(nn.LSTM(I, H)), r"torch\.onnx\.export"),
        (nn.LSTM(I, H, proj_size=2), "proj_size = 2"),
        (PeepholeLSTM(I, H, dtype=torch.float64), r"module\.float\(\)"),
        (PeepholeLSTM(I, H, device="meta"), "no numbers"),
        (_nan(), "bias_l0 holds NaN"),
        (drawn(PeepholeLSTM(I, H, gate_activation="identity", output_activation="identity"), 1e9), "cannot be checked"),
        (drawn(PeepholeLSTM(I, 64, 2, gate_activation="tanh"), 10), "rounding to float32 alone moves it"),
    ],
)
def test_what_cannot_be_exported(module: Any, message: str, tmp_path: Path) -> None:
    """What ONNX has not, or ONNX Runtime could not check, is refused in one line, and nothing is written."""
    with pytest.raises(InteropError, match=message), np.errstate(over="ignore"):
        ours.export(module, tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


def plain(**changed: Any) -> Any:
    """A graph as another program would write it: an LSTM, its direction squeezed, no more."""
    rng = np.random.default_rng(0)
    shapes = {"W": (1, 4 * H, I), "R": (1, 4 * H, H), "B": (1, 8 * H), "P": (1, 3 * H)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    arrays |= {"axes": np.array([1])} | changed.pop("arrays", {})
    attributes = {"hidden_size": H} | changed.pop("attributes", {})
    slots = changed.pop("slots", ["x", "W", "R", "B", "", "", "", "P"])
    nodes = [helper.make_node("LSTM", slots, ["Y"], **attributes), helper.make_node("Squeeze", ["Y", "axes"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3) for name in ("x", "y")]
    made = helper.make_graph(
        changed.pop("nodes", nodes), "g", changed.pop("inputs", values[:1]), changed.pop("outputs", values[1:]),
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert not changed
    return model


def test_a_file_of_another_program(tmp_path: Path) -> None:
    """A plain LSTM of another origin is read: two biases, names in small letters, the usual functions."""
    path = tmp_path / "a.onnx"
    onnx.save(plain(attributes={"activations": ["sigmoid", "TANH", "tanh"]}), path)
    module, x = ours.load(path), torch.randn(7, 2, I)
    assert repr(module) == "PeepholeLSTM(3, 5)"
    assert far(session(path).run(None, {"x": x.numpy()})[0], module(x)[0]) < 1e-5


def test_a_state_of_zeros_is_read(tmp_path: Path) -> None:
    """States that other programs spell out as zeros, of any shape that they compute, are the module's own start."""
    zero = helper.make_node("ConstantOfShape", ["s"], ["h"], value=numpy_helper.from_array(np.zeros(1, np.float32)))
    lstm = helper.make_node("LSTM", ["x", "W", "R", "B", "", "h", "h"], ["Y"], hidden_size=H)
    squeeze = helper.make_node("Squeeze", ["Y", "axes"], ["y"])
    path, x = tmp_path / "a.onnx", torch.randn(7, 2, I)
    onnx.save(plain(nodes=[zero, lstm, squeeze], arrays={"s": np.array([1, 2, H])}), path)
    assert far(session(path).run(None, {"x": x.numpy()})[0], ours.load(path)(x)[0]) < 1e-5


NODE = helper.make_node
ODD: dict[str, tuple[dict[str, Any], str]] = {
    "clip": ({"attributes": {"clip": 1.0}}, "clip = 1.0"),
    "coupled gates": ({"attributes": {"input_forget": 1}}, "input_forget = 1"),
    "layout": ({"attributes": {"layout": 1}}, "layout = 1"),
    "reverse": ({"attributes": {"direction": "reverse"}}, "direction 'reverse'"),
    "another function": ({"attributes": {"activations": ["Sigmoid", "Elu", "Tanh"]}}, "activation 'Elu'"),
    "another slope": (
        {"attributes": {"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.2],
                        "activation_beta": [0.5]}},
        "activation 'HardSigmoid'",
    ),
    "too few functions": ({"attributes": {"activations": ["Sigmoid"]}}, "three are expected"),
    "another size": ({"attributes": {"hidden_size": 7}}, "hidden_size = 7"),
    "a short W": ({"arrays": {"W": np.zeros((1, 4, I), np.float32)}}, "W is float32"),
    "a flat R": ({"arrays": {"R": np.zeros(4, np.float32)}}, "W is float32"),
    "no units": ({"arrays": {"R": np.zeros((1, 0, 0), np.float32)}}, "is expected|hidden_size"),
    "whole numbers": ({"arrays": {"P": np.zeros((1, 3 * H), np.int64)}}, "P is int64"),
    "another axis": ({"arrays": {"axes": np.array([0])}}, "Squeeze of other axes"),
    "a learned state": (
        {"arrays": {"h": np.ones((1, 1, H), np.float32)}, "slots": ["x", "W", "R", "B", "", "h", "h", "P"]},
        "an initial state of its own",
    ),
    "a state of ones": (
        {"nodes": [NODE("ConstantOfShape", ["s"], ["h"], value=numpy_helper.from_array(np.ones(1, np.float32))),
                   NODE("LSTM", ["x", "W", "R", "", "", "h"], ["Y"]), NODE("Squeeze", ["Y", "axes"], ["y"])],
         "arrays": {"s": np.array([1, 2, H])}},
        "'h': an initial state of its own",
    ),
    "a state of whole numbers": (
        {"nodes": [NODE("Cast", ["i"], ["h"], to=1), NODE("LSTM", ["x", "W", "R", "", "", "", "h"], ["Y"]),
                   NODE("Squeeze", ["Y", "axes"], ["y"])],
         "arrays": {"i": np.ones((1, 1, H), np.int64)}},
        "'i': an initial state of its own",
    ),
    "a state that is a shape": (
        {"nodes": [NODE("Shape", ["x"], ["s"]), NODE("Cast", ["s"], ["h"], to=1),
                   NODE("LSTM", ["x", "W", "R", "", "", "h"], ["Y"]), NODE("Squeeze", ["Y", "axes"], ["y"])]},
        "'s': an initial state of its own",
    ),
    "a state out of the input": (
        {"nodes": [NODE("Slice", ["x", "a", "b", "a"], ["h"]), NODE("LSTM", ["x", "W", "R", "", "", "h"], ["Y"]),
                   NODE("Squeeze", ["Y", "axes"], ["y"])],
         "arrays": {"a": np.array([0]), "b": np.array([1])}},
        "an initial state that is made of the input 'x'",
    ),
    "constant lengths": (
        {"arrays": {"l": np.array([3], np.int32)}, "slots": ["x", "W", "R", "B", "l", "", "", "P"]},
        "lengths of the sequences are constant",
    ),
    "weights from outside": ({"slots": ["x", "x", "R", "B"]}, "not constants of the file"),
    "a constant input": ({"slots": ["W", "W", "R", "B"]}, "'W', which no operator puts out"),
    "no LSTM": ({"nodes": [NODE("Identity", ["x"], ["y"])]}, "'x', which no operator puts out, where the outputs"),
    "another operator": ({"nodes": [NODE("Tanh", ["x"], ["y"])]}, "the operator 'Tanh'"),
    "another domain": ({"nodes": [NODE("LSTM", ["x"], ["y"], domain="evil")]}, "the operator 'LSTM'|not a valid"),
    "a loop of itself": ({"nodes": [NODE("Identity", ["y"], ["y"])]}, "not a valid ONNX model"),
    "no output": ({"outputs": []}, "no output"),
    "Y as it is": (
        {"nodes": [NODE("LSTM", ["x", "W", "R"], ["y"], hidden_size=H)]}, "the output of 'LSTM', where the outputs"
    ),
    "its state in place of its outputs": (
        {"nodes": [NODE("LSTM", ["x", "W", "R"], ["", "Y"], hidden_size=H), NODE("Squeeze", ["Y", "axes"], ["y"])]},
        "'Y' is not the first output",
    ),
    "one beside the chain": (
        {"nodes": [NODE("LSTM", ["x", "W", "R"], ["Y"], hidden_size=H), NODE("LSTM", ["x", "W", "R"], ["Z"]),
                   NODE("Squeeze", ["Y", "axes"], ["y"])]},
        "outside of the chain",
    ),
    "one after another's state": (
        {"nodes": [NODE("LSTM", ["x", "W", "R"], ["Z", "h"]), NODE("LSTM", ["x", "W", "R", "", "", "h"], ["Y"]),
                   NODE("Squeeze", ["Y", "axes"], ["y"])]},
        "starts from, or ends by",
    ),
    "layers of unlike functions": (
        {"nodes": [NODE("LSTM", ["x", "W", "R"], ["Y"]), NODE("Squeeze", ["Y", "axes"], ["z"]),
                   NODE("LSTM", ["z", "R", "R"], ["Z"], activations=["Sigmoid", "Tanh", "Relu"]),
                   NODE("Squeeze", ["Z", "axes"], ["y"])]},
        "layers differ",
    ),
    "flattened": (
        {"nodes": [NODE("LSTM", ["x", "W", "R"], ["Y"]), NODE("Transpose", ["Y"], ["t"], perm=[0, 2, 1, 3]),
                   NODE("Reshape", ["t", "shape"], ["y"])],
         "arrays": {"shape": np.array([-1, 5])}},
        r"a Reshape to \[-1, 5\]",
    ),
    "a shape from outside": (
        {"nodes": [NODE("LSTM", ["x", "W", "R"], ["Y"]), NODE("Transpose", ["Y"], ["t"], perm=[0, 2, 1, 3]),
                   NODE("Reshape", ["t", "shape"], ["y"])],
         "inputs": [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * 3),
                    helper.make_tensor_value_info("shape", TensorProto.INT64, [3])]},
        "a Reshape to what an input says",
    ),
    "the batch first in the input alone": (
        {"nodes": [NODE("Transpose", ["x"], ["t"], perm=[1, 0, 2]), NODE("LSTM", ["t", "W", "R"], ["Y"]),
                   NODE("Squeeze", ["Y", "axes"], ["y"])]},
        "batch comes first",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), ODD.values(), ids=ODD)
def test_what_cannot_be_read(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A valid graph that no PeepholeLSTM equals is refused in one line that names the file and the reason."""
    path = tmp_path / "a.onnx"
    path.write_bytes(plain(**changed).SerializeToString())
    with pytest.raises(InteropError, match=message) as raised:
        ours.load(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def _external(model: Any) -> bytes:
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    tensor.ClearField("raw_data")
    return bytes(model.SerializeToString())


def _huge(model: Any) -> bytes:
    model.graph.initializer[0].dims[:] = [2**40, 2**20]
    return bytes(model.SerializeToString())


BROKEN: dict[str, tuple[Callable[[Any], bytes], str]] = {
    "empty": (lambda model: b"", "not a valid ONNX model"),
    "text": (lambda model: b"import os\n", "not an ONNX file"),
    "half": (lambda model: model.SerializeToString()[:300], "not an ONNX file"),
    "nested beyond reason": (lambda model: b"\x3a\x7f" * 5000, "not an ONNX file"),
    "weights elsewhere": (_external, "lie in another file"),
    "a tensor that claims to be huge": (_huge, "not a valid|cannot reshape|expected"),
}


@pytest.mark.parametrize(("spoil", "message"), BROKEN.values(), ids=BROKEN)
def test_malformed_files(spoil: Callable[[Any], bytes], message: str, tmp_path: Path) -> None:
    """What is no whole ONNX file is refused in one line."""
    path = tmp_path / "a.onnx"
    path.write_bytes(spoil(plain()))
    with pytest.raises(InteropError, match=message) as raised:
        ours.load(path)
    assert "\n" not in str(raised.value)


def test_damaged_files(tmp_path: Path) -> None:
    """Of files with bytes changed at random each is read or refused in one line; none ends otherwise."""
    whole = bytearray(plain().SerializeToString())
    # Not the numbers themselves, which may be any: what stands around them.
    structure = [k for k in range(len(whole)) if k < 200 or k > len(whole) - 300]
    rng, path = np.random.default_rng(0), tmp_path / "a.onnx"
    refused = []
    for _ in range(400):
        content = bytearray(whole)
        for place in rng.choice(structure, size=rng.integers(1, 5)):
            content[place] = rng.integers(256)
        path.write_bytes(content)
        try:
            ours.load(path)
        except InteropError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert not any("\n" in message for message in refused)
