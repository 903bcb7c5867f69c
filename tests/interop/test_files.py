"""An LSTM in one file: it comes back bit for bit, and what is no such file is refused in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from peephole import PeepholeLSTM
from peephole.interop import InteropError, files

I, H = 3, 4
MODULES: list[Callable[[], Any]] = [
    lambda: PeepholeLSTM(I, H),
    lambda: PeepholeLSTM(
        I, H, 2, bias=False, batch_first=True, dropout=0.5, bidirectional=True, gate_activation="hard_sigmoid",
        cell_activation="relu", output_activation="identity", init="chrono", backend="reference", dtype=torch.float64,
    ),
    lambda: PeepholeLSTM(I, H, 3, peepholes=False, dtype=torch.bfloat16),
    lambda: nn.LSTM(I, H),
    lambda: nn.LSTM(I, H, 2, bias=False, batch_first=True, dropout=0.25, bidirectional=True, proj_size=2),
]  # fmt: skip


@pytest.mark.parametrize("make", MODULES)
def test_there_and_back(make: Callable[[], Any], tmp_path: Path) -> None:
    """Class, options and every bit of the weights come back, and no random number is spent on it."""
    module, path = make(), tmp_path / "lstm.safetensors"
    files.save(module, path)
    before = torch.get_rng_state()
    back = files.load(path)
    assert torch.equal(torch.get_rng_state(), before)
    assert type(back) is type(module)
    assert repr(back) == repr(module)
    assert back.state_dict().keys() == module.state_dict().keys()
    for key, tensor in module.state_dict().items():
        assert tensor.dtype == back.state_dict()[key].dtype
        assert torch.equal(tensor, back.state_dict()[key])
    assert list(tmp_path.iterdir()) == [path]


def test_idle_dropout_warns_once(tmp_path: Path) -> None:
    """Dropout with one layer has warned where it was asked for, and is kept without another word."""
    with pytest.warns(UserWarning, match="dropout"):
        module = nn.LSTM(I, H, dropout=0.5)
    files.save(module, tmp_path / "a")
    assert files.load(tmp_path / "a").dropout == 0.5


class _Own(nn.LSTM):
    """A class of the user's."""


@pytest.mark.parametrize("module", [nn.GRU(I, H), _Own(I, H), nn.Sequential(nn.LSTM(I, H))])
def test_other_modules_are_refused(module: Any, tmp_path: Path) -> None:
    """What would not come back as the same class is not written."""
    with pytest.raises(InteropError, match=r"cannot be saved: PeepholeLSTM and torch\.nn\.LSTM can"):
        files.save(module, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A folder that is missing, a folder in place of the file and a missing file have the system's errors."""
    with pytest.raises(FileNotFoundError, match="no such folder"):
        files.save(nn.LSTM(I, H), tmp_path / "none" / "a")
    with pytest.raises(IsADirectoryError):
        files.save(nn.LSTM(I, H), tmp_path)
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(OSError, match=r"No such file|Is a directory"):
            files.load(path)


Content = tuple[dict[str, torch.Tensor], dict[str, Any]]


def _argument(name: str, value: Any) -> Callable[[Content], None]:
    return lambda content: content[1]["arguments"].update({name: value})


def _described(name: str, value: Any) -> Callable[[Content], None]:
    return lambda content: content[1].update({name: value})


def _tensor(name: str, value: torch.Tensor) -> Callable[[Content], None]:
    return lambda content: content[0].update({name: value})


BIAS, EVIL = torch.zeros(4 * H), "os.system"
TAMPERED: dict[str, tuple[Callable[[Content], Any], str]] = {
    "class": (_described("class", EVIL), "unknown class 'os.system'"),
    "class of another type": (_described("class", [1]), r"unknown class \[1\]"),
    "version": (_described("version", 2), "version 2 of the format"),
    "a flipped bit": (lambda content: content[0]["bias_l0"].__setitem__(3, 1.0), "not those that were saved"),
    "no digest": (lambda content: content[1].pop("sha256"), "are not what"),
    "no arguments": (lambda content: content[1].pop("arguments"), "are not what"),
    "arguments of another kind": (_described("arguments", 3), "the arguments are not those of PeepholeLSTM"),
    "one more argument": (_argument("proj_size", 2), "the arguments are not those of PeepholeLSTM"),
    "activation": (_argument("gate_activation", "exec"), "unknown activation 'exec'"),
    "backend": (_argument("backend", "exec"), "unknown backend 'exec'"),
    "init": (_argument("init", "exec"), "init one of"),
    "a number as flag": (_argument("bias", 1), "bias = 1 is not of type bool"),
    "a flag as number": (_argument("num_layers", True), "num_layers = True is not of type int"),
    "dropout": (_argument("dropout", float("nan")), "dropout is a share"),
    "a huge width": (_argument("hidden_size", 2**62), "has shape .* say"),
    "a huge input": (_argument("input_size", 10**30), "'weight_ih_l0' has shape"),
    "no layers": (_argument("num_layers", 0), "none of its parameters"),
    "minus a layer": (_argument("num_layers", -1), "none of its parameters"),
    "very many layers": (_argument("num_layers", 10**12), "1000000000000 layers, and 4 tensors"),
    "another direction": (_argument("bidirectional", True), "_l0_reverse' is missing"),
    "a tensor more": (_tensor("weight", BIAS), "'weight' is none of its parameters"),
    "a name with a line's end": (_tensor("a\n\x1b[2J", BIAS), r"'a\\n\\x1b\[2J' is none"),
    "a wrong shape": (_tensor("bias_l0", BIAS[1:]), r"'bias_l0' has shape \(15,\), its arguments say \(16,\)"),
    "a wrong type": (_tensor("bias_l0", BIAS.double()), "one floating-point type"),
    "whole numbers": (
        lambda content: content[0].update({key: t.int() for key, t in content[0].items()}),
        "one floating-point type",
    ),
}


@pytest.mark.parametrize(("tamper", "message"), TAMPERED.values(), ids=TAMPERED)
def test_what_was_tampered_with(tamper: Callable[[Content], Any], message: str, tmp_path: Path) -> None:
    """A file that is not what it says is refused in one line that names it, whatever was changed."""
    path = tmp_path / "a.safetensors"
    files.save(PeepholeLSTM(I, H), path)
    with safe_open(path, "pt") as file:
        described = json.loads(file.metadata()["peephole"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    content = tensors, described
    tamper(content)
    save_file(tensors, path, {"peephole": json.dumps(described)})
    with pytest.raises(InteropError, match=message) as raised:
        files.load(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 40, 500, -1])
def test_a_truncated_file(kept: int, tmp_path: Path) -> None:
    """A file that ends early, wherever, is refused in one line."""
    path = tmp_path / "a.safetensors"
    files.save(PeepholeLSTM(I, H), path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InteropError, match="not a whole safetensors file") as raised:
        files.load(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"peephole": "{"}, {"peephole": "[" * 100000}])
def test_other_files(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    """Safetensors of another origin, a pickle and a text are refused."""
    path = tmp_path / "a.safetensors"
    save_file({"weight": BIAS}, path, metadata)
    with pytest.raises(InteropError, match=r"no LSTM that|not what peephole"):
        files.load(path)
    torch.save(nn.LSTM(I, H).state_dict(), path)
    with pytest.raises(InteropError, match="not a whole safetensors file"):
        files.load(path)


def test_a_missing_safetensors_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without safetensors the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'peephole\[onnx\]'"):
        files.load(tmp_path / "a")
