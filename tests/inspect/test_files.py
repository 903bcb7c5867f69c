"""Models and batches from files: what is there is read, what is not what it says is one error, and nothing is run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from peephole import PeepholeLSTM, inspect, interop
from peephole.inspect.errors import InspectError

X = np.random.default_rng(0).standard_normal((4, 6, 3))


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch speaks of its own kernels
@pytest.mark.parametrize(
    "module",
    [
        nn.LSTM(3, 5, 2, bidirectional=True, proj_size=2),
        nn.LSTM(3, 5, bias=False, dtype=torch.float64),
        nn.LSTM(3, 5).half(),
    ],
)
@pytest.mark.parametrize("prefix", ["", "encoder.lstm."])
def test_plain_weights(module: nn.LSTM, prefix: str, tmp_path: Path) -> None:
    """The weights of an nn.LSTM alone tell its sizes, whatever leads their names and whatever stands beside them."""
    tensors = {prefix + name: value for name, value in module.state_dict().items()}
    save_file(tensors | {"head.weight": torch.zeros(2, 5)}, tmp_path / "m.safetensors")
    found: Any = inspect.load_model(tmp_path / "m.safetensors")
    x = torch.from_numpy(X).transpose(0, 1).to(found.weight_ih_l0.dtype)
    assert torch.equal(found(x)[0], module.to(x.dtype)(x)[0])


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "csv"])
def test_batches(suffix: str, tmp_path: Path) -> None:
    """The same batch from every kind of file, steps first."""
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, X)
    elif suffix == "npz":
        np.savez(path, x=X, y=np.zeros(3))
    elif suffix == "safetensors":
        save_file({"x": torch.from_numpy(X)}, path)
    else:
        rows = [f"s{k},{','.join(map(repr, row.tolist()))}" for k, sequence in enumerate(X) for row in sequence]
        path.write_text("sequence,a,b,c\n" + "\n".join(rows) + "\n", encoding="utf-8")
    found = inspect.load_batch(path, 3)
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), X.swapaxes(0, 1), rtol=1e-6)


def test_one_sequence_and_lengths(tmp_path: Path) -> None:
    """Two axes are one sequence; lengths, or a table's sequences of several lengths, become a packed batch."""
    np.save(tmp_path / "one.npy", X[0])
    found = inspect.load_batch(tmp_path / "one.npy", 3)
    assert isinstance(found, Tensor)
    assert found.shape == (6, 1, 3)
    np.savez(tmp_path / "x.npz", x=X, lengths=[6, 2, 3, 6])
    packed = inspect.load_batch(tmp_path / "x.npz", 3)
    assert isinstance(packed, PackedSequence)
    assert pad_packed_sequence(packed)[1].tolist() == [6, 2, 3, 6]
    (tmp_path / "x.csv").write_text("a,sequence\n1,p\n2,p\n3,q\n", encoding="utf-8")
    table = inspect.load_batch(tmp_path / "x.csv", 1)
    assert isinstance(table, PackedSequence)
    assert pad_packed_sequence(table)[1].tolist() == [2, 1]


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path("sprung").touch, ())


def npy(array: Any) -> Callable[[Path], Any]:
    """Writes it as .npy, pickled where it must be."""
    return lambda path: np.save(path, array, allow_pickle=True)


def tensors(**given: Tensor) -> Callable[[Path], Any]:
    """Writes them as safetensors."""
    return lambda path: save_file({name: value.clone() for name, value in given.items()}, path)


def text(content: str) -> Callable[[Path], Any]:
    """Writes it."""
    return lambda path: path.write_text(content, encoding="utf-8")


LSTM = nn.LSTM(3, 5).state_dict()
MODELS: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "not safetensors": ("m.safetensors", text("hello"), "not a safetensors file"),
    "cut off": ("m.safetensors", lambda p: (tensors(**LSTM)(p), p.write_bytes(p.read_bytes()[:-9])), "cut off"),
    "no LSTM": ("m.safetensors", tensors(weight=torch.zeros(2, 2)), "holds no LSTM: none of its 1 tensors"),
    "two LSTMs": (
        "m.safetensors", tensors(**{f"{p}.{n}": v for p in "ab" for n, v in LSTM.items()}), "holds 2 LSTMs"
    ),
    "a shape that does not fit": (
        "m.safetensors", tensors(**LSTM | {"bias_ih_l0": torch.zeros(7)}), r"bias_ih_l0 is \(7,\)"
    ),
    "a tensor missing": (
        "m.safetensors", tensors(**{n: v for n, v in LSTM.items() if n != "bias_hh_l0"}), "bias_hh_l0 is missing"
    ),
    "a layer number that lies": (
        "m.safetensors", tensors(**LSTM, weight_ih_l9999=torch.zeros(20, 5)), "10000 layers, and 5 tensors"
    ),
    "whole numbers": ("m.safetensors", tensors(**{n: v.int() for n, v in LSTM.items()}), "a floating type is wanted"),
    "peepholes without a description": ("m.safetensors", tensors(**PeepholeLSTM(3, 5).state_dict()), "activations"),
    "a pickle": ("m.pt", lambda p: p.write_bytes(pickle.dumps(Trap())), "can run code and are not opened"),
    "a pickle by another name": ("m.safetensors", lambda p: p.write_bytes(pickle.dumps(Trap())), "not a safetensors"),
    "not ONNX": ("m.onnx", text("hello"), "ONNX"),
    "another suffix": ("m.txt", text("hello"), r"ends in \.safetensors or \.onnx"),
    "a folder": ("m.safetensors", lambda p: p.mkdir(), "no such file"),
    "nothing": ("m.safetensors", lambda p: None, "no such file"),
    "NaN in the weights": (
        "m.safetensors", tensors(**LSTM | {"bias_ih_l0": torch.full((20,), torch.nan)}),
        r"m\.safetensors: bias_ih_l0 holds 20 of 20"
    ),
}  # fmt: skip
BATCHES: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "wrong width": ("x.npy", npy(np.zeros((4, 6, 2))), r"sequences of 2 features .* the model takes 3"),
    "NaN": ("x.npy", npy(np.where(X > 1, np.nan, X)), "values are NaN or infinite"),
    "empty": ("x.npy", npy(np.zeros((0, 6, 3))), "an array of shape"),
    "four axes": ("x.npy", npy(np.zeros((2, 4, 6, 3))), "an array of shape"),
    "text": ("x.npy", npy(np.full((4, 6, 3), "a")), "an array of shape"),
    "objects": ("x.npy", npy(np.array([[[Trap()] * 3]], dtype=object)), "not a NumPy file of plain numbers"),
    "not NumPy": ("x.npy", text("hello"), r"not a NumPy file of plain numbers, or is cut off$"),
    "too large": ("x.npy", npy(1e300 * X), r"x\.npy: values that torch\.float32, the model's type, cannot hold"),
    "a table without a header": ("x.csv", text("1,2,3\n4,5,6\n"), "line 1: numbers, where the names of the features"),
    "not a zip": ("x.npz", text("hello"), "not a NumPy file"),
    "several arrays": ("x.npz", lambda p: np.savez(p, a=X, b=X), "the batch is the only array, or that named x"),
    "wrong lengths": ("x.npz", lambda p: np.savez(p, x=X, lengths=[1, 2, 3, 9]), "lengths must be 4 whole numbers"),
    "a hole in a table": ("x.csv", text("a,b,c\n1,2,\n"), "values are NaN"),
    "words in a table": ("x.csv", text("a,b,c\n1,2,x\n"), "line 2: could not convert"),
    "a ragged table": ("x.csv", text("a,b,c\n1,2\n"), "line 2: 2 values under a header of 3"),
    "an empty table": ("x.csv", text(""), "a header and at least one row"),
    "not text": ("x.csv", lambda p: p.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    "not safetensors": ("x.safetensors", text("hello"), "not a safetensors file"),
    "another suffix": ("x.xlsx", text("hello"), r"ends in \.npy"),
    "nothing": ("x.npy", lambda p: None, "no such file"),
}


def errors(name: str, made: Callable[[Path], Any], folder: Path) -> Path:
    """The file, made in the folder."""
    made(folder / name)
    return folder / name


@pytest.mark.parametrize("case", MODELS)
def test_bad_models(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is not what it says is one line, and no code is run from it."""
    monkeypatch.chdir(tmp_path)
    name, made, said = MODELS[case]
    np.save("x.npy", X)
    with pytest.raises((InspectError, interop.InteropError), match=said) as error:
        inspect.measure_files(errors(name, made, tmp_path), "x.npy")
    assert "\n" not in str(error.value).strip()
    assert not Path("sprung").exists()


@pytest.mark.parametrize("case", BATCHES)
def test_bad_batches(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that does not fit, or is not what it says, is one line, and no code is run from it."""
    monkeypatch.chdir(tmp_path)
    name, made, said = BATCHES[case]
    interop.files.save(nn.LSTM(3, 5), "m.safetensors")
    with pytest.raises(InspectError, match=said) as error:
        inspect.measure_files("m.safetensors", errors(name, made, tmp_path))
    assert "\n" not in str(error.value).strip()
    assert not Path("sprung").exists()


@pytest.mark.parametrize("suffix", ["safetensors", "onnx"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_saved_model_is_measured_as_it_is(suffix: str, batch_first: bool, tmp_path: Path) -> None:
    """From files or from memory: the same figures."""
    module = PeepholeLSTM(3, 5, 2, bidirectional=True, output_activation="identity", batch_first=batch_first)
    path = tmp_path / f"m.{suffix}"
    interop.files.save(module, path) if suffix == "safetensors" else interop.onnx.export(module, path)
    np.save(tmp_path / "x.npy", X)
    x = torch.from_numpy(X).float()
    here = inspect.measure(module, x if batch_first else x.transpose(0, 1), inspect.probe)
    there = inspect.measure_files(path, tmp_path / "x.npy")
    for one, other in zip(here.traces, there.traces, strict=True):
        for name in one.steps:
            np.testing.assert_allclose(one.steps[name], other.steps[name], rtol=1e-4, atol=1e-7)
